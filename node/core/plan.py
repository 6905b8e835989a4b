"""The planner: a selection in, the records of its transaction out. Pure: what it knows of the targets and of
the time it is given, so it does no I/O, and never waits.

Rows go out in the order of the selection (late rows in key order, then due rows in key order), what the
service writes back to the buffer last (rule 4, docs/design.md).
"""

from __future__ import annotations

from bisect import bisect_right
from collections import Counter
from collections.abc import Set as AbstractSet
from itertools import chain, groupby
from operator import itemgetter

import msgspec

from delayline.names import ClusterNames, source
from delayline.outcome_kinds import OutcomeKind
from delayline.recurrence import Occurrence, Recurrence, Turn, UnknownTimeZoneError, first_turn, next_turn
from delayline.rejects import Code, ParkCode, RejectCode
from delayline.wire import (
    Header,
    Reschedule,
    dead_letter_headers,
    deferred_headers,
)
from node.core.outcome_record import Decided, OutcomeRecord, encode_outcome
from node.core.poison import Poison
from node.core.ports import (
    ANY_PARTITION,
    TARGET_UNAVAILABLE,
    TARGET_UNKNOWN,
    Outgoing,
    SelectionTargets,
    TargetSnapshot,
)
from node.core.records import Deliveries, PlannedRecords
from node.core.sizes import batch_bytes, too_large
from node.core.written_back import (
    LONGEST_PARK_MS,
    Stamp,
    WrittenBack,
    jittered_ms,
    moved_request,
    next_request,
    park_ms,
    request_of,
)
from store.answers import Answer
from store.awaited import Predecessor
from store.keys import RowKey
from store.moves import CONCERNED, DEFERRED, Resolution
from store.rows import (
    IndexEntry,
    RejectRow,
    RescheduleRow,
    Row,
    ScheduledRow,
    decode_message,
    decode_row,
    target_of,
)
from store.selection import Selection
from store.taking import Rows

RECORD_OVERHEAD_BYTES = 512
"""More than what delivery adds to a row: the service's headers and Kafka's own framing."""

BAD_TIME_ZONE = RejectCode.BAD_TIME_ZONE

_MAY_PASS = frozenset((TARGET_UNAVAILABLE, TARGET_UNKNOWN))

# Looked up once: in Python 3.11 that costs what a call does.
_DEAD_LETTERED = OutcomeKind.DEAD_LETTERED
_EXPIRED = OutcomeKind.EXPIRED
_PARKED = OutcomeKind.PARKED
_SKIPPED = OutcomeKind.SKIPPED

LONGEST_UNKNOWN_MS = 5_000


class Carried(msgspec.Struct, frozen=True):
    """What a selection carries, as far as it is known before it is planned: the rows of `beside` are late or
    released. `plain`: of each of them, and of each of `due`, where it goes, if that is all there is to it.
    `targets`: where its messages go, to be known before it is planned.
    """

    selection: Selection
    beside: list[tuple[RowKey, bytes]]
    due: list[tuple[RowKey, bytes]]
    plain: list[str | None]
    targets: SelectionTargets


def carried_by(selection: Selection) -> Carried:
    """Looks at what a selection carries."""
    beside, due = selection.to_carry
    topics: dict[str, str] = {}
    plain = [_plain_target(decode_row(raw), topics) for _, raw in chain(beside, due)]
    last_due_ms = max((key[0] for key, _ in (*beside[-1:], *due[-1:])), default=0)
    targets = SelectionTargets(topics.keys(), last_due_ms)
    if selection.replayed:
        replayed = {topic for _, raw in selection.replayed if (topic := target_of(raw)) is not None}
        last_replayed_ms = selection.replayed[-1][0][0]
        targets = SelectionTargets(targets.topics, last_due_ms, replayed, last_replayed_ms)
    return Carried(selection, beside, due, plain, targets)


def _plain_target(row: Row, topics: dict[str, str]) -> str | None:
    """Where a row goes, if it is to be delivered as it is, once, to whatever partition: most of them. Adds
    the target of any message to `topics`, and returns that one: there is no other one for each row.
    """
    if not isinstance(row, ScheduledRow):
        return None
    topic = topics.setdefault(row.target_topic, row.target_topic)
    is_plain = row.recurrence is None and row.target_partition == ANY_PARTITION and row.expire_at_ms is None
    return topic if is_plain else None


