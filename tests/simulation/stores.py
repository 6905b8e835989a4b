"""Stores that crash back to a flushed prefix: one in memory, and the node's own RocksDB.

Both keep what was written since the last flush in single batches. A crash loses a suffix of them, since
RocksDB writes its memtables in order and a batch as a whole; which suffix is the scheduler's to choose, as
RocksDB may flush between any two batches.
"""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Protocol, cast

from rocksdict import Checkpoint
from sortedcontainers import SortedDict

from store.kv import KeyValue
from store.rocks import RocksStore

_PUT, _DELETE, _DELETE_RANGE = range(3)
Write = tuple[int, bytes, bytes]


class ListedBatch:
    """A write batch whose content can be read back."""

    __slots__ = ("writes",)

    def __init__(self) -> None:
        self.writes: list[Write] = []

    def put(self, key: bytes, value: bytes) -> None:
        self.writes.append((_PUT, key, value))

    def delete(self, key: bytes) -> None:
        self.writes.append((_DELETE, key, b""))

    def delete_range(self, begin: bytes, end: bytes) -> None:
        self.writes.append((_DELETE_RANGE, begin, end))


class CrashableStore(KeyValue, Protocol):
    """A store that outlives the process that uses it."""

    def unflushed(self) -> int:
        """How many batches a crash could lose."""

    def crash(self, lost: int) -> None:
        """Loses the last `lost` batches; the others are what the next process finds."""

    def empty(self) -> None:
        """Loses everything."""


class MemoryStore:
    """A sorted map, and how to undo what was written since the last flush."""

    def __init__(self) -> None:
        self._map: SortedDict[bytes, bytes] = SortedDict()
        self._undo: list[list[tuple[bytes, bytes | None]]] = []

    def get(self, key: bytes) -> bytes | None:
        return cast("bytes | None", self._map.get(key))

    def get_many(self, wanted: list[bytes]) -> list[bytes | None]:
        return [self.get(key) for key in wanted]

    def scan(self, begin: bytes, end: bytes) -> Iterator[tuple[bytes, bytes]]:
        """Not a snapshot: the view never writes while it scans, and a sorted map would tell."""
        entries = self._map
        for key in entries.irange(begin, end, (True, False)):
            yield key, entries[key]

    def batch(self) -> ListedBatch:
        return ListedBatch()

    def write(self, batch: object) -> None:
        assert isinstance(batch, ListedBatch), "it is this store's own"
        entries = self._map
        undo: list[tuple[bytes, bytes | None]] = []
        for kind, key, value in batch.writes:
            if kind == _PUT:
                undo.append((key, entries.get(key)))
                entries[key] = value
            elif kind == _DELETE:
                old = entries.pop(key, None)
                if old is not None:
                    undo.append((key, old))
            else:
                doomed = list(entries.irange(key, value, (True, False)))
                undo.extend((one, entries.pop(one)) for one in doomed)
        self._undo.append(undo)

    def flush(self) -> None:
        self._undo.clear()

    def close(self) -> None:
        """Nothing is open."""

    def unflushed(self) -> int:
        return len(self._undo)

    def crash(self, lost: int) -> None:
        for _ in range(lost):
            for key, old in reversed(self._undo.pop()):
                if old is None:
                    del self._map[key]
                else:
                    self._map[key] = old
        self._undo.clear()

    def empty(self) -> None:
        self._map.clear()
        self._undo.clear()


class RocksCrashStore:
    """The node's own `RocksStore`.

    At a flush the files are copied (RocksDB's own checkpoint: hard links), as SIGKILL would find them. A
    crash opens that copy and writes those batches again that RocksDB is taken to have flushed since.
    """

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._number = 0
        self._flushed: Path | None = None
        self._since: list[list[Write]] = []
        self._store = RocksStore(self._new_folder())

    def _new_folder(self) -> Path:
        self._number += 1
        return self._folder / str(self._number)

    def get(self, key: bytes) -> bytes | None:
        return self._store.get(key)

    def get_many(self, wanted: list[bytes]) -> list[bytes | None]:
        return self._store.get_many(wanted)

    def scan(self, begin: bytes, end: bytes) -> Iterator[tuple[bytes, bytes]]:
        return self._store.scan(begin, end)

    def batch(self) -> ListedBatch:
        return ListedBatch()

    def write(self, batch: object) -> None:
        assert isinstance(batch, ListedBatch), "it is this store's own"
        self._write(batch.writes)
        self._since.append(batch.writes)

    def _write(self, writes: list[Write]) -> None:
        batch = self._store.batch()
        for kind, key, value in writes:
            if kind == _PUT:
                batch.put(key, value)
            elif kind == _DELETE:
                batch.delete(key)
            else:
                batch.delete_range(key, value)
        self._store.write(batch)

    def flush(self) -> None:
        if self._flushed is not None and not self._since:
            return
        self._store.flush()
        flushed = self._new_folder()
        Checkpoint(self._store._db).create_checkpoint(str(flushed))
        if self._flushed is not None:
            shutil.rmtree(self._flushed)
        self._flushed = flushed
        self._since.clear()

    def close(self) -> None:
        self._store.close()

    def unflushed(self) -> int:
        return len(self._since)

    def crash(self, lost: int) -> None:
        kept = self._since[: len(self._since) - lost]
        self._store.close()
        folder = self._new_folder()
        if self._flushed is not None:
            shutil.copytree(self._flushed, folder)
        self._store = RocksStore(folder)
        for writes in kept:
            self._write(writes)
        self.flush()

    def empty(self) -> None:
        self._store.close()
        self._flushed = None
        self._since.clear()
        self._store = RocksStore(self._new_folder())


def dump(store: KeyValue) -> list[tuple[bytes, bytes]]:
    """All that is in a store."""
    return list(store.scan(b"\x00", b"\xff"))
