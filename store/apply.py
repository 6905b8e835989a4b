"""Taking a batch of the log's records into the view: rules 1, 2 and 4 at apply (docs/design.md).

What a record does is a function of the log before it and of the aligned checkpoint, so every replica
comes to the same rows. A `BatchApply` lives for one batch: what it reads must show what it has
written, which RocksDB's write batch does not, so the few keys that are read back are kept beside it.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from functools import cached_property
from typing import Final

import msgspec

from delayline.names import MAX_OFFSET
from delayline.rejects import RejectCode
from delayline.settings import FIRST_MEANING
from delayline.settings_versions import SettingsVersions
from delayline.times import MINUTE_MS
from store import due_index, expiry, kept, keys
from store.arrivals import Arrival, Kind
from store.awaited import NOTHING
from store.begun import Begun
from store.checkpoint import Vector
from store.due_index import DueEntry
from store.frontiers import Frontiers
from store.holds import NO_TAG
from store.keys import NO_KEY, RecordId, RowKey
from store.kv import Damaged, KeyValue
from store.prefetch import Prefetched
from store.rows import (
    IndexEntry,
    ParkMark,
    PendingAnswer,
    QueueEntry,
    RejectRow,
    decode_carry,
    decode_index,
    decode_message,
    decode_offset,
    decode_pending_answer,
    decode_row,
    encode,
    encode_index,
    is_reschedule,
    is_schedule,
    pack_own_index,
    row_tag,
)

NEVER_MS: Final = 1 << 63  # later than any due time
_CANCEL: Final = Kind.CANCEL  # as plain names: they are looked at for every record
_SCHEDULE: Final = Kind.SCHEDULE
_KEEP: Final = Kind.KEEP
_RESCHEDULE: Final = Kind.RESCHEDULE
_SPENT: Final = Kind.SPENT
_CARRY: Final = Kind.CARRY
_NO_ROW: Final = frozenset((Kind.SPENT, Kind.MARK))
A_COPY: Final = "a copy of what the service has written back: it says nothing again"


class BatchApply:
    """One batch under way. The caller holds the view's lock from the first `add` to the write."""

    def __init__(
        self,
        kv: KeyValue,
        known: Prefetched,
        frontiers: Frontiers,
        gone_to: bytes,
        window_start_ms: int,
        versions: SettingsVersions,
        begun: Begun,
        *,
        carries: bool,
    ) -> None:
        """`known`: what was stored before the batch. `gone_to`: the key below which rows behind the position
        may have been pruned. Rows done and due before `window_start_ms` are not kept. `versions`: all that
        any of the batch is read by. `begun`: where the view has begun. `carries`: whether the cluster does;
        then a batch has nothing but carries, or none.
        """
        aligned, heard = frontiers.aligned, frontiers.heard
        self.batch = kv.batch()
        self.counts: dict[int, int] = {}  # by minute, what rows become more by
        self.counts_below: dict[int, int] = {}  # the part of it that is at or below the position
        self.first_due_ms = NEVER_MS
        self.low_expiry: dict[int, bytes] = {}  # by partition
        self.low_due_index: dict[int, bytes] = {}
        self.low_row: bytes | None = None
        self.low_since: dict[int, int] = {}  # by partition
        self.urgent = False
        self.serials = dict(heard.serials)
        self.last_moves = dict(heard.last_moves)
        self._kv = kv
        self._aligned = aligned
        self._awaited = NOTHING if frontiers.checkpoint is None else frontiers.checkpoint.awaited
        self._bound = max(aligned.position or NO_KEY, frontiers.tip.position or NO_KEY)
        self._window_start_ms = window_start_ms
        self._newest_ms = heard.newest_ms
        self._versions = versions
        self._dedup_window_ms = versions.longest_dedup_window_ms
        self._gone_to = gone_to
        self._begun = begun
        self._carries = carries
        self._arrivals: Sequence[Arrival] = ()
        self._known = known
        self._indexes: dict[bytes, bytes | None] = {}  # as they will be once the batch is written
        self._tombstones: dict[bytes, int] = {}
        self._sources: dict[bytes, IndexEntry | None] = {}
        self._pending_answers: dict[RecordId, PendingAnswer] = {}
        self._due_index: dict[int, dict[int, int]] = {}  # packed, by partition and offset
        self._ids: dict[int, dict[int, str]] = {}  # of those of them that have one
        self._unstored: set[RecordId] = set()  # of this batch: done, and older than what is kept
        self._since: dict[RecordId, int] = {}
        # This batch's pending answers, by id or source.
        self._endings: dict[tuple[int, str | int], list[int]] = {}

    def add(self, arrivals: Sequence[Arrival]) -> None:
        """Takes the arrivals in log order; the hot path of apply."""
        put, row, counts, bound, bound_ms = self.batch.put, keys.row, self.counts, self._bound, self._bound[0]
        indexes, known = self._indexes, self._known.indexes
        first_due_ms = self.first_due_ms
        overruns = bool(self._aligned.overruns)
        current, begin = -1, b""
        packed: dict[int, int] = {}
        ids: dict[int, str] = {}
        self._arrivals = arrivals
        for arrival in arrivals:
            partition, offset, _, kind, due_ms, id_, parent, _, raw, _, tag = arrival
            if partition != current:
                current, begin = partition, keys.index(partition, "")
                packed, ids = self._due_index.setdefault(partition, {}), self._ids.setdefault(partition, {})
            if kind is not _SCHEDULE or parent is not None:
                admitted = self._resolve(arrival)
                if admitted is None:
                    continue
                offset, due_ms, raw, tag = admitted.offset, admitted.due_ms, admitted.raw, admitted.tag
            elif id_ is None:
                packed[offset] = due_ms << 1
            else:
                key = begin + id_.encode()
                if key in indexes or known.get(key, b"") is not None:
                    self._make_current(arrival, id_)
                else:  # most often nobody knows the id
                    indexes[key] = pack_own_index(due_ms, offset, tag)
                    packed[offset] = due_ms << 1 | 1
                    ids[offset] = id_
            below = due_ms <= bound_ms and (due_ms, partition, offset) <= bound
            if below and not self._store_late(partition, offset, due_ms, tag, named=id_ is not None):
                continue
            put(row(due_ms, partition, offset), raw)
            if due_ms < first_due_ms:  # noqa: PLR1730 - min() is a call
                first_due_ms = due_ms
            if overruns and self._aligned.overran((due_ms, partition, offset)):
                continue  # it is done: nobody counts it
            minute = due_ms // MINUTE_MS
            counts[minute] = counts.get(minute, 0) + 1
        self.first_due_ms = first_due_ms
        self._write_names()

    def _write_names(self) -> None:
        """What leads to rows by their ids and by their sources. The ids in order: the memtable is a tree, and
        half of what a put costs is the way to its place.
        """
        for key in sorted(self._indexes):
            raw = self._indexes[key]
            if raw is None:
                self.batch.delete(key)
            else:
                self.batch.put(key, raw)
        first_ms: Vector = {}
        if any(self._ids.values()):  # of each partition: they may be days apart
            first_ms = {a.partition: a.timestamp_ms for a in reversed(self._arrivals) if a.kind is not _SPENT}
        for partition, packed in self._due_index.items():
            if ids := self._ids[partition]:
                since_ms = first_ms[partition] - max(self._dedup_window_ms, MINUTE_MS)
                self._lower_expiry(partition, expiry.write(self.batch, partition, packed, ids, since_ms))
            if packed:
                self.low_due_index[partition] = due_index.write(self.batch, partition, packed)

    def _resolve(self, arrival: Arrival) -> Arrival | None:
        """What an arrival does beside leaving a row: what leaves one, it or what it carries; None: nothing
        does.
        """
        if arrival.kind is _CANCEL:
            self._cancel(arrival)
            return None
        if arrival.kind is _KEEP:
            return arrival if self._dedupe(arrival) else None
        if self._is_copy(arrival) or arrival.kind in _NO_ROW:
            return self._rejected(arrival)
        if arrival.kind is _CARRY:
            return self._apply_carry(arrival)
        if arrival.kind is _SCHEDULE and not self._apply_written_back(arrival):
            return None
        if arrival.kind is _RESCHEDULE:
            self._note_move(arrival.partition, arrival.due_ms)
        if self._carries:
            self._enqueue(
                arrival, arrival.offset if arrival.serial is None else arrival.serial[0], is_new=True
            )
        return arrival

    def _note_move(self, partition: int, due_ms: int) -> None:
        self.last_moves[partition] = max(due_ms, self.last_moves.get(partition, 0))

    def _is_copy(self, arrival: Arrival) -> bool:
        """Whether it is a copy, sent by somebody, of what the service has written back. Then it is nothing
        (rule 4).

        What the service itself has written is never taken for one: of what is written back into a partition
        each has a higher serial than all before it, the aborted ones too. Within a leadership the reader goes
        on, and the count goes up. A recovery, by whichever node, comes after the fencing. It reads to the
        last stable offset as it is then, and no reader has stood above that. And it counts from the
        partition's end as it is then, which is above all counts before it: each of them started at an end and
        went up by one for each record, so that none is above its own record's offset. In the log they stand
        in the order in which they were written. The highest serial is stored with the rows, in one batch with
        them, and is a function of the log, as they are.

        A copy stands behind its original, whose serial is spent there, whether it was committed or aborted:
        a higher serial, or the same, has been before it.
        """
        serial = arrival.serial
        if serial is None:
            return False  # a user's, or older than the cluster's keys
        last = self.serials.get(arrival.partition)
        if last is not None and serial <= last:
            return True
        self.serials[arrival.partition] = serial
        return False

    def _rejected(self, arrival: Arrival) -> Arrival | None:
        """What a copy is in the first meaning: a reject. None of what is nothing, as a copy is since."""
        settings = self._versions.settings_at(arrival.partition, arrival.offset)
        if settings.meaning > FIRST_MEANING or arrival.kind in _NO_ROW:
            return None
        return arrival if arrival.kind is Kind.REJECT else _rejected_copy(arrival)

    def _apply_written_back(self, arrival: Arrival) -> bool:
        """What follows from an earlier request takes its place if it has an id; False if it came too late.

        Without an id it leaves the earlier row where it is, and the source's entry points to the later one;
        and if it was parked, which is for later than its own time, it leaves a mark: a replay has to know of
        that row that it was not delivered.
        """
        if arrival.id is not None:
            return self._make_current(arrival, arrival.id)
        partition, root, parent = arrival.partition, arrival.root, arrival.parent
        assert parent is not None, "the caller looked"
        assert root is not None, "the parser refuses a parent without one"
        if self._tombstone(keys.source_tombstone(partition, root)) > parent:
            self._answer_first_pending(partition, (root,), parent)
            return False
        self._set_source(
            partition, root, IndexEntry(arrival.due_ms, arrival.offset, parent, root, arrival.tag)
        )
        self._expire_later(arrival.due_ms, arrival, root)
        row = decode_message(arrival.raw)
        if arrival.due_ms > row.scheduled_for_ms:  # an occurrence to come is not of long standing: no mark
            mark = ParkMark(arrival.due_ms, row.scheduled_for_ms)
            self.batch.put(keys.park_mark(partition, parent), encode(mark))
        return True

    def _apply_carry(self, arrival: Arrival) -> Arrival | None:
        """A row that is older, as it was: it is stored if it is not there, and if nothing that came after it
        has taken its place (rule 12). What is dropped answers nobody: what has ended it was answered before a
        checkpoint said that a node may begin behind the row's own record, and whoever has read that has the
        row, or has seen its end.

        Of what is done, and no more kept, what leads to it stays for as long as its id may be asked for.
        """
        assert arrival.serial is not None, "the parser refuses a carry without one"
        _, offset, raw = decode_carry(arrival.raw)
        own = arrival._replace(offset=offset, raw=raw, serial=None)
        if self._is_there(own):
            self._enqueue(own, arrival.serial[0])
            return None
        if self._counts_no_more(own, self._newest_by(arrival)):
            return None
        if is_schedule(raw):
            if not self._restore_names(own):
                return None
        elif is_reschedule(raw):
            self._note_move(own.partition, own.due_ms)
        self._enqueue(own, arrival.serial[0])
        return own

    def _is_there(self, own: Arrival) -> bool:
        """Whether the row of a carry is stored, or its id leads to it: it is done then, and was pruned."""
        partition, offset = own.partition, own.offset
        if (partition, offset) in self._since:
            return True  # another carry of it, in this batch
        if self._kv.get(keys.row(own.due_ms, partition, offset)) is not None:
            return True
        entry = None if own.id is None else self._index(keys.index(partition, own.id))
        return entry is not None and entry.offset == offset

    def _counts_no_more(self, own: Arrival, newest_ms: int) -> bool:
        """Whether it is done, neither kept nor known to who asks for its id, and nothing that follows it is
        awaited. While that is, a request of the id between the two is answered, or put off, by what it finds
        there (rules 2 and 3). What follows stands behind such a request in the log; so once that is awaited
        no more, *seen* has passed both. Without an id the source tells, whether the row is there or not.
        """
        partition, offset = own.partition, own.offset
        if own.due_ms >= self._window_start_ms:
            return False
        if not self._aligned.done((own.due_ms, partition, offset), own.tag):
            return False
        if own.id is None:
            return True
        if self._awaited.successor(partition, offset) is not None:
            return False
        if self._awaited.may_hide(partition, self._aligned.seen):
            return False
        return newest_ms >= own.due_ms + self._dedup_window_ms

    def _restore_names(self, own: Arrival) -> bool:
        """Has what leads to a schedule lead there again; False if something later has taken its place. What
        is done, and was followed, has nothing that leads there: it stays, whatever becomes of its chain.
        """
        row = decode_message(own.raw)
        if row.followed:
            return True
        partition, offset, id_ = own.partition, own.offset, own.id
        origin = offset if own.parent is None else own.parent
        root = offset if own.root is None else own.root
        if id_ is None:
            if self._tombstone(keys.source_tombstone(partition, root)) > origin:
                return False
            known = None if own.parent is None else self._source(partition, root)
            current = IndexEntry(own.due_ms, offset, origin, own.root, own.tag)
        else:
            known = self._index(keys.index(partition, id_))
            current = IndexEntry(own.due_ms, offset, origin, own.root, own.tag, row.moved_by)
            if self._is_stale(own, id_, known, origin):
                return False
            if known is not None:
                self._remove(partition, known)
            self._set_index(keys.index(partition, id_), current)
        if own.parent is None:
            self._write_due_entry(own)
        else:
            if known is None or known.origin < origin:
                self._set_source(partition, root, current)
            self._expire_later(own.due_ms, own, root if id_ is None else id_)
        return True

    def _write_due_entry(self, own: Arrival) -> None:
        """An entry of its own, unless one is there that has it: it would stand before the others of that."""
        partition = own.partition
        if own.id is not None:
            self._expire_later(own.due_ms, own, own.id)
        if due_index.has(self._kv, partition, own.offset):
            return
        packed = {own.offset: due_index.pack(own.due_ms, named=own.id is not None)}
        low = due_index.write(self.batch, partition, packed)
        self.low_due_index[partition] = min(low, self.low_due_index.get(partition, low))

    def _enqueue(self, own: Arrival, since: int, *, is_new: bool = False) -> None:
        """Has a row stand among those that may have to be carried, by its since (store/carrying.py)."""
        partition, offset, id_ = own.partition, own.offset, own.id
        known = self._since.get((partition, offset))
        if known is None and not is_new:
            raw = self._kv.get(keys.since(partition, offset))
            known = None if raw is None else decode_offset(raw)
        if known is not None:
            self.batch.delete(keys.queue(partition, known, offset))
        entry = QueueEntry(own.due_ms, id_ if is_schedule(own.raw) else None)
        self.batch.put(keys.queue(partition, since, offset), encode(entry))
        self.batch.put(keys.since(partition, offset), encode(since))
        self._since[partition, offset] = since
        self.low_since[partition] = min(since, self.low_since.get(partition, since))

    def _store_late(self, partition: int, offset: int, due_ms: int, tag: int, *, named: bool) -> bool:
        """What arrives at or below the position is late, unless the last checkpoint's applied had it. False
        if it is not stored at all.
        """
        key = due_ms, partition, offset
        was_applied = self._was_applied(partition, offset)
        if not was_applied:
            self.batch.put(keys.late(partition, offset), keys.pack_due(due_ms))
            self.urgent = True
        if not was_applied or due_ms >= self._window_start_ms:
            self.low_row = _lower(self.low_row, keys.row(*key))
        elif not self._keep_held(key, tag, named=named):
            self._unstored.add((partition, offset))
            return False
        if not self._aligned.overran(key):
            minute = due_ms // MINUTE_MS
            self.counts_below[minute] = self.counts_below.get(minute, 0) + 1
        return True

    def _was_applied(self, partition: int, offset: int) -> bool:
        """Whether the last checkpoint's applied had it."""
        return offset < self._aligned.applied.get(partition, 0)

    def _keep_held(self, key: RowKey, tag: int, *, named: bool) -> bool:
        """What is held is kept, however old it is, as if pruning had passed it: that may not come there any
        more.
        """
        if not self._aligned.is_held(key, tag):
            return False
        kept.put(self.batch, (tag, key, named))
        return True

    def _make_current(self, arrival: Arrival, id_: str) -> bool:
        """Makes the arrival its id's last request; False if it is a written-back one that came too late."""
        index_key = keys.index(arrival.partition, id_)
        entry = self._index(index_key)
        if arrival.parent is not None and self._is_stale(arrival, id_, entry, arrival.parent):
            self._answer_first_pending(arrival.partition, (id_, arrival.root), arrival.parent)
            return False
        if arrival.parent is None:
            self._due_index[arrival.partition][arrival.offset] = due_index.pack(arrival.due_ms, named=True)
            self._ids[arrival.partition][arrival.offset] = id_
        if entry is not None:
            self._remove(arrival.partition, entry)
            if arrival.parent is None:
                self._put_pending_answer(arrival, "schedule", id_, entry)
        origin = arrival.offset if arrival.parent is None else arrival.parent
        moved_by = None if arrival.parent is None else decode_message(arrival.raw).moved_by
        current = IndexEntry(arrival.due_ms, arrival.offset, origin, arrival.root, arrival.tag, moved_by)
        self._set_index(index_key, current)
        if arrival.root is not None and (entry is None or entry.source == arrival.root):
            self._set_source(arrival.partition, arrival.root, current)
        if arrival.parent is not None:
            self._expire_later(arrival.due_ms, arrival, id_)
        return True

    def _dedupe(self, arrival: Arrival) -> bool:
        """False if the id's last schedule is still known, however it ended: this one is a duplicate, which
        changes nothing. The index entry says so, which delivery leaves alone and a cancel takes away.
        """
        assert arrival.id is not None, "the parser refuses it without an id"
        if arrival.offset < self._begun.to.get(arrival.partition, 0):
            is_duplicate = (arrival.partition, arrival.offset) in self._begun.duplicates
            return not is_duplicate and self._make_current(arrival, arrival.id)
        entry = self._index(keys.index(arrival.partition, arrival.id))
        if entry is None or not self._is_known(arrival, entry):
            return self._make_current(arrival, arrival.id)
        self._put_pending_answer(arrival, "keep", arrival.id, entry)
        return False

    def _is_known(self, arrival: Arrival, entry: IndexEntry) -> bool:
        newest_ms = self._newest_by(arrival)
        return entry.due_ms > self._versions.known_from_ms(arrival.partition, arrival.offset, newest_ms)

    def _newest_by(self, arrival: Arrival) -> int:
        """The partition's newest timestamp up to an arrival: a function of the log, as no clock is."""
        return self._running_ms[arrival.partition, arrival.offset]

    @cached_property
    def _running_ms(self) -> dict[RecordId, int]:
        """By arrival, the partition's newest timestamp by then."""
        newest_ms, found = dict(self._newest_ms), dict[RecordId, int]()
        for one in self._arrivals:
            partition = one.partition
            newest_ms[partition] = max(newest_ms.get(partition, 0), one.timestamp_ms)
            found[partition, one.offset] = newest_ms[partition]
        return found

    def _is_stale(self, arrival: Arrival, id_: str, entry: IndexEntry | None, parent: int) -> bool:
        """Rule 4: a later schedule or cancel of the id stands between the parent and its written-back one.

        Or a cancel of its source: a view that begins behind the source's own record does not know by that
        which id is meant.
        """
        if entry is not None and entry.origin > parent:
            return True
        partition = arrival.partition
        root = arrival.offset if arrival.root is None else arrival.root
        ends = keys.tombstone(partition, id_), keys.source_tombstone(partition, root)
        return any(self._tombstone(end) > parent for end in ends)

    def _cancel(self, arrival: Arrival) -> None:
        """Of an id, or of a source: which is that of its id, if it has one (rule 2)."""
        if arrival.root is not None:
            self._cancel_source(arrival, arrival.root)
        else:
            assert arrival.id is not None, "the parser refuses a cancel without an id or a source"
            self._cancel_id(arrival, arrival.id, None)

    def _cancel_source(self, arrival: Arrival, source: int) -> None:
        entry = self._source(arrival.partition, source)
        due_entry = self._due_entry(arrival.partition, source) if entry is None else None
        id_ = self._id_of_source(arrival.partition, source, entry, due_entry)
        if id_ is not None:
            self._cancel_id(arrival, id_, source)
        else:
            self._cancel_without_id(arrival, source, entry, due_entry)

    def _cancel_id(self, arrival: Arrival, id_: str, source: int | None) -> None:
        partition = arrival.partition
        index_key = keys.index(partition, id_)
        entry = self._index(index_key)
        if entry is not None:
            self._remove(partition, entry)
            self._set_index(index_key, None)
        self._put_pending_answer(arrival, "cancel", id_, entry, source)
        self._put_tombstone(keys.tombstone(partition, id_), arrival, id_)

    def _cancel_without_id(
        self, arrival: Arrival, source: int, entry: IndexEntry | None, due_entry: DueEntry | None
    ) -> None:
        """The tombstone stays, found or not: another node may still know what this one has forgotten."""
        entry = self._row_without_id(arrival.partition, source, entry, due_entry)
        if entry is not None:
            self._remove(arrival.partition, entry)
        ended = (
            () if due_entry is None or due_entry.id is None else self._ends(arrival.partition, due_entry.id)
        )
        self._put_pending_answer(arrival, "cancel", None, entry, source, ended)
        self._put_tombstone(keys.source_tombstone(arrival.partition, source), arrival, source)

    def _put_tombstone(self, tombstone_key: bytes, arrival: Arrival, who: str | int) -> None:
        self._tombstones[tombstone_key] = arrival.offset
        self.batch.put(tombstone_key, encode(arrival.offset))
        self._expire_later(arrival.timestamp_ms, arrival, who)

    def _id_of_source(
        self, partition: int, source: int, entry: IndexEntry | None, due_entry: DueEntry | None
    ) -> str | None:
        """The id of a source's message, if the id's entry goes back to that source."""
        if entry is not None:
            id_ = self._id_of_written_back(partition, entry)
        else:
            id_ = None if due_entry is None else due_entry.id
        current = None if id_ is None else self._index(keys.index(partition, id_))
        return id_ if current is not None and current.source == source else None

    def _id_of_written_back(self, partition: int, entry: IndexEntry) -> str | None:
        arrival = self._in_batch(partition, entry.offset)
        if arrival is not None:
            return arrival.id
        return expiry.id_of_written_back(self._kv, partition, entry.due_ms, entry.offset)

    def _row_without_id(
        self, partition: int, source: int, entry: IndexEntry | None, due_entry: DueEntry | None
    ) -> IndexEntry | None:
        """The row of a source without an id: what was last written back for it, or its own. None if it was
        cancelled, or is no more.
        """
        if self._tombstone(keys.source_tombstone(partition, source)) >= 0:
            return None
        if entry is not None or due_entry is None or due_entry.id is not None:
            return entry
        new = self._in_batch(partition, source)
        if new is not None and (partition, source) not in self._unstored:
            return IndexEntry(due_entry.due_ms, source, source, None, new.tag)
        raw = self._kv.get(keys.row(due_entry.due_ms, partition, source))
        return None if raw is None else IndexEntry(due_entry.due_ms, source, source, None, row_tag(raw))

    def _due_entry(self, partition: int, offset: int) -> DueEntry | None:
        packed = self._due_index.get(partition, {}).get(offset)
        if packed is not None:
            return DueEntry(packed >> 1, self._ids[partition].get(offset))
        stored, at = self._known.due_index, (partition, offset)
        return stored[at] if at in stored else due_index.find(self._kv, partition, offset)

    def _in_batch(self, partition: int, offset: int) -> Arrival | None:
        return self._by_record.get((partition, offset))

    @cached_property
    def _by_record(self) -> dict[RecordId, Arrival]:
        return {(one.partition, one.offset): one for one in self._arrivals}

    def _remove(self, partition: int, entry: IndexEntry) -> None:
        """Removes the row at once: in flight or not, delivered or not; only the answer waits (rule 2).

        Its index entry goes with it, or points to another row from now on, so nothing is left to expire. What
        shares its expiry entry with others finds that out when those expire.
        """
        self.batch.delete(keys.row(entry.due_ms, partition, entry.offset))
        self.batch.delete(keys.late(partition, entry.offset))
        if entry.origin != entry.offset:  # it was written back: the entry is its own
            self.batch.delete(keys.expiry(partition, entry.due_ms, entry.offset))
            self.batch.delete(keys.kept(partition, entry.offset))
        known = None if entry.root is None else self._source(partition, entry.root)
        if entry.root is not None and known is not None and known.offset == entry.offset:
            self._set_source(partition, entry.root, None)
        key = entry.due_ms, partition, entry.offset
        if self._aligned.overran(key) or self._is_gone(key):
            return
        minute = entry.due_ms // MINUTE_MS
        self.counts[minute] = self.counts.get(minute, 0) - 1
        if key <= self._bound:
            self.counts_below[minute] = self.counts_below.get(minute, 0) - 1

    def _is_gone(self, key: RowKey) -> bool:
        """Whether a row behind the position was pruned, before that moved back: no count has it."""
        row = keys.row(*key)
        if row >= self._gone_to or key <= self._bound or self._in_batch(*key[1:]) is not None:
            return False
        return self._kv.get(row) is None

    def _put_pending_answer(
        self,
        arrival: Arrival,
        op: str,
        id_: str | None,
        removed: IndexEntry | None,
        source: int | None = None,
        ended: Iterable[int] = (),
    ) -> None:
        """`ended`: where what a source without an entry had as its id was ended before."""
        partition = arrival.partition
        if arrival.offset < self._aligned.seen.get(partition, 0):
            return  # answered already
        if id_ is not None:
            cancelled = self._tombstone(keys.tombstone(partition, id_))
        else:
            assert source is not None, "it names one of the two"
            cancelled = self._tombstone(keys.source_tombstone(partition, source))
        previous = max(cancelled, *ended, -1 if removed is None else removed.origin)
        pending = PendingAnswer(
            op, id_, removed, effective=False, previous=previous, source=source, cancelled=cancelled
        )
        self._store_pending_answer(partition, arrival.offset, pending)
        if pending.ends:
            self.batch.put(keys.ending(partition, pending.who, arrival.offset), b"")
            self._endings.setdefault((partition, pending.who), []).append(arrival.offset)
        self.urgent = True

    def _answer_first_pending(self, partition: int, whose: Sequence[str | int | None], parent: int) -> None:
        """The first pending answer above the parent of a dropped written-back request has ended it (rule 2):
        one of its id; of its source, where it has no id, or the view does not know it of the source.

        Nothing of the id stands between the two, so the last of it before the pending answer is not above the
        parent. The first one may have been answered and gone, on this node and not on others: then no later
        one takes its place.
        """
        offset = self._first_pending(partition, whose, parent + 1)
        if offset is None:
            return
        pending = self._pending_answer(partition, offset)
        if pending.previous <= parent:
            self._store_pending_answer(partition, offset, msgspec.structs.replace(pending, effective=True))

    def _first_pending(self, partition: int, whose: Sequence[str | int | None], begin: int) -> int | None:
        """The first one of an id, or of its source, from an offset on that waits for its answer and is none
        that asks to keep. Not the source's, where something has ended the id before that: that was it.
        """
        found = [self._first_pending_of(partition, who, begin) for who in whose if who is not None]
        if len(found) > 1:
            of_id, of_source = found
            ends = self._ends(partition, str(whose[0]))
            if of_id is not None:
                pending = self._pending_answer(partition, of_id)
                ends += pending.previous, pending.cancelled
            if of_source is not None and any(begin <= end < of_source for end in ends):
                return of_id
        return min((offset for offset in found if offset is not None), default=None)

    def _ends(self, partition: int, id_: str) -> list[int]:
        """Where the id was cancelled last, and where its schedule begins that stands; -1: nowhere."""
        entry = self._index(keys.index(partition, id_))
        return [self._tombstone(keys.tombstone(partition, id_)), -1 if entry is None else entry.origin]

    def _first_pending_of(self, partition: int, who: str | int, begin: int) -> int | None:
        """In the store, or, since a batch comes after all that is stored, in this batch."""
        end = keys.ending(partition, who, MAX_OFFSET)
        for raw_key, _ in self._kv.scan(keys.ending(partition, who, begin), end):
            return keys.ending_offset(raw_key)
        return next((offset for offset in self._endings.get((partition, who), ()) if offset >= begin), None)

    def _pending_answer(self, partition: int, offset: int) -> PendingAnswer:
        known = self._pending_answers.get((partition, offset))
        if known is not None:
            return known
        raw = self._kv.get(keys.pending_answer(partition, offset))
        if raw is None:
            raise Damaged(f"pending answer {partition}/{offset} is missing")
        return decode_pending_answer(raw)

    def _store_pending_answer(self, partition: int, offset: int, pending: PendingAnswer) -> None:
        self._pending_answers[partition, offset] = pending
        self.batch.put(keys.pending_answer(partition, offset), encode(pending))

    def _index(self, key: bytes) -> IndexEntry | None:
        if key in self._indexes:
            raw = self._indexes[key]
        else:
            stored = self._known.indexes
            raw = stored[key] if key in stored else self._kv.get(key)
        return None if raw is None else decode_index(raw)

    def _set_index(self, key: bytes, entry: IndexEntry | None) -> None:
        self._indexes[key] = None if entry is None else encode_index(entry)

    def _source(self, partition: int, root: int) -> IndexEntry | None:
        key = keys.source(partition, root)
        if key in self._sources:
            return self._sources[key]
        stored = self._known.sources
        raw = stored[key] if key in stored else self._kv.get(key)
        return None if raw is None else decode_index(raw)

    def _set_source(self, partition: int, root: int, entry: IndexEntry | None) -> None:
        key = keys.source(partition, root)
        self._sources[key] = entry
        if entry is None:
            self.batch.delete(key)
        else:
            self.batch.put(key, encode_index(entry))

    def _tombstone(self, key: bytes) -> int:
        """The offset of the id's, or source's, last cancel, -1 for none."""
        if key in self._tombstones:
            return self._tombstones[key]
        stored = self._known.tombstones
        raw = stored[key] if key in stored else self._kv.get(key)
        return -1 if raw is None else decode_offset(raw)

    def _expire_later(self, due_ms: int, arrival: Arrival, who: str | int) -> None:
        partition = arrival.partition
        self._lower_expiry(partition, expiry.write_one(self.batch, partition, due_ms, arrival.offset, who))

    def _lower_expiry(self, partition: int, key: bytes) -> None:
        self.low_expiry[partition] = _lower(self.low_expiry.get(partition), key)


def _rejected_copy(copy: Arrival) -> Arrival:
    row = decode_row(copy.raw)
    reject = encode(RejectRow(row.key, row.value, row.headers, RejectCode.BAD_PARENT, A_COPY))
    return copy._replace(
        kind=Kind.REJECT, due_ms=copy.timestamp_ms, id=None, parent=None, root=None, raw=reject, tag=NO_TAG
    )


def _lower(known: bytes | None, key: bytes) -> bytes:
    return key if known is None else min(known, key)
