"""`delayline node restore`: a node's data folder from a cold copy."""

from __future__ import annotations

import shutil
import time
from dataclasses import dataclass
from pathlib import Path

from delayline.names import ClusterNames
from node.beginning import TAKEN, expect_in_log, looked_at
from node.config import ConnectionConfig
from node.kafka.topics import TopicMissing, admin_client, describe
from node.own_stores import store_folder
from node.snapshot.errors import SnapshotError
from node.snapshot.folders import remove_folder, sync
from node.snapshot.manifest import Manifest
from node.snapshot.secrets import Secrets
from node.snapshot.taker import Transfer, Wanted
from ops.clients.zookeeper import registry, required_keys
from ops.errors import ConflictError, NotFoundError, OperatorError
from ops.node.cold_copy import ColdCopy
from store.identity import FORMAT, Identity
from store.kv import StoreError


@dataclass(frozen=True, slots=True)
class Restored:
    """What a data folder has now."""

    manifest: Manifest
    seconds: float


def restore(config: ConnectionConfig, url: str, data_dir: Path) -> Restored:
    """Makes a data folder from a cold copy, where none is. Raises OperatorError: then there is none."""
    _expect_empty(data_dir)
    copy, began_s = ColdCopy(url), time.monotonic()
    with registry(config) as znodes:
        ring, settings = required_keys(znodes), znodes.settings_versions()
    secrets, topic = Secrets(ring.root), ClusterNames(config.cluster).buffer
    made_dir = not data_dir.exists()
    try:
        manifest = secrets.opened(copy.manifest())
        copy.know(manifest)
        try:
            buffer = describe(admin_client(config.client_config()), topic)
        except TopicMissing as error:
            raise NotFoundError(str(error)) from error
        lane = manifest.identity.lane
        identity = Identity(FORMAT, config.cluster, lane, buffer.id, settings.to_json())
        data_dir.mkdir(parents=True, exist_ok=True)
        Transfer(copy, secrets, Wanted(identity, 0), lambda: False).take(data_dir / TAKEN)
        partitions = settings.settings.partitions_of(lane, buffer.partitions)
        read, _ = looked_at(data_dir / TAKEN, identity, ring, partitions)
        expect_in_log(read, config, topic)
        (data_dir / TAKEN).rename(store_folder(data_dir))
        sync(data_dir)
    except (SnapshotError, StoreError) as error:
        _leave(data_dir, made_dir=made_dir)
        raise ConflictError(f"{url}: {error}. Nothing was restored") from error
    except OSError as error:
        _leave(data_dir, made_dir=made_dir)
        raise OperatorError(f"{data_dir}: {error.strerror or error}. Nothing was restored") from error
    except BaseException:
        _leave(data_dir, made_dir=made_dir)
        raise
    return Restored(manifest, round(time.monotonic() - began_s, 1))


def _expect_empty(data_dir: Path) -> None:
    try:
        there = data_dir.exists() and any(data_dir.iterdir())
    except OSError as error:
        raise OperatorError(f"{data_dir}: {error.strerror or error}") from error
    if there:
        raise ConflictError(f"{data_dir} is not empty: a node's data is restored where nothing is")


def _leave(data_dir: Path, *, made_dir: bool) -> None:
    """As it was."""
    remove_folder(data_dir / TAKEN)
    if made_dir:
        shutil.rmtree(data_dir, ignore_errors=True)
