"""The lane role: follows the checkpoint while another node is leader, delivers while this one is.

One thread does both, so a node is never follower and leader at once: it aligns to what the checkpoint
reader reads, and once elected it drives the delivery core until that leadership ends.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from typing import Final

import structlog

from node.core.delivery import Delivery
from node.core.ports import Doubtful
from node.core.steps import Step, StepDown, Wait
from node.health.meter import Meter
from node.kafka.checkpoints import CheckpointReader
from node.kafka.outbox import KafkaOutbox
from node.owner import Health
from node.refusal import Refusal, Refusing, log_refusal
from node.zookeeper.leadership import ZooKeeperElection
from store.kv import StoreError
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


class LaneWorker:
    """Owns the view's tip and the outbox."""

    def __init__(
        self,
        view: View,
        outbox: KafkaOutbox,
        checkpoint_reader: CheckpointReader,
        election: ZooKeeperElection,
        new_delivery: Callable[[], Delivery],
        check_clock: Callable[[], None],
        health: Health,
        hook: Callable[[Step], None],
    ) -> None:
        """`check_clock`: called after each commit of a leader; may end the leadership."""
        self.refusal: Refusal | None = None  # why this node cannot lead, though it is elected
        self.meter = Meter()
        self._view = view
        self._outbox = outbox
        self._checkpoint_reader = checkpoint_reader
        self._election = election
        self._new_delivery = new_delivery
        self._check_clock = check_clock
        self._health = health
        self._hook = hook
        self._idle = threading.Event()
        self._idle.set()
        self._wake = threading.Event()
        self._stopping = False
        self._thread = threading.Thread(target=self._run, name="lane", daemon=True)

    @property
    def leading(self) -> bool:
        """Whether this node is leader: it has committed the first checkpoint of its epoch."""
        return not self._idle.is_set()

    def wait_idle(self) -> None:
        """Waits for the end of a leadership."""
        self._idle.wait()

    def start(self) -> None:
        """Starts the thread."""
        self._thread.start()

    def stop(self) -> None:
        """Asks the thread to end; the election must be told to resign first."""
        self._stopping = True
        self._wake.set()

    def join(self) -> None:
        """Waits for the end of the thread, and with it of the transaction under way."""
        self._thread.join()

    def wake(self) -> None:
        """Something has changed: the view, a commit, the election."""
        self._wake.set()

    def _run(self) -> None:
        try:
            while not self._stopping:
                if not self._election.elected():
                    self._outbox.forget_committed()
                    self.refusal = None
                    self._follow()
                elif self._checkpoint_reader.refusal is not None:
                    self._follow()
                else:
                    self._lead()
        except StoreError as error:
            self._health.fail(error)
        finally:
            self._outbox.close()

    def _follow(self) -> None:
        latest, aligned = self._checkpoint_reader.latest(), self._view.checkpoint
        if latest is not None and (aligned is None or latest.order > aligned.order):
            self._view.align(latest)
        try:
            if self._outbox.warm_up():
                return  # whoever is elected meanwhile need not wait for the rest of them
        except Doubtful:
            self._back_off()
            return
        self._wake.wait()
        self._wake.clear()

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
            self._idle.set()

    def _committed(self, delivery: Delivery) -> None:
        if delivery.in_flight is not None and self._outbox.committed is not None:
            self.meter.committed(delivery.in_flight, self._outbox.committed)
        if self.leading:
            self._check_clock()

    def _leadership_begun(self, delivery: Delivery) -> None:
        self.meter.losses += delivery.lost
        self.refusal = None
        self._idle.clear()
        self._check_clock()

    def _refuse(self, why: Refusal) -> None:
        """Only an operator can help; nobody else could lead either."""
        if why != self.refusal:
            log_refusal(log, why)
            self.refusal = why
        self._back_off(REFUSED_RETRY_S)

    def _stepped_down(self, why: StepDown, epoch: int) -> None:
        log.info("leader-stepped-down", why=str(why), epoch=epoch)
        if why == StepDown.SUPERSEDED:
            self._back_off()  # ZooKeeper's next word on who is leader is on its way

    def _back_off(self, timeout_s: float = RETRY_S) -> None:
        """A moment before the next try, or until something changes; not what has changed already."""
        self._wake.clear()
        if not self._stopping:
            self._wake.wait(timeout_s)

    def _sleep(self, wait: Wait) -> None:
        timeout_s = None if wait.until_ms is None else max(0.0, wait.until_ms / 1000 - time.time())
        self._wake.wait(timeout_s)
        self._wake.clear()
