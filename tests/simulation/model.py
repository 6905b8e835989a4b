"""The plain model: what has to become of each request, from the committed log and the checkpoints alone.

It shares no code with the core. A request means what its user meant (tests/simulation/requests.py); a row is
done from the first checkpoint on whose position and applied vector cover it; a cancel or replace counts from
the first checkpoint on whose seen vector covers it; a reschedule is decided in the transaction that makes
its own row done, by what that transaction's checkpoint had seen, and by what had been written back before.
All times in ms.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from itertools import pairwise

from delayline.outcome_kinds import OutcomeKind
from store.checkpoint import Checkpoint
from tests.simulation.changes import Eras
from tests.simulation.host import Violation
from tests.simulation.log import Entry, Partition
from tests.simulation.requests import Kind, Request

RowKey = tuple[int, int, int]
RecordId = tuple[int, int]
NEVER = 1 << 60
MOST_DEFERRED = 2
AGAIN = "deferred again"
"""For a row that is done: it counts."""
DEFERRED = frozenset((OutcomeKind.DEFERRED, AGAIN))
CARRIED_OUT = DEFERRED | {OutcomeKind.RESCHEDULED}
CONCERNED = CARRIED_OUT | {OutcomeKind.TOO_LATE}


@dataclass(slots=True, eq=False)
class Row:
    """A request that waits for its time: a message, a reject or a reschedule."""

    place: RecordId
    due_ms: int
    scheduled_for_ms: int
    expire_at_ms: int | None
    request: Request  # the user's own, also of what the service wrote back
    root: RecordId
    origin: int
    parent: int | None = None
    number: int | None = None  # of a recurring message: which delivery; None: the first is to be found
    every_ms: int = 0  # and how long after it the next one comes
    attempt: int = 1  # one more each time that it is parked, or that a reschedule is deferred
    moved_by: int | None = None  # offset of the user's last reschedule of it
    moved: bool = False  # a reschedule has put it elsewhere
    successor: Row | None = None  # what was written back for it
    follows: int = -1  # offset of the row that it was written back for
    removed_by: int | None = None  # offset, in the same partition
    dropped: bool = False  # written back too late: never stored
    deferred: bool = False  # what was written back for it is the message, or the reschedule
    passed_in: int = NEVER  # number of the transaction (and checkpoint) that has passed it
    done_in: int = NEVER  # of the one under which it is done: it may be held meanwhile

    @property
    def key(self) -> RowKey:
        return (self.due_ms, *self.place)

    @property
    def last_request(self) -> int:
        """The offset of the user's last request that counts."""
        return self.root[1] if self.moved_by is None else self.moved_by


@dataclass(slots=True)
class PendingAnswer:
    """A cancel, or a schedule that replaces."""

    place: RecordId
    request: Request
    removed: Row | None
    id: str | None = None  # of the message, where that has one
    duplicate: bool = False  # it asked for what was there, which is `removed`, and not removed
    ended: bool = False  # it kept what was written back after the removed row from being stored


