"""Recovery: one road for a new leader and after any failure (docs/design.md, rule 6).

`Outbox.open` returns only once the fate of every earlier transaction of this lane is decided, and no earlier
leader can commit after it; the checkpoint that is read after it is therefore the last one.
"""

from __future__ import annotations

from typing import NamedTuple

import msgspec
import structlog

from node.core.latest_known import latest_known
from node.core.ports import Clock, LeaderElection, Log, Operator, Outbox, Unconfirmed
from node.core.steps import RETRY_MS, Process, Step, StepDown, Wait
from node.refusal import Refusing
from store.checkpoint import NO_LINEAGE, Checkpoint, Vector, format_of
from store.view import View

log = structlog.get_logger("delayline.delivery")


class Recovered(NamedTuple):
    """What a leadership goes on from. `counts`: by partition, of what is written back next."""

    last: Checkpoint
    counts: Vector


class Recovery:
    """Of one leadership, as often as it has to recover. Used by its thread.

    `lost`: the last one has found that the checkpoint topic had lost its end.
    """

    def __init__(
        self,
        node: str,
        lane: int,
        view: View,
        outbox: Outbox,
        log_: Log,
        election: LeaderElection,
        operator: Operator,
        clock: Clock,
    ) -> None:
        self.lost = False
        self._node = node
        self._lane = lane
        self._view = view
        self._outbox = outbox
        self._log = log_
        self._election = election
        self._operator = operator
        self._clock = clock
        self._epoch_known = 0  # none is used twice
        self._lineage = NO_LINEAGE  # of this leadership
        self._first_at_ms = 0

    def recover(self, own: Checkpoint | None) -> Process[Recovered | StepDown]:
        """Makes this node the one that commits, and its view the one that the last commit left. `own`: the
        last checkpoint that this leadership has committed.
        """
        self.lost = False
        self._outbox.drop()
        why = yield from self._confirm_leader()
        if why is not None:
            return why
        yield Step.CONFIRMED
        self._outbox.open()
        yield Step.OPENED
        last = yield from self._last_checkpoint()
        if isinstance(last, StepDown):
            return last
        if self._is_superseded(own, last):
            return StepDown.SUPERSEDED
        self._view.abandon()
        self._view.align(last)
        yield Step.ALIGNED
        counts = yield from self._catch_up(last)
        return counts if isinstance(counts, StepDown) else Recovered(last, counts)

    def first_checkpoint(self, last: Checkpoint) -> Checkpoint:
        """An epoch's first: the last one again. It is never the same as one before that was aborted, which
        would make it a copy (node/kafka/own_checkpoints.py).
        """
        self._first_at_ms = max(self._clock.now_ms(), self._first_at_ms + 1)
        return msgspec.structs.replace(
            last,
            format=format_of(last.carried),
            epoch=self._epoch_known + 1,
            node=self._node,
            at_ms=self._first_at_ms,
            first=True,
            lineage=self._lineage,
        )

    def _confirm_leader(self) -> Process[StepDown | None]:
        """No new producer before ZooKeeper has said that this node is leader: it would fence the leader.
        Returns why it steps down instead, if it does.

        What operators have paused before is known from then on: a pause outlives the leader that it was told.
        """
        while (why := self._election.steps_down()) is None:
            try:
                if not self._election.confirm():
                    return self._election.steps_down() or StepDown.UNCONFIRMED
                self._operator.refresh()
                return None
            except Unconfirmed:
                yield Wait(self._clock.now_ms() + RETRY_MS)
        return why

    def _is_superseded(self, own: Checkpoint | None, last: Checkpoint) -> bool:
        """Whether another node has led since its last checkpoint: a fenced leader steps down."""
        return own is not None and last.epoch > own.epoch and last.node != self._node

    def _last_checkpoint(self) -> Process[Checkpoint | StepDown]:
        """The latest one that is known, among those of the topic as it is (node/core/latest_known.py); if
        there is none, it is the beginning. No epoch is used twice.

        The znode's is read first: what another leader may commit meanwhile does not make it look ahead of the
        topic. Where it cannot be read, and the topic has one, that decides.
        """
        mirrored = yield from self._mirrored()
        if isinstance(mirrored, StepDown):
            return mirrored
        last, own = self._log.last_checkpoint(), self._view.checkpoint
        self._lineage = self._log.lineage()
        if isinstance(mirrored, Refusing):
            if last is None:
                raise mirrored
            mirrored = None
        others = [one for one in (mirrored, own) if one is not None and one.epoch]
        found = latest_known(last, others, self._lineage)
        if found is None:
            return self._initial_checkpoint()
        known = [*(one for one in others if one is not found), found]
        self._epoch_known = max(self._epoch_known, *(one.epoch for one in known))
        self._lineage = self._lineage.after(one.lineage for one in known)
        self._report_lost_end(last, found, others)
        return found

    def _mirrored(self) -> Process[Checkpoint | Refusing | StepDown | None]:
        """The znode's, or why it cannot be read. It is waited for while this node may lead: without it what
        is known to be delivered could come again.
        """
        while (why := self._election.steps_down()) is None:
            try:
                return self._election.mirrored()
            except Unconfirmed:
                yield Wait(self._clock.now_ms() + RETRY_MS)
            except Refusing as refusing:
                return refusing
        return why

    def _report_lost_end(self, last: Checkpoint | None, found: Checkpoint, others: list[Checkpoint]) -> None:
        """Says so if the topic has lost its end, or all of it."""
        latest = max(others, key=lambda one: one.order, default=found)
        if last is None and found.lineage.topic_id != self._lineage.topic_id:
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
            checkpoint_epoch=found.epoch,
            delivered_up_to_ms=found.delivered_up_to_ms,
            consequence="messages delivered after this checkpoint are delivered again",
        )

    def _report_truncated(self, found: Checkpoint) -> None:
        """Loudly, too: had a later one been lost that is known nowhere, nobody could say so."""
        self.lost = True
        log.error(
            "checkpoint-topic-truncated",
            checkpoint_epoch=found.epoch,
            delivered_up_to_ms=found.delivered_up_to_ms,
            consequence="what this checkpoint covers is not delivered again; what was delivered after it, "
            "without this node or ZooKeeper having heard of it, is",
        )

    def _initial_checkpoint(self) -> Checkpoint:
        """What is true before the first epoch: nothing is done."""
        nowhere = dict.fromkeys(self._view.reached().applied, 0)
        return Checkpoint(
            format=format_of({}),
            lane=self._lane,
            epoch=0,
            number=0,
            position=None,
            applied=nowhere,
            seen=nowhere,
            read=nowhere,
            written_back=nowhere,
            delivered_up_to_ms=0,
            node=self._node,
            at_ms=self._clock.now_ms(),
            lineage=NO_LINEAGE,
        )

    def _catch_up(self, last: Checkpoint) -> Process[Vector | StepDown]:
        """Reads the log as far as the last leader had, and as far as it is stable now, so that a cancel
        made during an outage counts, unless this node is to step down meanwhile.

        Not as far as the service has written back: that may stand behind a transaction of a user's which is
        open. The checkpoint says what is awaited.

        What is written back from now on is counted from the log's end, which is returned: above whatever was
        before.
        """
        ends = self._log.last_stable_offsets()
        counts = self._log.high_watermarks()
        self._view.wake_always()
        while not (self._view.has_applied(last.seen) and self._view.has_read_to(ends)):
            why = self._election.steps_down()
            if why is not None:
                return why
            yield Wait(None)
        return counts
