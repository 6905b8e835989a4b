"""Reads a topic as an application would (read_committed) and notes when. A job (bench/job.py).

The job is a `ReadJob`, the result a `ReadResult`.
"""

from __future__ import annotations

import math
import time
from array import array
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from itertools import pairwise
from typing import Any, Final

from confluent_kafka import Consumer, TopicPartition

from bench import message
from bench.job import JobProcess, python_job, serve

BATCH: Final = 2_000
QUIET_S: Final = 60.0
SHARES: Final = (0.0, 0.5, 0.99, 1.0)
CONFIG: Final = {
    "group.id": "delayline-bench",  # required by the client, never joined
    "enable.auto.commit": False,
    "auto.offset.reset": "error",
    "isolation.level": "read_committed",
    "fetch.wait.max.ms": 20,
    "fetch.queue.backoff.ms": 5,
}
BUCKETS_MS: Final = (1, 2, 3, 4, 5, 6, 8, 10, 12, 15, 20, 25, 30, 40, 50, 75, 100, 150, 200, 300, 500, 1000)


@dataclass(frozen=True, slots=True)
class ReadJob:
    """What is to be read."""

    bootstrap: str
    topic: str
    count: int
    offsets: dict[int, int] = field(default_factory=dict)  # by partition; else from where it ends now
    lateness: bool = False  # the values say when each message was due
    from_ms: int = 0  # lateness of those due from then on
    others: Sequence[str] = ()  # further topics, from where they end now

    def begin(self) -> JobProcess:
        """Reads beside what else is going on; returns once it is about to read."""
        process = python_job("bench.reader", asdict(self))
        process.wait_ready()
        return process


@dataclass(frozen=True, slots=True)
class ReadResult:
    """What was read. Times are epoch ms; lateness is in ms, `histogram` counts by `BUCKETS_MS` (at most so
    late; the last count is of all that were later).
    """

    count: int
    first_ms: float
    half_ms: float
    most_ms: float  # 99 % of them
    last_ms: float
    p50_ms: float = 0.0
    p99_ms: float = 0.0
    max_ms: float = 0.0
    min_ms: float = 0.0
    pause_ms: float = 0.0  # the longest between two batches
    histogram: list[int] = field(default_factory=list)


def read(job: dict[str, Any], ready: Any) -> dict[str, Any]:
    """What the job's process does."""
    reading = ReadJob(**{**job, "offsets": {int(p): offset for p, offset in job["offsets"].items()}})
    consumer = Consumer({"bootstrap.servers": reading.bootstrap, **CONFIG})
    others = [start for topic in reading.others for start in _starts(consumer, topic, {})]
    consumer.assign([*_starts(consumer, reading.topic, reading.offsets), *others])
    ready()
    batches, late_us, due_in = [], array("q"), message.due_in
    left, quiet_s = reading.count, time.monotonic()
    while left > 0:
        first = consumer.poll(0.1)
        # poll, then what is there: consume(n, t) alone would wait t for a full batch.
        messages = [] if first is None else [first, *consumer.consume(BATCH, 0)]
        at_ns = time.time_ns()
        if not messages:
            if time.monotonic() - quiet_s > QUIET_S:
                raise TimeoutError(f"nothing came for {QUIET_S} s: {left} are missing")
            continue
        quiet_s = time.monotonic()
        left -= len(messages)
        batches.append((at_ns / 1e6, len(messages)))
        if reading.lateness:
            at_us = at_ns // 1000
            dues_ms = [due_in(one.value() or b"") for one in messages]
            late_us.extend(at_us - due_ms * 1000 for due_ms in dues_ms if due_ms >= reading.from_ms)
    return asdict(summarised(batches, sorted(late_us)))


def _starts(consumer: Consumer, topic: str, offsets: Mapping[int, int]) -> list[TopicPartition]:
    partitions = consumer.list_topics(topic, timeout=10).topics[topic].partitions
    starts = [TopicPartition(topic, partition) for partition in partitions]
    for start in starts:
        known = offsets.get(start.partition)
        start.offset = consumer.get_watermark_offsets(start, timeout=10)[1] if known is None else known
    return starts


def summarised(batches: Sequence[tuple[float, int]], late_us: Sequence[int]) -> ReadResult:
    """What batches (epoch ms, messages) and latenesses (ascending) come to."""
    count = sum(size for _, size in batches)
    first_ms, half_ms, most_ms, last_ms = (_reached_ms(batches, share * count) for share in SHARES)
    pauses_ms = (at_ms - before_ms for (before_ms, _), (at_ms, _) in pairwise(batches))
    read = ReadResult(count, first_ms, half_ms, most_ms, last_ms, pause_ms=max(pauses_ms, default=0.0))
    if not late_us:
        return read
    return replace(
        read,
        p50_ms=percentile(late_us, 0.5) / 1000,
        p99_ms=percentile(late_us, 0.99) / 1000,
        max_ms=late_us[-1] / 1000,
        min_ms=late_us[0] / 1000,
        histogram=_histogram(late_us),
    )


def percentile(ascending: Sequence[int], share: float) -> int:
    """By nearest rank, of one value at least."""
    return ascending[math.ceil(share * len(ascending)) - 1]


def _reached_ms(batches: Sequence[tuple[float, int]], wanted: float) -> float:
    seen = 0
    for at_ms, size in batches:
        seen += size
        if seen >= wanted:
            return at_ms
    return batches[-1][0]


def _histogram(late_us: Sequence[int]) -> list[int]:
    counts = [0] * (len(BUCKETS_MS) + 1)
    bucket = 0
    for late in late_us:  # ascending
        while bucket < len(BUCKETS_MS) and late > BUCKETS_MS[bucket] * 1000:
            bucket += 1
        counts[bucket] += 1
    return counts


if __name__ == "__main__":
    serve(read)
