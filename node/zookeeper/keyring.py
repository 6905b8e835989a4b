"""The cluster's keys as a node has them: from their znode, and, should that be lost, from its own store.

A view depends on them: with another root the same log would mean other rows. So a store keeps a copy of the
keys that it was made with; they may become more, and never fewer. What a node has and the znode lacks, the
node puts back. A new key is known to every node before anything is signed with it (ops/key/rotate.py). A node
that was away meanwhile, or starts before those that have the newest keys, takes nothing for a stranger's:
what is signed with a key of the cluster that it does not know waits for that key (node/kafka/applier.py,
node/kafka/checkpoints.py).
"""

from __future__ import annotations

import threading
import time
from pathlib import Path

import structlog

from delayline.signing import NO_KEYS, Keyring, NewerKeys
from election.errors import Malformed, Newer
from election.operators import Author, HistoryEntry
from election.registry import Registry
from node import refusal
from node.refusal import Refusing
from store import keys
from store.kv import Damaged, KeyValue
from store.stall import write_stubbornly

log = structlog.get_logger("delayline.keys")


class SharedKeys:
    """The keys as the nodes of a cluster share them. May be used by any thread."""

    def __init__(self, registry: Registry, znode: str, node: str, data_dir: Path) -> None:
        self._registry = registry
        self._znode = znode
        self._node = node
        self._data_dir = data_dir

    def agreed(self, own: Keyring) -> Keyring:
        """What the znode has, and what a node has besides, which is put back. Raises `Refusing`, and
        `ElectionError` if ZooKeeper does not answer.
        """
        try:
            found = self._registry.keys()
            if own == NO_KEYS and found is None:
                raise Refusing(refusal.keys_missing(self._znode))
            if found is not None and self._united(own, found) == found:
                return found
            lacking = sorted(own.ids - (found or NO_KEYS).ids)
            log.warning("keys-restored", znode=self._znode, keys=lacking)
            if found is None and self._registry.create_keys(own):
                return own
            why = Author(self._node, "the znode lacked them", time.time_ns() // 1_000_000)
            entry = HistoryEntry(what="keys put back", author=why, after=" ".join(lacking))
            return self._registry.change_keys(lambda there: self._united(own, there), entry)
        except Newer as error:
            raise Refusing(refusal.newer_format(str(error))) from error
        except Malformed as error:
            raise Refusing(refusal.keys_unreadable(str(error))) from error

    def _united(self, own: Keyring, found: Keyring) -> Keyring:
        if own == NO_KEYS:
            return found
        try:
            return own.united(found)
        except ValueError:
            lost = sorted(own.ids - found.ids)
            raise Refusing(refusal.keys_replaced(self._znode, lost, self._data_dir)) from None


def _stored(kv: KeyValue) -> Keyring:
    raw = kv.get(keys.KEYS)
    try:
        return NO_KEYS if raw is None else Keyring.from_json(raw)
    except NewerKeys as error:
        raise Refusing(refusal.newer_format(f"the store's copy of the keys: {error}")) from error
    except ValueError as error:
        raise Damaged(f"the store's copy of the keys cannot be read: {error}") from error


class NodeKeyring:
    """Implements `node.core.ports.KeyringSource`. May be used by any thread."""

    def __init__(self, kv: KeyValue, shared: SharedKeys, stopping: threading.Event) -> None:
        """`kv`: the store, which may have a copy. `stopping`: set once the node is to end. Raises `Refusing`,
        `Damaged`.
        """
        self.ring = _stored(kv)
        self._kv = kv
        self._shared = shared
        self._stopping = stopping
        self._renewing = threading.Lock()  # what was learnt last is not forgotten for what was asked before

    def renew(self) -> Keyring:
        """Learns what the others know, and the other way round. Raises what `SharedKeys.agreed` raises."""
        with self._renewing:
            ring = self._shared.agreed(self.ring)
            if ring != self.ring:
                self._keep(ring)
                self.ring = ring
                log.info("keys-loaded", keys=sorted(ring.ids), signs=ring.signs)
            return ring

    def _keep(self, ring: Keyring) -> None:
        def write() -> None:
            batch = self._kv.batch()
            batch.put(keys.KEYS, ring.to_json().encode())
            self._kv.write(batch)

        write_stubbornly(write, self._stopping)
        self._kv.flush()
