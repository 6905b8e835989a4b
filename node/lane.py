"""The lane role: follows the checkpoint while another node is master, delivers while this one is.

One thread does both, so a node is never follower and master at once: it aligns to what the checkpoint
follower reads, and once elected it drives the delivery core until that mastership ends.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from typing import Final

import structlog

from node import refusal
from node.checkpoints import CheckpointFollower
from node.delivery import Delivery, Ended, Step, Wait
from node.health import Health
from node.leadership import ElectedLeadership
from node.outbox import KafkaOutbox
from node.ports import CheckpointTopicLost, Doubtful
from store.kv import StoreError
from store.view import View

log = structlog.get_logger("delayline.lane")

RETRY_S: Final = 0.2


class SystemClock:
    """Implements `node.ports.Clock`."""

    def now_ms(self) -> int:
        """See the port."""
        return time.time_ns() // 1_000_000


class LaneWorker:
    """Owns the view's tip and the outbox."""

    def __init__(
        self,
        view: View,
        outbox: KafkaOutbox,
        follower: CheckpointFollower,
        leadership: ElectedLeadership,
        new_delivery: Callable[[], Delivery],
        max_clock_skew_ms: int,
        health: Health,
        hook: Callable[[Step], None],
    ) -> None:
        self.leading = False
        self.epoch = 0
        self._view = view
        self._outbox = outbox
        self._follower = follower
        self._leadership = leadership
        self._new_delivery = new_delivery
        self._max_clock_skew_ms = max_clock_skew_ms
        self._health = health
        self._hook = hook
        self._wake = threading.Event()
        self._stopping = False
        self._thread = threading.Thread(target=self._run, name="lane", daemon=True)

    def start(self) -> None:
        """Starts the thread."""
        self._thread.start()

    def stop(self) -> None:
        """Asks the thread to end; the leadership must be told to resign first."""
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
                if self._leadership.elected() and self._follower.missing is None:
                    self._lead()
                else:
                    self._follow()
        except StoreError as error:
            self._health.fail(error)
        finally:
            self._outbox.close()

    def _follow(self) -> None:
        latest, aligned = self._follower.latest(), self._view.checkpoint
        if latest is not None and (aligned is None or latest.order > aligned.order):
            self._view.align(latest)
        try:
            self._outbox.warm_up()
        except Doubtful:
            self._pause()
            return
        self._wake.wait()
        self._wake.clear()

    def _lead(self) -> None:
        delivery = self._new_delivery()
        mastership = delivery.run()
        try:
            while True:
                step = next(mastership)
                if isinstance(step, Wait):
                    self._wait(step)
                    continue
                self._hook(step)
                if step == Step.TAKEN_OVER:
                    self._taken_over(delivery)
                elif step == Step.AFTER_COMMIT:
                    self._check_clock()
        except StopIteration as ended:
            self._ended(ended.value)
        except CheckpointTopicLost as error:
            self._follower.miss(str(error))
        finally:
            self.leading = False

    def _taken_over(self, delivery: Delivery) -> None:
        self.leading, self.epoch = True, delivery.epoch
        self._check_clock()

    def _check_clock(self) -> None:
        offset_ms = self._outbox.clock_offset_ms
        if abs(offset_ms) > self._max_clock_skew_ms:
            self._health.refuse(refusal.clock_skewed(offset_ms, self._max_clock_skew_ms))

    def _ended(self, why: Ended) -> None:
        log.info("mastership-ended", why=str(why), epoch=self.epoch)
        if why == Ended.DEPOSED:
            self._pause()  # ZooKeeper's next word on who is master is on its way

    def _pause(self) -> None:
        """A moment before the next try, or until something changes; not what has changed already."""
        self._wake.clear()
        if not self._stopping:
            self._wake.wait(RETRY_S)

    def _wait(self, wait: Wait) -> None:
        timeout_s = None if wait.until_ms is None else max(0.0, wait.until_ms / 1000 - time.time())
        self._wake.wait(timeout_s)
        self._wake.clear()
