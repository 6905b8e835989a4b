"""The soundings worker: figures that others have to be asked for, Kafka, RocksDB and the disk, so that
whoever looks at the metrics waits for none of them.
"""

from __future__ import annotations

import shutil
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Final, NamedTuple

import structlog

from node.core.ports import Unanswered
from node.kafka.blocked import LastStableOffsets
from node.kafka.checkpoints import KafkaLog
from node.status import BlockedPartition
from node.worker import Worker
from store.checkpoint import Reached, Vector
from store.kv import StoreError
from store.rocks import Figures

log = structlog.get_logger("delayline.soundings")

PERIOD_S: Final = 2.0
KNOWN_FOR_S: Final = 15.0
SETTINGS_EVERY_S: Final = 30.0
END_TIMEOUT_S: Final = 1.0


class Ends(NamedTuple):
    """Where the lane's partitions of the buffer end, at all and for who reads what is committed; how far this
    node had read them; and what is blocked.
    """

    high: Vector
    stable: Vector
    read: Vector
    blocked: list[BlockedPartition]
    at_s: float  # monotonic


class Soundings(Worker):
    """What it has found may be read by any thread; None: not known."""

    def __init__(
        self,
        kafka_log: KafkaLog,
        reached: Callable[[], Reached],
        figures: Callable[[], Figures],
        data_dir: Path,
    ) -> None:
        """Its end is not waited for where Kafka does not answer."""
        super().__init__("soundings", end_timeout_s=END_TIMEOUT_S)
        self.figures: Figures | None = None
        self.free_bytes: int | None = None
        self.dated_by_clients: bool | None = None  # the buffer's records; see `_sound_settings`
        self._settings_at_s = 0.0
        self._ends: Ends | None = None
        self._log = kafka_log
        self._last_stable_offsets = LastStableOffsets(kafka_log.owners)
        self._reached = reached
        self._figures = figures
        self._data_dir = data_dir

    @property
    def lag(self) -> int | None:
        """How many offsets of the buffer that were committed this node had not read."""
        ends = self._known()
        return None if ends is None else _behind(ends.read, ends.stable)

    @property
    def unstable(self) -> int | None:
        """How many offsets of the buffer are behind transactions that are open."""
        ends = self._known()
        return None if ends is None else _behind(ends.stable, ends.high)

    @property
    def blocked(self) -> list[BlockedPartition] | None:
        """The partitions of the buffer that open transactions block for longer than is usual."""
        ends = self._known()
        return None if ends is None else ends.blocked

    def _known(self) -> Ends | None:
        ends = self._ends
        return None if ends is None or time.monotonic() - ends.at_s > KNOWN_FOR_S else ends

    def _run(self) -> None:
        while True:
            self._sound_disk()
            self._sound_log()
            self._sound_settings()
            if self.wait(PERIOD_S):
                return

    def _sound_disk(self) -> None:
        with suppress(StoreError):  # who needs the store says so
            self.figures = self._figures()
        with suppress(OSError):
            self.free_bytes = shutil.disk_usage(self._data_dir).free

    def _sound_log(self) -> None:
        """One after the other: what comes meanwhile is neither blocked nor not read yet."""
        with suppress(Unanswered):
            high = self._log.high_watermarks()
            stable = self._log.last_stable_offsets()
            read, at_s = self._reached().read, time.monotonic()
            blocked = self._last_stable_offsets.sounded(high, stable, time.time_ns() // 1_000_000)
            self._ends = Ends(high, stable, read, blocked, at_s)

    def _sound_settings(self) -> None:
        """Somebody may change the buffer topic while it is in use. What producers then say that the time is
        decides when their requests are due, and for how long a partition's ids are known. All nodes agree,
        and most producers' clocks are right: to refuse would stop everything for it. So it is said.
        """
        now_s = time.monotonic()
        if now_s < self._settings_at_s:
            return
        self._settings_at_s = now_s + SETTINGS_EVERY_S
        with suppress(Unanswered):
            before, self.dated_by_clients = self.dated_by_clients, self._log.dated_by_clients()
            if self.dated_by_clients and not before:
                log.error("buffer-timestamps-lost", way_out="see `delayline topics check`")
            elif before and not self.dated_by_clients:
                log.info("buffer-timestamps-restored")


def _behind(behind: Vector, ahead: Vector) -> int:
    return sum(max(0, end - behind.get(partition, 0)) for partition, end in ahead.items())
