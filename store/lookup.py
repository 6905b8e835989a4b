"""Looking into the view from outside: what is known of an id, what is pending, page by page, and what a
replay or a skip would do.

No look holds apply or delivery up. What must belong together is taken under the view's lock in a moment: a
few entries, and scans, which are snapshots. They are walked outside it, in slices, with a rest after each,
since whoever walks holds the interpreter.

Pending is what is not done under the aligned checkpoint: the late and the held rows, which lie at or below
its position, and all behind it. So these two, merged, come before every other one in key order, and a page
that begins behind a key meets each message that stays pending once, whatever comes and goes meanwhile.
"""

from __future__ import annotations

import heapq
import threading
import time
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from functools import partial
from operator import itemgetter
from typing import Final, NamedTuple, TypeVar

import msgspec

from delayline.headers import H_SCHEDULED_FOR
from delayline.times import MINUTE_MS
from store import due_index, keys, rehearsal
from store.checkpoint import Frontier, Reached
from store.due import Due, DueWalk, TargetCounts
from store.holds import BEFORE_ALL, NO_TAG
from store.keys import RowKey
from store.kv import KeyValue
from store.operations import ReplayRequest, SkipRequest
from store.rows import (
    IndexEntry,
    Row,
    ScheduledRow,
    decode_index,
    decode_offset,
    decode_row,
    message_target,
    target_of_message,
)
from store.view import FOREVER_MS, View

T = TypeVar("T")

LOOK_AT_CLOCK: Final = 64  # entries
SLICE_S: Final = 0.002
REST_S: Final = 0.002
MOST_WALKED: Final = 200_000
MOST_S: Final = 5.0
"""What one walk takes at most, of rows and of time (they may be large): what is left is for the next page."""
MOST_REHEARSED: Final = 10_000_000
MOST_REHEARSED_S: Final = 20.0
"""The same for a rehearsal, which has no next page."""


class ViewClosed(Exception):
    """The view is being closed: ask another node."""


class IdState(NamedTuple):
    """What the view knows of an id, or of a source: its last schedule, with the row if that is still stored;
    else the offset of its last cancel; else nothing. `id`: of what a source names; `tag`: of the schedule's
    target, for when its row has gone.
    """

    reached: Reached
    aligned: Frontier
    key: RowKey | None
    row: ScheduledRow | None
    cancelled_by: int | None
    id: str | None = None
    tag: int = NO_TAG

    @property
    def done(self) -> bool:
        """Whether the schedule is."""
        target = self.tag if self.row is None else target_of_message(self.row)
        return self.key is not None and self.aligned.done(self.key, target)


class Query(msgspec.Struct, frozen=True):
    """Which pending rows are wanted: due in begin <= due < end, to a target, with an id that begins so."""

    begin_ms: int = 0
    end_ms: int = FOREVER_MS
    target: str | None = None
    id_prefix: str = ""

    @property
    def of_messages(self) -> bool:
        """Whether a row has to be read to know that it is wanted."""
        return self.target is not None or bool(self.id_prefix)

    def wants(self, row: Row | None) -> bool:
        """By what the row says, not by its time. Only messages have a target or an id here."""
        if not self.of_messages:
            return row is not None
        if not isinstance(row, ScheduledRow):
            return False
        to_target = self.target is None or row.target_topic == self.target
        return to_target and (not self.id_prefix or (row.id or "").startswith(self.id_prefix))

    def covers(self, key: RowKey) -> bool:
        """Whether the time of a row is wanted."""
        return self.begin_ms <= key[0] < self.end_ms


class Total(msgspec.Struct, frozen=True):
    """How many rows are wanted in all; `at_least` if not all were looked at."""

    count: int
    at_least: bool


class RowPage(NamedTuple):
    """Wanted rows in key order. `last`: the key behind which the next page begins; None if this is the end.
    `total`: of the first page alone.
    """

    reached: Reached
    aligned: Frontier
    rows: list[tuple[RowKey, Row]]
    last: RowKey | None
    total: Total | None


