"""What may be forgotten, and when: a queue of ids and sources by due time, for each partition.

The ids of one batch are put together, so that none costs a put of its own: those in one block of offsets that
are to be known for a time of the same magnitude: none is known for more than twice as long as it has to be.
What was written back, and what cancels, has an entry of its own.

Nothing waits for what cannot go yet, since its row is held: that stays in its entry, where it is found, and a
*reminder* further back in the queue leads there: an entry of nothing, with the last due time of the other.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterable, Iterator

from store import keys
from store.keys import BLOCK, RowKey
from store.kv import Batch, KeyValue
from store.rows import Expiry, decode_expiry, encode


def write(batch: Batch, partition: int, packed: dict[int, int], ids: dict[int, str], since_ms: int) -> bytes:
    """Puts the entries of a batch's ids, by offset and in order; returns the lowest key.

    `packed`: the batch's due index (store/due_index.py). Those of ids lead to the entries from then on.
    `since_ms`: from when is told for how long an id is to be known.
    """
    lowest: bytes | None = None
    for entry in _entries(packed, ids, since_ms):
        last_due_ms = max(entry.dues_ms)
        key = keys.expiry(partition, last_due_ms, entry.offsets[0])
        batch.put(key, encode(entry))
        packed.update(dict.fromkeys(entry.offsets, last_due_ms << 1 | 1))
        lowest = key if lowest is None else min(lowest, key)
    assert lowest is not None, "the caller has some"
    return lowest


def write_one(batch: Batch, partition: int, due_ms: int, offset: int, who: str | int) -> bytes:
    """Puts the entry of what was written back, or cancels; returns its key."""
    key = keys.expiry(partition, due_ms, offset)
    batch.put(key, encode(Expiry([due_ms], [offset], [who])))
    return key


def _entries(packed: dict[int, int], ids: dict[int, str], since_ms: int) -> Iterator[Expiry]:
    offsets, whose = list(ids), list(ids.values())
    dues_ms = [packed[offset] >> 1 for offset in offsets]
    begin = 0
    while begin < len(offsets):
        end = bisect_left(offsets, (offsets[begin] // BLOCK + 1) * BLOCK, begin)
        block = Expiry(dues_ms[begin:end], offsets[begin:end], list[str | int](whose[begin:end]))
        yield from _by_magnitude(block, since_ms)
        begin = end


def _by_magnitude(block: Expiry, since_ms: int) -> Iterator[Expiry]:
    if max(block.dues_ms) - since_ms <= 2 * (min(block.dues_ms) - since_ms):
        yield block
        return
    entries: dict[int, Expiry] = {}
    for due_ms, offset, who in zip(block.dues_ms, block.offsets, block.whose, strict=True):
        magnitude = max(0, due_ms - since_ms).bit_length()
        entry = entries.get(magnitude)
        if entry is None:
            entry = entries[magnitude] = Expiry([], [], [])
        entry.dues_ms.append(due_ms)
        entry.offsets.append(offset)
        entry.whose.append(who)
    yield from entries.values()


def listed(rows: Iterable[tuple[int, int, str | int]]) -> Expiry:
    """An entry of these."""
    dues_ms, offsets, whose = [list(column) for column in zip(*rows, strict=True)] or ([], [], [])
    return Expiry(dues_ms, offsets, whose)


def content(kv: KeyValue, raw_key: bytes, raw: bytes) -> tuple[bytes, Expiry]:
    """The entry that stands there, or that the reminder leads to, and its key; one of nothing: it is gone."""
    entry = decode_expiry(raw)
    if entry.offsets:
        return raw_key, entry
    _, partition, first = keys.queued(raw_key)
    raw_key = keys.expiry(partition, entry.dues_ms[0], first)
    raw_entry = kv.get(raw_key)
    return raw_key, listed(()) if raw_entry is None else decode_expiry(raw_entry)


def take_out(kv: KeyValue, batch: Batch, at: RowKey, gone: Expiry, before_ms: int) -> bytes | None:
    """Takes what is forgotten out of what the queue has at a key, of which all before `before_ms` is
    looked at now. What is left is looked at again once it has been there for twice as long: the key of its
    reminder.
    """
    at_ms, partition, first = at
    raw_at = keys.expiry(partition, at_ms, first)
    raw = kv.get(raw_at)
    if raw is None:
        return None  # what was written back has been replaced meanwhile
    raw_key, entry = content(kv, raw_at, raw)
    forgotten = set(gone.offsets)
    rows = zip(entry.dues_ms, entry.offsets, entry.whose, strict=True)
    left = listed(row for row in rows if row[1] not in forgotten)
    batch.delete(raw_at)
    batch.delete(raw_key)
    if not left.offsets:
        return None
    due_ms = keys.queued(raw_key)[0]
    batch.put(raw_key, encode(left))
    reminder = keys.expiry(partition, 2 * max(before_ms, at_ms + 1) - due_ms, first)
    batch.put(reminder, encode(Expiry([due_ms], [], [])))
    return reminder


def find(kv: KeyValue, partition: int, last_due_ms: int, offset: int) -> tuple[int, str] | None:
    """The due time and the id of a user's schedule, by the last due time of its entry; None: forgotten."""
    begin = keys.expiry(partition, last_due_ms, offset - offset % BLOCK)
    for _, raw in kv.scan(begin, keys.expiry(partition, last_due_ms, offset + 1)):
        entry = decode_expiry(raw)
        if offset in entry.offsets:
            at = entry.offsets.index(offset)
            return entry.dues_ms[at], str(entry.whose[at])
    return None


def id_of_written_back(kv: KeyValue, partition: int, due_ms: int, offset: int) -> str | None:
    """The id of what was written back, by where its row is, or was."""
    raw = kv.get(keys.expiry(partition, due_ms, offset))
    who = None if raw is None else decode_expiry(raw).whose[0]
    return who if isinstance(who, str) else None
