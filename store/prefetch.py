"""What the store says of a batch of arrivals, read all at once, and before the view is locked.

A look-up may have to read from the disk, and a batch has hundreds: whoever waits for the lock, or for Python,
must not wait for them as well.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final, NamedTuple

from delayline.times import MINUTE_MS
from store import due_index, keys
from store.arrivals import Arrival, Kind
from store.due_index import DueEntry
from store.keys import RecordId
from store.kv import KeyValue
from store.pending import Pending
from store.rows import carried_offset, decode_index

_CANCEL: Final = Kind.CANCEL
_CARRY: Final = Kind.CARRY
_RESCHEDULE: Final = Kind.RESCHEDULE


class Prefetched(NamedTuple):
    """All that the batch can ask for: index entries, tombstones and sources as they are stored, by their
    keys; the due index of what is cancelled by its source, whose rows have been read so that they are in
    memory; and the counts of those minutes that are not at hand.
    """

    indexes: dict[bytes, bytes | None]
    tombstones: dict[bytes, bytes | None]
    sources: dict[bytes, bytes | None]
    due_index: dict[RecordId, DueEntry | None]
    counts: dict[int, int]


def prefetch(kv: KeyValue, pending: Pending, arrivals: Sequence[Arrival]) -> Prefetched:
    """Reads it; for the thread that applies the batch. That has nothing but carries, or none."""
    minutes = {one.due_ms // MINUTE_MS for one in arrivals}
    if arrivals and arrivals[0].kind is _CARRY:
        _read_carried(kv, arrivals)
    asking = [one for one in arrivals if one.id is not None and one.kind is not _RESCHEDULE]
    rooted = [(one.partition, one.root) for one in arrivals if one.root is not None]
    if not asking and not rooted:
        return Prefetched({}, {}, {}, {}, pending.read(minutes))
    begins = {partition: keys.index(partition, "") for partition in {one.partition for one in asking}}
    index_keys = [begins[one.partition] + (one.id or "").encode() for one in asking]
    found = kv.get_many(index_keys)
    indexes = dict(zip(index_keys, found, strict=True))
    all_new = len(indexes) == len(asking) and not rooted and not any(found)
    if all_new and all(one.kind is not _CANCEL for one in asking):  # most often
        return Prefetched(indexes, {}, {}, {}, pending.read(minutes))
    entries = [(one.partition, decode_index(raw)) for one, raw in zip(asking, found, strict=True) if raw]
    minutes.update(entry.due_ms // MINUTE_MS for _, entry in entries)
    rooted += [(partition, entry.root) for partition, entry in entries if entry.root is not None]
    tombstones = _tombstones(kv, asking, indexes, found, rooted)
    return Prefetched(
        indexes, tombstones, _sources(kv, rooted), _due_index(kv, arrivals), pending.read(minutes)
    )


def _read_carried(kv: KeyValue, carries: Sequence[Arrival]) -> None:
    """Has what is asked of carries in memory: whether their rows are there, and since when."""
    asked: list[bytes] = []
    for one in carries:
        offset = carried_offset(one.raw)
        asked += keys.row(one.due_ms, one.partition, offset), keys.since(one.partition, offset)
    kv.get_many(asked)


def _sources(kv: KeyValue, rooted: Sequence[RecordId]) -> dict[bytes, bytes | None]:
    """Of what was written back, and of what that is to replace; of what is cancelled by its source."""
    source_keys = [keys.source(partition, root) for partition, root in rooted]
    return dict(zip(source_keys, kv.get_many(source_keys), strict=True)) if source_keys else {}


def _due_index(kv: KeyValue, arrivals: Sequence[Arrival]) -> dict[RecordId, DueEntry | None]:
    """Of what is cancelled by its source."""
    found: dict[RecordId, DueEntry | None] = {}
    for one in arrivals:
        if one.kind is _CANCEL and one.root is not None and (one.partition, one.root) not in found:
            due_entry = found[one.partition, one.root] = due_index.find(kv, one.partition, one.root)
            if due_entry is not None:
                behind = [] if due_entry.id is None else [keys.index(one.partition, due_entry.id)]
                kv.get_many([keys.row(due_entry.due_ms, one.partition, one.root), *behind])
    return found


def _tombstones(
    kv: KeyValue,
    asking: Sequence[Arrival],
    indexes: dict[bytes, bytes | None],
    found: Sequence[bytes | None],
    rooted: Sequence[RecordId],
) -> dict[bytes, bytes | None]:
    """Of what asks for them: a request that finds an earlier one of its id, in the store or the batch; a
    cancel; and what was written back.
    """
    twice = len(indexes) < len(asking)
    tombstone_keys = [
        keys.tombstone(one.partition, one.id or "")
        for one, raw in zip(asking, found, strict=True)
        if raw is not None or twice or one.parent is not None or one.kind is _CANCEL
    ]
    tombstone_keys += [keys.source_tombstone(partition, root) for partition, root in rooted]
    return dict(zip(tombstone_keys, kv.get_many(tombstone_keys), strict=True)) if tombstone_keys else {}
