"""What was found in the topics against what the plain model says: I1 to I4 and I7 (docs/design.md)."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Set as AbstractSet
from dataclasses import replace
from typing import Any, NamedTuple

from delayline.outcome_kinds import OutcomeKind
from delayline.rejects import ParkCode, RejectCode
from node.core.ports import TARGET_UNAVAILABLE, TARGET_UNKNOWN
from node.kafka.fetch.records import LogRecord
from store.checkpoint import Checkpoint
from store.holds import MOST_OF_ONE
from tests.simulation.host import Violation
from tests.simulation.log import Transaction
from tests.simulation.model import AGAIN, DEFERRED, NEVER, Model, PendingAnswer, RecordId, Row
from tests.simulation.operations import Operations
from tests.simulation.requests import MOST_MISSED, REFUSED, TARGETS, Kind, Repeat
from tests.simulation.world import World

NOT_ABOUT_IT = frozenset((OutcomeKind.UNKNOWN, OutcomeKind.OVERTAKEN))
"""The answers that name no message."""


class Sent(NamedTuple):
    """A committed record of the service, with the number of its transaction."""

    number: int
    record: LogRecord
    topic: str


class Found(NamedTuple):
    """All that the service has committed."""

    checkpoints: list[Checkpoint]
    deliveries: dict[str, list[Sent]]  # by source
    dead_letters: dict[str, list[Sent]]  # by source
    outcomes: dict[str, list[tuple[int, dict[str, Any]]]]  # by the request's source
    written_back: dict[RecordId, Sent]  # by the parent's place


class Judge:
    """Compares what was found with what the model says."""

    def __init__(self, world: World, model: Model, found: Found, numbers: dict[Transaction, int]) -> None:
        self._world = world
        self._model = model
        self._found = found
        self._buffer = world.names.buffer
        self._numbers = numbers
        self._operations = Operations(found.checkpoints, world.asked)
        self._ended_by_source = {
            one.place: one.request.source for one in model.pending_answers if one.request.source is not None
        }
        self._again: set[int] = set()  # the ids of records that were, or may have been, delivered again

    def judge(self) -> None:
        for number, row in self._operations.replayed(self._model):
            self._replayed(number, row)
        for row in self._model.rows.values():
            self._row(row)
        for pending in self._model.pending_answers:
            self._pending_answer(pending)
        self._nothing_else()
        self._orders()
        self._delivered_up_to()

    def _source(self, place: RecordId) -> str:
        return f"{self._buffer}/{place[0]}/{place[1]}"

    # ------------------------------------------------------------------ I1, I2, I3

    def _row(self, row: Row) -> None:
        """Takes from what was found what this row has to have caused."""
        if row.removed_by is None and not row.dropped and row.done_in == NEVER:
            if row.due_ms <= self._world.now_ms - 2_000:
                raise Violation("I1", f"lost: {row.place}, due {row.due_ms}, is overdue")
            return
        if not self._model.delivered(row):
            return
        if row.request.kind is Kind.RESCHEDULE:
            self._reschedule(row)
        elif row.request.kind is Kind.REJECT:
            self._dead_letter(row, OutcomeKind.DEAD_LETTERED, row.request.error or "")
        elif self._was(row, OutcomeKind.PARKED):
            self._parked(row)
        elif row.request.repeat is not None:
            self._recurring(row, row.request.repeat)
        elif self._operations.skipped(row, self._model):
            self._expect(row.place, row.done_in, {OutcomeKind.SKIPPED}, row)
        else:
            self._message(row)

    def _replayed(self, number: int, row: Row) -> None:
        """A message was delivered again in that transaction, or is a dead letter again."""
        source, again = self._source(row.root), replace(row, attempt=row.attempt + 1, done_in=number)
        outcome = next(
            (one for one in self._found.outcomes.get(self._source(row.place), []) if one[0] == number), None
        )
        if outcome is None:
            alike = self._found.deliveries.get(source, [])
            self._again |= {
                id(one.record) for one in alike if one.number == number and _is_of(one.record, again)
            }
            self._compare(again, self._take(self._found.deliveries, source, again), row.scheduled_for_ms)
            return
        code = outcome[1]["code"]
        if code not in {row.request.error, RejectCode.TARGET_UNAVAILABLE}:
            raise Violation("I1", f"{row.place} was not delivered again: {outcome}")
        self._dead_letter(again, OutcomeKind.DEAD_LETTERED, code)

    def _was(self, row: Row, outcome: str, code: str | None = None) -> bool:
        found = self._outcome_of(row.place)
        return found is not None and found["outcome"] == outcome and code in {None, found["code"]}

    def _parked(self, row: Row) -> None:
        """Nothing was delivered, and the same was written back, for a while later that grows: with each
        attempt, or, while an operator has paused the target, with what it has waited; or soon, and without
        an attempt, where nobody had looked the target up yet.
        """
        outcome = self._outcome_of(row.place)
        assert outcome is not None, "the caller looked"
        code = outcome["code"]
        if code == ParkCode.TARGET_PAUSED and self._was_to_be_held(row, outcome["at_ms"]):
            raise Violation("I1", f"{row.place} was parked, and was to be held")
        counts = code not in {ParkCode.TARGET_PAUSED, TARGET_UNKNOWN}
        if counts and row.attempt > self._world.setup.max_parks:
            raise Violation("I1", f"{row.place} was parked once too often")
        wanted = TARGET_UNAVAILABLE if counts else code
        self._expect(row.place, row.done_in, {OutcomeKind.PARKED}, row, wanted)
        sent = self._found.written_back.pop(row.place, None)
        if sent is None or sent.number != row.done_in:
            raise Violation("I1", f"lost: {row.place} was parked, and written back: {sent}")
        headers = dict(sent.record.headers)
        waited_ms = outcome["at_ms"] - row.scheduled_for_ms
        half_ms = max(1_000, min(waited_ms // 2, 300_000))
        unattempted_ms = {ParkCode.TARGET_PAUSED: half_ms, TARGET_UNKNOWN: min(half_ms, 5_000)}
        full_ms = unattempted_ms.get(code, 1_000 << (row.attempt - 1))
        attempt = row.attempt + 1 if counts else row.attempt
        parked_ms = int(headers["delay-deliver-at"] or b"") - outcome["at_ms"]
        if headers["delay-attempt"] != b"%d" % attempt or not full_ms // 2 <= parked_ms <= full_ms:
            raise Violation("I1", f"{row.place} was parked as {headers}, at {outcome['at_ms']}")

    def _was_to_be_held(self, row: Row, now_ms: int) -> bool:
        """Whether its key lay behind the position, where no cursor had been: but for one that has come as far
        since, by a clock that is right. A transaction that did not know of the pause parks nothing for it.
        """
        before, after = (self._model.checkpoints[row.done_in - n] for n in (1, 0))
        of_both = [
            [hold for hold in one.holds if hold.target == row.request.target] for one in (before, after)
        ]
        was_held = row.passed_in < row.done_in  # for so long that it is written back
        passed = before.position is not None and row.key <= before.position
        left = any(row.key <= hold.next < (now_ms + 1, 0, 0) for own in of_both for hold in own)
        full = max(map(len, of_both)) >= MOST_OF_ONE
        return not (was_held or passed or left or full)

    def _recurring(self, row: Row, repeat: Repeat) -> None:
        """An occurrence was delivered, or skipped as missed; what follows it was written back."""
        if row.number is None:
            first_ms = -(-row.scheduled_for_ms // repeat.every_ms) * repeat.every_ms
            if repeat.until_ms is not None and first_ms > repeat.until_ms:
                self._dead_letter(row, OutcomeKind.DEAD_LETTERED, RejectCode.NO_OCCURRENCE)
                self._followed_by(row, None)
            else:
                self._followed_by(row, (1, first_ms, 0))
            return
        if row.request.error in REFUSED and self._was(row, OutcomeKind.DEAD_LETTERED, row.request.error):
            self._dead_letter(row, OutcomeKind.DEAD_LETTERED, row.request.error)
            self._followed_by(row, None)
            return
        now_ms = self._selected_ms(row)
        at_ms, every_ms = row.scheduled_for_ms, row.every_ms
        following = next_of(repeat, at_ms, every_ms)
        if repeat.missed == "all":
            now_ms -= MOST_MISSED * (every_ms or repeat.every_ms)
        missed = following is not None and following[0] <= now_ms
        while following is not None and following[0] <= now_ms:
            (at_ms, every_ms), following = following, next_of(repeat, *following)
        if missed and repeat.missed != "latest":
            self._expect(row.place, row.done_in, {OutcomeKind.SKIPPED}, row)
            self._followed_by(row, (row.number, at_ms, every_ms))
            return
        if self._operations.skipped(row, self._model):
            self._expect(row.place, row.done_in, {OutcomeKind.SKIPPED}, row)
        else:
            self._message(row, at_ms)
        self._followed_by(
            row, None if row.number == repeat.times else following and (row.number + 1, *following)
        )

    def _selected_ms(self, row: Row) -> int:
        """The time for which the transaction was made that took an occurrence."""
        outcome = self._outcome_of(row.place)
        if outcome is not None:
            at_ms: int = outcome["at_ms"]
            return at_ms
        for sent in self._found.deliveries.get(self._source(row.root), []):
            if sent.number == row.done_in and _is_of(sent.record, row):
                return sent.record.timestamp_ms
        raise Violation("I1", f"lost: the occurrence {row.place} is not in transaction {row.done_in}")

    def _followed_by(self, row: Row, wanted: tuple[int, int, int] | None) -> None:
        """What was written back after a row: number and time of the next occurrence, and the interval."""
        sent = self._found.written_back.pop(row.place, None)
        found = None
        if sent is not None:
            headers = dict(sent.record.headers)
            every = (headers.get("delay-interval") or b"0ms").removesuffix(b"ms")
            found = (
                int(headers["delay-occurrence"] or b""),
                int(headers["delay-deliver-at"] or b""),
                int(every),
            )
        if found != wanted:
            raise Violation("I1", f"{row.place} is followed by {found}, not by {wanted}")
        if sent is not None and sent.number != row.done_in:
            raise Violation("I7", f"{row.place} was followed in transaction {sent.number}")

    def _message(self, row: Row, scheduled_for_ms: int | None = None) -> None:
        """`scheduled_for_ms`: which one of those that were missed it stands for."""
        source = self._source(row.root)
        outcome = self._outcome_of(row.place)
        if outcome is not None and outcome["outcome"] == OutcomeKind.EXPIRED:
            if row.expire_at_ms is None or outcome["at_ms"] <= row.expire_at_ms:
                raise Violation("I1", f"{row.place} has not expired")
            self._dead_letter(row, OutcomeKind.EXPIRED, RejectCode.EXPIRED)
        elif outcome is not None and outcome["code"] == RejectCode.TARGET_UNAVAILABLE:
            if row.attempt <= self._world.setup.max_parks:
                raise Violation("I1", f"{row.place} could have been parked")
            self._dead_letter(row, OutcomeKind.DEAD_LETTERED, RejectCode.TARGET_UNAVAILABLE)
        elif row.request.error is not None:
            self._dead_letter(row, OutcomeKind.DEAD_LETTERED, row.request.error)
        else:
            sent = self._take(self._found.deliveries, source, row)
            self._compare(row, sent, row.scheduled_for_ms if scheduled_for_ms is None else scheduled_for_ms)
            self._timely(row, sent)

    def _take(self, kind: dict[str, list[Sent]], source: str, row: Row) -> Sent:
        """The one record with this source; it must be in the transaction that made the row done."""
        for sent in kind.get(source, []):
            if sent.number == row.done_in and _is_of(sent.record, row):
                kind[source].remove(sent)
                return sent
        raise Violation("I1", f"lost: {row.place} (source {source}) is not in transaction {row.done_in}")

    def _timely(self, row: Row, sent: Sent) -> None:
        if sent.record.timestamp_ms < row.due_ms:
            raise Violation("I2", f"{row.place} was early by {row.due_ms - sent.record.timestamp_ms} ms")
        if row.expire_at_ms is not None and sent.record.timestamp_ms > row.expire_at_ms:
            raise Violation("I1", f"{row.place} was delivered after it had expired")

    def _compare(self, row: Row, sent: Sent, scheduled_for_ms: int) -> None:
        """I3, and the service's own headers."""
        request, record = row.request, sent.record
        own = {
            "delay-id": None if request.id is None else request.id.encode(),
            "delay-source": self._source(row.root).encode(),
            "delay-scheduled-for": b"%d" % scheduled_for_ms,
            "delay-attempt": b"%d" % row.attempt,
            "delay-occurrence": None if row.number is None else b"%d" % row.number,
        }
        wanted = [*request.user_headers, *((name, value) for name, value in own.items() if value is not None)]
        if (record.key, record.value, record.headers) != (request.target_key, request.value, wanted):
            raise Violation("I3", f"{row.place} was altered: {record} instead of {request}")
        if sent.topic != request.target or request.target_partition not in {-1, record.partition}:
            raise Violation("I3", f"{row.place} went to {sent.topic}/{record.partition}")

    def _dead_letter(self, row: Row, outcome: str, code: str) -> None:
        sent = self._take(self._found.dead_letters, self._source(row.root), row)
        if dict(sent.record.headers)["delay-error"] != code.encode():
            raise Violation("I1", f"dead letter of {row.place}: {sent.record.headers} instead of {code}")
        if row.parent is None and sent.record.headers[: len(row.request.headers)] != row.request.headers:
            raise Violation("I3", f"dead letter of {row.place} was altered")
        if (sent.record.key, sent.record.value) != (row.request.key, row.request.value):
            raise Violation("I3", f"dead letter of {row.place} was altered")
        self._expect(row.place, row.done_in, {outcome}, row, code)

    # ------------------------------------------------------------------ I7

    def _outcome_of(self, place: RecordId) -> dict[str, Any] | None:
        found = [
            outcome
            for _, outcome in self._found.outcomes.get(self._source(place), [])
            if outcome["outcome"] != OutcomeKind.REPLACED  # that of the row which this one replaced
        ]
        return found[0] if found else None

    def _expect(
        self,
        place: RecordId,
        number: int,
        wanted: AbstractSet[str],
        concerned: Row | None,
        code: str | None = None,
        named: RecordId | None = None,
    ) -> str:
        """Takes the outcome of a request: one of `wanted`, in that transaction, about that row. `named`: the
        source that the request names.
        """
        source = self._source(place)
        outcomes = self._found.outcomes.get(source, [])
        for found in outcomes:
            if found[0] == number and found[1]["outcome"] in wanted:
                outcomes.remove(found)
                forgotten = named is not None and self._forgotten(concerned, number)
                unknown = forgotten and found[1]["message"] is None
                self._about(source, found[1], None if unknown else concerned, code, named)
                return str(found[1]["outcome"])
        raise Violation("I7", f"{source}: {outcomes} instead of {sorted(wanted)} in transaction {number}")

    def _about(
        self,
        source: str,
        outcome: dict[str, Any],
        concerned: Row | None,
        code: str | None,
        named: RecordId | None,
    ) -> None:
        message = None
        root = None if named is None else self._source(named)
        if concerned is not None and outcome["outcome"] not in NOT_ABOUT_IT:
            message, root = self._source(concerned.place), self._source(concerned.root)
        if (outcome["message"], outcome["root"], outcome["code"]) != (message, root, code):
            raise Violation("I7", f"{source}: {outcome} should be about {message}, {root}, {code}")

    def _reschedule(self, row: Row) -> None:
        """It is answered under the user's own source, unless it was deferred again."""
        outcomes, target = self._model.decided(row)
        sent = self._found.written_back.pop(row.place, None)
        if sent is not None and sent.number != row.done_in:
            raise Violation("I7", f"{row.place} was written back in transaction {sent.number}")
        if row.deferred:
            self._deferred(row, outcomes, sent)
            return
        wanted = set(outcomes - DEFERRED)
        if OutcomeKind.TOO_LATE in wanted and self._forgotten(target, row.done_in):
            wanted.add(OutcomeKind.UNKNOWN)
        if OutcomeKind.OVERTAKEN in wanted:
            wanted |= self._known_to_be_overtaken(row)
        outcome = self._expect(row.root, row.done_in, wanted, target)
        if outcome == OutcomeKind.RESCHEDULED and target is not None and self._model.delivered(target):
            raise Violation("I7", f"{row.place} is rescheduled, but {target.place} was delivered, too")
        if (outcome == OutcomeKind.RESCHEDULED) != (sent is not None):
            raise Violation("I7", f"{row.place} is {outcome}, but written back: {sent}")

    def _deferred(self, row: Row, outcomes: frozenset[str], sent: Sent | None) -> None:
        """The same was written back, and nothing was said."""
        if not outcomes & DEFERRED:
            raise Violation("I7", f"{row.place} was deferred, and is {sorted(outcomes)}")
        assert sent is not None, "the model has read it"
        headers = dict(sent.record.headers)
        found = headers["delay-root"], headers["delay-deliver-at"], headers["delay-attempt"]
        if found != (
            self._source(row.root).encode(),
            b"%d" % row.scheduled_for_ms,
            b"%d" % (row.attempt + (AGAIN in outcomes)),
        ):
            raise Violation("I7", f"{row.place} was deferred as {headers}")

    def _known_to_be_overtaken(self, row: Row) -> set[str]:
        """What overtook it may have been forgotten only where it was deferred, behind that (rule 2). And of
        a cancel by its source, who begins behind that does not know the id (rule 12).
        """
        assert row.request.id is not None, "a reschedule names an id"
        checkpoint, partition = self._found.checkpoints[row.done_in], row.place[0]
        seen = checkpoint.seen.get(partition, 0)
        source = self._ended_by_source.get(
            (partition, self._model.changed_at(partition, row.request.id, seen))
        )
        if source is not None and source < checkpoint.carried.get(partition, 0):
            return {OutcomeKind.UNKNOWN}
        if row.root == row.place:
            return set()
        ended_ms = self._model.ended_ms(partition, row.request.id, seen)
        forgotten = ended_ms is not None and self._may_forget(ended_ms, row.done_in)
        return {OutcomeKind.UNKNOWN} if forgotten else set()

    def _pending_answer(self, pending: PendingAnswer) -> None:
        number = self._model.seen_in(pending.place)
        removed, request = pending.removed, pending.request
        named = None if request.source is None else (pending.place[0], request.source)
        if number == NEVER:
            raise Violation("I7", f"{pending.place} was never answered")
        if pending.duplicate:
            self._expect(pending.place, number, {OutcomeKind.DUPLICATE}, removed)
            return
        if pending.request.kind is Kind.CANCEL and removed is None:
            self._expect(pending.place, number, {OutcomeKind.UNKNOWN}, None, named=named)
            return
        assert removed is not None, "a replace has replaced something"
        if removed.done_in >= number or pending.ended:
            applied = OutcomeKind.CANCELLED if pending.request.kind is Kind.CANCEL else OutcomeKind.REPLACED
            self._expect(pending.place, number, {applied}, removed, named=named)
        elif pending.request.kind is Kind.CANCEL:
            wanted = {OutcomeKind.TOO_LATE}
            if self._forgotten(removed, number):
                wanted.add(OutcomeKind.UNKNOWN)
            self._expect(pending.place, number, wanted, removed, named=named)

    def _forgotten(self, row: Row | None, number: int) -> bool:
        """Whether the id of a row that is done may have been forgotten before a transaction."""
        return row is not None and self._may_forget(row.due_ms, number)

    def _may_forget(self, due_ms: int, number: int) -> bool:
        if number == 0:
            return False
        up_to_ms = max(one.delivered_up_to_ms for one in self._found.checkpoints[:number])
        return due_ms < up_to_ms - self._world.setup.replay_window_ms

    # ------------------------------------------------------------------ the rest

    def _nothing_else(self) -> None:
        """What is left was not called for."""
        for invariant, kind in (
            ("I1 doubled", self._found.deliveries),
            ("I1 doubled", self._found.dead_letters),
            ("I7", self._found.outcomes),
        ):
            for source, left in kind.items():
                if left:
                    raise Violation(invariant, f"{source}: {left[0]} was not called for")
        for place, sent in self._found.written_back.items():
            raise Violation("I7", f"{place}: {sent} was not called for")

    def _orders(self) -> None:
        """I4. A row that was not late when it was selected comes after all such rows with smaller keys;
        late rows of one transaction are in key order.
        """
        by_source: dict[tuple[str, int], Row] = {
            (self._source(row.root), row.done_in): row for row in self._model.rows.values()
        }
        for topic in TARGETS:
            for partition in self._world.topics[topic]:
                last: dict[int, tuple[int, int, int]] = {}
                for entry in partition.committed(0, partition.stable_end):
                    assert entry.record is not None, "markers are not read"
                    assert entry.transaction is not None, "a delivery is in a transaction"
                    self._order(entry.record, self._numbers[entry.transaction], by_source, last)

    def _order(
        self,
        record: LogRecord,
        number: int,
        by_source: dict[tuple[str, int], Row],
        last: dict[int, tuple[int, int, int]],
    ) -> None:
        headers = dict(record.headers)
        row = by_source.get(((headers["delay-source"] or b"").decode(), number))
        if row is None:
            return
        if id(record) in self._again or not _is_of(record, row):
            return  # what is delivered again has no order to keep
        order = number if self._model.late(row) else -1 - self._model.spell(number)
        if last.get(order, row.key) > row.key:
            raise Violation("I4", f"{row.place} came after {last[order]}")
        last[order] = row.key

    def _delivered_up_to(self) -> None:
        """Delivered-up-to is true: nothing that was due by then, and applied before the transaction that
        says so was selected, was delivered after it.
        """
        raised: list[list[tuple[int, int]]] = [[]]  # anew where it falls
        up_to_ms = 0
        for number, one in enumerate(self._found.checkpoints):
            if one.delivered_up_to_ms < up_to_ms:
                raised.append([])
            if one.delivered_up_to_ms != up_to_ms:
                up_to_ms = one.delivered_up_to_ms
                raised[-1].append((number, up_to_ms))
        for row in self._model.rows.values():
            if self._model.delivered(row):
                for claims in raised:
                    self._outstanding(row, claims)

    def _outstanding(self, row: Row, claims: list[tuple[int, int]]) -> None:
        before = bisect_left(claims, (row.passed_in, 0))
        if before == 0:
            return
        number, up_to_ms = claims[before - 1]
        applied = self._found.checkpoints[max(0, number - 1)].applied.get(row.place[0], 0)
        if row.due_ms <= up_to_ms and row.place[1] < applied:
            raise Violation("I5", f"delivered-up-to was {up_to_ms} when {row.place} was outstanding")


def _is_of(record: LogRecord, row: Row) -> bool:
    """Whether a delivery, or a dead letter, is a row's: others of one transaction may have its source."""
    headers = dict(record.headers)
    number = None if row.number is None else b"%d" % row.number
    if "delay-error" in headers:  # it has the request's own headers
        asked = dict(row.request.headers).get("delay-occurrence") if row.parent is None else number
        return headers.get("delay-occurrence") == asked
    return headers.get("delay-attempt") == b"%d" % row.attempt and headers.get("delay-occurrence") == number


def next_of(repeat: Repeat, at_ms: int, every_ms: int) -> tuple[int, int] | None:
    """The occurrence after one: its time, and how long after it the next one comes."""
    if repeat.cron:
        following = (at_ms // repeat.every_ms + 1) * repeat.every_ms, 0
    else:
        following = at_ms + every_ms, repeat.grown(every_ms)
    return None if repeat.until_ms is not None and following[0] > repeat.until_ms else following