class Plan:
    """The records of one transaction. `targets`: what is known of them. `stamp`: for what it writes back."""

    def __init__(
        self,
        names: ClusterNames,
        lane: int,
        epoch: int,
        now_ms: int,
        targets: TargetSnapshot,
        poison: Poison,
        max_parks: int,
        stamp: Stamp,
    ) -> None:
        self._deliveries = Deliveries(names.buffer, now_ms)
        self.records = PlannedRecords(self._deliveries)
        self.written_back = WrittenBack(names.buffer, now_ms, targets, stamp)
        self._decided: Counter[Decided] = Counter()
        self._letters = 0
        self._replayed = 0
        self._names = names
        self._buffer = names.buffer
        self._lane = lane
        self._epoch = epoch
        self._now_ms = now_ms
        self._targets = targets
        self._poison = poison
        self._max_parks = max_parks
        self._paused: AbstractSet[str] = frozenset()  # the targets that the selection knew to be

    def add(self, carried: Carried) -> None:
        """Plans the whole selection; the hot path of delivery."""
        selection, beside, due, plain = carried.selection, carried.beside, carried.due, carried.plain
        self._paused = selection.paused_targets
        chosen = [*beside, *due]
        open_topics = self._open_topics(carried)
        skipped_to, first_due = selection.skip_to, len(beside)
        if skipped_to is not None:
            end = first_due + bisect_right(due, skipped_to, key=itemgetter(0))
            for key, raw in chosen[first_due:end]:
                self._skip(key, decode_row(raw), len(raw), selection)
            del chosen[first_due:end]
            plain = plain[:first_due] + plain[end:]
        if open_topics.issuperset(plain):
            self.records.deliver(chosen, open_topics.intersection(plain))
        else:
            self._add_one_by_one(chosen, plain, open_topics, selection)
        for key, raw in selection.replayed:
            self._replay(key, decode_message(raw), len(raw))
        for answer in selection.answers:
            self._answer(answer)
        self.written_back.carry(selection.carries)
        for record in self.written_back.records:
            self.records.append(record)

    def _add_one_by_one(
        self,
        chosen: Rows,
        plain: list[str | None],
        open_topics: set[str],
        selection: Selection,
    ) -> None:
        """Plans rows of which some are more than a plain delivery, or go where it has to be asked for."""
        for may_go, group in groupby(zip(chosen, plain, strict=True), lambda one: one[1] in open_topics):
            if may_go:
                rows, topics = zip(*group, strict=True)
                self.records.deliver(list(rows), open_topics.intersection(topics))
                continue
            for (key, raw), _ in group:
                row = decode_row(raw)
                if isinstance(row, RejectRow):
                    self._dead_letter(key, row, _DEAD_LETTERED, row.code, row.detail)
                elif isinstance(row, RescheduleRow):
                    self._reschedule(key, row, selection.resolutions.get(key))
                elif row.recurrence is not None:
                    self._recur(key, row, row.recurrence, len(raw))
                else:
                    self._deliver_or_park(key, row, len(raw))

    def decided(self) -> dict[Decided, int]:
        """How often it decides each thing. What is plainly delivered is not counted one by one: it is what is
        left of the records.
        """
        others = self._decided.total() + self._letters + self._replayed + len(self.written_back.records)
        known: dict[Decided, int] = dict(self._decided)
        known["schedule", OutcomeKind.DELIVERED, None] = len(self.records) - others
        known["schedule", OutcomeKind.REPLAYED, None] = self._replayed
        return known

    def _open_topics(self, carried: Carried) -> set[str]:
        """Those of the topics that take a record of any of the selection's rows, with a key or without."""
        if self._poison:
            return set()
        largest_row_bytes = max(map(len, map(itemgetter(1), chain(carried.beside, carried.due))), default=0)
        size_bytes = largest_row_bytes + RECORD_OVERHEAD_BYTES
        return {
            topic
            for topic in carried.targets.topics
            if topic not in self._paused and self._targets.takes_any(topic, size_bytes)
        }

    def _deliver_or_park(
        self, key: RowKey, row: ScheduledRow, size_bytes: int, stands_for_ms: int | None = None
    ) -> bool:
        """Delivers a message, or makes it a dead letter; False if it is parked instead.

        `stands_for_ms`: of occurrences that were missed, the time of the one that it stands for.
        """
        if row.expire_at_ms is not None and self._now_ms > row.expire_at_ms:
            detail = (
                f"delay-expire-at was {row.expire_at_ms}, the message came up for delivery at {self._now_ms}"
            )
            self._dead_letter(key, row, _EXPIRED, RejectCode.EXPIRED, detail)
            return True
        is_paused = row.target_topic in self._paused
        if is_paused and self._poisoned(key) is None:
            why = ParkCode.TARGET_PAUSED, "an operator has paused the target"
            self._park_unattempted(key, row, *why, LONGEST_PARK_MS)
            return False
        as_of = row if stands_for_ms is None else msgspec.structs.replace(row, scheduled_for_ms=stands_for_ms)
        record = self._deliveries.record(key, as_of)
        problem = self._problem(record, size_bytes)
        if self._poison and (problem is None or problem[0] in _MAY_PASS):
            problem = self._poisoned(key, writes_back=is_paused or problem is not None) or problem
        if problem is None:
            self.records.append(record)
        elif problem[0] == TARGET_UNKNOWN:
            self._park_unattempted(key, row, *problem, LONGEST_UNKNOWN_MS)
            return False
        elif problem[0] == TARGET_UNAVAILABLE and row.attempt <= self._max_parks:
            self._park_attempted(key, row, *problem)
            return False
        else:
            self._dead_letter(key, row, _DEAD_LETTERED, *problem)
        return True

    def _park_attempted(self, key: RowKey, row: ScheduledRow, code: Code, detail: str) -> None:
        """Parks a message as it is, chain and all, until what it lacks may be there."""
        root = self._own_outcome(key, row, _PARKED, code, detail)
        request = request_of(row, key[2])._replace(
            due_ms=self._now_ms + park_ms(key, row.attempt), root=root, attempt=row.attempt + 1
        )
        self.written_back.add(key, row, request)

    def _park_unattempted(
        self, key: RowKey, row: ScheduledRow, code: Code, detail: str, longest_ms: int
    ) -> None:
        """Parks a message as it is. That is no failed attempt, however often it is done.

        For a paused target it is five minutes at most: so what is paused for long costs little, and comes
        within that of the pause's end. For one that is not known yet it is five seconds at most: by then it
        is, most often.
        """
        root = self._own_outcome(key, row, _PARKED, code, detail)
        # Half of what it has waited, and by the jitter between a quarter and a half.
        wait_ms = min((self._now_ms - row.scheduled_for_ms) // 2, longest_ms)
        due_ms = self._now_ms + jittered_ms(key, wait_ms)
        self.written_back.add(key, row, request_of(row, key[2])._replace(due_ms=due_ms, root=root))

    def _skip(self, key: RowKey, row: Row, size_bytes: int, selection: Selection) -> None:
        """An operator wants the message not to be delivered; its chain goes on. What is no message is done as
        ever.
        """
        if isinstance(row, RejectRow):
            self._dead_letter(key, row, _DEAD_LETTERED, row.code, row.detail)
        elif isinstance(row, RescheduleRow):
            self._reschedule(key, row, selection.resolutions.get(key))
        elif row.recurrence is not None and row.occurrence is None:
            self._recur(key, row, row.recurrence, size_bytes)
        elif row.recurrence is None:
            self._own_outcome(key, row, _SKIPPED)
        else:
            self._skip_occurrence(key, row, row.recurrence)

    def _skip_occurrence(self, key: RowKey, row: ScheduledRow, recurrence: Recurrence) -> None:
        """The chain ends, or is parked, where `_recur` would do so."""
        turn = self._turn(key, row, recurrence)
        if turn is None:
            return
        self._own_outcome(key, row, _SKIPPED)
        self._write_back_following(key, row, turn)

    def _replay(self, key: RowKey, row: ScheduledRow, size_bytes: int) -> None:
        """Delivers a message again, for an operator: whether it has expired since does not matter, and
        nothing follows from it.
        """
        record = self._deliveries.record(key, msgspec.structs.replace(row, attempt=row.attempt + 1))
        problem = self._problem(record, size_bytes) or self._poisoned(key, writes_back=False)
        if problem is None:
            self.records.append(record)
            self._replayed += 1
        else:
            self._dead_letter(key, row, _DEAD_LETTERED, *problem)

    def _recur(self, key: RowKey, row: ScheduledRow, recurrence: Recurrence, size_bytes: int) -> None:
        """Delivers an occurrence, or finds the first one, and writes back what follows."""
        turn = self._turn(key, row, recurrence)
        if turn is None:
            return
        if turn.deliver_as_ms is not None:
            if not self._deliver_or_park(key, row, size_bytes, turn.deliver_as_ms):
                return  # what follows, follows from the later try
        elif row.occurrence is not None:
            self._own_outcome(key, row, _SKIPPED)
        elif turn.following is None:
            detail = f"delay-cron fires at no time from {row.scheduled_for_ms} to {recurrence.until_ms}"
            self._dead_letter(key, row, _DEAD_LETTERED, RejectCode.NO_OCCURRENCE, detail)
        self._write_back_following(key, row, turn)

    def _write_back_following(self, key: RowKey, row: ScheduledRow, turn: Turn) -> None:
        if turn.following is not None:
            self.written_back.add(key, row, next_request(row, key[2], self._root(key, row), turn.following))

    def _without_time_zone(self, key: RowKey, row: ScheduledRow, detail: str) -> None:
        """Of a chain that goes on, some node has known the time zone: a leader that does may come again."""
        poisoned = self._poisoned(key)
        if poisoned is None and row.occurrence is not None and row.attempt <= self._max_parks:
            self._park_attempted(key, row, BAD_TIME_ZONE, detail)
        else:
            self._dead_letter(key, row, _DEAD_LETTERED, *(poisoned or (BAD_TIME_ZONE, detail)))

    def _turn(self, key: RowKey, row: ScheduledRow, recurrence: Recurrence) -> Turn | None:
        """None where the chain ends here, or is parked. What was refused for what it is would be refused
        again: then it ends with the dead letter.
        """
        try:
            if row.occurrence is None:
                turn = first_turn(recurrence, row.scheduled_for_ms)
            else:
                now = Occurrence(row.occurrence, row.scheduled_for_ms, recurrence)
                turn = next_turn(now, self._now_ms)
        except UnknownTimeZoneError as error:
            self._without_time_zone(key, row, str(error))
            return None
        poisoned = self._poisoned(key, writes_back=turn.following is not None)
        if poisoned is None:
            return turn
        self._dead_letter(key, row, _DEAD_LETTERED, *poisoned)
        return None

    def _poisoned(self, key: RowKey, *, writes_back: bool = True) -> tuple[Code, str] | None:
        """What the row is a dead letter for, if it is. `writes_back`: whether something would be."""
        poisoned = self._poison.get(key)
        if poisoned is None or (poisoned.is_of_what_follows and not writes_back):
            return None
        return poisoned.code, poisoned.detail

    def _problem(self, record: Outgoing, size_bytes: int) -> tuple[Code, str] | None:
        """Asks with the row's size, which is more than the record's; only if that is too much, exactly."""
        topic, partition = record.topic, record.partition
        at_most_bytes = size_bytes + RECORD_OVERHEAD_BYTES
        if self._targets.problem(topic, partition, record.key, at_most_bytes) is None:
            return None
        return self._targets.problem(topic, partition, record.key, batch_bytes(record))

    def _dead_letter(self, key: RowKey, row: Row, outcome: OutcomeKind, code: str, detail: str) -> None:
        why = dead_letter_headers((), source=self._root(key, row), code=code, detail=detail)
        self.records.append(self._letter(key, row, why))
        self._letters += 1
        self._own_outcome(key, row, outcome, code, detail)

    def _own_outcome(
        self, key: RowKey, row: Row, outcome: OutcomeKind, code: str | None = None, detail: str | None = None
    ) -> str:
        """What became of a row itself; returns its root. Of a reschedule the user's own is told, which may
        have been deferred.
        """
        own, root = source(self._buffer, key[1], key[2]), self._root(key, row)
        id_ = None if isinstance(row, RejectRow) else row.id
        op = "schedule"
        if isinstance(row, RescheduleRow):
            op, own = "reschedule", root
        self._outcome(own, outcome, op=op, id_=id_, message=own, root=root, code=code, detail=detail)
        return root

    def _root(self, key: RowKey, row: Row) -> str:
        """The source of the user's request that a row goes back to."""
        root = None if isinstance(row, RejectRow) else row.root
        return root or source(self._buffer, key[1], key[2])

    def _letter(self, key: RowKey, row: Row, why: list[Header]) -> Outgoing:
        """The whole request, or as much of it as the dead-letter topic takes; the rest is at the source.

        The buffer's limit is on the compressed batch, so a request may be larger than a letter can be.
        """
        bare = Outgoing(self._names.dead_letter, ANY_PARTITION, None, None, why, self._now_ms, key)
        if key in self._poison and self._poison[key].letter_too:
            return bare
        without_value = msgspec.structs.replace(bare, key=row.key, headers=[*row.headers, *why])
        whole = msgspec.structs.replace(without_value, value=row.value)
        letters = (whole, without_value, msgspec.structs.replace(bare, key=row.key))
        return next((letter for letter in letters if too_large(self._targets, letter) is None), bare)

    def _reschedule(self, key: RowKey, row: RescheduleRow, resolution: Resolution | None) -> None:
        """`resolution`: None where what it would write back was refused."""
        poisoned = self._poisoned(key)
        if poisoned is not None:
            self._dead_letter(key, row, _DEAD_LETTERED, *poisoned)
            return
        assert resolution is not None, "the selection has decided all others"
        if resolution.outcome == DEFERRED:
            self._defer_reschedule(key, row, resolution)
            return
        entry = resolution.entry if resolution.outcome in CONCERNED else None
        message, root = self._named(key[1], entry)
        self._outcome(
            self._root(key, row), resolution.outcome, op="reschedule", id_=row.id, message=message, root=root
        )
        if resolution.raw is not None:
            moved = decode_message(resolution.raw)  # the id index points to schedules only
            assert entry is not None, "the row is its own"
            follows = Predecessor(key[1], entry.offset, has_id=True, moved_by=resolution.last_request)
            self.written_back.add(key, moved, moved_request(row, key[2], root, moved, resolution), follows)

    def _defer_reschedule(self, key: RowKey, row: RescheduleRow, resolution: Resolution) -> None:
        """The same again, behind what it has to wait for; nothing is said of it yet. What says nothing is
        left out, so that the copy can be written wherever the request could.
        """
        request = Reschedule(
            row.id,
            row.scheduled_for_ms,
            resolution.expire_at_ms,
            parent=key[2],
            root=self._root(key, row),
            attempt=row.attempt + resolution.again,
        )
        self.written_back.send(key, row.id.encode(), None, deferred_headers(request), None)

    def _answer(self, answer: Answer) -> None:
        """Writes the answer to a cancel or replace; a replace is answered only if effective (rule 2)."""
        pending = answer.pending
        partition, offset = answer.at
        op = pending.op
        if op == "schedule":
            if not answer.effective:
                return
            outcome = OutcomeKind.REPLACED
        elif op == "keep":
            op, outcome = "schedule", OutcomeKind.DUPLICATE
        elif answer.effective:
            outcome = OutcomeKind.CANCELLED
        else:
            outcome = OutcomeKind.UNKNOWN if pending.removed is None else OutcomeKind.TOO_LATE
        message, root = self._named(partition, pending.removed)
        if pending.source is not None:
            root = source(self._buffer, partition, pending.source)
        own = source(self._buffer, partition, offset)
        self._outcome(own, outcome, op=op, id_=pending.id, message=message, root=root)

    def _named(self, partition: int, entry: IndexEntry | None) -> tuple[str | None, str | None]:
        """The sources of an index entry's row and of the user's request behind it."""
        if entry is None:
            return None, None
        message = source(self._buffer, partition, entry.offset)
        return message, message if entry.root is None else source(self._buffer, partition, entry.root)

    def _outcome(
        self,
        request: str,
        outcome: OutcomeKind,
        *,
        op: str,
        id_: str | None,
        message: str | None,
        root: str | None,
        code: str | None = None,
        detail: str | None = None,
    ) -> None:
        value = encode_outcome(
            OutcomeRecord(outcome, op, id_, message, root, code, detail, self._epoch, self._now_ms)
        )
        self._decided[op, outcome, code] += 1
        self.records.append(
            Outgoing(self._names.outcomes, self._lane, request.encode(), value, [], self._now_ms, None)
        )
