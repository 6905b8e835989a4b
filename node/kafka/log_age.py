"""The log age worker: which records of the buffer have been there for long, as the brokers say. What waits
there is carried (docs/design.md, rule 12); and where retention comes near, that has to be said in time. And
what the outcomes topic has: a node that begins believes it.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Final, NamedTuple

import structlog

from delayline.settings_versions import SettingsSource
from delayline.times import DAY_MS, render_duration
from node.core.ports import Unanswered
from node.kafka.checkpoints import KafkaLog
from node.kafka.topics import TopicMissing
from node.status import NearPartition
from node.worker import Worker
from store.checkpoint import Checkpoint, Vector
from store.told import Look

log = structlog.get_logger("delayline.log-age")

PERIOD_S: Final = 60.0
IN_A_HALF: Final = 10  # so often at least within half of the retention
KNOWN_FOR_PERIODS: Final = 5
RETRY_S: Final = 5.0
END_TIMEOUT_S: Final = 1.0
UNREAD_MS: Final = DAY_MS
"""In a partition that nobody writes to, an id counts for a day longer (rule 12)."""


class _Aged(NamedTuple):
    """Below which offsets the records are older than half of the retention, and so old that it is near: what
    was so once is so. Of a partition whose leader did not answer then, it is what was known before.
    """

    old: Vector
    near: Vector
    at_s: float  # monotonic


class KafkaLogAge(Worker):
    """Implements `node.core.ports.LogAge`. What it has found may be read by any thread. Where the cluster
    carries nothing there is no retention to ask for: it is not started.
    """

    def __init__(
        self,
        kafka_log: KafkaLog,
        settings: SettingsSource,
        replay_window_ms: int,
        partitions: list[int],
        checkpoint: Callable[[], Checkpoint | None],
    ) -> None:
        """`replay_window_ms`: for how long what is done may be delivered again. `partitions`: the lane's.
        `checkpoint`: the last one known. Its end is not waited for where Kafka does not answer.
        """
        super().__init__("log-age", end_timeout_s=END_TIMEOUT_S)
        self.carries = settings.versions.settings.carries
        self._settings = settings
        self._replay_window_ms = replay_window_ms
        self._log = kafka_log
        self._checkpoint = checkpoint
        nothing = dict.fromkeys(partitions, 0)
        self._aged = _Aged(nothing, nothing, float("-inf"))
        self._look: Look | None = None
        self._warned_ms = 0  # of which retention

    def old(self) -> Vector | None:
        """See `LogAge`."""
        return self._aged.old if self.carries else None

    def outcomes(self) -> Look | None:
        """See `LogAge`."""
        return self._look

    def near(self) -> list[NearPartition] | None:
        """Where retention comes near what is still needed. None: not known, or nothing is carried."""
        aged, checkpoint = self._aged, self._checkpoint()
        if checkpoint is None:
            return None
        if time.monotonic() - aged.at_s > KNOWN_FOR_PERIODS * max(self._period_s(), RETRY_S):
            return None
        return [
            NearPartition(partition, carried, old)
            for partition, old in sorted(aged.near.items())
            if (carried := checkpoint.carried.get(partition, 0)) < old
        ]

    def _run(self) -> None:
        while True:
            self._expect_window()
            pause_s = self._period_s()
            try:
                checkpoint = self._checkpoint()
                self._look = self._log.outcomes(None if checkpoint is None else checkpoint.told)
            except (Unanswered, TopicMissing) as error:
                log.debug("outcomes-lookup-failed", detail=str(error))
                pause_s = min(pause_s, RETRY_S)
            if not self._ask(time.time_ns() // 1_000_000):
                pause_s = min(pause_s, RETRY_S)
            if self.wait(pause_s):
                return

    def _expect_window(self) -> None:
        """Says it once of each retention. It is no reason to refuse: what is due is delivered all the same,
        and the retention may have become shorter while the cluster runs.
        """
        retention_ms = self._retention_ms()
        detail = too_long(self._replay_window_ms, retention_ms)
        if detail is not None and self._warned_ms != retention_ms:
            self._warned_ms = retention_ms
            log.warning(
                "replay-window-too-long",
                detail=detail,
                consequence="a node without a view may find that the log does not reach back far enough",
            )

    def _retention_ms(self) -> int:
        """As it is now, though the topic may have a longer one still."""
        return self._settings.versions.settings.retention_ms or 0

    def _period_s(self) -> float:
        return min(PERIOD_S, self._retention_ms() / 2 / 1000 / IN_A_HALF)

    def _ask(self, now_ms: int) -> bool:
        """The ends first: what comes after them is young. False if a partition's leader has not answered."""
        ends = self._log.led_high_watermarks()
        retention_ms = self._retention_ms()
        id_ms = self._settings.versions.longest_dedup_window_ms + UNREAD_MS
        window_ms = max(self._replay_window_ms, id_ms)
        old = self._log.first_since(now_ms - retention_ms // 2, ends)
        near = self._log.first_since(now_ms - near_ms(retention_ms, window_ms), ends)
        before = self._aged
        at_s = time.monotonic() if near else before.at_s
        self._aged = _Aged(before.old | old, before.near | near, at_s)
        return near.keys() == before.near.keys()


def near_ms(retention_ms: int, window_ms: int) -> int:
    """From which age on records should not be needed any more: halfway between that at which a leader that
    works lets go of them, which is half of the retention and the window in which what is done still counts,
    and the retention. So it is three quarters of the retention, where that is long.
    """
    let_go_ms = retention_ms // 2 + window_ms
    return min((let_go_ms + retention_ms) // 2, retention_ms * 9 // 10)


def most_window_ms(retention_ms: int) -> int:
    """The longest window that what is done may count for. Where it is longer, retention is always near."""
    return retention_ms * 2 // 5


def too_long(replay_window_ms: int, retention_ms: int) -> str | None:
    """Of a node's window: by how much, in words; None if it is not."""
    most_ms = most_window_ms(retention_ms)
    if replay_window_ms <= most_ms:
        return None
    return (
        f"replay_window_s is {replay_window_ms / 1000:g}; the cluster keeps its log for"
        f" {render_duration(retention_ms)}: at most {most_ms / 1000:g}"
    )
