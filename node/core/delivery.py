"""The delivery core: what a leader does from its election until it is leader no more.

It is written as a generator against the ports of node/core/ports.py. Each `yield` is a point between two
steps: a node waits there (`Wait`) or may die there (`Step`). A thread drives it in a node
(node/lane.py); the simulation drives many at once, and kills and delays them between any two
steps.

Why exactly once (docs/design.md, "Exactly-once: the rule"): the checkpoint is a record of the same Kafka
transaction as the messages that it covers, so both are visible or neither. A row is done iff the last
committed checkpoint says so, and `View.select` takes every row that is not done and not in flight. So a
row could be lost or doubled only by starting from another checkpoint than the last committed one, or by
committing without having read it. Recovery (node/core/recovery.py) excludes both: the checkpoint that it
reads is the last one. In between, this leader alone commits, strictly one transaction at a time.
"""

from __future__ import annotations

from typing import Final

import msgspec
import structlog

from delayline.names import ClusterNames
from node.core.leader_clock import LeaderClock, Reading
from node.core.outcome_record import Decided
from node.core.plan import Carried, Plan, carried_by
from node.core.poison import Isolation
from node.core.ports import (
    Clock,
    Commit,
    Doubtful,
    KeyringSource,
    LeaderElection,
    Log,
    LogAge,
    Offsets,
    Operator,
    Outbox,
    OutboxError,
    Pauses,
    RecordRefused,
    Targets,
    Unanswered,
)
from node.core.recovery import Recovery
from node.core.steps import RETRY_MS, Process, Step, StepDown, Wait
from node.core.unread import Unread
from node.core.written_back import Stamp
from store.checkpoint import Checkpoint, Vector, WriteBack, format_of
from store.selection import Limits, Paused, Selection
from store.told import Look, Told, looked
from store.view import View

log = structlog.get_logger("delayline.delivery")

HEARTBEAT_MS: Final = 1_000
STALE_MS: Final = 100


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
    age: LogAge
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
    """A selection, the records that it makes, and the time that both were made for. `lacks`: it was made
    ahead of time, and a target was not known: it is of no use.
    """

    selection: Selection
    plan: Plan
    reading: Reading
    lacks: bool


