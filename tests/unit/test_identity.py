"""What a store says of itself: whose view it is, and of which version; never a stack trace."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import msgspec
import pytest

from delayline.settings import ClusterSettings
from delayline.settings_versions import SettingsVersions
from node.own_stores import memory_of, store_folder
from store import identity as identities
from store import keys
from store.identity import FORMAT, Identity, OtherIdentity, UnknownIdentity
from store.kv import KeyValue
from store.rocks import RocksStore

SETTINGS = ClusterSettings(max_delay_ms=7_200_000)
OURS = Identity(FORMAT, "delay", 0, "an id", SETTINGS.to_json())


def claim(kv: KeyValue, identity: Identity) -> Identity:
    return identities.claim(kv, identity, max)


@pytest.fixture
def kv(tmp_path: Path) -> Iterator[KeyValue]:
    store = RocksStore(tmp_path)
    yield store
    store.close()


def write(kv: KeyValue, raw: bytes) -> None:
    batch = kv.batch()
    batch.put(keys.IDENTITY, raw)
    kv.write(batch)


def test_a_store_is_opened_again_by_whom_it_was_made(kv: KeyValue) -> None:
    claim(kv, OURS)
    claim(kv, OURS)


def test_a_store_of_another_lane_is_another_identity(kv: KeyValue) -> None:
    claim(kv, OURS)
    with pytest.raises(OtherIdentity, match="made with lane 0; it is now 1"):
        claim(kv, msgspec.structs.replace(OURS, lane=1))


@pytest.mark.parametrize(
    "raw",
    [b'{"format": 3, "cluster": "delay"}', b'{"format": 6, "of": 1}', b'{"cluster": "delay"}', b"\xff"],
    ids=["an older version's", "a newer version's", "without a format", "no JSON"],
)
def test_what_another_version_has_said_of_a_store_is_another_format(kv: KeyValue, raw: bytes) -> None:
    write(kv, raw)
    with pytest.raises(UnknownIdentity):
        claim(kv, OURS)


def test_the_settings_of_a_store_are_known_before_it_is_opened(tmp_path: Path) -> None:
    store = RocksStore(store_folder(tmp_path))
    claim(store, OURS)
    store.close()
    memory = memory_of(tmp_path, "delay")
    assert memory is not None
    assert memory.settings == SettingsVersions.of(SETTINGS)


def test_another_clusters_store_says_nothing_of_the_settings(tmp_path: Path) -> None:
    store = RocksStore(store_folder(tmp_path))
    claim(store, OURS)
    store.close()
    assert memory_of(tmp_path, "other") is None


def test_a_store_of_another_version_says_nothing_of_the_settings(tmp_path: Path) -> None:
    store = RocksStore(store_folder(tmp_path))
    write(store, b'{"format": 3}')
    store.close()
    assert memory_of(tmp_path, "delay") is None


def test_looking_for_a_store_makes_none(tmp_path: Path) -> None:
    memory_of(tmp_path, "delay")
    assert list(tmp_path.iterdir()) == []