class Lookup:
    """Looks into one view. May be used by any thread, until it is closed."""

    def __init__(self, view: View) -> None:
        self._view = view
        self._changed = threading.Condition()
        self._users = 0
        self._closed = False

    def close(self) -> None:
        """Ends the looks under way and waits for their end: the view may be closed then."""
        with self._changed:
            self._closed = True
            self._changed.wait_for(lambda: self._users == 0)

    def find(self, partition: int, id_: str) -> IdState:
        """What is known of an id, at one moment. Raises `ViewClosed`."""

        def take(kv: KeyValue, aligned: Frontier, reached: Reached) -> IdState:
            raw_entry = kv.get(keys.index(partition, id_))
            if raw_entry is None:
                raw_cancel = kv.get(keys.tombstone(partition, id_))
                cancelled_by = None if raw_cancel is None else decode_offset(raw_cancel)
                return IdState(reached, aligned, None, None, cancelled_by)
            entry = decode_index(raw_entry)
            key = _key(entry, partition)
            row = _row(kv, key)
            scheduled = row if isinstance(row, ScheduledRow) else None
            return IdState(reached, aligned, key, scheduled, None, tag=entry.tag)

        with self._open():
            return self._view.snapshot(take)

    def find_source(self, partition: int, source: int) -> IdState:
        """What is known of a user's request by its offset, at one moment; only its `id`, if it has one that
        goes back to it: that is asked for. Raises `ViewClosed`.
        """

        def take(kv: KeyValue, aligned: Frontier, reached: Reached) -> IdState:
            id_ = due_index.id_of_source(kv, partition, source)
            raw_cancel = kv.get(keys.source_tombstone(partition, source))
            if id_ is not None or raw_cancel is not None:
                cancelled_by = None if id_ is not None or raw_cancel is None else decode_offset(raw_cancel)
                return IdState(reached, aligned, None, None, cancelled_by, id_)
            raw_entry = kv.get(keys.source(partition, source))
            due_entry = due_index.find(kv, partition, source)
            if raw_entry is not None:
                key = _key(decode_index(raw_entry), partition)
            elif due_entry is not None and due_entry.id is None:
                key = (due_entry.due_ms, partition, source)
            else:
                return IdState(reached, aligned, None, None, None)
            raw_row = kv.get(keys.row(*key))
            row = None if raw_row is None else _bare(raw_row)
            scheduled = row if isinstance(row, ScheduledRow) else None
            known = scheduled is not None or raw_entry is not None
            return IdState(reached, aligned, key if known else None, scheduled, None)

        with self._open():
            return self._view.snapshot(take)

    def page(self, query: Query, after: RowKey | None, limit: int) -> RowPage:
        """Up to `limit` of the wanted rows behind `after`; fewer, with a `last`, where the walk grows too
        long. Raises `ViewClosed`.
        """
        with self._open():
            by_id = self._view.snapshot(partial(_IdWalk, query)) if query.id_prefix else None
            page = None if by_id is None else self._by_id(by_id, query, after, limit)
            if page is not None:
                return page
            walk = self._view.snapshot(partial(_TimeWalk, query, after))
            return self._by_time(walk, query, after, limit)

    def due(self, now_ms: int) -> tuple[Reached, Frontier, Due]:
        """What is pending, by due time; within a second, whatever is pending. Raises `ViewClosed`."""
        with self._open():
            walk = self._view.snapshot(partial(DueWalk, now_ms, self._view))
            return walk.reached, walk.aligned, walk.counted(self._sliced)

    def rehearse(
        self, request: ReplayRequest | SkipRequest, now_ms: int, window_ms: int
    ) -> rehearsal.Rehearsed:
        """What would come of a request, whatever its number. Raises `ViewClosed`."""
        with self._open():
            begun = self._view.snapshot(partial(rehearsal.begin, request, now_ms, window_ms))
            counts = TargetCounts()
            walked = ((target,) for target in begun.targets)
            for entry in self._sliced(walked, most=(MOST_REHEARSED, MOST_REHEARSED_S)):
                if entry is None:
                    return rehearsal.Rehearsed(*begun[:3], counts.targets, at_least=True)
                counts.add(entry[0])
            return rehearsal.Rehearsed(*begun[:3], counts.targets, at_least=counts.cut)

    @contextmanager
    def _open(self) -> Iterator[None]:
        with self._changed:
            if self._closed:
                raise ViewClosed("the node is stopping")
            self._users += 1
        try:
            yield
        finally:
            with self._changed:
                self._users -= 1
                self._changed.notify_all()

    def _sliced(
        self,
        entries: Iterable[T],
        *,
        most: tuple[int, float] | None = None,
        to_end: bool = False,
    ) -> Iterator[T | None]:
        """The entries; None, and no more of them, where it has taken too much, unless it goes `to_end`.

        `most`: entries and seconds, where that is not what is usual.
        """
        most_walked, most_s = most or (MOST_WALKED, MOST_S)
        begun_s = rested_s = time.monotonic()
        for number, entry in enumerate(entries):
            if number % LOOK_AT_CLOCK == 0 and (now_s := time.monotonic()) - rested_s > SLICE_S:
                if self._closed:
                    raise ViewClosed("the node is stopping")
                if not to_end and now_s - begun_s > most_s:
                    yield None
                    return
                time.sleep(REST_S)
                rested_s = time.monotonic()
            if number == most_walked and not to_end:
                yield None
                return
            yield entry

    def _by_id(self, walk: _IdWalk, query: Query, after: RowKey | None, limit: int) -> RowPage | None:
        """By the id index, which has the ids that begin so side by side; None if they are too many."""
        wanted: list[RowKey] = []
        for entry in self._sliced(walk.entries):
            if entry is None:
                return None
            raw_key, raw_entry = entry
            indexed = decode_index(raw_entry)
            key = _key(indexed, keys.named(raw_key))
            if walk.aligned.done(key, indexed.tag) or not query.covers(key):
                continue
            if query.target is None or query.wants(_row(walk.kv, key)):
                wanted.append(key)
        total = Total(len(wanted), at_least=False) if after is None else None
        first = heapq.nsmallest(limit + 1, (key for key in wanted if after is None or key > after))
        last = first[limit - 1] if len(first) > limit else None
        found = [(key, _row(walk.kv, key)) for key in first[:limit]]
        return RowPage(walk.reached, walk.aligned, _stored(found), last, total)

    def _by_time(self, walk: _TimeWalk, query: Query, after: RowKey | None, limit: int) -> RowPage:
        first, most = after is None, limit + 1
        late, late_count = self._late(walk, query, after, limit)
        held = self._walked(walk.held, query, most, to_end=first)
        passed = heapq.merge(((key, _row(walk.kv, key)) for key in late), held.rows, key=itemgetter(0))
        matched, stopped_at = late_count + held.matched, held.stopped_at
        if stopped_at is None:
            found = list(passed)
            to_end = query.of_messages and first
            behind = self._walked(walk.behind, query, most - len(found), to_end=to_end)
            found += behind.rows
            matched, stopped_at = matched + behind.matched, behind.stopped_at
        else:  # late ones behind that are for the next page
            found = [one for one in passed if one[0] <= stopped_at]
        last = found[limit - 1][0] if len(found) > limit else stopped_at
        if not first:
            total = None
        elif query.of_messages:
            total = Total(matched, at_least=stopped_at is not None)
        else:
            total = self._counted(walk, late_count, held)
        return RowPage(walk.reached, walk.aligned, _stored(found[:limit]), last, total)

    def _late(
        self, walk: _TimeWalk, query: Query, after: RowKey | None, limit: int
    ) -> tuple[list[RowKey], int]:
        """The first of the wanted late rows behind `after`, and how many are wanted. They lie by offset, so
        all are looked at.
        """
        count = 0
        first: list[RowKey] = []  # those to be shown, sorted whenever twice as many have come together
        for entry in self._sliced(walk.late, to_end=True):
            assert entry is not None, "it goes to the end"
            raw_key, raw_due = entry
            key = (keys.unpack_due(raw_due), *keys.record_id(raw_key))
            if not walk.late_and_pending(key) or not query.covers(key):
                continue
            if query.of_messages and not query.wants(_row(walk.kv, key)):
                continue
            count += 1
            if after is None or key > after:
                first.append(key)
                if len(first) > 2 * limit + 2:
                    first = sorted(first)[: limit + 1]
        return sorted(first)[: limit + 1], count

    def _walked(
        self, entries: Iterable[tuple[bytes, bytes | None]], query: Query, most: int, *, to_end: bool
    ) -> _Walked:
        """Wanted rows in key order: `most` of them, and `to_end` counts on."""
        rows: list[tuple[RowKey, Row]] = []
        matched = 0
        raw_key = keys.row(0, 0, 0)
        for entry in self._sliced(entries):
            if entry is None:
                return _Walked(rows, matched, keys.timed(raw_key))
            if len(rows) >= most and not to_end:
                break
            raw_key, raw = entry
            if raw is None:
                continue
            row = _bare(raw)
            if query.wants(row):
                matched += 1
                if len(rows) < most:
                    rows.append((keys.timed(raw_key), row))
        return _Walked(rows, matched, None)

    def _counted(self, walk: _TimeWalk, late_count: int, held: _Walked) -> Total:
        """Whole minutes by their counts; the rows of the first and the last one are walked."""
        count = late_count + held.matched + sum(decode_offset(raw) for _, raw in walk.minutes)
        for scan in (walk.before_minutes, walk.after_minutes):
            for entry in self._sliced(scan):
                if entry is None:
                    return Total(count, at_least=True)
                count += not _is_over(walk.aligned, *entry)
        return Total(count, at_least=held.stopped_at is not None)