@dataclass(slots=True)
class Model:
    """What follows from the log. Transactions are numbered by their checkpoints, from 0."""

    checkpoints: list[Checkpoint]
    eras: Eras
    most_awaited: int = NEVER  # so many of what was moved are listed of a partition
    rows: dict[RecordId, Row] = field(default_factory=dict)
    pending_answers: list[PendingAnswer] = field(default_factory=list)
    _last: dict[tuple[int, str], list[tuple[int, Row | None]]] = field(default_factory=dict)
    _cancels: dict[tuple[int, str], int] = field(default_factory=dict)
    _cancelled_ms: dict[RecordId, int] = field(default_factory=dict)
    _reschedules: dict[tuple[int, str], list[Row]] = field(default_factory=dict)
    _unnamed: dict[RecordId, Row | None] = field(
        default_factory=dict
    )  # by root: its last row; None: cancelled
    _unnamed_cancels: dict[RecordId, int] = field(default_factory=dict)
    _newest_ms: dict[int, int] = field(default_factory=dict)
    _positions: list[RowKey] = field(default_factory=list)
    _reigns: list[tuple[int, int]] = field(default_factory=list)  # in each of them the position rises
    _applied: dict[int, list[int]] = field(default_factory=dict)
    _seen: dict[int, list[int]] = field(default_factory=dict)

    def read(self, buffer: list[Partition], partitions: list[int]) -> None:
        """Reads the committed requests of the lane's partitions."""
        self._positions = [one.position or (-1, -1, -1) for one in self.checkpoints]
        falls = [n for n, pair in enumerate(pairwise(self._positions), 1) if pair[1] < pair[0]]
        self._reigns = list(pairwise([0, *falls, len(self._positions)]))
        for number in partitions:
            self._applied[number] = [one.applied.get(number, 0) for one in self.checkpoints]
            self._seen[number] = [one.seen.get(number, 0) for one in self.checkpoints]
            partition = buffer[number]
            for entry in partition.committed(0, partition.end):
                self._take(entry)

    # ------------------------------------------------------------------ when

    def seen_in(self, place: RecordId) -> int:
        """The first transaction whose checkpoint had seen what stands there."""
        return _first(self._seen[place[0]], place[1] + 1)

    def passed_in(self, key: RowKey) -> int:
        """The first transaction under whose checkpoint a row with this key is passed: it is so for good,
        wherever the position goes.
        """
        applied = _first(self._applied[key[1]], key[2] + 1)
        for begin, end in self._reigns:
            number = max(bisect_left(self._positions, key, begin, end), applied)
            if number < end:
                return number
        return NEVER

    def spell(self, number: int) -> int:
        """How often the position had gone back by a transaction."""
        return next(which for which, (_, end) in enumerate(self._reigns) if number < end)

    def done_in(self, row: Row) -> int:
        """The first transaction under whose checkpoint a row is done."""
        number = row.passed_in
        while number < len(self.checkpoints) and _is_held(row, self.checkpoints[number]):
            number += 1
        return number if number < len(self.checkpoints) else NEVER

    def delivered(self, row: Row) -> bool:
        """Whether its transaction carried it: it was done, and not removed before it was selected."""
        if row.dropped or row.moved or row.done_in == NEVER:
            return False
        return row.removed_by is None or row.done_in < self.seen_in((row.place[0], row.removed_by))

    def late(self, row: Row) -> bool:
        """Whether its transaction took it as a late row: it was held, or the position had passed it."""
        return row.passed_in < row.done_in or (
            row.done_in > 0 and self._positions[row.done_in - 1] >= row.key
        )

    def last_of(self, partition: int, id_: str, end: int) -> Row | None:
        """The id's last schedule below an offset, None if there is none or a cancel came after it."""
        changes = self._last.get((partition, id_), [])
        number = bisect_left(changes, end, key=lambda change: change[0])
        return changes[number - 1][1] if number else None

    def decided(self, row: Row) -> tuple[frozenset[str], Row | None]:
        """What a reschedule may come to, and the row that it concerns. Of those of one id in one transaction
        the last word alone is carried out.
        """
        assert row.request.id is not None, "a reschedule names an id"
        alike = self._reschedules[row.place[0], row.request.id]
        later = [one for one in alike if one.done_in == row.done_in and one.last_request > row.last_request]
        outcomes, target = self._alone(row)
        if any(self._alone(one)[0] & CONCERNED for one in later):
            outcomes = frozenset(OutcomeKind.OVERTAKEN if one in CARRIED_OUT else one for one in outcomes)
        return outcomes, target

    def _alone(self, row: Row) -> tuple[frozenset[str], Row | None]:
        assert row.request.id is not None, "a reschedule names an id"
        partition = row.place[0]
        seen = self.checkpoints[row.done_in].seen.get(partition, 0)
        changed_at, target = self._change_of(partition, row.request.id, seen)
        if target is None:
            return frozenset(
                (OutcomeKind.OVERTAKEN if changed_at > row.last_request else OutcomeKind.UNKNOWN,)
            ), None
        if target.last_request > row.last_request:
            return frozenset((OutcomeKind.OVERTAKEN,)), None
        return frozenset(self._against(row, target, seen)), target

    def _against(self, row: Row, target: Row, seen: int) -> tuple[str, ...]:
        """What becomes of it, by what has become of the id's last row."""
        number, partition, successor = row.done_in, row.place[0], target.successor
        again = AGAIN if row.attempt <= MOST_DEFERRED else OutcomeKind.TOO_LATE
        if successor is not None and successor.place[1] >= seen and self._written_in(successor) < number:
            if target.moved:
                return (
                    OutcomeKind.OVERTAKEN
                    if successor.last_request > row.last_request
                    else OutcomeKind.DEFERRED,
                )
            return (again,)
        if target.done_in < number:
            unlisted = self.checkpoints[number - 1].awaited.unlisted.get(partition, 0)
            return (again, OutcomeKind.TOO_LATE) if unlisted > seen else (OutcomeKind.TOO_LATE,)
        if target.origin > row.place[1]:
            return (OutcomeKind.DEFERRED,)
        full = self._moved_by_then(partition, seen, number) >= self.most_awaited
        return (OutcomeKind.RESCHEDULED, OutcomeKind.DEFERRED) if full else (OutcomeKind.RESCHEDULED,)

    def _moved_by_then(self, partition: int, seen: int, number: int) -> int:
        """How many moved ones of a partition were hidden, or were written back in that transaction."""
        return sum(
            row.place[0] == partition
            and row.place[1] >= seen
            and self._moves(row)
            and self._written_in(row) <= number
            for row in self.rows.values()
        )

    def _moves(self, row: Row) -> bool:
        """Whether it is a message that a reschedule has moved."""
        if row.parent is None or row.request.kind is Kind.RESCHEDULE:
            return False
        return self.rows[row.place[0], row.parent].request.kind is Kind.RESCHEDULE

    def _written_in(self, row: Row) -> int:
        """The transaction that wrote it back."""
        assert row.parent is not None, "it was written back"
        return self.rows[row.place[0], row.parent].done_in

    def _change_of(self, partition: int, id_: str, end: int) -> tuple[int, Row | None]:
        """Where the id's last change below an offset stands, and the schedule, if it was one."""
        changes = self._last.get((partition, id_), [])
        number = bisect_left(changes, end, key=lambda change: change[0])
        return changes[number - 1] if number else (-1, None)

    def changed_at(self, partition: int, id_: str, end: int) -> int:
        """The offset of the id's last change below an offset; -1 if there is none."""
        return self._change_of(partition, id_, end)[0]

    def ended_ms(self, partition: int, id_: str, end: int) -> int | None:
        """When the id's last change below an offset was due, or was made if it was a cancel."""
        changed_at, last = self._change_of(partition, id_, end)
        if last is not None:
            return last.due_ms
        return self._cancelled_ms.get((partition, changed_at))

    def hidden(self, number: int, partition: int) -> Iterator[tuple[int, Row, bool]]:
        """What was written back up to a transaction, and is not seen by it: by the row that it follows, or,
        without an id, the user's request behind that; and whether it moves it.
        """
        seen = self.checkpoints[number].seen.get(partition, 0)
        for row in self.rows.values():
            if row.place[0] != partition or row.place[1] < seen or row.parent is None:
                continue
            if row.request.kind is Kind.RESCHEDULE or self._written_in(row) > number:
                continue
            yield row.root[1] if row.request.id is None else row.follows, row, self._moves(row)

    def written_back(self) -> list[Row]:
        """The requests that the service has written back."""
        return [row for row in self.rows.values() if row.parent is not None]

    # ------------------------------------------------------------------ the log

    def _take(self, entry: Entry) -> None:
        record, request = entry.record, entry.request
        assert record is not None, "markers are not requests"
        place = (record.partition, record.offset)
        newest_ms = max(self._newest_ms.get(place[0], 0), record.timestamp_ms)
        self._newest_ms[place[0]] = newest_ms
        if request is None and ("delay-op", b"carry") in record.headers:
            return
        if request is None:
            self._take_written_back(place, record.timestamp_ms, dict(record.headers))
            return
        if request.kind is Kind.COPY:
            return
        if request.kind is Kind.CANCEL:
            self._cancelled_ms[place] = record.timestamp_ms
            self._cancel(place, request)
            return
        if request.keep and self._is_duplicate(place, request, newest_ms):
            return
        request.settle(self.eras, *place)
        row = row_of(place, request, record.timestamp_ms)
        self._add(row)
        if request.kind is Kind.SCHEDULE and request.id is not None:
            removed = self._replace(row, request.id)
            if removed is not None:
                self.pending_answers.append(PendingAnswer(place, request, removed, request.id))

    def _is_duplicate(self, place: RecordId, request: Request, newest_ms: int) -> bool:
        assert request.id is not None, "it asks whether its id is known"
        known = self.last_of(place[0], request.id, place[1])
        if known is None or not self.eras.is_known(known.due_ms, *place, newest_ms):
            return False
        self.pending_answers.append(PendingAnswer(place, request, known, request.id, duplicate=True))
        return True

    def _add(self, row: Row) -> None:
        row.passed_in = self.passed_in(row.key)
        row.done_in = self.done_in(row)
        self.rows[row.place] = row
        if row.request.kind is Kind.RESCHEDULE:
            assert row.request.id is not None, "a reschedule names an id"
            self._reschedules.setdefault((row.place[0], row.request.id), []).append(row)

    def _replace(self, row: Row, id_: str) -> Row | None:
        """Makes the row its id's last; returns the one before, which goes."""
        partition, offset = row.place
        removed = self.last_of(partition, id_, offset)
        if removed is not None:
            removed.removed_by = offset
        self._last.setdefault((partition, id_), []).append((offset, row))
        return removed

    def _cancel(self, place: RecordId, request: Request) -> None:
        if request.source is not None:
            self._cancel_source(place, request, (place[0], request.source))
            return
        assert request.id is not None, "a cancel names an id, or a source"
        self._cancel_id(place, request, request.id)

    def _cancel_id(self, place: RecordId, request: Request, id_: str) -> None:
        removed = self.last_of(place[0], id_, place[1])
        if removed is not None:
            removed.removed_by = place[1]
        self._last.setdefault((place[0], id_), []).append((place[1], None))
        self._cancels[place[0], id_] = place[1]
        self.pending_answers.append(PendingAnswer(place, request, removed, id_))

    def _cancel_source(self, place: RecordId, request: Request, root: RecordId) -> None:
        """Of a message with an id it is a cancel of that, if the id's last request goes back to it."""
        own = self.rows.get(root)
        removed = None
        if own is not None and own.parent is None and own.request.kind is Kind.SCHEDULE:
            id_ = own.request.id
            if id_ is None:
                removed = self._unnamed.get(root, own)
                self._unnamed[root] = None
                self._unnamed_cancels[root] = place[1]
            else:
                last = self.last_of(place[0], id_, place[1])
                if last is not None and last.root == root:
                    self._cancel_id(place, request, id_)
                    return
        if removed is not None:
            removed.removed_by = place[1]
        self.pending_answers.append(PendingAnswer(place, request, removed))

    def _take_written_back(
        self, place: RecordId, timestamp_ms: int, headers: dict[str, bytes | None]
    ) -> None:
        parent_place = place[0], int(headers["delay-parent"] or b"")
        parent = self.rows.get(parent_place)
        if parent is None:
            raise Violation("I1", f"{place}: follows from {parent_place}, which is no row: a copy, say")
        if headers.get("delay-op") == b"reschedule":
            self._add(_deferred_row(place, timestamp_ms, parent, headers))
            parent.deferred = True
            return
        if parent.request.kind is Kind.RESCHEDULE:
            row = self._moved(place, timestamp_ms, parent)
        elif "delay-scheduled-for" in headers:  # an occurrence comes at its own time
            row = _parked(place, timestamp_ms, parent, headers)
            parent.deferred = True
            self._follow(row, parent)
        else:
            row = self._next(place, timestamp_ms, parent, headers)
            self._follow(row, parent)
        self._add(row)
        id_ = row.request.id
        if id_ is None:
            if self._unnamed_cancels.get(row.root, -1) > row.origin:
                row.dropped = True
                self._end_by_first_control(row)
            else:
                self._unnamed[row.root] = row
            return
        last = self.last_of(place[0], id_, place[1])
        overtaken = last is not None and last.origin > row.origin
        if overtaken or self._cancels.get((place[0], id_), -1) > row.origin:
            row.dropped = True
            self._end_by_first_control(row)
        else:
            self._replace(row, id_)

    def _follow(self, row: Row, followed: Row) -> None:
        row.follows, row.moved_by = followed.place[1], followed.moved_by
        followed.successor = row

    def _end_by_first_control(self, dropped: Row) -> None:
        for pending in self.pending_answers:
            is_above = pending.place[0] == dropped.place[0] and pending.place[1] > dropped.origin
            same = pending.id == dropped.request.id
            if pending.id is None and pending.request.source != dropped.root[1]:
                same = False
            if same and is_above and not pending.duplicate:
                pending.ended = True
                return

    def _moved(self, place: RecordId, timestamp_ms: int, reschedule: Row) -> Row:
        outcomes, moved = self.decided(reschedule)
        if moved is None or OutcomeKind.RESCHEDULED not in outcomes:
            raise Violation("I7", f"{place}: written back by a reschedule that moves nothing")
        scheduled_for_ms = reschedule.scheduled_for_ms
        to_be_found = moved.request.repeat is not None and moved.number is None
        expire_at_ms = self._expiry_of(reschedule)
        row = Row(
            place,
            timestamp_ms if to_be_found else max(scheduled_for_ms, timestamp_ms),
            max(scheduled_for_ms, timestamp_ms) if to_be_found else scheduled_for_ms,
            moved.expire_at_ms if expire_at_ms is None else expire_at_ms,
            moved.request,
            moved.root,
            reschedule.place[1],
            reschedule.place[1],
            moved.number,
            moved.every_ms,
            moved_by=reschedule.last_request,
        )
        moved.moved, moved.successor, row.follows = True, row, moved.place[1]
        return row

    def _expiry_of(self, reschedule: Row) -> int | None:
        """Its own, or that of the last one before it of those that it has overtaken in its transaction."""
        assert reschedule.request.id is not None, "a reschedule names an id"
        alike = self._reschedules[reschedule.place[0], reschedule.request.id]
        said = [
            (one.last_request, one.expire_at_ms)
            for one in alike
            if one.done_in == reschedule.done_in
            and one.last_request <= reschedule.last_request
            and one.expire_at_ms is not None
            and self._alone(one)[0] & CARRIED_OUT
        ]
        return max(said)[1] if said else None

    def _next(self, place: RecordId, timestamp_ms: int, parent: Row, headers: dict[str, bytes | None]) -> Row:
        """An occurrence, at the time that was written down; whether that is right, the judge says."""
        at_ms = int(headers["delay-deliver-at"] or b"")
        number = int(headers["delay-occurrence"] or b"")
        every_ms = int((headers.get("delay-interval") or b"0ms").removesuffix(b"ms"))
        return Row(
            place,
            max(at_ms, timestamp_ms),
            at_ms,
            None,
            parent.request,
            parent.root,
            parent.place[1],
            parent.place[1],
            number,
            every_ms,
        )


