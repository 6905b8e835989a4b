"""RocksDB behind the `KeyValue` port: one column family, no WAL (the buffer topic is the log).

Without a WAL a crash loses the memtables; what is left is some earlier state as a whole, since all
writes of a batch go to one column family and memtables are flushed in order.
"""

from __future__ import annotations

import errno
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple, cast

import rocksdict

from store.kv import Batch, Damaged, Full, InUse, Stalled, StoreError, Unusable

MEMTABLE_BYTES = 8 << 20  # bounds what a killed node reads again from the log
MEMTABLES = 4
MEMTABLE_FILTER_SHARE = 0.02  # of its bytes: some 20 bits a key
LEVEL_ZERO_FILES = 8
TABLE_BYTES = 16 << 20
BLOCK_CACHE_BYTES = 32 << 20
BLOCK_BYTES = 16 << 10
FILTER_PART_BYTES = 32 << 10  # a third of a look-up is finding the part: the fewer, the fewer steps
# An unknown id is looked up in a dozen files, and where a filter is wrong, a block is read for nothing: at 10
# bits for one id in ten, at 14 for one in fifty.
FILTER_BITS = 14


def _options() -> rocksdict.Options:
    options = rocksdict.Options(raw_mode=True)
    options.create_if_missing(True)
    options.set_write_buffer_size(MEMTABLE_BYTES)
    options.set_max_write_buffer_number(MEMTABLES)
    # A filter over each memtable, too: an unknown id is not searched for in four of them.
    options.set_memtable_prefix_bloom_ratio(MEMTABLE_FILTER_SHARE)
    options.set_memtable_whole_key_filtering(True)
    # zstd at the bottom would double what compaction takes of a core, for 3 % less disk [300 random bytes].
    none, lz4 = rocksdict.DBCompressionType.none(), rocksdict.DBCompressionType.lz4()
    options.set_compression_per_level([none, lz4])  # level 0 is soon written again
    options.set_bottommost_compression_type(lz4)
    # Each compaction of level 0 writes much of the level below again: half as many of them, half the work.
    options.set_level_zero_file_num_compaction_trigger(LEVEL_ZERO_FILES)
    options.set_target_file_size_base(TABLE_BYTES)  # the smaller, the fewer are written again for nothing
    options.set_keep_log_file_num(2)
    options.set_max_open_files(256)
    table = rocksdict.BlockBasedOptions()
    table.set_block_cache(rocksdict.Cache(BLOCK_CACHE_BYTES))
    table.set_cache_index_and_filter_blocks(True)
    table.set_block_size(BLOCK_BYTES)
    table.set_bloom_filter(FILTER_BITS, False)
    # A file's filter as one block is up to half a megabyte, more than a shard of the cache has room for, and
    # would be read again for each batch. In parts, those of the ids stay (10 million: 18 MB), and those of
    # rows, which are walked and not looked up, are not read at all.
    table.set_partition_filters(True)
    table.set_index_type(rocksdict.BlockBasedIndexType.two_level_index_search())
    table.set_metadata_block_size(FILTER_PART_BYTES)
    table.set_pin_top_level_index_and_filter(True)
    options.set_block_based_table_factory(table)
    return options


# In RocksDB's words, which hold the files' paths, too.
_FULL = "No space left on device"
_STALLED = "Write stall"
_LOCKED = ("Resource temporarily unavailable", "lock hold by current process")
_FORBIDDEN = ("Permission denied", "Read-only file system", "Operation not permitted")


def _translated(error: Exception, what: str) -> StoreError:
    said = str(error)
    if _FULL in said:
        return Full(f"{what}: {said}")
    if any(words in said for words in _FORBIDDEN):
        return Unusable(f"{what}: {said}")
    return Damaged(f"{what}: {said}")


def remove(path: Path) -> None:
    """Removes a store that no process has open. Raises as `RocksStore` does."""
    RocksStore(path).close()  # RocksDB's own look at the lock comes after it has removed something
    try:
        rocksdict.Rdict.destroy(str(path), _options())
    except Exception as error:
        raise _translated(error, f"{path} cannot be removed") from error


