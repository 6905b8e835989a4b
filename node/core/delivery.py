"""The delivery core: what a leader does from its election until it is leader no more.

It is written as a generator against the ports of node/core/ports.py. Each `yield` is a point between two
steps: a node waits there (`Wait`) or may die there (`Step`). A thread drives it in a node
(node/lane.py); the simulation drives many at once, and kills and delays them between any two
steps.

Why exactly once (docs/design.md, "Exactly-once: the rule"): the checkpoint is a record of the same Kafka
transaction as the messages that it covers, so both are visible or neither. A row is done iff the last
committed checkpoint says so, and `View.select` takes every row that is not done and not in flight. So a
row could be lost or doubled only by starting from another checkpoint than the last committed one, or by
committing without having read it. `_recover` excludes both: `Outbox.open` returns only once the fate of
every earlier transaction of this lane is decided, and no earlier leader can commit after it; the
checkpoint read after it is therefore the last one. In between, this leader alone commits, strictly one
transaction at a time.
"""

from __future__ import annotations

from collections.abc import Generator
from enum import StrEnum
from typing import Final, TypeVar

import msgspec
import structlog

from delayline.names import ClusterNames
from delayline.rejects import Code
from node.core.plan import Decided, Plan, Poison, Poisoned, Stamp
from node.core.ports import (
    Clock,
    Commit,
    Doubtful,
    KeyringSource,
    LeaderElection,
    Log,
    Offsets,
    Operator,
    Outbox,
    OutboxError,
    Pauses,
    RecordRejected,
    Targets,
    Unconfirmed,
)
from node.core.resumption import resumed
from node.refusal import Refusing
from store.checkpoint import FORMAT, NO_FOOTING, Checkpoint, Vector, WriteBack
from store.keys import RowKey
from store.overrun import MOST_OVERRUNS
from store.selection import Limits, Paused, Selection
from store.view import View

log = structlog.get_logger("delayline.delivery")

HEARTBEAT_MS: Final = 1_000
RETRY_MS: Final = 100
STALE_MS: Final = 100
HIDDEN_MS: Final = 200
"""What was written back is hidden, behind a user's transaction, if it cannot be read for so long."""


class Step(StrEnum):
    """The points between two steps, where the simulation and the chaos tests kill."""

    BEFORE_BEGIN = "before-begin"
    AFTER_PRODUCE = "after-produce"
    AFTER_CHECKPOINT_RECORD = "after-checkpoint-record"
    DURING_COMMIT = "during-commit"
    AFTER_COMMIT = "after-commit"
    AFTER_MIRROR = "after-mirror"
    CONFIRMED = "confirmed"
    OPENED = "opened"
    ALIGNED = "aligned"
    LEADERSHIP_BEGUN = "leadership-begun"


class Wait(msgspec.Struct, frozen=True):
    """Nothing to do before `until_ms` by the own clock (None: no such time) unless something wakes the
    leader: the view, a commit, the election.
    """

    until_ms: int | None


T = TypeVar("T")
Process = Generator[Step | Wait, None, T]


class StepDown(StrEnum):
    """Why a leadership ended."""

    RESIGNED = "resigned"
    SUPERSEDED = "superseded"


class Config(msgspec.Struct, frozen=True):
    """What does not change while a node runs.

    A transaction of fewer rows and answers than `small` is mostly round trips: if it leaves nothing that is
    due, it has them to itself, and fewer of them. A larger one is mostly work, and overlaps with the next.
    """

    node: str
    lane: int
    names: ClusterNames
    limits: Limits
    max_clock_skew_ms: int
    max_parks: int
    keys: KeyringSource
    small: int = 500


class InFlight(msgspec.Struct, frozen=True):
    """A transaction whose commit is under way. `decided`: what became of how many requests in it. `awaits`:
    it has written something back that has an id.
    """

    selection: Selection
    checkpoint: Checkpoint
    commit: Commit
    decided: dict[Decided, int]
    awaits: bool = False


