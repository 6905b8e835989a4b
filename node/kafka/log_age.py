"""The log age worker: which records of the buffer have been there for long, as the brokers say. What waits
there is carried (docs/design.md, rule 12); and where retention comes near, that has to be said in time.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Final, NamedTuple

import structlog

from delayline.settings_versions import SettingsSource
from node.core.ports import Unanswered
from node.kafka.checkpoints import KafkaLog
from node.status import NearPartition
from node.worker import Worker
from store.checkpoint import Checkpoint, Vector

log = structlog.get_logger("delayline.log-age")

PERIOD_S: Final = 60.0
IN_A_HALF: Final = 10  # so often at least within half of the retention
KNOWN_FOR_PERIODS: Final = 5
RETRY_S: Final = 5.0
END_TIMEOUT_S: Final = 1.0


class _Aged(NamedTuple):
    """Below which offsets the records are older than half of the retention, and so old that it is near."""

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
        self._nothing = dict.fromkeys(partitions, 0)
        self._aged: _Aged | None = None

    def old(self) -> Vector | None:
        """See `LogAge`. What was old once is."""
        if not self.carries:
            return None
        aged = self._aged
        return self._nothing if aged is None else aged.old

    def near(self) -> list[NearPartition] | None:
        """Where retention comes near what is still needed. None: not known, or nothing is carried."""
        aged, checkpoint = self._aged, self._checkpoint()
        if aged is None or checkpoint is None:
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
            pause_s = self._period_s()
            try:
                self._aged = self._ask(time.time_ns() // 1_000_000)
            except Unanswered as error:
                log.debug("log-age-lookup-failed", detail=str(error))
                pause_s = min(pause_s, RETRY_S)
            if self.wait(pause_s):
                return

    def _retention_ms(self) -> int:
        """As it is now, though the topic may have a longer one still."""
        return self._settings.versions.settings.retention_ms or 0

    def _period_s(self) -> float:
        return min(PERIOD_S, self._retention_ms() / 2 / 1000 / IN_A_HALF)

    def _ask(self, now_ms: int) -> _Aged:
        """The ends first: what comes after them is young."""
        ends = self._log.high_watermarks()
        retention_ms = self._retention_ms()
        window_ms = max(self._replay_window_ms, self._settings.versions.longest_dedup_window_ms)
        old = self._log.first_since(now_ms - retention_ms // 2, ends)
        near = self._log.first_since(now_ms - near_ms(retention_ms, window_ms), ends)
        return _Aged(old, near, time.monotonic())


def near_ms(retention_ms: int, window_ms: int) -> int:
    """From which age on records should not be needed any more: halfway between that at which a leader that
    works lets go of them, which is half of the retention and the window in which what is done still counts,
    and the retention. So it is three quarters of the retention, where that is long.
    """
    let_go_ms = retention_ms // 2 + window_ms
    return min((let_go_ms + retention_ms) // 2, retention_ms * 9 // 10)
