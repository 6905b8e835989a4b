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
from store.records import decode_index

_CANCEL: Final = Kind.CANCEL
_RESCHEDULE: Final = Kind.RESCHEDULE


class Known(NamedTuple):
    """All that the batch can ask for: index entries and tombstones as they are stored, by their keys, and the
    counts of those minutes that are not at hand.
    """

    indexes: dict[bytes, bytes | None]
    tombstones: dict[bytes, bytes | None]
    counts: dict[int, int]


def known_of(kv: KeyValue, pending: Pending, arrivals: Sequence[Arrival]) -> Known:
    """Reads it; for the thread that takes the batch in."""
    minutes = {one.due_ms // MINUTE_MS for one in arrivals}
    asking = [one for one in arrivals if one.id is not None and one.kind is not _RESCHEDULE]
    if not asking:
        return Known({}, {}, pending.read(minutes))
    index_keys = [keys.index(one.partition, one.id or "") for one in asking]
    found = kv.get_many(index_keys)
    indexes = dict(zip(index_keys, found, strict=True))
    minutes.update(decode_index(raw).due_ms // MINUTE_MS for raw in found if raw is not None)
    return Known(indexes, _tombstones(kv, asking, indexes, found), pending.read(minutes))


def _tombstones(
    kv: KeyValue,
    asking: Sequence[Arrival],
    indexes: dict[bytes, bytes | None],
    found: Sequence[bytes | None],
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
    return dict(zip(tombstone_keys, kv.get_many(tombstone_keys), strict=True)) if tombstone_keys else {}
