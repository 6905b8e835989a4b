"""The housekeeping worker: prunes, forgets old ids, counts what waits, watches the buffer topic.

Once a second, on a thread of its own; nothing that it does may hold apply or delivery for long.
"""

from __future__ import annotations

import time
from typing import Final

import structlog

from node.core.ports import Unanswered
from node.inspection import Inspection
from node.kafka.checkpoints import KafkaLog
from node.worker import Worker
from store.checkpoint import Vector
from store.forgetting import Expired
from store.overdue import Overdue, counted, scans
from store.view import View

log = structlog.get_logger("delayline.housekeeping")

PERIOD_S: Final = 1.0
MOST_EXPIRED: Final = 500  # at once, and one entry more: the view is locked for some 14 us each
COLLECTING_S: Final = 0.2
COUNTING_PAUSE: Final = 19


class Housekeeping(Worker):
    """Nobody else takes anything out of the view."""

    def __init__(self, view: View, kafka_log: KafkaLog, inspection: Inspection) -> None:
        super().__init__("housekeeping")
        self.pending = 0
        self.overdue: Overdue | None = None  # not counted yet, nor is `pending`
        self._view = view
        self._log = kafka_log
        self._inspection = inspection
        self._count_at_s = 0.0
        self._expired: list[Expired] = []
        self._log_ends: Vector = {}

    def _run(self) -> None:
        while not self.wait(PERIOD_S):
            self._view.prune()
            self._collect()
            self._count()
            self._inspection.look()

    def _count(self) -> None:
        """Counting may walk the rows of a minute: it may take a twentieth of the time."""
        begin_s = time.monotonic()
        if begin_s < self._count_at_s:
            return
        now_ms = time.time_ns() // 1_000_000
        due = self._view.snapshot(lambda kv, frontier, _: scans(kv, frontier, now_ms))
        self.pending = self._view.pending()
        self.overdue = counted(due, now_ms)
        end_s = time.monotonic()
        self._count_at_s = end_s + COUNTING_PAUSE * (end_s - begin_s)

    def _collect(self) -> None:
        """Ids go in two steps: they are chosen, then the log's end is noted; they go once it is read.

        As many rounds as there are ids for, in a fifth of the time: they go as fast as they come.
        """
        until_s = time.monotonic() + COLLECTING_S
        while self._collect_chosen() and self._choose() and time.monotonic() < until_s:
            pass

    def _collect_chosen(self) -> bool:
        """Whether those chosen have gone."""
        if self._expired and not self._view.forgetting.collect(self._expired, self._log_ends):
            return False
        self._expired = []
        return True

    def _choose(self) -> bool:
        """Whether there were any to choose."""
        expired = self._view.forgetting.expired(MOST_EXPIRED)
        if not expired:
            return False
        try:
            self._log_ends = self._log.high_watermarks()
        except Unanswered as error:
            log.warning("ids-expiry-failed", detail=str(error))
            return False
        self._expired = expired
        return True
