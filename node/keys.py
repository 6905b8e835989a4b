"""The cluster's keys as a node has them: from their znode, and, should that be lost, from its own store.

A view depends on them: with other keys the same log would mean other rows. So a store keeps a copy of the
keys that it was made with; they may become more, and never fewer. A new key is known to every node before
anything is signed with it (ops/keys.py). One that was away from ZooKeeper for so long that it did not count
may have rejected what it should have taken: so it remembers the keys that it did not know.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path
from typing import Final

import structlog

from delayline.signing import Keyring
from node import refusal
from node.refusal import Refusing
from store import keys
from store.kv import KeyValue, Stalled

log = structlog.get_logger("delayline.keys")

STALL_RETRY_S: Final = 0.005
MOST_UNKNOWN: Final = 10_000  # whoever may write to the buffer can name as many as they like


class NodeKeys:
    """Implements `node.ports.Keys`. May be used by any thread, but `note_unknown` by one."""

    def __init__(self, kv: KeyValue, ring: Keyring) -> None:
        self.ring = ring
        self._kv = kv
        marks = kv.scan(keys.UNKNOWN_KEY, keys.end_of_name(keys.UNKNOWN_KEY))
        self._unknown = {keys.unknown_key_id(raw) for raw, _ in marks}

    def note_unknown(self, id_: str) -> None:
        """Something is rejected because it is signed with that key. That is stored before the reject is."""
        if id_ in self._unknown or len(self._unknown) >= MOST_UNKNOWN:
            return
        _put(self._kv, keys.unknown_key(id_), b"")
        self._unknown = self._unknown | {id_}

    def learn(self, ring: Keyring) -> None:
        """Keys have been added, or another one signs."""
        if ring != self.ring:
            if len(self._unknown) >= MOST_UNKNOWN and ring.signs not in self.ring.ids:
                self._unknown = self._unknown | {ring.signs}  # it may be one that was not noted any more
            keep(self._kv, ring)
            self.ring = ring
            log.info("keys-learnt", keys=sorted(ring.ids), signs=ring.signs)

    def learnt_late(self) -> list[str]:
        """The keys with which something was signed that this node has rejected: its view is wrong."""
        return sorted(self._unknown & self.ring.ids)


def keep(kv: KeyValue, ring: Keyring) -> None:
    """Keeps a copy."""
    _put(kv, keys.KEYS, ring.to_json().encode())
    kv.flush()


def _put(kv: KeyValue, key: bytes, value: bytes) -> None:
    while True:
        batch = kv.batch()
        batch.put(key, value)
        try:
            kv.write(batch)
        except Stalled:
            time.sleep(STALL_RETRY_S)
        else:
            return


def agreed(
    kv: KeyValue,
    found: Keyring | None,
    publish: Callable[[Keyring], object],
    znode: str,
    data_dir: Path,
) -> Keyring | None:
    """The keys that the znode has (`found`), if those are among them that the store was made with.

    If the znode is not there, what the store has is published; None if the node was stopped before that could
    be done. Raises `Refusing`.
    """
    raw = kv.get(keys.KEYS)
    own = None if raw is None else Keyring.from_json(raw)
    if found is None:
        if own is None:
            raise Refusing(refusal.keys_missing(znode))
        log.warning("keys-put-back", znode=znode, keys=sorted(own.ids))
        return None if publish(own) is None else own
    if own is not None:
        expect_among(own, found, znode, data_dir)
    if own != found:
        keep(kv, found)
    return found


def expect_among(own: Keyring, found: Keyring, znode: str, data_dir: Path) -> None:
    """Raises `Refusing` if the znode lacks some of a node's own keys."""
    if not own.keys_are_among(found):
        raise Refusing(refusal.keys_replaced(znode, sorted(own.ids - found.ids), data_dir))


def renew(own: NodeKeys, found: Keyring | None, znode: str, data_dir: Path) -> None:
    """Takes over what the znode has, if it is there. Raises `Refusing` if it lacks some of a node's own keys,
    or has one that the node has met before it knew it.
    """
    if found is not None:
        expect_among(own.ring, found, znode, data_dir)
        own.learn(found)
    late = own.learnt_late()
    if late:
        raise Refusing(refusal.keys_learnt_late(late, data_dir))