class _Walked(NamedTuple):
    """`stopped_at`: the last row looked at, if there may be more."""

    rows: list[tuple[RowKey, Row]]
    matched: int
    stopped_at: RowKey | None


class _IdWalk:
    """The index entries whose ids begin with the query's prefix. Made under the view's lock."""

    def __init__(self, query: Query, kv: KeyValue, aligned: Frontier, reached: Reached) -> None:
        self.kv, self.aligned, self.reached = kv, aligned, reached
        scans = []
        for partition in sorted(reached.applied):
            begin = keys.index(partition, query.id_prefix)
            scans.append(kv.scan(begin, begin[:-1] + bytes([begin[-1] + 1])))  # UTF-8 has no byte 255
        self.entries = (entry for scan in scans for entry in scan)


class _TimeWalk:
    """The scans of one look at the rows, by time. Made under the view's lock."""

    def __init__(
        self, query: Query, after: RowKey | None, kv: KeyValue, aligned: Frontier, reached: Reached
    ) -> None:
        self.kv, self.aligned, self.reached = kv, aligned, reached
        position = aligned.position
        behind = keys.behind(position)
        begin, end = max(behind, keys.row(query.begin_ms, 0, 0)), keys.row(query.end_ms, 0, 0)
        self.late = kv.scan(keys.LATE, keys.end_of(keys.LATE))
        self.held = self._held(query, after)
        self.behind = self._undone(begin if after is None else max(begin, keys.after(keys.row(*after))), end)
        # In between are whole minutes: no row of theirs is done that is counted, and none is not counted that
        # is held, as behind the position only what an overrun has passed can be.
        passed = [one.position for one in aligned.overruns] if aligned.holds else []
        counted_from = max((begin, *(keys.after(keys.row(*key)) for key in passed)))
        first, last = _next_minute(counted_from), query.end_ms // MINUTE_MS
        middle = min(keys.row(first * MINUTE_MS, 0, 0), end)
        self.before_minutes = kv.scan(begin, middle)
        self.minutes = kv.scan(keys.count(first), keys.count(max(first, last)))
        self.after_minutes = kv.scan(max(middle, keys.row(last * MINUTE_MS, 0, 0)), end)

    def _undone(self, begin: bytes, end: bytes) -> Iterator[tuple[bytes, bytes | None]]:
        """What lies behind the position; without its row what a clock that was ahead has delivered."""
        aligned, entries = self.aligned, self.kv.scan(begin, end)
        return ((raw_key, None if _is_over(aligned, raw_key, raw) else raw) for raw_key, raw in entries)

    def _held(self, query: Query, after: RowKey | None) -> Iterator[tuple[bytes, bytes | None]]:
        """What lies between the beginning of the first hold and the end of the last one; without its row what
        is not held: others' messages are delivered there.
        """
        aligned = self.aligned
        if not aligned.holds or aligned.position is None:
            return iter(())
        ends = [min(hold.last or aligned.position, aligned.position) for hold in aligned.holds]
        begin = max(min(hold.next for hold in aligned.holds), BEFORE_ALL if after is None else after)
        end = min(keys.after(keys.row(*max(ends))), keys.row(query.end_ms, 0, 0))
        entries = self.kv.scan(max(keys.after(keys.row(*begin)), keys.row(query.begin_ms, 0, 0)), end)
        return ((raw_key, raw if _is_held(aligned, raw_key, raw) else None) for raw_key, raw in entries)

    def late_and_pending(self, key: RowKey) -> bool:
        """Whether a late entry's row is at or below the aligned position and not done: one above it is among
        those behind, whatever this node has in flight.
        """
        position = self.aligned.position
        return position is not None and key <= position and not self.aligned.passed(key)


