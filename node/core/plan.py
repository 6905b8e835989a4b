"""The planner: a selection in, the records of its transaction out. Pure: no I/O, no clock of its own.

Rows go out in the order of the selection (late rows in key order, then due rows in key order), what the
service writes back to the buffer last (rule 4, docs/design.md).
"""

from __future__ import annotations

from bisect import bisect_right
from collections import Counter
from collections.abc import Mapping, Sequence
from collections.abc import Set as AbstractSet
from operator import itemgetter
from zlib import crc32

import msgspec

from delayline.names import ClusterNames, parse_source, source
from delayline.outcome_kinds import OutcomeKind
from delayline.recurrence import Occurrence, Recurrence, Turn, UnknownTimeZoneError, first_turn, next_turn
from delayline.rejects import Code, ParkCode, RejectCode
from delayline.signing import NO_KEYS, Keyring
from delayline.wire import (
    Header,
    Reschedule,
    Schedule,
    dead_letter_headers,
    deferred_headers,
    delivery_headers,
    rewrite_headers,
    signed_headers,
    user_headers,
)
from node.core.ports import ANY_PARTITION, UNAVAILABLE, UNKNOWN, Outgoing, Targets
from store.awaited import Predecessor
from store.checkpoint import Vector
from store.keys import RowKey
from store.moves import CONCERNED, DEFERRED, Resolution
from store.rows import IndexEntry, RejectRow, RescheduleRow, Row, ScheduledRow, decode_row
from store.selection import Answer, Selection

RECORD_OVERHEAD_BYTES = 512
"""More than what delivery adds to a row: the service's headers and Kafka's own framing."""

BATCH_HEADER_BYTES = 61
ATTRIBUTES_BYTES = 3
"""The attributes and the two deltas, which are 0 where a batch has one record."""

BAD_TIME_ZONE = RejectCode.BAD_TIME_ZONE
PAUSED = ParkCode.TARGET_PAUSED

_MAY_PASS = frozenset((UNAVAILABLE, UNKNOWN))

# Looked up once: in Python 3.11 that costs what a call does.
_DEAD_LETTERED = OutcomeKind.DEAD_LETTERED
_EXPIRED = OutcomeKind.EXPIRED
_PARKED = OutcomeKind.PARKED
_SKIPPED = OutcomeKind.SKIPPED

FIRST_PARK_MS = 1_000
LONGEST_PARK_MS = 300_000
LONGEST_UNKNOWN_MS = 5_000


class Poisoned(msgspec.Struct, frozen=True):
    """Why a row's record was refused: the dead-letter code and detail. `letter_too`: its dead letter has then
    been refused as well. `is_of_what_follows`: it was only what would be written back; the row may go out.
    """

    code: Code
    detail: str
    letter_too: bool = False
    is_of_what_follows: bool = False


Poison = dict[RowKey, Poisoned]
"""Rows of which something was refused."""


class OutcomeRecord(msgspec.Struct, frozen=True):
    """A record of the outcomes topic; its key is the request's source. `outcome`: an `OutcomeKind`, or, of a
    record that was read, what only a newer node knows.
    """

    outcome: str
    op: str
    id: str | None
    message: str | None
    root: str | None
    code: str | None
    detail: str | None
    epoch: int
    at_ms: int


_encode_outcome = msgspec.json.Encoder().encode

Decided = tuple[str, OutcomeKind, str | None]
"""What became of a request: its op, the outcome, and the code of why. For `delivered` and `replayed`
nothing is written.
"""


class Stamp:
    """Signs and numbers what one plan writes back.

    `counts`: by partition, the count of the next one; from this plan on once it has been sent, so that a plan
    made anew has the same, and none is above the offset that its record gets (store/apply.py, `_is_copy`).
    """

    def __init__(self, keyring: Keyring, as_of: Vector, counts: Vector) -> None:
        """`as_of`: where the reader stood when that was selected which is planned."""
        self.counts = dict(counts)
        self._keyring = keyring
        self._as_of = as_of

    def on(
        self, headers: list[Header], partition: int, key: bytes | None, value: bytes | None
    ) -> list[Header]:
        """The headers of a request that is written back into a partition, with the next serial, signed."""
        serial = self._as_of[partition], self.counts[partition]
        self.counts[partition] += 1
        return signed_headers(headers, self._keyring, serial, partition, key, value)


