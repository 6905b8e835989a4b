"""The keys as a node has them: what its store keeps of them, and what it puts back into the znode."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from delayline.signing import NO_KEYS, Keyring
from election.operators import HistoryEntry
from election.registry import Registry
from node.refusal import Refusing
from node.zookeeper.keyring import NodeKeyring, SharedKeys
from store.rocks import RocksStore
from tests.support.keys import KEYRING, STRANGER, key_of, ring_of

SECOND = key_of("0000000b", b"o" * 32, 5)
THIRD = key_of("0000000c", b"p" * 32, 7)
BOTH = replace(KEYRING, keys=(*KEYRING.keys, SECOND))


class Znode(Registry):
    """As the registry has it. `meanwhile`: what another node writes once this one has looked."""

    def __init__(self, ring: Keyring | None, meanwhile: Keyring | None = None) -> None:
        self.ring = ring
        self.entries: list[HistoryEntry] = []
        self._meanwhile = meanwhile

    def keys(self) -> Keyring | None:
        found = self.ring
        self.ring = self._meanwhile or found
        return found

    def create_keys(self, ring: Keyring) -> bool:
        if self.ring is not None:
            return False
        self.ring = ring
        return True

    def change_keys(self, change: Callable[[Keyring], Keyring], entry: HistoryEntry) -> Keyring:
        assert self.ring is not None
        before, self.ring = self.ring, change(self.ring)
        self.entries += [entry] * (before != self.ring)
        return self.ring


@pytest.fixture
def store(tmp_path: Path) -> Iterator[RocksStore]:
    made = RocksStore(tmp_path / "store")
    yield made
    made.close()


def of_node(store: RocksStore, znode: Znode) -> NodeKeyring:
    """The keys of a node that has just asked."""
    shared = SharedKeys(znode, "/delayline/delay/keys", "a", Path("data"))
    known = NodeKeyring(store, shared, threading.Event())
    known.renew()
    return known


def refusal_of(store: RocksStore, found: Keyring | None) -> str:
    with pytest.raises(Refusing) as raised:
        of_node(store, Znode(found))
    return raised.value.refusal.code


def test_what_the_znode_has_is_kept_and_put_back_when_it_is_gone(store: RocksStore) -> None:
    of_node(store, Znode(BOTH))
    emptied = Znode(None)
    assert (of_node(store, emptied).ring, emptied.ring) == (BOTH, BOTH)


def test_a_node_with_no_keys_anywhere_refuses(store: RocksStore) -> None:
    assert refusal_of(store, None) == "keys-missing"


@pytest.mark.parametrize(
    "found",
    [
        STRANGER,
        replace(KEYRING, keys=(replace(KEYRING.keys[0], secret=b"x" * 32),)),
        replace(KEYRING, requests_from={0: 7}),
    ],
    ids=["others", "another secret", "other offsets"],
)
def test_keys_that_would_read_the_log_otherwise_are_refused(store: RocksStore, found: Keyring) -> None:
    of_node(store, Znode(KEYRING))
    assert refusal_of(store, found) == "keys-replaced"


def test_keys_may_become_more(store: RocksStore) -> None:
    of_node(store, Znode(KEYRING))
    assert of_node(store, Znode(replace(BOTH, signs=SECOND.id))).ring == replace(BOTH, signs=SECOND.id)


def test_what_the_znode_lacks_of_a_nodes_keys_is_put_back_and_recorded(store: RocksStore) -> None:
    of_node(store, Znode(replace(BOTH, signs=SECOND.id)))
    older = Znode(KEYRING)
    assert of_node(store, older).ring == older.ring == replace(BOTH, signs=SECOND.id)
    assert [entry.what for entry in older.entries] == ["keys put back"]


def test_a_znode_that_has_all_is_not_written(store: RocksStore) -> None:
    of_node(store, Znode(KEYRING))
    newer = Znode(BOTH)
    of_node(store, newer)
    assert newer.entries == []


def test_keys_that_another_node_puts_back_at_the_same_time_are_agreed_on(store: RocksStore) -> None:
    of_node(store, Znode(replace(BOTH, signs=SECOND.id)))
    raced = Znode(None, meanwhile=ring_of(*KEYRING.keys, THIRD))
    known = of_node(store, raced)
    assert known.ring == raced.ring
    assert known.ring.ids == {*BOTH.ids, THIRD.id}


def test_anothers_keys_that_come_at_the_same_time_are_refused(store: RocksStore) -> None:
    of_node(store, Znode(KEYRING))
    with pytest.raises(Refusing, match="keys-replaced"):
        of_node(store, Znode(None, meanwhile=STRANGER))


def test_a_new_store_has_no_keys_before_it_has_asked(store: RocksStore) -> None:
    shared = SharedKeys(Znode(KEYRING), "/keys", "a", Path("data"))
    assert NodeKeyring(store, shared, threading.Event()).ring == NO_KEYS
