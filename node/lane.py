"""The lane worker: follows the checkpoint while another node is leader, delivers while this one is.

One thread does both, so a node is never follower and leader at once: it aligns to what the checkpoint
reader reads, and once elected it drives the delivery core until that leadership ends.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Final

import structlog

from node.contender import Contender
from node.core.delivery import Delivery
from node.core.ports import Unanswered
from node.core.steps import Step, StepDown, Wait
from node.health.meter import Meter
from node.kafka.checkpoints import CheckpointReader
from node.kafka.outbox import KafkaOutbox
from node.refusal import Refusal, Refusing, log_refusal
from node.worker import Bell, Worker
from node.zookeeper.leadership import ZooKeeperElection
from store.view import View

log = structlog.get_logger("delayline.lane")

RETRY_S: Final = 0.2
REFUSED_RETRY_S: Final = 1.0


class SystemClock:
    """Implements `node.core.ports.Clock`."""

    def now_ms(self) -> int:
        return time.time_ns() // 1_000_000

    def steady_ms(self) -> int:
        return time.monotonic_ns() // 1_000_000


class LaneWorker(Worker):
    """Owns the view's tip and the outbox."""

    def __init__(
        self,
        view: View,
        outbox: KafkaOutbox,
        checkpoint_reader: CheckpointReader,
        election: ZooKeeperElection,
        contender: Contender,
        new_delivery: Callable[[], Delivery],
        bell: Bell,
        hook: Callable[[Step], None],
    ) -> None:
        """`bell`: something has changed: the view, a commit, the election."""
        super().__init__("lane", bell=bell)
        self.refusal: Refusal | None = None  # why this node cannot lead, though it is elected
        self.meter = Meter()
        self._view = view
        self._outbox = outbox
        self._checkpoint_reader = checkpoint_reader
        self._election = election
        self._contender = contender
        self._new_delivery = new_delivery
        self._hook = hook

    def _run(self) -> None:
        while not self.stopping:
            if not self._election.elected():
                self._outbox.forget_committed()
                self.refusal = None
                self._follow()
            elif self._checkpoint_reader.refusal is not None:
                self._follow()
            else:
                self._lead()

    def _close(self) -> None:
        self._outbox.close()

    def _follow(self) -> None:
        latest, aligned = self._checkpoint_reader.latest(), self._view.checkpoint
        if latest is not None and (aligned is None or latest.order > aligned.order):
            self._view.align(latest)
        try:
            if self._outbox.warm_up():
                return  # whoever is elected meanwhile need not wait for the rest of them
        except Unanswered:
            self._back_off()
            return
        self._bell.wait()

    def _lead(self) -> None:
        delivery = self._new_delivery()
        leadership = delivery.run()
        try:
            while True:
                step = next(leadership)
                if isinstance(step, Wait):
                    self._sleep(step)
                    continue
                self._hook(step)
                if step == Step.LEADERSHIP_BEGUN:
                    self._leadership_begun(delivery)
                elif step == Step.AFTER_COMMIT:
                    self._committed(delivery)
        except StopIteration as ended:
            self._stepped_down(ended.value, delivery.epoch)
        except Refusing as refusing:
            self._refuse(refusing.refusal)
        finally:
            self._contender.leadership_ended()

    def _committed(self, delivery: Delivery) -> None:
        if delivery.in_flight is not None and self._outbox.committed is not None:
            self.meter.committed(delivery.in_flight, self._outbox.committed)
        if self._contender.has_begun:
            self._contender.judge_clock(self._outbox.clock_offset_ms)

    def _leadership_begun(self, delivery: Delivery) -> None:
        self.meter.losses += delivery.lost
        self.refusal = None
        self._contender.leadership_begun()
        self._contender.judge_clock(self._outbox.clock_offset_ms)

    def _refuse(self, why: Refusal) -> None:
        """Only an operator can help; nobody else could lead either."""
        if why != self.refusal:
            log_refusal(log, why)
            self.refusal = why
        self._back_off(REFUSED_RETRY_S)

    def _stepped_down(self, why: StepDown, epoch: int) -> None:
        log.info("leader-stepped-down", why=str(why), epoch=epoch)
        if why is StepDown.SUPERSEDED:
            # Another node may have begun what is open where this one's commits lack their markers.
            self._outbox.forget_committed()
        if self._election.steps_down() is None:
            self._back_off()  # ZooKeeper's next word on who is leader is on its way

    def _back_off(self, timeout_s: float = RETRY_S) -> None:
        """A moment before the next try, or until something changes; not what has changed already."""
        self._bell.silence()
        if not self.stopping:
            self._bell.wait(timeout_s)

    def _sleep(self, wait: Wait) -> None:
        timeout_s = None if wait.until_ms is None else max(0.0, wait.until_ms / 1000 - time.time())
        self._bell.wait(timeout_s)
