"""What an audit takes: of messages with ids that a cluster has delivered, beside Spark's reading alone.

Each audit, and each reading, is a process of its own with a Spark of its own, as it is for who types it; the
start of Spark is not counted. A job (bench/job.py): the job is a `Job`, the result a `Took` of one of them.
"""

from __future__ import annotations

import json
import logging
import os
import time
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, Final, NamedTuple

import psutil

from bench.cluster import Clusters
from bench.job import serve, work
from node.config import ConnectionConfig
from ops import logs
from ops.spark import audit_session
from ops.stack import LocalStack
from ops.topics.audited import audit_config
from pipeline.audit import audit
from pipeline.audit.report import KINDS
from pipeline.audit.snapshot import take_snapshot
from pipeline.kafka.offsets import TopicOffsets
from pipeline.kafka.source import records

_SHUFFLED: Final = "internal.metrics.shuffle.write.bytesWritten"


@dataclass(frozen=True, slots=True)
class Job:
    """An audit of a cluster, or (not `judged`) its topics read once. `folder`: for Spark's log of events."""

    cluster: str
    bootstrap: str
    zookeeper: str
    folder: str
    judged: bool


class Took(NamedTuple):
    """`requests`: that it has accounted for; `wrong`: violations. `peak_bytes`: of Spark and Python."""

    seconds: float
    peak_bytes: int
    shuffled_bytes: int
    requests: int
    wrong: int


class Round(NamedTuple):
    """The same topics, audited, and read alone."""

    audited: Took
    read: Took


def measure(messages: int, rounds: int) -> Iterator[Round]:
    """One cluster, in which so many are delivered, and then round after round.

    Raises `StackError`, `SetupError`, `JobFailed`, `TimeoutError`.
    """
    with (
        TemporaryDirectory(prefix="delayline-bench-") as folder,
        LocalStack(Path(folder) / "stack") as stack,
        Clusters(stack, Path(folder)).cluster("audit") as cluster,
    ):
        cluster.load(messages, ids=True).send()
        last_due_ms = time.time() * 1000
        cluster.node.start()
        cluster.node.wait("all delivered", lambda sample: sample.delivered_up_to_ms > last_due_ms)
        cluster.node.stop()
        for number in range(rounds):
            audited, read = (
                Job(
                    cluster.names.cluster,
                    stack.bootstrap,
                    stack.zookeeper,
                    f"{folder}/{number}-{judged}",
                    judged,
                )
                for judged in (True, False)
            )
            yield Round(*(Took(*work("bench.audits", asdict(one))) for one in (audited, read)))


def take(job: dict[str, Any], ready: Any) -> Took:
    """What the job's process does."""
    logs.configure(logging.ERROR)  # stdout is the protocol's
    wish = Job(**job)
    Path(wish.folder).mkdir()
    logged = {
        "enabled": "true",
        "dir": f"file:{wish.folder}",
        "compress": "false",
        "rolling.enabled": "false",
    }
    given = " ".join(f"--conf spark.eventLog.{key}={value}" for key, value in logged.items())
    os.environ["PYSPARK_SUBMIT_ARGS"] = f"{given} pyspark-shell"
    config = audit_config(
        ConnectionConfig(cluster=wish.cluster, bootstrap_servers=wish.bootstrap, zookeeper=wish.zookeeper)
    )
    snapshot = take_snapshot(TopicOffsets(config), config.names)
    spark = audit_session(records=snapshot.records)
    ready()
    begun_s = time.monotonic()
    requests = wrong = 0
    if wish.judged:
        report = audit(spark, config, snapshot).report
        requests, wrong = report.requests, sum(report.found(kind) for kind in KINDS)
    else:
        for extent in (snapshot.buffer, snapshot.checkpoint, snapshot.evidence):
            records(spark, config, extent).write.format("noop").mode("overwrite").save()
    seconds, peak_bytes = time.monotonic() - begun_s, _peak_bytes()
    spark.stop()
    return Took(seconds, peak_bytes, _shuffled_bytes(Path(wish.folder)), requests, wrong)


def _peak_bytes() -> int:
    """The most memory that this process and its children have held, each for itself."""
    family = [psutil.Process(), *psutil.Process().children(recursive=True)]
    return sum(_held_most(process.pid) for process in family)


def _held_most(pid: int) -> int:
    for line in Path(f"/proc/{pid}/status").read_text().splitlines():
        if line.startswith("VmHWM:"):
            return int(line.split()[1]) * 1024
    return 0


def _shuffled_bytes(folder: Path) -> int:
    found = 0
    for file in folder.rglob("*"):
        if file.is_file() and not file.name.startswith("."):
            for line in file.read_text().splitlines():
                event = json.loads(line)
                if event["Event"] == "SparkListenerStageCompleted":
                    values = {one["Name"]: one["Value"] for one in event["Stage Info"]["Accumulables"]}
                    found += int(values.get(_SHUFFLED, 0))
    return found


if __name__ == "__main__":
    serve(take)
