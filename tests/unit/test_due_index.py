"""The due index: where the row of a source is, by its offset."""

from __future__ import annotations

from pathlib import Path

from hypothesis import given
from hypothesis import strategies as st

from store import due_index, expiry, keys
from store.due_index import DueEntry
from store.keys import BLOCK
from store.rocks import RocksStore
from tests.simulation.stores import MemoryStore


def written(*batches: dict[int, int]) -> MemoryStore:
    """A store with these batches of partition 3: due times by offset, with an id where they are odd."""
    store = MemoryStore()
    for due_ms in batches:
        batch = store.batch()
        packed = {offset: due_index.pack(at_ms, named=bool(at_ms % 2)) for offset, at_ms in due_ms.items()}
        ids = {offset: f"id-{offset}" for offset, at_ms in due_ms.items() if at_ms % 2}
        if ids:
            expiry.write(batch, 3, packed, ids, 0)
        due_index.write(batch, 3, packed)
        store.write(batch)
    return store


@given(st.lists(st.dictionaries(st.integers(0, 3 * BLOCK), st.integers(1, 1 << 50), min_size=1), max_size=4))
def test_each_schedule_is_found_and_nothing_else(drawn: list[dict[int, int]]) -> None:
    """Of batches in the log's order."""
    begin, batches = 0, []
    for one in drawn:
        batches.append({begin + offset: one[offset] for offset in sorted(one)})
        begin = max(batches[-1]) + 1
    store, known = written(*batches), {offset: at for one in batches for offset, at in one.items()}
    for offset in range(begin + 2):
        at_ms = known.get(offset)
        wanted = None if at_ms is None else DueEntry(at_ms, f"id-{offset}" if at_ms % 2 else None)
        assert due_index.find(store, 3, offset) == wanted


def test_an_entry_ends_with_its_block(tmp_path: Path) -> None:
    store = RocksStore(tmp_path)
    batch = store.batch()
    due_index.write(batch, 0, dict.fromkeys(range(BLOCK - 2, 2 * BLOCK + 1), 8))
    store.write(batch)
    found = [
        (keys.record_id(key)[1], len(raw) // 8)
        for key, raw in store.scan(keys.DUE_INDEX, keys.end_of(keys.DUE_INDEX))
    ]
    assert found == [(BLOCK - 2, 2), (BLOCK, BLOCK), (2 * BLOCK, 1)]


def test_places_of_other_partitions_are_others() -> None:
    store = written({0: 8})
    assert (due_index.find(store, 2, 0), due_index.find(store, 4, 0)) == (None, None)