def _next_minute(raw_row: bytes) -> int:
    """The first minute that begins at a row's key or above it."""
    if len(raw_row) < keys.TIMED_BYTES:
        return 0
    minute = keys.timed(raw_row[: keys.TIMED_BYTES])[0] // MINUTE_MS
    return minute if raw_row <= keys.row(minute * MINUTE_MS, 0, 0) else minute + 1


def _is_held(aligned: Frontier, raw_key: bytes, raw: bytes) -> bool:
    """Whether a row is held; a late one is not held yet."""
    key = keys.timed(raw_key)
    return aligned.passed(key) and aligned.is_held(key, message_target(raw))


def _is_over(aligned: Frontier, raw_key: bytes, raw: bytes) -> bool:
    """Whether a row behind the position is done."""
    return aligned.overran(keys.timed(raw_key)) and not _is_held(aligned, raw_key, raw)


def _key(entry: IndexEntry, partition: int) -> RowKey:
    return entry.due_ms, partition, entry.offset


def _row(kv: KeyValue, key: RowKey) -> Row | None:
    raw = kv.get(keys.row(*key))
    return None if raw is None else _bare(raw)


def _bare(raw: bytes) -> Row:
    """A row without the message itself: a page of large ones would be large, and nobody is shown any."""
    row = decode_row(raw)
    kept = [header for header in row.headers if header[0] == H_SCHEDULED_FOR]  # it tells what is parked
    bare: Row = msgspec.structs.replace(row, key=None, value=None, headers=kept)
    return bare


def _stored(found: Iterable[tuple[RowKey, Row | None]]) -> list[tuple[RowKey, Row]]:
    """The rows that have not gone since."""
    return [(key, row) for key, row in found if row is not None]