class Figures(NamedTuple):
    """Bytes, but for `estimated_keys`, and `write_stopped`: 1 while RocksDB takes no writes."""

    live_bytes: int
    block_cache_bytes: int
    memtable_bytes: int
    pending_compaction_bytes: int
    estimated_keys: int
    write_stopped: int


_PROPERTIES = (
    "live-sst-files-size",
    "block-cache-usage",
    "cur-size-all-mem-tables",
    "estimate-pending-compaction-bytes",
    "estimate-num-keys",
    "is-write-stopped",
)


class RocksStore:
    """An open RocksDB. Raises `InUse` if another process has it open, `Unusable` if this one may not write
    there, `Full`, and `Damaged` if it cannot be opened.
    """

    def __init__(self, path: Path) -> None:
        try:
            path.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            kind = Full if error.errno == errno.ENOSPC else Unusable
            raise kind(f"{path} cannot be made: {error.strerror}") from error
        try:
            self._db = rocksdict.Rdict(str(path), _options())
        except Exception as error:
            if "/LOCK:" in str(error) and any(words in str(error) for words in _LOCKED):
                raise InUse(f"{path} is open in another process: {error}") from error
            raise _translated(error, f"{path} cannot be opened as the node's store") from error
        self._write_options = rocksdict.WriteOptions()
        cast("Any", self._write_options).disable_wal = True
        # Without it a stalled write holds the GIL, and with it the whole process, for seconds.
        self._write_options.no_slowdown = True

    def get(self, key: bytes) -> bytes | None:
        try:
            return cast("bytes | None", self._db.get(key))
        except Exception as error:
            raise _translated(error, "the store cannot be read") from error

    def get_many(self, wanted: list[bytes]) -> list[bytes | None]:
        try:
            return cast("list[bytes | None]", self._db.get(cast("Any", wanted)))
        except Exception as error:
            raise _translated(error, "the store cannot be read") from error

    def scan(self, begin: bytes, end: bytes) -> Iterator[tuple[bytes, bytes]]:
        options = rocksdict.ReadOptions()
        options.set_iterate_upper_bound(end)
        iterator = self._db.iter(options)  # here and not in the generator: it is the snapshot
        iterator.seek(begin)
        return _entries(iterator, options, end)

    def batch(self) -> Batch:
        return rocksdict.WriteBatch(raw_mode=True)

    def write(self, batch: Batch) -> None:
        try:
            self._db.write(cast("rocksdict.WriteBatch", batch), self._write_options)
        except Exception as error:
            if _STALLED in str(error):
                raise Stalled(str(error)) from error
            raise _translated(error, "the store cannot be written") from error

    def flush(self) -> None:
        try:
            self._db.flush()
        except Exception as error:
            raise _translated(error, "the store cannot be written") from error

    def link_files(self, folder: Path) -> None:
        """Makes a folder with the files as they are between two writes, all that was written flushed: hard
        links, but for the small ones. They stay as they are. Raises as `flush` does.
        """
        self.flush()  # which lets other threads run; the rest does not (rocksdict 0.3.29)
        try:
            rocksdict.Checkpoint(self._db).create_checkpoint(str(folder))
        except Exception as error:
            raise _translated(error, f"the store's files cannot be linked in {folder}") from error

    def figures(self) -> Figures:
        """What RocksDB says of itself; it counts these as it goes. Raises `Damaged`."""
        try:
            return Figures(*(self._db.property_int_value(f"rocksdb.{name}") or 0 for name in _PROPERTIES))
        except Exception as error:
            raise _translated(error, "the store does not tell of itself") from error

    def close(self) -> None:
        try:
            self._db.close()
        except Exception as error:
            raise _translated(error, "the store was not closed in order") from error


def _entries(
    iterator: rocksdict.RdictIter, _options: rocksdict.ReadOptions, _end: bytes
) -> Iterator[tuple[bytes, bytes]]:
    """The options and the bound are kept with the iterator: it reads the bound's own memory, and ends
    wherever what stands there later says if both are gone (rocksdict 0.3.29).
    """
    key, value, advance = iterator.key, iterator.value, iterator.next
    while (at := key()) is not None:
        yield at, value()
        advance()
    try:
        iterator.status()  # an iterator ends in silence where it cannot read on
    except Exception as error:
        raise Damaged(f"the store cannot be read: {error}") from error