class Plan:
    """The records of one transaction."""

    def __init__(
        self,
        names: ClusterNames,
        lane: int,
        epoch: int,
        now_ms: int,
        targets: Targets,
        poison: Poison,
        max_parks: int,
    ) -> None:
        self.records: list[Outgoing] = []
        self.writes_back = False
        self.lacks = False
        # For which the buffer would refuse what is written back: such a plan is not to be sent.
        self.refused: Poison = {}
        # What it writes back has an id: nothing is selected before its commit is known (rule 5).
        self.awaits = False
        self._written_back: list[Outgoing] = []
        self._predecessors: list[tuple[int, Predecessor | None]] = []  # of each of them, with its partition
        self._decided: Counter[Decided] = Counter()
        self._stamp = Stamp(NO_KEYS, {}, {})  # until it is given one
        self._letters = 0
        self._replayed = 0
        self._names = names
        self._buffer = names.buffer
        self._raw_buffer = names.buffer.encode()
        self._lane = lane
        self._epoch = epoch
        self._now_ms = now_ms
        self._targets = targets
        self._poison = poison
        self._max_parks = max_parks
        self._paused: AbstractSet[str] = frozenset()  # the targets that the selection knew to be

    def add(self, selection: Selection, stamp: Stamp, *, waits: bool = True) -> None:
        """Plans the whole selection; the hot path of delivery. Raises what `Targets.learn_all` raises.

        `stamp`: for what it writes back. `waits`: for targets that are not known. If not, and there are any,
        it `lacks` them, and is of no use.
        """
        self._stamp, self._paused = stamp, selection.paused_targets
        late, due = selection.to_carry
        chosen = [*late, *due]
        rows = [decode_row(raw) for _, raw in chosen]
        replayed = [decode_row(raw) for _, raw in selection.replayed]
        topics = self._learn(selection, rows, replayed, waits=waits)
        open_topics = self._open_topics(topics, max((len(raw) for _, raw in chosen), default=0))
        skipped_to, first_due = selection.skip_to, len(late)
        if skipped_to is not None:
            end = first_due + bisect_right(due, skipped_to, key=itemgetter(0))
            for (key, raw), row in zip(chosen[first_due:end], rows[first_due:end], strict=True):
                self._skip(key, row, len(raw), selection)
            del chosen[first_due:end], rows[first_due:end]
        append, deliver = self.records.append, self._delivery
        for (key, raw), row in zip(chosen, rows, strict=True):
            if isinstance(row, ScheduledRow):
                if row.recurrence is not None:
                    self._recur(key, row, row.recurrence, len(raw))
                elif (
                    row.target_partition == ANY_PARTITION
                    and row.expire_at_ms is None
                    and row.target_topic in open_topics
                ):
                    append(deliver(key, row))
                else:
                    self._schedule(key, row, len(raw))
            elif isinstance(row, RejectRow):
                self._dead_letter(key, row, _DEAD_LETTERED, row.code, row.detail)
            else:
                self._reschedule(key, row, selection.resolutions.get(key))
        for (key, raw), row in zip(selection.replayed, replayed, strict=True):
            assert isinstance(row, ScheduledRow), "the selection takes messages only"
            self._replay(key, row, len(raw))
        for answer in selection.answers:
            self._answer(answer)
        self.records += self._written_back

    def _learn(self, selection: Selection, rows: list[Row], replayed: list[Row], *, waits: bool) -> set[str]:
        """The targets of messages; all that can be known of them in time is known then, and those of what is
        replayed are.
        """
        last_due_ms = max((key[0] for key, _ in (*selection.late[-1:], *selection.due[-1:])), default=0)
        topics = {row.target_topic for row in rows if isinstance(row, ScheduledRow)}
        known = self._targets.learn(topics, last_due_ms, waits=waits)
        if replayed:
            again = {row.target_topic for row in replayed if isinstance(row, ScheduledRow)}
            if waits:
                self._targets.learn_all(again, selection.replayed[-1][0][0])
            else:
                known = self._targets.learn(again | topics, last_due_ms, waits=False)
        self.lacks = not known and not waits
        return topics

    def predecessors(self, offsets: Mapping[int, Sequence[int]]) -> list[tuple[Predecessor, int]]:
        """What follows which row, each with its own offset. `offsets`: by partition, those of what was
        written back, in its order.
        """
        own = {partition: iter(each) for partition, each in offsets.items()}
        found = [(following, next(own[partition])) for partition, following in self._predecessors]
        return [(following, offset) for following, offset in found if following is not None]

    @property
    def counts(self) -> Vector:
        """By partition, the count of what is written back next, once this is sent."""
        return self._stamp.counts

    def decided(self) -> dict[Decided, int]:
        """How often it decides each thing. What is plainly delivered is not counted one by one: it is what is
        left of the records.
        """
        others = self._decided.total() + self._letters + self._replayed + len(self._written_back)
        known: dict[Decided, int] = dict(self._decided)
        known["schedule", OutcomeKind.DELIVERED, None] = len(self.records) - others
        known["schedule", OutcomeKind.REPLAYED, None] = self._replayed
        return known

    def _open_topics(self, topics: set[str], largest_row_bytes: int) -> set[str]:
        """Those of the topics that take a record of any of the selection's rows, with a key or without."""
        if self._poison:
            return set()
        size_bytes = largest_row_bytes + RECORD_OVERHEAD_BYTES
        return {
            topic
            for topic in topics
            if topic not in self._paused and self._targets.takes_any(topic, size_bytes)
        }

    def _schedule(
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
        if is_paused and self._refused(key) is None:
            waited_ms = self._now_ms - row.scheduled_for_ms
            self._park_unattempted(key, row, PAUSED, "an operator has paused the target", waited_ms // 2)
            return False
        as_of = row if stands_for_ms is None else msgspec.structs.replace(row, scheduled_for_ms=stands_for_ms)
        record = self._delivery(key, as_of)
        refusal = self._problem(record, size_bytes)
        if self._poison and (refusal is None or refusal[0] in _MAY_PASS):
            refusal = self._refused(key, writes_back=is_paused or refusal is not None) or refusal
        if refusal is None:
            self.records.append(record)
        elif refusal[0] == UNKNOWN:
            waited_ms = self._now_ms - row.scheduled_for_ms
            self._park_unattempted(key, row, *refusal, min(waited_ms // 2, LONGEST_UNKNOWN_MS))
            return False
        elif refusal[0] == UNAVAILABLE and row.attempt <= self._max_parks:
            self._park_attempted(key, row, *refusal)
            return False
        else:
            self._dead_letter(key, row, _DEAD_LETTERED, *refusal)
        return True

    def _park_attempted(self, key: RowKey, row: ScheduledRow, code: Code, detail: str) -> None:
        """Parks a message as it is, chain and all, until what it lacks may be there."""
        root = self._own_outcome(key, row, _PARKED, code, detail)
        request = self._request(row, key[2])._replace(
            due_ms=self._now_ms + park_ms(key, row.attempt), root=root, attempt=row.attempt + 1
        )
        self._write_back(key, row, request)

    def _park_unattempted(
        self, key: RowKey, row: ScheduledRow, code: Code, detail: str, wait_ms: int
    ) -> None:
        """Parks a message as it is. That is no failed attempt, however often it is done.

        For a paused target it is each time half as long as the message has waited, five minutes at most: so
        what is paused for long costs little, and comes within that of the pause's end. For one that is not
        known yet it is five seconds at most: by then it is, most often.
        """
        root = self._own_outcome(key, row, _PARKED, code, detail)
        due_ms = self._now_ms + _jittered(key, wait_ms)
        self._write_back(key, row, self._request(row, key[2])._replace(due_ms=due_ms, root=root))

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
        if turn.following is not None:
            self._write_back(key, row, self._next_request(key, row, turn.following))

    def _replay(self, key: RowKey, row: ScheduledRow, size_bytes: int) -> None:
        """Delivers a message again, for an operator: whether it has expired since does not matter, and
        nothing follows from it.
        """
        record = self._delivery(key, msgspec.structs.replace(row, attempt=row.attempt + 1))
        refusal = self._problem(record, size_bytes) or self._refused(key, writes_back=False)
        if refusal is None:
            self.records.append(record)
            self._replayed += 1
        else:
            self._dead_letter(key, row, _DEAD_LETTERED, *refusal)

    def _recur(self, key: RowKey, row: ScheduledRow, recurrence: Recurrence, size_bytes: int) -> None:
        """Delivers an occurrence, or finds the first one, and writes back what follows."""
        turn = self._turn(key, row, recurrence)
        if turn is None:
            return
        if turn.deliver_as_ms is not None:
            if not self._schedule(key, row, size_bytes, turn.deliver_as_ms):
                return  # what follows, follows from the later try
        elif row.occurrence is not None:
            self._own_outcome(key, row, _SKIPPED)
        elif turn.following is None:
            detail = f"delay-cron fires at no time from {row.scheduled_for_ms} to {recurrence.until_ms}"
            self._dead_letter(key, row, _DEAD_LETTERED, RejectCode.NO_OCCURRENCE, detail)
        if turn.following is not None:
            self._write_back(key, row, self._next_request(key, row, turn.following))

    def _without_time_zone(self, key: RowKey, row: ScheduledRow, detail: str) -> None:
        """Of a chain that goes on, some node has known the time zone: a leader that does may come again."""
        refused = self._refused(key)
        if refused is None and row.occurrence is not None and row.attempt <= self._max_parks:
            self._park_attempted(key, row, BAD_TIME_ZONE, detail)
        else:
            self._dead_letter(key, row, _DEAD_LETTERED, *(refused or (BAD_TIME_ZONE, detail)))

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
        refused = self._refused(key, writes_back=turn.following is not None)
        if refused is None:
            return turn
        self._dead_letter(key, row, _DEAD_LETTERED, *refused)
        return None

    def _refused(self, key: RowKey, *, writes_back: bool = True) -> tuple[Code, str] | None:
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
        return self._targets.problem(topic, partition, record.key, _batch_bytes(record))

    def _delivery(self, key: RowKey, row: ScheduledRow) -> Outgoing:
        source = self._source(key[1], key[2]) if row.root is None else row.root.encode()
        headers = delivery_headers(
            user_headers(row.headers), row.id, source, row.scheduled_for_ms, row.attempt, row.occurrence
        )
        target_key = row.key if row.target_key is None else row.target_key[0]
        return Outgoing(
            row.target_topic, row.target_partition, target_key, row.value, headers, self._now_ms, key
        )

    def _source(self, partition: int, offset: int) -> bytes:
        return b"%s/%d/%d" % (self._raw_buffer, partition, offset)

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
        return next((letter for letter in letters if self._too_large(letter) is None), bare)

    def _too_large(self, record: Outgoing) -> tuple[Code, str] | None:
        """Why one of the service's own topics would refuse a record for its size, if it would."""
        problem = self._targets.problem(record.topic, ANY_PARTITION, record.key, _batch_bytes(record))
        return problem if problem is not None and problem[0] == RejectCode.TOO_LARGE else None

    def _reschedule(self, key: RowKey, row: RescheduleRow, resolution: Resolution | None) -> None:
        """`resolution`: None where what it would write back was refused."""
        refusal = self._refused(key)
        if refusal is not None:
            self._dead_letter(key, row, _DEAD_LETTERED, *refusal)
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
            moved = decode_row(resolution.raw)
            assert isinstance(moved, ScheduledRow), "the id index points to schedules only"
            assert entry is not None, "the row is its own"
            follows = Predecessor(key[1], entry.offset, has_id=True, moved_by=resolution.last_request)
            self._write_back(key, moved, self._moved_request(key, row, moved, resolution, root), follows)

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
        self._send_back(key, row.id.encode(), None, deferred_headers(request), None)

    def _moved_request(
        self, key: RowKey, row: RescheduleRow, moved: ScheduledRow, resolution: Resolution, root: str | None
    ) -> Schedule:
        said_ms = resolution.expire_at_ms
        return self._request(moved, key[2])._replace(
            scheduled_for_ms=row.scheduled_for_ms,
            due_ms=row.scheduled_for_ms,
            attempt=1,
            expire_at_ms=moved.expire_at_ms if said_ms is None else said_ms,
            root=root,
            moved_by=resolution.last_request,
        )

    def _next_request(self, key: RowKey, row: ScheduledRow, following: Occurrence) -> Schedule:
        return self._request(row, key[2])._replace(
            scheduled_for_ms=following.at_ms,
            due_ms=following.at_ms,
            expire_at_ms=None,
            root=row.root or source(self._buffer, key[1], key[2]),
            attempt=1,
            occurrence=following.number,
            recurrence=following.recurrence,
        )

    @staticmethod
    def _request(row: ScheduledRow, parent: int) -> Schedule:
        """What a row asks for, as a request that follows from another one."""
        return Schedule(
            id=row.id,
            scheduled_for_ms=row.scheduled_for_ms,
            due_ms=row.scheduled_for_ms,
            target_topic=row.target_topic,
            target_key=row.key if row.target_key is None else row.target_key[0],
            target_partition=row.target_partition,
            expire_at_ms=row.expire_at_ms,
            headers=user_headers(row.headers),
            parent=parent,
            root=row.root,
            attempt=row.attempt,
            occurrence=row.occurrence,
            recurrence=row.recurrence,
            moved_by=row.moved_by,
        )

    def _write_back(
        self, key: RowKey, row: ScheduledRow, request: Schedule, follows: Predecessor | None = None
    ) -> None:
        """Writes back a request that follows from the one at `key`, last in the transaction (rule 4).
        `follows`: the row, if it is another.
        """
        if follows is None:
            followed = key[2] if row.id is not None or row.root is None else parse_source(row.root)[2]
            follows = Predecessor(key[1], followed, row.id is not None)
        self._send_back(key, row.key, row.value, rewrite_headers(request), follows)
        self.awaits = self.awaits or row.id is not None

    def _send_back(
        self,
        key: RowKey,
        record_key: bytes | None,
        value: bytes | None,
        headers: list[Header],
        follows: Predecessor | None,
    ) -> None:
        signed = self._stamp.on(headers, key[1], record_key, value)
        record = Outgoing(self._buffer, key[1], record_key, value, signed, self._now_ms, key)
        too_large = self._too_large(record)
        if too_large is not None:
            self.refused[key] = Poisoned(*too_large, is_of_what_follows=True)
        self._written_back.append(record)
        self._predecessors.append((key[1], follows))
        self.writes_back = True

    def _answer(self, answer: Answer) -> None:
        """Writes the answer to a cancel or replace; a replace is answered only if effective (rule 2)."""
        control = answer.control
        partition, offset = answer.place
        op = control.op
        if op == "schedule":
            if not answer.effective:
                return
            outcome = OutcomeKind.REPLACED
        elif op == "keep":
            op, outcome = "schedule", OutcomeKind.DUPLICATE
        elif answer.effective:
            outcome = OutcomeKind.CANCELLED
        else:
            outcome = OutcomeKind.UNKNOWN if control.removed is None else OutcomeKind.TOO_LATE
        message, root = self._named(partition, control.removed)
        if control.source is not None:
            root = source(self._buffer, partition, control.source)
        own = source(self._buffer, partition, offset)
        self._outcome(own, outcome, op=op, id_=control.id, message=message, root=root)

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
        value = _encode_outcome(
            OutcomeRecord(outcome, op, id_, message, root, code, detail, self._epoch, self._now_ms)
        )
        self._decided[op, outcome, code] += 1
        self.records.append(
            Outgoing(self._names.outcomes, self._lane, request.encode(), value, [], self._now_ms, None)
        )


def park_ms(key: RowKey, attempt: int) -> int:
    """How long a message is parked after a failed attempt: twice as long each time, and between half of that
    and all of it, so that not all come back at once. Not drawn, so a plan made again is the same.
    """
    return _jittered(key, FIRST_PARK_MS << min(attempt - 1, 20))


def _jittered(key: RowKey, wait_ms: int) -> int:
    full_ms = min(max(wait_ms, FIRST_PARK_MS), LONGEST_PARK_MS)
    return full_ms // 2 + crc32(b"%d/%d" % key[1:]) % (full_ms // 2 + 1)


def _batch_bytes(record: Outgoing) -> int:
    """The size of a batch of this record alone, to the byte, as the broker counts it uncompressed (record
    format v2).
    """
    sizes = [len(record.key or b""), len(record.value or b"")]
    for name, value in record.headers:
        sizes += [len(name.encode()), len(value or b"")]
    framing = sum(_varint_bytes(size) for size in (*sizes, len(record.headers)))
    record_bytes = ATTRIBUTES_BYTES + framing + sum(sizes)
    return BATCH_HEADER_BYTES + _varint_bytes(record_bytes) + record_bytes


def _varint_bytes(number: int) -> int:
    """Of a number from 0, in zigzag; -1, which stands for null, is as long as 0."""
    return max(1, ((number << 1).bit_length() + 6) // 7)
