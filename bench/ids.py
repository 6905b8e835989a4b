"""What an id costs at intake: batches into a view that knows many ids, beside the same without ids. No Kafka:
from the parser on.

Both views are in one process, and take turns, so that a machine with other work slows both.
"""

from __future__ import annotations

import gc
import random
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Final, NamedTuple, cast

from bench import message
from bench.parts import default
from delayline.headers import H_ID, H_TARGET_KEY
from delayline.names import ClusterNames
from delayline.partitioner import partition_for
from delayline.settings import ClusterSettings
from delayline.settings_versions import SettingsVersions
from delayline.wire import parse_plain
from node.kafka.fetch.ready import MOST_POLLED
from node.kafka.fetch.records import LogRecord
from node.node import YOUNG_OBJECTS
from store.arrivals import Arrival, plain_arrival
from store.rocks import RocksStore
from store.view import View

HOUR_MS: Final = 3_600_000
TARGET: Final = "target"
NAMES: Final = ClusterNames("ids")
IDLE_S: Final = 0.05
IDLE_CPU_S: Final = 0.005


class Round(NamedTuple):
    """Own: CPU time of the thread that takes the batches in, us a message; process: of all threads, until
    compaction has ended. Held: the longest time for which the view was locked.
    """

    per_s: float
    own_us: float
    process_us: float
    held_ms: float


class HeldLock:
    """A lock that knows for how long it was held at most."""

    def __init__(self) -> None:
        self.longest_s = 0.0
        self._lock = threading.Lock()
        self._since_s = 0.0

    def __enter__(self) -> None:
        self._lock.acquire()
        self._since_s = time.perf_counter()

    def __exit__(self, *_: object) -> None:
        self.longest_s = max(self.longest_s, time.perf_counter() - self._since_s)
        self._lock.release()


class Intake:
    """A view, and what comes in."""

    def __init__(self, folder: Path, *, ids: bool) -> None:
        self._ids = ids
        self._settings = ClusterSettings()
        partitions = range(self._settings.partitions)
        self._ends = dict.fromkeys(partitions, 0)
        self._dice = random.Random(3)
        self._number = 0
        self._store = RocksStore(folder)
        self._view = View(
            self._store,
            partitions,
            default("replay_window_s") * 1000,
            SettingsVersions.of(self._settings),
        )

    def take(self, messages: int) -> Round:
        """Takes so many in."""
        lock = HeldLock()
        self._view.guard.lock = cast("threading.Lock", lock)
        spent_s = own_s = made_s = 0.0
        begin_s = time.process_time()
        for size in _sizes(messages):
            made_s -= time.process_time()
            batch = [self._record() for _ in range(size)]
            made_s += time.process_time()
            wall_s, cpu_s = time.perf_counter(), time.thread_time()
            self._view.apply([self._arrival(one) for one in batch], self._ends)
            spent_s += time.perf_counter() - wall_s
            own_s += time.thread_time() - cpu_s
        _settle()
        process_s = time.process_time() - begin_s - made_s
        return Round(
            messages / spent_s, own_s / messages * 1e6, process_s / messages * 1e6, lock.longest_s * 1e3
        )

    def close(self) -> None:
        self._store.close()

    def _record(self) -> LogRecord:
        number, now_ms = self._number, time.time_ns() // 1_000_000
        self._number += 1
        headers = message.headers(TARGET, now_ms + HOUR_MS + self._dice.randrange(HOUR_MS))
        key, partition = message.key(number), number % self._settings.partitions
        if self._ids:
            message_key, key = key, b"%032x" % self._dice.getrandbits(128)
            headers += [(H_ID, key), (H_TARGET_KEY, message_key)]
            partition = partition_for(key, self._settings.partitions)
        offset = self._ends[partition]
        self._ends[partition] += 1
        return LogRecord(partition, offset, now_ms, key, message.value(number), headers)

    def _arrival(self, record: LogRecord) -> Arrival:
        plain = parse_plain(record.headers, record.partition, record.timestamp_ms, self._settings, NAMES)
        assert plain is not None, "it asks for nothing else"
        return plain_arrival(record[:3], record.key, record.value, record.headers, *plain)


def measure(pending: int, rounds: int, messages: int) -> dict[str, list[Round]]:
    """Rounds of so many messages, with and without ids in turn, each into a view that has `pending`."""
    gc.set_threshold(YOUNG_OBJECTS)
    with TemporaryDirectory(prefix="delayline-bench-") as folder:
        intakes = {
            "without ids": Intake(Path(folder) / "plain", ids=False),
            "with ids": Intake(Path(folder) / "ids", ids=True),
        }
        for intake in intakes.values():
            intake.take(pending)
        found: dict[str, list[Round]] = {name: [] for name in intakes}
        for _ in range(rounds):
            for name, intake in intakes.items():
                found[name].append(intake.take(messages))
        for intake in intakes.values():
            intake.close()
    return found


def _sizes(messages: int) -> Iterator[int]:
    for begin in range(0, messages, MOST_POLLED):
        yield min(MOST_POLLED, messages - begin)


def _settle() -> None:
    """Waits until RocksDB has nothing to do: then the process has not."""
    while True:
        cpu_s = time.process_time()
        time.sleep(IDLE_S)
        if time.process_time() - cpu_s < IDLE_CPU_S:
            return
