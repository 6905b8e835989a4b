"""What reading costs while little comes, and how late it is: a reader alone, at some rates.

A poll costs about the same for one record and for a hundred, so that it is the small rates that tell. *Late*
is the time from when a message was handed to its producer, which waits 5 ms for more, until it was read.
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from contextlib import closing
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Final, NamedTuple

from bench import message
from bench.cluster import TARGET_PARTITIONS, Clusters
from bench.loader import Load
from bench.reader import percentile
from node.kafka.reader import TopicReader
from ops.stack import LocalStack

POLL_S: Final = 0.2
WARM_UP_S: Final = 2.0


class Polls(NamedTuple):
    """At a rate, of a second: messages, polls, CPU time of the reader's thread in ms; lateness in ms."""

    came: float
    polls: float
    own_ms: float
    p50_ms: float
    p99_ms: float


def measure(rates: Sequence[int], seconds: float) -> Iterator[tuple[int, Polls]]:
    """One rate after the other, on a stack of its own. Raises `StackError`, `JobFailed`."""
    with (
        TemporaryDirectory(prefix="delayline-bench-") as folder,
        LocalStack(Path(folder) / "stack") as stack,
    ):
        clusters = Clusters(stack, Path(folder))
        for rate in rates:
            topic, count = clusters.topic("polls"), int(rate * (2 * WARM_UP_S + seconds))
            load = Load(stack.bootstrap, topic, topic, count, rate=rate, settings={})
            with closing(TopicReader({"bootstrap.servers": stack.bootstrap}, topic)) as reader, load.begin():
                reader.start(dict.fromkeys(range(TARGET_PARTITIONS), 0))
                _read(reader, WARM_UP_S)
                yield rate, _read(reader, seconds)


def _read(reader: TopicReader, seconds: float) -> Polls:
    late_us: list[int] = []
    polls, due_in = 0, message.due_in
    own_ns, begun_s = time.thread_time_ns(), time.monotonic()
    while (took_s := time.monotonic() - begun_s) < seconds:
        records = reader.poll(POLL_S)
        at_us = time.time_ns() // 1000
        late_us += [at_us - due_in(one.value or b"") * 1000 for one in records]
        polls += 1
    own_ms = (time.thread_time_ns() - own_ns) / 1e6
    late_us.sort()
    p50_ms, p99_ms = (percentile(late_us, share) / 1000 if late_us else 0.0 for share in (0.5, 0.99))
    return Polls(len(late_us) / took_s, polls / took_s, own_ms / took_s, p50_ms, p99_ms)
