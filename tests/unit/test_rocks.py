"""RocksDB behind the key-value port."""

from __future__ import annotations

import random
from itertools import islice
from pathlib import Path

import pytest

from store import keys
from store.kv import Full, InUse, StoreError, Unusable
from store.rocks import RocksStore, remove


@pytest.fixture
def rocks(tmp_path: Path) -> RocksStore:
    return RocksStore(tmp_path / "store")


def _fill(rocks: RocksStore, count: int) -> None:
    batch = rocks.batch()
    for offset in range(count):
        batch.put(keys.row(1000 + offset, 0, offset), b"v" * 300)
    rocks.write(batch)


def test_a_scan_reaches_its_end_when_the_caller_keeps_nothing(rocks: RocksStore) -> None:
    _fill(rocks, 1000)
    for _ in range(50):
        found = 0
        for _ in rocks.scan(keys.ROW, keys.row(1500, 0, 0)):
            found += 1
            keys.row(found, 0, 0)  # memory of the bound's size, allocated and freed
        assert found == 500


def test_a_scan_shows_the_store_as_it_was_at_the_call(rocks: RocksStore) -> None:
    _fill(rocks, 3)
    scan = rocks.scan(keys.ROW, keys.end_of(keys.ROW))
    batch = rocks.batch()
    batch.delete(keys.row(1001, 0, 1))
    rocks.write(batch)
    assert [keys.timed(key)[2] for key, _ in scan] == [0, 1, 2]


def test_a_range_delete_ends_before_its_end(rocks: RocksStore) -> None:
    _fill(rocks, 5)
    batch = rocks.batch()
    batch.delete_range(keys.ROW, keys.row(1003, 0, 3))
    rocks.write(batch)
    assert [keys.timed(key)[2] for key, _ in rocks.scan(keys.ROW, keys.end_of(keys.ROW))] == [3, 4]


def test_what_was_flushed_is_there_after_a_reopen(tmp_path: Path) -> None:
    rocks = RocksStore(tmp_path)
    _fill(rocks, 1)
    rocks.flush()
    rocks.close()
    assert RocksStore(tmp_path).get(keys.row(1000, 0, 0)) == b"v" * 300


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="only Linux has a device that is always full")
def test_a_full_disk_is_told_from_damage_by_every_call_that_writes(rocks: RocksStore, tmp_path: Path) -> None:
    for number in range(1, 60):
        path = tmp_path / "store" / f"{number:06d}.sst"
        if not path.exists():
            path.symlink_to("/dev/full")
    _fill(rocks, 3)
    with pytest.raises(Full):
        rocks.flush()
    with pytest.raises(Full):
        _fill(rocks, 3)
    with pytest.raises(Full):
        rocks.close()


def test_a_store_that_is_open_is_in_use(rocks: RocksStore, tmp_path: Path) -> None:
    with pytest.raises(InUse):
        RocksStore(tmp_path / "store")


def test_a_folder_that_cannot_be_made_is_unusable(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(Unusable, match="Not a directory"):
        RocksStore(tmp_path / "file" / "store")


def test_the_store_tells_of_itself_until_it_is_closed(rocks: RocksStore) -> None:
    _fill(rocks, 1_000)
    found = rocks.figures()
    assert found.memtable_bytes > 300_000
    assert (found.estimated_keys, found.live_bytes, found.write_stopped) == (1_000, 0, 0)
    rocks.flush()
    assert rocks.figures().live_bytes > 300_000
    rocks.close()
    with pytest.raises(StoreError):
        rocks.figures()


def test_many_keys_are_looked_up_in_their_order(rocks: RocksStore) -> None:
    _fill(rocks, 3)
    wanted = [keys.row(1002, 0, 2), keys.row(9, 9, 9), keys.row(1000, 0, 0), keys.row(1002, 0, 2)]
    assert rocks.get_many(wanted) == [b"v" * 300, None, b"v" * 300, b"v" * 300]
    assert rocks.get_many([]) == []


IDS, FILE, UNKNOWN, BATCH = 60_000, 15_000, 10_000, 500


@pytest.mark.skipif(not Path("/proc/self/io").exists(), reason="only Linux counts what a process reads")
def test_ids_that_are_not_known_are_looked_up_in_memory(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also while rows go through the cache, which is as small for these ids as a node's is for millions."""
    monkeypatch.setattr("store.rocks.BLOCK_CACHE_BYTES", 256 << 10)
    rocks, dice = RocksStore(tmp_path / "store"), random.Random(1)
    for begin in range(0, IDS, BATCH):
        batch = rocks.batch()
        for number in range(begin, begin + BATCH):
            due_ms, id_ = dice.randrange(IDS), _id(dice)
            batch.put(keys.row(due_ms, 0, number), b"v" * 300)
            batch.put(keys.index(0, id_), b"v" * 20)
            batch.put(keys.expiry(0, due_ms, number), id_.encode())
        rocks.write(batch)
        if (begin + BATCH) % FILE == 0:  # four files: nothing stalls, and nothing is compacted meanwhile
            rocks.flush()
    _bytes_read_for_unknown(rocks, dice)  # what belongs into memory is there from then on
    assert _bytes_read_for_unknown(rocks, dice) / UNKNOWN < 1_000


def _bytes_read_for_unknown(rocks: RocksStore, dice: random.Random) -> int:
    read_bytes = 0
    for _ in range(0, UNKNOWN, BATCH):
        rows = rocks.scan(keys.row(dice.randrange(IDS // 2), 0, 0), keys.end_of(keys.ROW))
        assert len(list(islice(rows, BATCH))) == BATCH
        unknown = [keys.index(0, _id(dice)) for _ in range(BATCH)]
        before_bytes = _bytes_read()
        assert not any(rocks.get_many(unknown))
        read_bytes += _bytes_read() - before_bytes
    return read_bytes


def _id(dice: random.Random) -> str:
    return f"{dice.getrandbits(128):032x}"


def _bytes_read() -> int:
    """By this process from files, whether the system has them in memory or not."""
    return int(Path("/proc/self/io").read_text().split()[1])


def test_a_store_that_is_removed_is_empty_when_it_is_opened_again(rocks: RocksStore, tmp_path: Path) -> None:
    _fill(rocks, 3)
    rocks.flush()
    rocks.close()
    remove(tmp_path / "store")
    assert list(RocksStore(tmp_path / "store").scan(keys.ROW, keys.end_of(keys.ROW))) == []


def test_a_store_that_is_in_use_is_not_removed(rocks: RocksStore, tmp_path: Path) -> None:
    _fill(rocks, 3)
    rocks.flush()
    before = sorted(file.name for file in (tmp_path / "store").iterdir() if not file.name.startswith("LOG"))
    with pytest.raises(InUse):
        remove(tmp_path / "store")
    after = sorted(file.name for file in (tmp_path / "store").iterdir() if not file.name.startswith("LOG"))
    assert after == before
