"""When each user's schedule falls due, by its offset: so a cancel that names a source finds the row.

One entry holds the offsets of one batch in one block of offsets, under the first of them; so a look-up reads
the entries of one block at most, and a batch costs one put for each partition, not one for each message.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator
from typing import Final, NamedTuple

from store import expiry, kept, keys
from store.keys import BLOCK
from store.kv import Batch, KeyValue
from store.rows import decode_index

_NOTHING: Final = (
    0  # no schedule of a user's, or none that was applied: nothing is due at the beginning of 1970
)
_ENTRY_BYTES: Final = 8
_one = struct.Struct("<Q")


class DueEntry(NamedTuple):
    """Where a schedule's own row is, or was, and its id, if it has one."""

    due_ms: int
    id: str | None


def pack(due_ms: int, *, named: bool) -> int:
    """A due entry as it is written: the due time, doubled, and one more with an id: then, in the store, the
    last due time of its expiry entry (store/expiry.py).
    """
    return due_ms << 1 | named


def write(batch: Batch, partition: int, packed: dict[int, int]) -> bytes:
    """Puts the packed due entries of a batch, by offset, in order; returns the lowest key of their ends."""
    lowest: bytes | None = None
    for first, numbers in _blocks(packed):
        batch.put(keys.due_index(partition, first), struct.pack(f"<{len(numbers)}Q", *numbers))
        end = keys.due_index_end(partition, max(numbers) >> 1, first)
        batch.put(end, b"")
        lowest = end if lowest is None else min(lowest, end)
    assert lowest is not None, "the caller has some"
    return lowest


def _blocks(packed: dict[int, int]) -> Iterator[tuple[int, list[int]]]:
    """Runs of the due index that lie in one block, gaps filled."""
    offsets = list(packed)
    first, last = offsets[0], offsets[-1]
    if last - first + 1 == len(offsets):  # most often: nothing but schedules
        numbers = list(packed.values())
        begin = first
        while begin <= last:
            end = min(last + 1, (begin // BLOCK + 1) * BLOCK)
            yield begin, numbers[begin - first : end - first]
            begin = end
        return
    begin, run = first, [packed[first]]
    for offset in offsets[1:]:
        if offset // BLOCK != begin // BLOCK:
            yield begin, run
            begin, run = offset, [packed[offset]]
        else:
            run += [_NOTHING] * (offset - begin - len(run))
            run.append(packed[offset])
    yield begin, run


def kept_since(kv: KeyValue, partition: int, first: int) -> int | None:
    """The last due time of an entry that has to stay, for what is held; None: it may go."""
    if not any(kept.offsets(kv, partition, first, first - first % BLOCK + BLOCK)):
        return None  # most often
    raw = kv.get(keys.due_index(partition, first)) or b""
    numbers = struct.unpack(f"<{len(raw) // _ENTRY_BYTES}Q", raw)
    stays = any(kept.offsets(kv, partition, first, first + len(numbers)))
    return max(numbers) >> 1 if stays else None


def find(kv: KeyValue, partition: int, offset: int) -> DueEntry | None:
    """The due entry of a user's schedule; None if it is none, or has been forgotten."""
    number = _number(kv, partition, offset)
    if number is None:
        return None
    if number & 1:
        named = expiry.find(kv, partition, number >> 1, offset)
        return None if named is None else DueEntry(*named)
    return None if number == _NOTHING else DueEntry(number >> 1, None)


def has(kv: KeyValue, partition: int, offset: int) -> bool:
    """Whether an entry has an offset, whatever it says of it."""
    return _number(kv, partition, offset) is not None


def _number(kv: KeyValue, partition: int, offset: int) -> int | None:
    found: tuple[bytes, bytes] | None = None
    begin = keys.due_index(partition, offset - offset % BLOCK)
    for entry in kv.scan(begin, keys.due_index(partition, offset + 1)):
        found = entry
    if found is None:
        return None
    at = (offset - keys.record_id(found[0])[1]) * _ENTRY_BYTES
    return int(_one.unpack_from(found[1], at)[0]) if at < len(found[1]) else None


def id_of_source(kv: KeyValue, partition: int, source: int) -> str | None:
    """The id of a source's message, if the id's entry goes back to that source."""
    raw = kv.get(keys.source(partition, source))
    if raw is not None:
        entry = decode_index(raw)
        id_ = expiry.id_of_written_back(kv, partition, entry.due_ms, entry.offset)
    else:
        due_entry = find(kv, partition, source)
        id_ = None if due_entry is None else due_entry.id
    if id_ is None:
        return None
    raw = kv.get(keys.index(partition, id_))
    return id_ if raw is not None and decode_index(raw).source == source else None


def has_row(kv: KeyValue, partition: int, offset: int) -> bool:
    """Whether a user's schedule still has its own row."""
    due_entry = find(kv, partition, offset)
    return due_entry is not None and kv.get(keys.row(due_entry.due_ms, partition, offset)) is not None
