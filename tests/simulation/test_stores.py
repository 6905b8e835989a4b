from __future__ import annotations

import random
from pathlib import Path

import pytest

from tests.simulation.stores import CrashableStore, ListedBatch, MemoryStore, RocksCrashStore, dump


@pytest.fixture(params=["memory", "rocksdb"])
def store(request: pytest.FixtureRequest, tmp_path: Path) -> CrashableStore:
    return MemoryStore() if request.param == "memory" else RocksCrashStore(tmp_path)


def _put(store: CrashableStore, key: bytes, value: bytes) -> None:
    batch = store.batch()
    batch.put(key, value)
    store.write(batch)


def test_a_crash_loses_the_last_batches_and_no_others(store: CrashableStore) -> None:
    for number in range(4):
        _put(store, b"k%d" % number, b"v")
    store.crash(lost=2)
    assert dump(store) == [(b"k0", b"v"), (b"k1", b"v")]


def test_what_was_flushed_survives(store: CrashableStore) -> None:
    _put(store, b"k", b"old")
    store.flush()
    _put(store, b"k", b"new")
    store.crash(lost=store.unflushed())
    assert dump(store) == [(b"k", b"old")]


def test_a_crash_brings_back_what_a_lost_batch_removed(store: CrashableStore) -> None:
    for number in range(4):
        _put(store, b"k%d" % number, b"v%d" % number)
    before = dump(store)
    batch = store.batch()
    batch.delete(b"k0")
    batch.delete_range(b"k1", b"k3")
    batch.put(b"k3", b"other")
    store.write(batch)
    store.crash(lost=1)
    assert dump(store) == before


def test_an_emptied_store_has_nothing(store: CrashableStore) -> None:
    _put(store, b"k", b"v")
    store.flush()
    store.empty()
    assert dump(store) == []


def test_both_stores_agree_on_random_histories(tmp_path: Path) -> None:
    rng = random.Random(1)
    memory, rocks = MemoryStore(), RocksCrashStore(tmp_path)
    stores: tuple[CrashableStore, ...] = (memory, rocks)
    for _ in range(200):
        chance, seed = rng.random(), rng.random()
        lost = rng.randint(0, memory.unflushed())
        for one in stores:
            if chance < 0.05:
                one.crash(lost)
            elif chance < 0.15:
                one.flush()
            else:
                one.write(_random_batch(random.Random(seed)))
        assert dump(memory) == dump(rocks)


def _random_batch(rng: random.Random) -> ListedBatch:
    batch = ListedBatch()
    for _ in range(rng.randint(1, 6)):
        key = b"k%02d" % rng.randrange(40)
        if rng.random() < 0.6:
            batch.put(key, b"%d" % rng.randrange(100))
        elif rng.random() < 0.7:
            batch.delete(key)
        else:
            batch.delete_range(key, b"k%02d" % rng.randrange(40, 60))
    return batch
