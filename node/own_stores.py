"""The stores in a node's data folder: this version's, and those that other versions have left there.

Each format has a folder of its own. So a node that is upgraded or downgraded makes its view anew beside the
one that it had, which stays for the way back, until the new one is as good.
"""

from __future__ import annotations

import re
import shutil
from pathlib import Path
from typing import Final, NamedTuple

import structlog

from delayline.settings_versions import SettingsVersions
from delayline.signing import NO_KEYS, Keyring
from store import keys
from store.identity import FORMAT, Identity, stored_identity
from store.kv import StoreError
from store.rocks import RocksStore, remove

log = structlog.get_logger("delayline.node")

_NAME: Final = re.compile("store(-[1-9][0-9]*)?")
"""Up to format 9 without the number."""


class OwnStores:
    """For the node's thread."""

    def __init__(self, data_dir: Path) -> None:
        self.folder = store_folder(data_dir)
        self._data_dir = data_dir
        self._begins_empty = False

    def open(self) -> RocksStore:
        """This version's; a new one, if there is none. Raises what `RocksStore` raises."""
        self.clear()
        return RocksStore(self.folder)

    def clear(self) -> None:
        """Removes what it has, if it is to begin empty."""
        if self._begins_empty:
            remove(self.folder)
            self._begins_empty = False

    def begin_empty(self) -> None:
        """The next one to be opened is without what it has."""
        self._begins_empty = True

    def left(self) -> list[Path]:
        """Those of other versions."""
        return [folder for folder in _stores(self._data_dir) if folder != self.folder]

    def remove_left(self) -> None:
        """Removes those of other versions: the node has what they have. One that cannot be removed stays."""
        for folder in self.left():
            try:
                remove(folder)
                if folder.exists():
                    shutil.rmtree(folder)
            except (StoreError, OSError) as error:
                log.warning("old-store-kept", folder=str(folder), detail=str(error))
            else:
                log.info("old-store-removed", folder=str(folder))


def store_folder(data_dir: Path) -> Path:
    """This version's store."""
    return data_dir / f"store-{FORMAT}"


def identity_in(folder: Path) -> Identity | None:
    """Whose view the store in a folder is, whichever version has made it; None if it has not been told yet.
    Raises `UnknownIdentity`, and what `RocksStore` raises.
    """
    store = RocksStore(folder)
    try:
        return stored_identity(store)
    finally:
        store.close()


class OwnMemory(NamedTuple):
    """What a store says of its cluster: from that the node knows what ZooKeeper has lost."""

    settings: SettingsVersions
    keys: Keyring


def memory_of(data_dir: Path, cluster: str) -> OwnMemory | None:
    """What the stores in a data folder remember, this version's before others. None if there is none of this
    cluster that can be read. No process may have one open.
    """
    for folder in _stores(data_dir):
        try:
            memory = _memory_in(folder, cluster)
        except StoreError:
            continue
        if memory is not None:
            return memory
    return None


def _memory_in(folder: Path, cluster: str) -> OwnMemory | None:
    store = RocksStore(folder)
    try:
        identity, raw_keys = stored_identity(store), store.get(keys.KEYS)
    finally:
        store.close()
    settings = None if identity is None or identity.cluster != cluster else readable(identity.settings)
    return None if settings is None else OwnMemory(settings, _keys_in(raw_keys))


def _keys_in(raw: bytes | None) -> Keyring:
    try:
        return NO_KEYS if raw is None else Keyring.from_json(raw)
    except ValueError:
        return NO_KEYS


def readable(text: str) -> SettingsVersions | None:
    """Settings as a store has them; None if they are another version's."""
    try:
        return SettingsVersions.from_json(text)
    except ValueError:
        return None


def _stores(data_dir: Path) -> list[Path]:
    """This version's first."""
    try:
        there = [
            one for one in data_dir.iterdir() if _NAME.fullmatch(one.name) and (one / "CURRENT").exists()
        ]
    except OSError:
        return []
    return sorted(there, key=lambda one: (one != store_folder(data_dir), one.name))
