"""Taking a batch of the log's records into the view: rules 1, 2 and 4 at ingest (docs/design.md).

What a record does is a function of the log before it and of the aligned checkpoint, so every replica
comes to the same rows. An `Ingest` lives for one batch: what it reads must show what it has
written, which RocksDB's write batch does not, so the few keys that are read back are kept beside it.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

import msgspec

from store import keys
from store.arrivals import Arrival, Kind
from store.checkpoint import Frontier, Vector
from store.keys import Key
from store.known import Known
from store.kv import KeyValue
from store.records import (
    Control,
    IndexEntry,
    PutOff,
    ScheduledRow,
    decode_control,
    decode_index,
    decode_offset,
    decode_row,
    encode,
)

NO_KEY: Key = (-1, -1, -1)
NEVER_MS: Final = 1 << 63  # later than any due time
_CANCEL: Final = Kind.CANCEL  # as plain names: they are looked at for every record
_SCHEDULE: Final = Kind.SCHEDULE
_KEEP: Final = Kind.KEEP


class Ingest:
    """One batch under way. The caller holds the view's lock from the first `add` to the write."""

    def __init__(
        self,
        kv: KeyValue,
        known: Known,
        aligned: Frontier,
        position: Key | None,
        window_start_ms: int,
        newest_ms: Vector,
        dedup_window_ms: int,
    ) -> None:
        """`known`: what was stored before the batch; `position` is in memory only; rows done and due before
        `window_start_ms` are not kept; `newest_ms`: each partition's newest timestamp so far.
        """
        self.batch = kv.batch()
        self.counts: dict[int, int] = {}  # by minute, what rows become more by
        self.counts_below: dict[int, int] = {}  # the part of it that is at or below the position
        self.first_due_ms = NEVER_MS
        self.low_expiry: dict[int, bytes] = {}  # by partition
        self.low_row: bytes | None = None
        self.urgent = False
        self._kv = kv
        self._aligned = aligned
        self._bound = max(aligned.position or NO_KEY, position or NO_KEY)
        self._window_start_ms = window_start_ms
        self._newest_ms = newest_ms
        self._dedup_window_ms = dedup_window_ms
        self._running_ms: dict[tuple[int, int], int] = {}  # the newest timestamp by then, by place
        self._arrivals: Sequence[Arrival] = ()
        self._known = known
        self._indexes: dict[bytes, IndexEntry | None] = {}
        self._tombstones: dict[bytes, int] = {}
        self._controls: dict[tuple[int, int], Control] = {}

    def add(self, arrivals: Sequence[Arrival]) -> None:
        """Takes the arrivals in log order; the hot path of ingest."""
        put, row, counts, bound, bound_ms = self.batch.put, keys.row, self.counts, self._bound, self._bound[0]
        first_due_ms = self.first_due_ms
        self._arrivals = arrivals
        for arrival in arrivals:
            partition, offset, _, kind, due_ms, id_, parent, _, raw = arrival
            if kind is _CANCEL:
                self._cancel(arrival)
                continue
            if kind is _SCHEDULE:
                if (id_ is not None or parent is not None) and not self._follows(arrival):
                    continue
            elif kind is _KEEP and not self._claim_if_unknown(arrival):
                continue
            below = due_ms <= bound_ms and (due_ms, partition, offset) <= bound
            if below and not self._store_below(arrival):
                continue
            put(row(due_ms, partition, offset), raw)
            minute = due_ms // keys.MINUTE_MS
            counts[minute] = counts.get(minute, 0) + 1
            if below:
                self.counts_below[minute] = self.counts_below.get(minute, 0) + 1
            if due_ms < first_due_ms:  # noqa: PLR1730 - min() is a call
                first_due_ms = due_ms
        self.first_due_ms = first_due_ms

    def _follows(self, arrival: Arrival) -> bool:
        """What follows from an earlier request takes its place if it has an id; False if it came too late.

        Without one it leaves the earlier row where it is; and if it was put off, which is for later than its
        own time, a mark: a replay has to know of that row that it was not delivered.
        """
        if arrival.id is not None:
            return self._claim(arrival, arrival.id)
        assert arrival.parent is not None, "the caller looked"
        row = decode_row(arrival.raw)
        assert isinstance(row, ScheduledRow), "it is a schedule's"
        if arrival.due_ms > row.scheduled_for_ms:  # an occurrence to come is not of long standing: no mark
            mark = PutOff(arrival.due_ms, row.scheduled_for_ms)
            self.batch.put(keys.put_off(arrival.partition, arrival.parent), encode(mark))
        return True

    def _store_below(self, arrival: Arrival) -> bool:
        """An arrival at or below the position: late, unless the last checkpoint's ingested had it."""
        partition, offset, due_ms = arrival.partition, arrival.offset, arrival.due_ms
        if offset < self._aligned.ingested.get(partition, 0):
            return due_ms >= self._window_start_ms
        self.batch.put(keys.late(partition, offset), keys.pack_due(due_ms))
        self.low_row = _lower(self.low_row, keys.row(due_ms, partition, offset))
        self.urgent = True
        return True

    def _claim(self, arrival: Arrival, id_: str) -> bool:
        """Makes the arrival its id's last request; False if it is a written-back one that came too late."""
        index_key = keys.index(arrival.partition, id_)
        entry = self._index(index_key)
        if arrival.parent is not None and self._overtaken(arrival, id_, entry, arrival.parent):
            self._apply_first_control(arrival.partition, id_, arrival.parent)
            return False
        if entry is not None:
            self._remove(arrival.partition, entry)
            if arrival.parent is None:
                self._leave_control(arrival, "schedule", id_, entry)
        origin = arrival.offset if arrival.parent is None else arrival.parent
        self._set_index(index_key, IndexEntry(arrival.due_ms, arrival.offset, origin, arrival.root))
        self._expire_later(arrival.due_ms, arrival, id_)
        return True

    def _claim_if_unknown(self, arrival: Arrival) -> bool:
        """False if the id's last schedule is still known, however it ended: this one is a duplicate, which
        changes nothing. The index entry says so, which delivery leaves alone and a cancel takes away.
        """
        assert arrival.id is not None, "the parser refuses it without an id"
        entry = self._index(keys.index(arrival.partition, arrival.id))
        if entry is None or self._newest_by(arrival) >= entry.due_ms + self._dedup_window_ms:
            return self._claim(arrival, arrival.id)
        self._leave_control(arrival, "keep", arrival.id, entry)
        return False

    def _newest_by(self, arrival: Arrival) -> int:
        """The partition's newest timestamp up to an arrival: a function of the log, as no clock is."""
        if not self._running_ms:
            newest_ms = dict(self._newest_ms)
            for one in self._arrivals:
                partition = one.partition
                newest_ms[partition] = max(newest_ms.get(partition, 0), one.timestamp_ms)
                self._running_ms[partition, one.offset] = newest_ms[partition]
        return self._running_ms[arrival.partition, arrival.offset]

    def _overtaken(self, arrival: Arrival, id_: str, entry: IndexEntry | None, parent: int) -> bool:
        """Rule 4: a later schedule or cancel of the id stands between the parent and its written-back one."""
        if entry is not None and entry.origin > parent:
            return True
        return self._tombstone(keys.tombstone(arrival.partition, id_)) > parent

    def _cancel(self, arrival: Arrival) -> None:
        assert arrival.id is not None, "the parser refuses a cancel without an id"
        index_key = keys.index(arrival.partition, arrival.id)
        entry = self._index(index_key)
        if entry is not None:
            self._remove(arrival.partition, entry)
            self._set_index(index_key, None)
        self._leave_control(arrival, "cancel", arrival.id, entry)
        tombstone_key = keys.tombstone(arrival.partition, arrival.id)
        self._tombstones[tombstone_key] = arrival.offset
        self.batch.put(tombstone_key, encode(arrival.offset))
        self._expire_later(arrival.timestamp_ms, arrival, arrival.id)

    def _remove(self, partition: int, entry: IndexEntry) -> None:
        """Removes the row at once: in flight or not, delivered or not; only the answer waits (rule 2).

        Its index entry goes with it, or points to another row from now on, so nothing is left to expire.
        """
        self.batch.delete(keys.row(entry.due_ms, partition, entry.offset))
        self.batch.delete(keys.late(partition, entry.offset))
        self.batch.delete(keys.expiry(partition, entry.due_ms, entry.offset))
        minute = entry.due_ms // keys.MINUTE_MS
        self.counts[minute] = self.counts.get(minute, 0) - 1
        if (entry.due_ms, partition, entry.offset) <= self._bound:
            self.counts_below[minute] = self.counts_below.get(minute, 0) - 1

    def _leave_control(self, arrival: Arrival, op: str, id_: str, removed: IndexEntry | None) -> None:
        if arrival.offset < self._aligned.seen.get(arrival.partition, 0):
            return  # answered already
        cancelled = self._tombstone(keys.tombstone(arrival.partition, id_))
        previous = cancelled if removed is None else max(cancelled, removed.origin)
        control = Control(op, id_, removed, applied=False, previous=previous)
        self._put_control(arrival.partition, arrival.offset, control)
        self.urgent = True

    def _apply_first_control(self, partition: int, id_: str, parent: int) -> None:
        """The first control above the parent of a dropped written-back request has ended it (rule 2).

        Nothing of the id stands between the two, so the last of it before the control is not above the
        parent. The first one may have been answered and gone, on this node and not on others: then no later
        one takes its place.
        """
        stored = {
            keys.placed(key): decode_control(raw)
            for key, raw in self._kv.scan(keys.control(partition, parent + 1), keys.control(partition + 1, 0))
        }
        controls = stored | self._controls
        for place, control in controls.items():
            is_above = place[0] == partition and place[1] > parent
            ends = control.op != "keep" and control.id == id_ and control.previous <= parent
            if is_above and ends:
                self._put_control(*place, msgspec.structs.replace(control, applied=True))
                return

    def _put_control(self, partition: int, offset: int, control: Control) -> None:
        self._controls[partition, offset] = control
        self.batch.put(keys.control(partition, offset), encode(control))

    def _index(self, key: bytes) -> IndexEntry | None:
        if key in self._indexes:
            return self._indexes[key]
        stored = self._known.indexes
        raw = stored[key] if key in stored else self._kv.get(key)
        return None if raw is None else decode_index(raw)

    def _set_index(self, key: bytes, entry: IndexEntry | None) -> None:
        self._indexes[key] = entry
        if entry is None:
            self.batch.delete(key)
        else:
            self.batch.put(key, encode(entry))

    def _tombstone(self, key: bytes) -> int:
        """The offset of the id's last cancel, -1 for none."""
        if key in self._tombstones:
            return self._tombstones[key]
        stored = self._known.tombstones
        raw = stored[key] if key in stored else self._kv.get(key)
        return -1 if raw is None else decode_offset(raw)

    def _expire_later(self, due_ms: int, arrival: Arrival, id_: str) -> None:
        partition = arrival.partition
        key = keys.expiry(partition, due_ms, arrival.offset)
        self.batch.put(key, id_.encode())
        lowest = self.low_expiry.get(partition)
        if lowest is None or key < lowest:
            self.low_expiry[partition] = key


def _lower(known: bytes | None, key: bytes) -> bytes:
    return key if known is None else min(known, key)