class _Planned(msgspec.Struct, frozen=True):
    """A selection, the records that it makes, and the time that both were made for. `lead_ms`: see
    `Delivery._lead_ms`, at that time.
    """

    selection: Selection
    plan: Plan
    now_ms: int
    lead_ms: int


class Delivery:
    """One leadership of one lane. Used by one thread.

    `lost`: its last recovery has found that the checkpoint topic had lost its end.
    """

    def __init__(
        self,
        config: Config,
        view: View,
        outbox: Outbox,
        log_: Log,
        election: LeaderElection,
        targets: Targets,
        operator: Operator,
        clock: Clock,
    ) -> None:
        self.lost = False
        self._config = config
        self._view = view
        self._outbox = outbox
        self._log = log_
        self._election = election
        self._targets = targets
        self._operator = operator
        self._clock = clock
        self._last: Checkpoint | None = None  # the last one of this leadership, committed
        self._in_flight: InFlight | None = None
        self._poison: Poison = {}
        self._most = config.limits.messages  # halved after what was refused, or could not be sent in time
        self._sending: Selection | None = None
        self._next_plan: _Planned | None = None  # planned while the brokers take what is sent
        self._failures = 0
        self._epoch_known = 0  # none is used twice
        self._footing = NO_FOOTING  # of this leadership
        self._counts: Vector = {}  # by partition, of what is written back next
        self._heartbeat_at_ms = 0
        self._first_at_ms = 0
        self._shown_lead_ms = 0  # with the last checkpoint
        self._proven_lead_ms: int | None = None  # by the last commit that showed the clock to be right
        self._paused = Pauses()  # as it was when this was last asked
        self._cut_short = False  # the last selection has ended before something that is due
        self._waits_for: Vector = {}  # by the last selection: what is to be applied first
        self._full: dict[
            int, tuple[int, int]
        ] = {}  # by partition: what it waits for, and since when (steady)

    @property
    def epoch(self) -> int:
        """The epoch of this leadership; 0 before its first checkpoint is committed."""
        return 0 if self._last is None else self._last.epoch

    @property
    def write_back(self) -> WriteBack:
        """Of the last checkpoint that was sent."""
        last = self._last if self._in_flight is None else self._in_flight.checkpoint
        assert last is not None, "a first checkpoint has been sent"
        return last.write_back

    @property
    def in_flight(self) -> InFlight | None:
        """The transaction whose commit is under way; at `Step.AFTER_COMMIT` the one that is committed."""
        return self._in_flight

    def run(self) -> Process[StepDown]:
        """Recovers and delivers until this node resigns or is superseded; returns which.

        Raises `Refusing`. However it ends, nothing is in flight and the producers are dropped.
        """
        try:
            while True:
                try:
                    return (yield from self._recover()) or (yield from self._deliver())
                except OutboxError as error:
                    yield from self._abandon(error)
        finally:
            self._outbox.drop()
            self._view.abandon()

    def _abandon(self, error: OutboxError) -> Process[None]:
        """After any failure the only road is recovery; what was in flight is decided there."""
        log.warning("transaction-abandoned", reason=type(error).__name__.lower(), detail=str(error))
        isolated = isinstance(error, RecordRejected) and self._isolate(error)
        if isinstance(error, Doubtful) and self._sending is not None and self._sending.rows:
            # So much may be more than the brokers take in the time that there is.
            self._most = max(1, len(self._sending.rows) // 2)
        self._in_flight, self._sending, self._next_plan, self._full = None, None, None, {}
        self._failures += 1
        self._targets.invalidate()
        if self._failures > 1 and not isolated:
            yield Wait(self._clock.now_ms() + min(RETRY_MS * self._failures, HEARTBEAT_MS))

    def _isolate(self, error: RecordRejected) -> bool:
        """Rule 10: what was refused is remembered; if that is not known, a shorter prefix is tried next.
        False if that brings nothing new: what is refused is no row's own record.
        """
        found = error.codes
        if not found and self._sending is not None:
            rows = [key for key, _ in self._sending.rows]
            if len(rows) > 1:
                self._most = len(rows) // 2
                return True
            found = dict.fromkeys(rows, (error.code, str(error)))
        condemned = [self._mark_poison(key, *why) for key, why in found.items()]
        return any(condemned)

    def _mark_poison(self, key: RowKey, code: Code, detail: str) -> bool:
        """Remembers a row that was refused; False if its barest dead letter was refused already."""
        known = self._poison.get(key)
        if known is not None and known.is_of_what_follows:
            known = None  # the brokers have not refused it before
        if known is not None and known.letter_too:
            return False
        first = known or Poisoned(code, detail)
        self._poison[key] = msgspec.structs.replace(first, letter_too=known is not None)
        return True

    def _recover(self) -> Process[StepDown | None]:
        """Makes this node the one that commits, and its view the one that the last commit left."""
        self.lost = False
        self._proven_lead_ms = None
        self._outbox.drop()
        if not (yield from self._confirm_leader()):
            return StepDown.SUPERSEDED
        yield Step.CONFIRMED
        self._outbox.open()
        yield Step.OPENED
        last = yield from self._last_checkpoint()
        if self._is_superseded(last):
            return StepDown.SUPERSEDED
        self._view.abandon()
        self._view.align(last)
        # Whoever paused them may have told another leader only.
        held = frozenset(hold.target for hold in last.holds if hold.last is None)
        self._paused = msgspec.structs.replace(self._paused, targets=self._paused.targets | held)
        yield Step.ALIGNED
        if (yield from self._catch_up(last)):
            self._targets.require(self._config.names.own_topics)
            yield from self._begin_leadership(last)
            return None
        return StepDown.RESIGNED

    def _confirm_leader(self) -> Process[bool]:
        """No new producer before ZooKeeper has said that this node is leader: it would fence the leader.

        What operators have paused before is known from then on: a pause outlives the leader that it was told.
        """
        while not self._election.resigning():
            try:
                confirmed = self._election.confirm()
                if confirmed:
                    self._operator.refresh()
                return confirmed
            except Unconfirmed:
                yield Wait(self._clock.now_ms() + RETRY_MS)
        return False

    def _is_superseded(self, last: Checkpoint) -> bool:
        """Whether another node has led since its last checkpoint: a fenced leader steps down."""
        return self._last is not None and last.epoch > self._last.epoch and last.node != self._config.node

    def _last_checkpoint(self) -> Process[Checkpoint]:
        """The latest one that is known, among those of the topic as it is (node/core/resumption.py); if there
        is none, it is the beginning. No epoch is used twice.

        The znode's is read first: what another leader may commit meanwhile does not make it look ahead of the
        topic. Where it cannot be read, and the topic has one, that decides.
        """
        mirrored = yield from self._mirrored()
        last, own = self._log.last_checkpoint(), self._view.checkpoint
        self._footing = self._log.footing()
        if isinstance(mirrored, Refusing):
            if last is None:
                raise mirrored
            mirrored = None
        others = [one for one in (mirrored, own) if one is not None and one.epoch]
        found = resumed(last, others, self._footing)
        if found is None:
            return self._initial_checkpoint()
        self._epoch_known = max(self._epoch_known, found.epoch, *(one.epoch for one in others))
        self._report_lost_end(last, found, others)
        return found

    def _mirrored(self) -> Process[Checkpoint | Refusing | None]:
        """The znode's, or why it cannot be read. It is waited for: without it what is known to be delivered
        could come again.
        """
        while not self._election.resigning():
            try:
                return self._election.mirrored()
            except Unconfirmed:
                yield Wait(self._clock.now_ms() + RETRY_MS)
            except Refusing as refusing:
                return refusing
        raise Doubtful("ZooKeeper has not said what was delivered, and this node is to step down")

    def _report_lost_end(self, last: Checkpoint | None, found: Checkpoint, others: list[Checkpoint]) -> None:
        """Says so if the topic has lost its end, or all of it."""
        latest = max(others, key=lambda one: one.order, default=found)
        if last is None and found.footing.topic_id != self._footing.topic_id:
            self._report_lost(found)
        elif last is not found:
            self._report_truncated(found)
        elif latest.order > found.order:
            self._report_lost(found)

    def _report_lost(self, found: Checkpoint) -> None:
        """Loudly: here exactly once becomes at least once."""
        self.lost = True
        log.error(
            "checkpoint-topic-lost",
            resumed_epoch=found.epoch,
            delivered_up_to_ms=found.delivered_up_to_ms,
            consequence="messages delivered after this checkpoint are delivered again",
        )

    def _report_truncated(self, found: Checkpoint) -> None:
        """Loudly, too: had a later one been lost that is known nowhere, nobody could say so."""
        self.lost = True
        log.error(
            "checkpoint-topic-truncated",
            resumed_epoch=found.epoch,
            delivered_up_to_ms=found.delivered_up_to_ms,
            consequence="what this checkpoint covers is not delivered again; what was delivered after it, "
            "without this node or ZooKeeper having heard of it, is",
        )

    def _initial_checkpoint(self) -> Checkpoint:
        """What is true before the first epoch: nothing is done."""
        nowhere = dict.fromkeys(self._view.reached().applied, 0)
        return Checkpoint(
            lane=self._config.lane,
            epoch=0,
            number=0,
            position=None,
            applied=nowhere,
            seen=nowhere,
            read=nowhere,
            written_back=nowhere,
            delivered_up_to_ms=0,
            node=self._config.node,
            at_ms=self._clock.now_ms(),
            footing=NO_FOOTING,
        )

    def _catch_up(self, last: Checkpoint) -> Process[bool]:
        """Reads the log as far as the last leader had, and as far as it is stable now, so that a cancel
        made during an outage counts. False if this node is asked to resign meanwhile.

        Not as far as the service has written back: that may stand behind a transaction of a user's which is
        open. The checkpoint says what is awaited.

        What is written back from now on is counted from the log's end: above whatever was before.
        """
        ends = self._log.last_stable_offsets()
        self._counts = self._log.high_watermarks()
        self._view.wake_always()
        while not (self._view.has_applied(last.seen) and self._view.has_read_to(ends)):
            if self._election.resigning():
                return False
            yield Wait(None)
        return True

    def _begin_leadership(self, last: Checkpoint) -> Process[None]:
        """Starts the commit of the epoch's first checkpoint: the last one again, nothing passed and nothing
        answered.

        Without it two leaders could give their transactions the same epoch. It is in flight as any other:
        what comes next may be sent, but its checkpoint record waits until this commit is known (rule 5).
        """
        transaction = self._outbox.begin()
        first = self._first_checkpoint(last)
        self._shown_lead_ms = self._lead_ms()
        transaction.checkpoint(first)
        yield Step.AFTER_CHECKPOINT_RECORD
        nothing = Selection([], [], [], {}, self._view.tip)
        self._in_flight = InFlight(nothing, first, transaction.commit(), {})
        yield Step.DURING_COMMIT

    def _first_checkpoint(self, last: Checkpoint) -> Checkpoint:
        """It is never the same as one before that was aborted, which would make it a copy
        (node/kafka/own_checkpoints.py).
        """
        self._first_at_ms = max(self._clock.now_ms(), self._first_at_ms + 1)
        return msgspec.structs.replace(
            last,
            format=FORMAT,
            epoch=self._epoch_known + 1,
            node=self._config.node,
            at_ms=self._first_at_ms,
            first=True,
            footing=self._footing,
        )

    def _deliver(self) -> Process[StepDown]:
        """Transaction after transaction, one commit in flight, until this node is asked to resign.

        Behind a small one that has left nothing due, the next selection waits for the commit, and takes what
        has come meanwhile.
        """
        while not self._election.resigning():
            paused = self._pauses()
            if self._next_plan is not None:
                yield from self._carry(self._replan_if_stale(self._next_plan))
                continue
            if self._waits_for_commit():
                yield from self._await_commit()
                continue
            now_ms, lead_ms = self._now_ms(), self._lead_ms()
            not_before_ms = self._not_before_ms(now_ms)
            # No later than that, should the clock have been set back.
            self._heartbeat_at_ms = min(self._heartbeat_at_ms, now_ms + HEARTBEAT_MS)
            if self._must_rewind(now_ms, lead_ms) and not paused.everything:
                yield from self._rewind(now_ms, lead_ms)
                continue
            if not_before_ms is not None or paused.everything:
                yield from self._heartbeat_only(now_ms, not_before_ms)
                continue
            if self._clock_jumped(lead_ms):
                yield from self._prove_clock(now_ms)
                continue
            chosen = self._select(now_ms)
            if chosen.size or (self._in_flight is None and now_ms >= self._heartbeat_at_ms):
                yield from self._carry(self._planned(chosen, now_ms, lead_ms))
            elif self._in_flight is not None:
                yield from self._await_commit()
            else:
                yield self._until_due()
        yield from self._await_commit()
        return StepDown.RESIGNED

    def _not_before_ms(self, now_ms: int) -> int | None:
        """The position's due time, if the clock has not come as far: the last leader's was ahead, or this one
        was set back. Nothing is selected before (rule 6).
        """
        position = self._view.tip.position
        return position[0] if position is not None and now_ms < position[0] else None

    def _must_rewind(self, now_ms: int, lead_ms: int) -> bool:
        """Whether the position, or delivered-up-to, is further ahead than is worth a wait, by a clock that a
        commit has shown to be right: the clock was ahead, and the brokers' with it.
        """
        tip, proven_ms, skew_ms = self._view.tip, self._proven_lead_ms, self._config.max_clock_skew_ms
        if tip.position is None or proven_ms is None or abs(lead_ms - proven_ms) > skew_ms:
            return False
        ahead_ms = max(tip.position[0], tip.delivered_up_to_ms) - now_ms
        return ahead_ms > skew_ms and len(tip.overruns) < MOST_OVERRUNS

    def _rewind(self, now_ms: int, lead_ms: int) -> Process[None]:
        """A checkpoint with an earlier position (rule 6). Nothing is in flight beside it, nor selected before
        it is known: the view then aligns to it, which sorts out anew what is late.
        """
        if self._in_flight is not None:
            yield from self._await_commit()
            return
        self._view.abandon()  # and with it up to when all is delivered, by the clock as it was
        if not self._must_rewind(now_ms, lead_ms):
            return
        tip = self._view.tip
        log.warning(
            "position-rewound",
            lane=self._config.lane,
            position=tip.position,
            delivered_up_to_ms=tip.delivered_up_to_ms,
            now_ms=now_ms,
            consequence="what fell due by that clock was delivered early; all else comes in its time",
        )
        chosen = Selection([], [], [], {}, tip.rewound(now_ms), rewinds=True)
        yield from self._send_transaction(self._planned(chosen, now_ms, lead_ms))
        yield from self._await_commit()
        self._heartbeat_at_ms = now_ms  # which says up to when all is delivered

    def _heartbeat_only(self, now_ms: int, until_ms: int | None) -> Process[None]:
        """Waits without a selection, until something changes if no time is given. Heartbeats go on: they
        sample the brokers' clock, which ends a leadership with a wrong one.
        """
        if self._in_flight is not None:
            yield from self._await_commit()  # a resume meanwhile has woken it there, and nobody will again
        elif now_ms >= self._heartbeat_at_ms:
            yield from self._send_transaction(self._heartbeat(now_ms))
        else:
            at_ms = self._heartbeat_at_ms
            yield Wait(at_ms if until_ms is None else min(until_ms, at_ms))

    def _lead_ms(self) -> int:
        """By how much the clock is ahead of one that nobody sets: it changes only where the clock is set.
        Taken after the reading that it is of: should the clock be set ahead in between, that is seen.
        """
        return self._clock.now_ms() - self._clock.steady_ms()

    def _clock_jumped(self, lead_ms: int) -> bool:
        """Whether the clock has been set ahead since a commit showed it to be right."""
        proven_ms = self._proven_lead_ms
        return proven_ms is not None and lead_ms - proven_ms > self._config.max_clock_skew_ms

    def _prove_clock(self, now_ms: int) -> Process[None]:
        """A heartbeat, before anything is selected: the brokers' clock says whether this one is right now, as
        after a machine's sleep. If it is not, who leads steps down.
        """
        if self._in_flight is not None:
            yield from self._await_commit()
        else:
            self._view.abandon()  # and with it up to when all is delivered, by the clock as it was
            yield from self._send_transaction(self._heartbeat(now_ms))

    def _heartbeat(self, now_ms: int) -> _Planned:
        return self._planned(Selection([], [], [], {}, self._view.tip), now_ms, self._lead_ms())

    def _now_ms(self) -> int:
        """Rule 1's clock: the brokers' may be ahead of the own by as much as the skew allowed, so that an
        immediate message does not wait for this node's clock to reach its timestamp. A partition whose newest
        record is further ahead says nothing of the time.
        """
        own_ms = self._clock.now_ms()
        return max(own_ms, self._view.newest_ms(own_ms + self._config.max_clock_skew_ms))

    def _until_due(self) -> Wait:
        due_ms = self._view.wake_at()
        if self._waits_for:
            self._view.wake_always()
            if self._view.has_applied(self._waits_for):  # meanwhile
                return Wait(self._clock.now_ms())
        until_ms = self._heartbeat_at_ms
        if not self._cut_short:  # else what is due waits for that
            return Wait(until_ms if due_ms is None else min(due_ms, until_ms))
        waited_ms = [self._clock.steady_ms() - since_ms for _, since_ms in self._full.values()]
        rest_ms = [HIDDEN_MS - waited for waited in waited_ms if waited < HIDDEN_MS]
        return Wait(min(until_ms, self._clock.now_ms() + min(rest_ms)) if rest_ms else until_ms)

    def _select(self, now_ms: int, *, known: bool = True) -> Selection:
        """A replay goes on only while no target of its is paused: what it carries cannot wait. `known`: no
        transaction is being sent that has written something back.
        """
        limits, targets = self._config.limits._replace(messages=self._most), self._pauses().targets
        write_back = self.write_back
        chosen = self._view.select(
            now_ms,
            limits,
            self._operator.asked(),
            write_back=write_back._replace(
                written_back=write_back.written_back if known else None, hidden=self._hidden()
            ),
            refused=self._poison.keys(),
            paused=Paused(targets, replay=self._replays_to(targets)),
        )
        self._cut_short, self._waits_for = chosen.cut_short, chosen.waits_for | chosen.full
        for partition, end in chosen.full.items():
            self._full.setdefault(partition, (end, self._clock.steady_ms()))
        return chosen

    def _hidden(self) -> frozenset[int]:
        """The partitions in which the reader was waited for long enough: a user's transaction is open."""
        has_applied = self._view.has_applied
        self._full = {p: (end, since) for p, (end, since) in self._full.items() if not has_applied({p: end})}
        steady_ms = self._clock.steady_ms()
        return frozenset(p for p, (_, since_ms) in self._full.items() if steady_ms - since_ms >= HIDDEN_MS)

    def _pauses(self) -> Pauses:
        """What is paused now. What no longer is, may have changed meanwhile."""
        paused, before = self._operator.pauses(), self._paused
        if before.everything > paused.everything or before.targets - paused.targets:
            self._targets.ask_anew()
        self._paused = paused
        return paused

    def _replays_to(self, paused: frozenset[str]) -> bool:
        """Whether a replay carries, or might, what goes to one of these targets."""
        replay = self._view.tip.operation.replay
        anywhere = replay is None or replay.target is None
        return bool(paused) if anywhere else replay is not None and replay.target in paused

    def _planned(self, chosen: Selection, now_ms: int, lead_ms: int, *, waits: bool = True) -> _Planned:
        epoch = self.epoch if self._in_flight is None else self._in_flight.checkpoint.epoch
        config = self._config
        plan = Plan(config.names, config.lane, epoch, now_ms, self._targets, self._poison, config.max_parks)
        plan.add(chosen, Stamp(config.keys.ring, chosen.as_of, self._counts), waits=waits)
        return _Planned(chosen, plan, now_ms, lead_ms)

    def _plan_next(self, sent: _Planned) -> _Planned | None:
        """What comes after `sent`, if that has left something that is due: to be planned while the brokers
        take what is sent costs no time. It is not sent before all of that is acknowledged (rule 5). Nothing
        is waited for here: where it lacks a target, it is planned again when its turn has come.
        """
        now_ms, lead_ms = self._now_ms(), self._lead_ms()
        none_left = sent.selection.frontier.delivered_up_to_ms >= sent.now_ms
        waits = self._not_before_ms(now_ms) is not None or self._must_rewind(now_ms, lead_ms)
        waits = waits or sent.selection.rewinds or self._pauses().everything
        if none_left or waits or sent.plan.awaits or self._clock_jumped(lead_ms):
            return None
        chosen = self._select(now_ms, known=not sent.plan.writes_back)
        return self._planned(chosen, now_ms, lead_ms, waits=False) if chosen.size else None

    def _replan_if_stale(self, ahead: _Planned) -> _Planned:
        """What was planned ahead, for the time that it is now: a plan decides what has expired, and dates
        what is delivered.
        """
        now_ms = self._now_ms()
        if now_ms < ahead.now_ms:
            raise Doubtful("the clock was set back: what was selected may not be due")
        if now_ms - ahead.now_ms <= STALE_MS and not ahead.plan.lacks:
            return ahead
        return self._planned(ahead.selection, now_ms, max(ahead.lead_ms, self._lead_ms()))

    def _carry(self, planned: _Planned) -> Process[None]:
        """Sends a selection; or gives it up, where the buffer would refuse what it writes back. That is
        remembered, of all such rows at once, and selected anew: nobody waits for the brokers to say so.
        """
        refused = planned.plan.refused
        if not refused:
            yield from self._send_transaction(planned)
            return
        self._poison |= refused
        self._next_plan = None
        self._most = max(1, len(planned.selection.rows) // 2)  # so that what comes meanwhile cannot go on so
        yield from self._await_commit()
        assert self._last is not None, "a leader has committed its first checkpoint"
        self._view.abandon()
        self._view.align(self._last)  # what was late by the position of what is given up is so no more

    def _waits_for_commit(self) -> bool:
        """Whether the next selection does. Not for a leadership's first commit: what has fallen due since the
        last leader has waited long enough.
        """
        flight = self._in_flight
        if flight is None or flight.checkpoint.first:
            return False
        return flight.awaits or self._is_small(flight.selection)

    def _is_small(self, chosen: Selection) -> bool:
        return chosen.size < self._config.small

    def _send_transaction(self, planned: _Planned) -> Process[None]:
        """Sends a selection, which may be while the one before commits, and starts its commit.

        The checkpoint record waits until that commit is known: were it sent before, and the commit
        aborted, it would say of rows that nobody has that they are delivered (rule 5). It need not wait for
        the messages that it covers: they are in one transaction. But what is sent next does, for the order,
        and what is written back, whose offsets the checkpoint has.
        """
        chosen, plan = planned.selection, planned.plan
        self._sending = chosen
        yield Step.BEFORE_BEGIN
        transaction = self._outbox.begin()
        transaction.send(plan.records)
        self._counts = plan.counts
        self._next_plan = self._plan_next(planned)
        alone = self._next_plan is None and self._in_flight is None and self._is_small(chosen)
        offsets = {} if alone and not plan.writes_back else transaction.flush()
        yield Step.AFTER_PRODUCE
        yield from self._await_commit()
        if chosen.size:
            self._require_proven_clock(planned.lead_ms)
        checkpoint = self._checkpoint(planned, offsets)
        self._shown_lead_ms = self._lead_ms()
        transaction.checkpoint(checkpoint)
        yield Step.AFTER_CHECKPOINT_RECORD
        self._in_flight = InFlight(chosen, checkpoint, transaction.commit(), plan.decided(), plan.awaits)
        self._sending = None
        self._heartbeat_at_ms = planned.now_ms + HEARTBEAT_MS
        yield Step.DURING_COMMIT

    def _require_proven_clock(self, lead_ms: int) -> None:
        """What was selected by a clock is committed only once a commit has shown that clock to be right (I2):
        the first messages of a leadership are sent beside the commit that does, and the clock may be set at
        any time.
        """
        if self._proven_lead_ms is None or self._clock_jumped(lead_ms):
            offset_ms = self._outbox.clock_offset_ms
            raise Doubtful(
                f"the clock is {-offset_ms:+d} ms off the brokers', or was set: what it selected may be early"
            )

    def _checkpoint(self, planned: _Planned, offsets: Offsets) -> Checkpoint:
        assert self._last is not None, "a leader has committed its first checkpoint"
        frontier, last = planned.selection.frontier, self._last
        awaited = last.awaited.beyond(frontier.seen)
        if offsets:
            written = planned.plan.predecessors(offsets)
            awaited = awaited.with_written(written, self._config.limits.awaited)
        return Checkpoint(
            lane=self._config.lane,
            epoch=last.epoch,
            number=last.number + 1,
            position=frontier.position,
            applied=frontier.applied,
            seen=frontier.seen,
            read=frontier.read,
            written_back=last.written_back | {p: each[-1] + 1 for p, each in offsets.items()},
            delivered_up_to_ms=frontier.delivered_up_to_ms,
            operation=frontier.operation,
            holds=frontier.holds,
            awaited=awaited,
            overruns=frontier.overruns,
            node=self._config.node,
            at_ms=self._clock.now_ms(),
            footing=last.footing,
        )

    def _await_commit(self) -> Process[None]:
        """Waits for the commit in flight and records it."""
        if self._in_flight is None:
            return
        flight = self._in_flight
        while not flight.commit.done():
            yield Wait(None)
        try:
            flight.commit.result()
        except RecordRejected:
            self._sending = flight.selection  # not what may have been sent since
            raise
        yield Step.AFTER_COMMIT
        is_right = abs(self._outbox.clock_offset_ms) <= self._config.max_clock_skew_ms
        self._proven_lead_ms = min(self._shown_lead_ms, self._lead_ms()) if is_right else None
        if flight.selection.rewinds:
            self._view.align(flight.checkpoint)
        else:
            self._view.committed(flight.selection, flight.checkpoint)
        self._in_flight, self._last = None, flight.checkpoint
        self._election.mirror(flight.checkpoint)
        if flight.checkpoint.first:
            first = flight.checkpoint
            log.info("leadership-begun", epoch=first.epoch, lane=first.lane, position=first.position)
            yield Step.LEADERSHIP_BEGUN
        else:
            self._on_committed(flight.selection)

    def _on_committed(self, chosen: Selection) -> None:
        self._failures = 0
        self._most = min(self._config.limits.messages, self._most * 2)
        for key, _ in chosen.rows if self._poison else ():
            self._poison.pop(key, None)
