"""The keys as a node has them: what its store keeps of them, and what it did not know in time."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from delayline.signing import Keyring, SigningKey
from node import keys
from node.keys import NodeKeys, agreed
from node.refusal import Refusing
from store.rocks import RocksStore
from tests.support.keys import KEYRING

OTHER = SigningKey("0000000b", b"o" * 32, 5)
BOTH = Keyring((*KEYRING.keys, OTHER), KEYRING.signs)
ZNODE = "/delayline/delay/keys"


@pytest.fixture
def store(tmp_path: Path) -> Iterator[RocksStore]:
    made = RocksStore(tmp_path / "store")
    yield made
    made.close()


def settled(
    store: RocksStore, found: Keyring | None, published: list[Keyring] | None = None
) -> Keyring | None:
    def publish(ring: Keyring) -> bool:
        if published is not None:
            published.append(ring)
        return True

    return agreed(store, found, publish, ZNODE, Path("data"))


def refusal_of(store: RocksStore, found: Keyring | None) -> str:
    with pytest.raises(Refusing) as raised:
        settled(store, found)
    return raised.value.refusal.code


def test_what_the_znode_has_is_kept_and_put_back_when_it_is_gone(store: RocksStore) -> None:
    published: list[Keyring] = []
    assert settled(store, BOTH, published) == BOTH
    assert (settled(store, None, published), published) == (BOTH, [BOTH])


def test_a_node_with_no_keys_anywhere_refuses(store: RocksStore) -> None:
    assert refusal_of(store, None) == "keys-missing"


@pytest.mark.parametrize(
    "found",
    [
        Keyring((OTHER,), OTHER.id),
        replace(KEYRING, keys=(replace(KEYRING.keys[0], secret=b"x" * 32),)),
        replace(KEYRING, requests_from={0: 7}),
    ],
    ids=["others", "another secret", "other offsets"],
)
def test_keys_that_would_read_the_log_otherwise_are_refused(store: RocksStore, found: Keyring) -> None:
    settled(store, KEYRING)
    assert refusal_of(store, found) == "keys-replaced"


def test_keys_may_become_more(store: RocksStore) -> None:
    settled(store, KEYRING)
    assert settled(store, replace(BOTH, signs=OTHER.id)) == replace(BOTH, signs=OTHER.id)


def test_a_key_that_was_not_known_in_time_is_remembered_by_the_store(store: RocksStore) -> None:
    NodeKeys(store, KEYRING).note_unknown(OTHER.id)
    again = NodeKeys(store, KEYRING)
    assert again.learnt_late() == []
    again.learn(BOTH)
    assert again.learnt_late() == [OTHER.id]


def test_a_key_that_is_learnt_before_it_signs_is_in_time_whatever_strangers_have_named(
    store: RocksStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(keys, "MOST_UNKNOWN", 2)
    known = NodeKeys(store, KEYRING)
    for number in range(5):
        known.note_unknown(f"dead000{number}")
    known.learn(BOTH)
    known.learn(replace(BOTH, signs=OTHER.id))
    assert known.learnt_late() == []
    assert len(NodeKeys(store, BOTH)._unknown) == 2


def test_a_key_that_signs_already_is_late_where_too_many_were_named(
    store: RocksStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(keys, "MOST_UNKNOWN", 1)
    known = NodeKeys(store, KEYRING)
    known.note_unknown("dead0000")
    known.learn(replace(BOTH, signs=OTHER.id))
    assert known.learnt_late() == [OTHER.id]
