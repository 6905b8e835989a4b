"""What the store says of a batch of arrivals, read all at once, and before the view is locked.

A look-up may have to read from the disk, and a batch has hundreds: whoever waits for the lock, or for Python,
must not wait for them as well.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final, NamedTuple

from store import keys
from store.arrivals import Arrival, Kind
from store.keys import MINUTE_MS
from store.kv import KeyValue
from store.pending import Pending
from store.records import IndexEntry, decode_index, decode_offset

_CANCEL: Final = Kind.CANCEL
_RESCHEDULE: Final = Kind.RESCHEDULE


class Known(NamedTuple):
    """All that the batch can ask for: index entries and tombstones (offsets, -1 for none) by their keys, and
    the counts of those minutes that are not at hand.
    """

    indexes: dict[bytes, IndexEntry | None]
    tombstones: dict[bytes, int]
    counts: dict[int, int]


def known_of(kv: KeyValue, pending: Pending, arrivals: Sequence[Arrival]) -> Known:
    """Reads it; for the thread that takes the batch in."""
    indexes, tombstones = _ids(kv, arrivals)
    minutes = {one.due_ms // MINUTE_MS for one in arrivals}
    minutes.update(entry.due_ms // MINUTE_MS for entry in indexes.values() if entry is not None)
    return Known(indexes, tombstones, pending.read(minutes))


def _ids(
    kv: KeyValue, arrivals: Sequence[Arrival]
) -> tuple[dict[bytes, IndexEntry | None], dict[bytes, int]]:
    """A tombstone is asked for by what finds an earlier request of its id, in the store or in the batch, by a
    cancel, and by what was written back.
    """
    asking = [
        (one, one.partition, one.id) for one in arrivals if one.id is not None and one.kind is not _RESCHEDULE
    ]
    if not asking:
        return {}, {}
    index_keys = [keys.index(partition, id_) for _, partition, id_ in asking]
    found = kv.get_many(index_keys)
    indexes = {
        key: None if raw is None else decode_index(raw) for key, raw in zip(index_keys, found, strict=True)
    }
    twice = len(indexes) < len(asking)
    tombstone_keys = [
        keys.tombstone(partition, id_)
        for (one, partition, id_), raw in zip(asking, found, strict=True)
        if twice or raw is not None or one.parent is not None or one.kind is _CANCEL
    ]
    tombstones = kv.get_many(tombstone_keys) if tombstone_keys else []
    return indexes, {
        key: -1 if raw is None else decode_offset(raw)
        for key, raw in zip(tombstone_keys, tombstones, strict=True)
    }