def _parked(place: RecordId, timestamp_ms: int, parent: Row, headers: dict[str, bytes | None]) -> Row:
    """The same message, at the time that was written down; whether that is right, the judge says."""
    return replace(
        parent,
        place=place,
        due_ms=max(int(headers["delay-deliver-at"] or b""), timestamp_ms),
        origin=parent.place[1],
        parent=parent.place[1],
        attempt=int(headers["delay-attempt"] or b""),
        removed_by=None,
        dropped=False,
        deferred=False,
        successor=None,
    )


def _deferred_row(place: RecordId, timestamp_ms: int, parent: Row, headers: dict[str, bytes | None]) -> Row:
    """The same reschedule again; whether what was written down is right, the judge says."""
    expire_at = headers.get("delay-expire-at")
    return replace(
        parent,
        place=place,
        due_ms=timestamp_ms,
        expire_at_ms=None if expire_at is None else int(expire_at),
        origin=parent.place[1],
        parent=parent.place[1],
        attempt=int(headers["delay-attempt"] or b""),
        deferred=False,
    )


def row_of(place: RecordId, request: Request, timestamp_ms: int) -> Row:
    """The row of a user's request that waits for its time."""
    at_ms, repeat = request.scheduled_for_ms(timestamp_ms), request.repeat
    if repeat is None or repeat.cron:
        at_once = repeat is not None or request.kind is not Kind.SCHEDULE
        at_ms = at_ms if repeat is None else max(at_ms, timestamp_ms)
        due_ms = timestamp_ms if at_once else max(at_ms, timestamp_ms)
        return Row(place, due_ms, at_ms, request.expire_at_ms, request, place, place[1])
    every_ms = repeat.every_ms
    if request.deliver_at_ms is None:
        at_ms += every_ms
    while at_ms < timestamp_ms:  # what was past already was never asked for
        at_ms, every_ms = at_ms + every_ms, repeat.grown(every_ms)
    return Row(place, at_ms, at_ms, None, request, place, place[1], number=1, every_ms=every_ms)


def _is_held(row: Row, checkpoint: Checkpoint) -> bool:
    """Whether a message waits for the end of a pause of its target."""
    if row.request.kind is not Kind.SCHEDULE or (row.request.repeat is not None and row.number is None):
        return False
    return any(
        hold.target == row.request.target
        and hold.next < row.key
        and (hold.last is None or row.key <= hold.last)
        for hold in checkpoint.holds
    )


def _first(values: list[int], wanted: int) -> int:
    """The first place in a rising list whose value is `wanted` or above; `NEVER` if there is none."""
    number = bisect_left(values, wanted)
    return number if number < len(values) else NEVER