class Delivery:
    """One leadership of one lane. Used by one thread."""

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
        self._config = config
        self._view = view
        self._outbox = outbox
        self._election = election
        self._targets = targets
        self._operator = operator
        self._clock = LeaderClock(clock, view, config.max_clock_skew_ms)
        self._recovery = Recovery(config.node, config.lane, view, outbox, log_, election, operator, clock)
        self._isolation = Isolation(config.limits.messages)
        self._unread = Unread(view, clock)
        self._last: Checkpoint | None = None  # the last one of this leadership, committed
        self._in_flight: InFlight | None = None
        self._sending: Selection | None = None
        self._next_plan: _Planned | None = None  # planned while the brokers take what is sent
        self._failures = 0
        self._counts: Vector = {}  # by partition, of what is written back next
        self._heartbeat_at_ms = 0
        self._paused = Pauses()  # as it was when this was last asked

    @property
    def epoch(self) -> int:
        """The epoch of this leadership; 0 before its first checkpoint is committed."""
        return 0 if self._last is None else self._last.epoch

    @property
    def lost(self) -> bool:
        """Whether its last recovery has found that the checkpoint topic had lost its end."""
        return self._recovery.lost

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
                except (OutboxError, Unanswered) as error:
                    yield from self._abandon(error)
        finally:
            self._outbox.drop()
            self._view.abandon()

    def _abandon(self, error: OutboxError | Unanswered) -> Process[None]:
        """After any failure the only road is recovery; what was in flight is decided there."""
        log.warning("transaction-abandoned", reason=type(error).__name__.lower(), detail=str(error))
        isolated = isinstance(error, RecordRefused) and self._isolation.isolate(error, self._sending)
        if isinstance(error, Unanswered) and self._sending is not None and self._sending.rows:
            # So much may be more than the brokers take in the time that there is.
            self._isolation.shorten(self._sending)
        self._in_flight, self._sending, self._next_plan = None, None, None
        self._unread.forget()
        self._failures += 1
        self._targets.invalidate()
        if self._failures > 1 and not isolated:
            yield Wait(self._clock.own_ms() + min(RETRY_MS * self._failures, HEARTBEAT_MS))

    def _recover(self) -> Process[StepDown | None]:
        """Until the commit of the epoch's first checkpoint has begun, or this node may not lead any more."""
        self._clock.forget_proof()
        recovered = yield from self._recovery.recover(self._last)
        if isinstance(recovered, StepDown):
            return recovered
        last, self._counts = recovered
        # Whoever paused them may have told another leader only.
        held = frozenset(hold.target for hold in last.holds if hold.last is None)
        self._paused = msgspec.structs.replace(self._paused, targets=self._paused.targets | held)
        self._targets.require(self._config.names.own_topics)
        yield from self._begin_leadership(last)
        return None

    def _begin_leadership(self, last: Checkpoint) -> Process[None]:
        """Starts the commit of the epoch's first checkpoint: the last one again, nothing passed and nothing
        answered.

        Without it two leaders could give their transactions the same epoch. It is in flight as any other:
        what comes next may be sent, but its checkpoint record waits until this commit is known (rule 5).
        """
        transaction = self._outbox.begin()
        first = self._recovery.first_checkpoint(last)
        self._clock.note_shown()
        transaction.checkpoint(first)
        yield Step.AFTER_CHECKPOINT_RECORD
        nothing = Selection([], [], [], {}, self._view.tip)
        self._in_flight = InFlight(nothing, first, transaction.commit(), {})
        yield Step.DURING_COMMIT

    def _deliver(self) -> Process[StepDown]:
        """Transaction after transaction, one commit in flight, until this node is to step down.

        Behind a small one that has left nothing due, the next selection waits for the commit, and takes what
        has come meanwhile.
        """
        while (why := self._election.steps_down()) is None:
            paused = self._pauses()
            if self._next_plan is not None:
                yield from self._carry(self._replan_if_stale(self._next_plan))
                continue
            if self._waits_for_commit():
                yield from self._await_commit()
                continue
            reading, tip = self._clock.read(), self._view.tip
            now_ms, not_before_ms = reading.now_ms, self._clock.not_before_ms(reading.now_ms, tip)
            # No later than that, should the clock have been set back.
            self._heartbeat_at_ms = min(self._heartbeat_at_ms, now_ms + HEARTBEAT_MS)
            if self._clock.must_rewind(reading, tip) and not paused.everything:
                yield from self._rewind(reading)
                continue
            if not_before_ms is not None or paused.everything:
                yield from self._heartbeat_only(reading, not_before_ms)
                continue
            if self._clock.has_jumped(reading.lead_ms):
                yield from self._prove_clock(reading)
                continue
            chosen = self._select(now_ms)
            if chosen.size or (self._in_flight is None and now_ms >= self._heartbeat_at_ms):
                yield from self._carry(self._planned(carried_by(chosen), reading))
            elif self._in_flight is not None:
                yield from self._await_commit()
            else:
                yield self._unread.until_due(self._heartbeat_at_ms)
        yield from self._await_commit()
        return why

    def _rewind(self, reading: Reading) -> Process[None]:
        """A checkpoint with an earlier position (rule 6). Nothing is in flight beside it, nor selected before
        it is known: the view then aligns to it, which sorts out anew what is late.
        """
        if self._in_flight is not None:
            yield from self._await_commit()
            return
        self._view.abandon()  # and with it up to when all is delivered, by the clock as it was
        tip, now_ms = self._view.tip, reading.now_ms
        if not self._clock.must_rewind(reading, tip):
            return
        log.warning(
            "position-rewound",
            lane=self._config.lane,
            position=tip.position,
            delivered_up_to_ms=tip.delivered_up_to_ms,
            now_ms=now_ms,
            consequence="what fell due by that clock was delivered early; all else comes in its time",
        )
        chosen = Selection([], [], [], {}, tip.rewound(now_ms), rewinds=True)
        yield from self._send_transaction(self._planned(carried_by(chosen), reading))
        yield from self._await_commit()
        self._heartbeat_at_ms = now_ms  # which says up to when all is delivered

    def _heartbeat_only(self, reading: Reading, until_ms: int | None) -> Process[None]:
        """Waits without a selection, until something changes if no time is given. Heartbeats go on: they
        sample the brokers' clock, which ends a leadership with a wrong one.
        """
        if self._in_flight is not None:
            yield from self._await_commit()  # a resume meanwhile has woken it there, and nobody will again
        elif reading.now_ms >= self._heartbeat_at_ms:
            still = self._select(reading.now_ms, everything=True)
            yield from self._carry(self._planned(carried_by(still), reading))
        else:
            at_ms = self._heartbeat_at_ms
            yield Wait(at_ms if until_ms is None else min(until_ms, at_ms))

    def _prove_clock(self, reading: Reading) -> Process[None]:
        """A heartbeat, before anything is selected: the brokers' clock says whether this one is right now, as
        after a machine's sleep. If it is not, who leads steps down.
        """
        if self._in_flight is not None:
            yield from self._await_commit()
        else:
            self._view.abandon()  # and with it up to when all is delivered, by the clock as it was
            yield from self._send_transaction(self._heartbeat(reading))

    def _heartbeat(self, reading: Reading) -> _Planned:
        return self._planned(carried_by(Selection([], [], [], {}, self._view.tip)), reading)

    def _select(self, now_ms: int, *, known: bool = True, everything: bool = False) -> Selection:
        """A replay goes on only while no target of its is paused: what it carries cannot wait. `known`: no
        transaction is being sent that has written something back. `everything` stands still, but for
        answers and carries.
        """
        limits, targets = self._config.limits._replace(messages=self._isolation.most), self._pauses().targets
        write_back = self.write_back
        chosen = self._view.select(
            now_ms,
            limits,
            None if everything else self._operator.asked(),
            write_back=write_back._replace(
                written_back=write_back.written_back if known else None, hidden=self._unread.hidden()
            ),
            poison=self._isolation.rows.keys(),
            paused=Paused(targets, self._replays_to(targets), everything),
            old=self._config.age.old(),
        )
        self._unread.note_selected(chosen)
        return chosen

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

    def _planned(self, carried: Carried, reading: Reading, *, waits: bool = True) -> _Planned:
        """What is not known of its targets is looked up first. `waits`: for that, too; then what is still not
        known is parked (rule 10).
        """
        config, chosen = self._config, carried.selection
        stamp = Stamp(config.keys.ring, chosen.as_of, self._counts)
        targets = self._targets.learn(carried.targets, waits=waits)
        plan = Plan(
            config.names,
            config.lane,
            self.epoch if self._in_flight is None else self._in_flight.checkpoint.epoch,
            reading.now_ms,
            targets,
            self._isolation.rows,
            config.max_parks,
            stamp,
        )
        plan.add(carried)
        return _Planned(chosen, plan, reading, lacks=not (waits or targets.is_complete))

    def _plan_next(self, sent: _Planned) -> _Planned | None:
        """What comes after `sent`, if that has left something that is due: to be planned while the brokers
        take what is sent costs no time. It is not sent before all of that is acknowledged (rule 5). Nothing
        is waited for here: where it lacks a target, it is planned again when its turn has come.
        """
        reading, tip = self._clock.read(), self._view.tip
        none_left = sent.selection.frontier.delivered_up_to_ms >= sent.reading.now_ms
        waits = self._clock.not_before_ms(reading.now_ms, tip) is not None
        waits = waits or self._clock.must_rewind(reading, tip)
        waits = waits or sent.selection.rewinds or self._pauses().everything
        if none_left or waits or sent.plan.written_back.awaits or self._clock.has_jumped(reading.lead_ms):
            return None
        chosen = self._select(reading.now_ms, known=not sent.plan.written_back.records)
        return self._planned(carried_by(chosen), reading, waits=False) if chosen.size else None

    def _replan_if_stale(self, ahead: _Planned) -> _Planned:
        """What was planned ahead, for the time that it is now: a plan decides what has expired, and dates
        what is delivered.
        """
        now_ms, lead_ms = self._clock.read()
        if now_ms < ahead.reading.now_ms:
            raise Doubtful("the clock was set back: what was selected may not be due")
        if now_ms - ahead.reading.now_ms <= STALE_MS and not ahead.lacks:
            return ahead
        return self._planned(
            carried_by(ahead.selection), Reading(now_ms, max(ahead.reading.lead_ms, lead_ms))
        )

    def _carry(self, planned: _Planned) -> Process[None]:
        """Sends a selection; or gives it up, where the buffer would refuse what it writes back. That is
        remembered, of all such rows at once, and selected anew: nobody waits for the brokers to say so.
        """
        poison = planned.plan.written_back.poison
        if not poison:
            yield from self._send_transaction(planned)
            return
        self._isolation.give_up(poison, planned.selection)
        self._next_plan = None
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
        chosen, plan, written_back = planned.selection, planned.plan, planned.plan.written_back
        look = self._config.age.outcomes()  # a topic that is made anew while this tells in it is seen later
        self._sending = chosen
        yield Step.BEFORE_BEGIN
        transaction = self._outbox.begin()
        transaction.send(plan.records)
        self._counts = written_back.counts
        self._next_plan = self._plan_next(planned)
        alone = self._next_plan is None and self._in_flight is None and self._is_small(chosen)
        offsets = {} if alone and not written_back.records else transaction.flush()
        yield Step.AFTER_PRODUCE
        yield from self._await_commit()
        if chosen.size:
            self._clock.require_proof(planned.reading.lead_ms)
        checkpoint = self._checkpoint(planned, offsets, look)
        self._clock.note_shown()
        transaction.checkpoint(checkpoint)
        yield Step.AFTER_CHECKPOINT_RECORD
        commit = transaction.commit()
        self._in_flight = InFlight(chosen, checkpoint, commit, plan.decided(), written_back.awaits)
        self._sending = None
        # There may be more to carry, though nobody wakes this node for it.
        goes_on = chosen.carries or chosen.walks
        rests_ms = self._config.limits.carry_rest_ms if goes_on else HEARTBEAT_MS
        self._heartbeat_at_ms = planned.reading.now_ms + min(rests_ms, HEARTBEAT_MS)
        yield Step.DURING_COMMIT

    def _checkpoint(self, planned: _Planned, offsets: Offsets, look: Look | None) -> Checkpoint:
        assert self._last is not None, "a leader has committed its first checkpoint"
        frontier, last = planned.selection.frontier, self._last
        awaited = last.awaited.beyond(frontier.seen)
        if offsets:
            written = planned.plan.written_back.predecessors(offsets)
            awaited = awaited.with_written(written, self._config.limits.awaited)
        return Checkpoint(
            format=format_of(frontier.carried),
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
            carried=frontier.carried,
            newest_ms=frontier.newest_ms,
            settings_version=self._view.settings_version,
            told=_told(last, look),
            node=self._config.node,
            at_ms=self._clock.own_ms(),
            lineage=last.lineage,
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
        except RecordRefused:
            self._sending = flight.selection  # not what may have been sent since
            raise
        yield Step.AFTER_COMMIT
        self._clock.note_committed(self._outbox.clock_offset_ms)
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
            self._failures = 0
            self._isolation.note_committed(flight.selection)


def _told(last: Checkpoint, look: Look | None) -> Told | None:
    """What is known of the outcomes topic. `look`: from before the transaction has told anything there.

    A lane that has seen nothing has told nothing, so what the look finds is all. A look that came after what
    the transaction tells might find a topic that was made anew meanwhile, and lacks that.
    """
    return last.told if look is None else looked(last.told, look, is_first=not any(last.seen.values()))
