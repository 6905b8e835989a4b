"""What it costs to move what waits as a table: out of one cluster, and into another one in another Kafka.

Both commands are typed as an operator would, while both clusters are at work. In the end nothing may wait in
the old one, nor may it have delivered anything; each message has to stand in the new one's buffer once, and
has to wait there, as its node says: a request whose id was known would be no message.
"""

from __future__ import annotations

import os
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Final, NamedTuple

from bench import message
from bench.cluster import Cluster, Clusters
from bench.job import JobFailed
from bench.sampled_node import peak_bytes_of
from delayline.headers import H_TARGET_KEY
from delayline.settings import ClusterSettings
from node.config import ConnectionConfig
from ops.clients.kafka import KafkaAdmin
from ops.clients.records import records_from
from ops.pending import export
from ops.stack import LocalStack

MORE: Final = 2
"""So many times as many partitions has the new cluster."""
DAY_MS: Final = 86_400_000


class Command(NamedTuple):
    """What a command has taken."""

    seconds: float
    peak_bytes: int


@dataclass(frozen=True, slots=True)
class Moved:
    """What a move has come to. `left`, `waiting`: messages that wait in the old cluster when it is over, and
    in the new one; `delivered`: by the old one meanwhile; of those that were sent, how many stand in the new
    one not at all, more than once, or as something else.
    """

    messages: int
    exported: Command
    imported: Command
    file_bytes: int
    left: int
    delivered: int
    waiting: int
    lost: int
    doubled: int
    altered: int

    @property
    def is_whole(self) -> bool:
        """Whether each message has moved, once and as it was."""
        none = self.left, self.delivered, self.lost, self.doubled, self.altered
        return not any(none) and self.waiting == self.messages


def measure(messages: int, rate: float) -> Moved:
    """Moves so many that fall due tomorrow. `rate`: of both commands.

    Raises `StackError`, `SetupError`, `JobFailed`, `TimeoutError`.
    """
    with TemporaryDirectory(prefix="delayline-bench-") as folder, _two(Path(folder)) as (old, new):
        for cluster in (old, new):
            cluster.node.lead()
        tomorrow_ms = time.time_ns() // 1_000_000 + DAY_MS
        old.load(messages, first_due_ms=tomorrow_ms, span_ms=DAY_MS).send()
        old.node.wait("all applied", lambda sample: sample.applied == messages)
        file, pace = Path(folder) / "moved.parquet", ("--rate", str(rate))
        confirm = ("--confirm", old.names.cluster)
        exported = _typed("export", old, "--to", f"parquet:{file}", *confirm, *pace)
        imported = _typed("import", new, "--from", f"parquet:{file}", *pace)
        left, waiting = (export.survey(_config(cluster)).messages for cluster in (old, new))
        delivered = sum(KafkaAdmin(_config(old)).ends(old.target).values())
        times, altered = _counted(new, messages)
        size_bytes = file.stat().st_size
    lost, once = times.count(0), times.count(1)
    return Moved(
        messages,
        exported,
        imported,
        size_bytes,
        left,
        delivered,
        waiting,
        lost,
        messages - lost - once,
        altered,
    )


@contextmanager
def _two(folder: Path) -> Iterator[tuple[Cluster, Cluster]]:
    """A cluster, and another one with more partitions, each with a Kafka and a ZooKeeper of its own. The old
    one's target is in both.
    """
    with LocalStack(folder / "one") as one, LocalStack(folder / "other") as other:
        for name in ("old", "new"):
            (folder / name).mkdir()
        olds, news = Clusters(one, folder / "old"), Clusters(other, folder / "new")
        partitions = MORE * ClusterSettings().partitions
        with olds.cluster("old") as old, news.cluster("new", partitions=partitions) as new:
            news.make_topic(old.target)
            yield old, new


def _config(cluster: Cluster) -> ConnectionConfig:
    return ConnectionConfig(
        cluster=cluster.names.cluster,
        bootstrap_servers=cluster.bootstrap,
        zookeeper=cluster.stack.zookeeper,
    )


def _typed(command: str, cluster: Cluster, *words: str) -> Command:
    """Runs `delayline pending` to its end. Raises `JobFailed`."""
    config = _config(cluster)
    where = ("--bootstrap", config.bootstrap_servers, "--zookeeper", config.zookeeper)
    typed = [sys.executable, "-m", "ops.cli.main", "pending", command, *words, *where]
    begun_s = time.monotonic()
    process = subprocess.Popen([*typed, "--cluster", config.cluster], stdout=subprocess.DEVNULL)
    try:
        _, status, used = os.wait4(process.pid, 0)
    except BaseException:
        process.kill()
        process.wait()
        raise
    process.returncode = os.waitstatus_to_exitcode(status)
    if process.returncode != 0:
        raise JobFailed(f"pending {command} has ended with exit code {process.returncode}: see above")
    return Command(time.monotonic() - begun_s, peak_bytes_of(used))


def _counted(cluster: Cluster, messages: int) -> tuple[bytearray, int]:
    """How often each message stands in the cluster's buffer, by its number (twice stands for more), and how
    many of them are others.
    """
    config, times, altered = _config(cluster), bytearray(messages), 0
    buffer = cluster.names.buffer
    for record in records_from(config, buffer, KafkaAdmin(config).begins(buffer)):
        number = int(dict(record.headers)[H_TARGET_KEY] or b"")
        times[number] = min(times[number] + 1, 2)
        is_same = record.value == message.value(number) and message.TRACE in record.headers
        altered += not is_same
    return times, altered
