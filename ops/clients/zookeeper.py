"""An operator's short visit to ZooKeeper."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from delayline.signing import Keyring
from election.errors import ZnodeMissing
from election.registry import Registry
from election.session import Session
from election.znodes import Znodes
from node.config import ConnectionConfig
from store.checkpoint import Checkpoint, UnreadableCheckpoint

ANSWER_TIMEOUT_S = 5.0


def required_keys(znodes: Registry) -> Keyring:
    """The cluster's keys. ZnodeMissing if it has none, Malformed."""
    ring = znodes.keys()
    if ring is None:
        raise ZnodeMissing("the cluster has no keys to sign with: run `delayline topics create`")
    return ring


@contextmanager
def registry(config: ConnectionConfig) -> Iterator[Registry]:
    """The cluster's znodes, for as long as the block lasts; election.errors.Unavailable if nobody answers."""
    session = Session(config.kazoo_options(), timeout_s=ANSWER_TIMEOUT_S)
    session.start()
    try:
        session.wait_connected(ANSWER_TIMEOUT_S)
        yield Registry(session, Znodes(config.cluster))
    finally:
        session.stop()


def mirrored_checkpoint(znodes: Registry, lane: int) -> Checkpoint | None:
    """The checkpoint znode of a lane; None if no leader has written one. Raises `UnreadableCheckpoint`."""
    mirror = znodes.mirror(lane)
    data = mirror.read()
    try:
        return None if data is None else Checkpoint.decode(data)
    except UnreadableCheckpoint as error:
        raise UnreadableCheckpoint(f"{mirror.path}: {error}") from error


def read_keys(config: ConnectionConfig) -> Keyring:
    """The cluster's keys. ZnodeMissing if it has none, Malformed, Unavailable."""
    with registry(config) as znodes:
        return required_keys(znodes)
