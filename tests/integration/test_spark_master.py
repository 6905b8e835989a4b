"""The commands that read with Spark, on a standalone cluster with two workers, of which one is killed."""

from __future__ import annotations

import json
import subprocess
import sys
import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final, NamedTuple

import pytest

from delayline.times import HOUR_MS
from tests.stacks import Stack
from tests.support.cluster import Cluster
from tests.support.requests import Sender, now_ms
from tests.support.spark_cluster import SparkCluster
from tests.support.waiting import eventually

DELIVERED: Final = 40
PENDING: Final = 10
WORKERS: Final = 2
COMMAND_S: Final = 200.0
LOST: Final = "Spark has lost an executor, and what that had computed"

pytestmark = pytest.mark.timeout(300)


@pytest.fixture(scope="module")
def spark_cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SparkCluster]:
    with SparkCluster(tmp_path_factory.mktemp("spark"), WORKERS) as cluster:
        yield cluster


@pytest.fixture(scope="module")
def lived(stack: Stack, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    """A cluster in which nothing happens any more."""
    with Cluster(stack, f"t-master-{uuid.uuid4().hex[:8]}", tmp_path_factory.mktemp("lived")) as cluster:
        node = cluster.start_here("a")
        with Sender(cluster) as sender:
            for number in range(DELIVERED):
                sender.schedule(after_ms=0, id=f"now-{number}")
            for number in range(PENDING):
                sender.schedule(at_ms=now_ms() + HOUR_MS, id=f"later-{number}")
            sender.flush()
            cluster.wait_delivered(DELIVERED)
        cluster.stop_here(node)
        yield cluster
        cluster.delete_topics()


class Done(NamedTuple):
    """How a command has ended, and what it said."""

    code: int
    out: str
    err: str


@contextmanager
def begun(spark: SparkCluster, cluster: Cluster, *command: str) -> Iterator[subprocess.Popen[str]]:
    """A command that works there; ended when the block is."""
    spark.fill_up(WORKERS)
    where = ["--bootstrap", cluster.bootstrap, "--zookeeper", cluster.zookeeper, "--cluster", cluster.name]
    words = [sys.executable, "-m", "ops.cli.main", *command, "--master", spark.url, *where]
    with subprocess.Popen(words, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as process:
        try:
            yield process
        finally:
            process.kill()


def ended(process: subprocess.Popen[str]) -> Done:
    """Waits for it."""
    out, err = process.communicate(timeout=COMMAND_S)
    return Done(process.returncode, out, err)


def run_killed(spark: SparkCluster, cluster: Cluster, name: str, *command: str) -> Done:
    """How a command ends well while a worker is killed that reads the log; or, where it says that what was
    computed there is gone, how it does when it is started again. Its session of that name has worked there.
    """
    with begun(spark, cluster, *command) as process:
        broker_port = int(cluster.bootstrap.rpartition(":")[2])
        in_the_middle = "an executor reads the log"
        eventually(
            lambda: spark.reads_from(broker_port) or process.poll() is not None, in_the_middle, COMMAND_S
        )
        assert process.poll() is None, process.communicate()
        spark.kill_worker(reading_from=broker_port)
        done = ended(process)
    if done.code != 0:
        assert done.err.endswith(f"{LOST}\n"), done.err
        with begun(spark, cluster, *command) as process:
            done = ended(process)
    assert done.code == 0, done.err
    assert name in spark.finished()
    return done


def test_an_audit_accounts_for_every_request(spark_cluster: SparkCluster, lived: Cluster) -> None:
    done = run_killed(spark_cluster, lived, "delayline audit", "audit", "-o", "json")
    report: dict[str, Any] = json.loads(done.out)
    classes = {name: count for name, count in report["classes"].items() if count}
    assert (classes, report["violations"]) == ({"delivered": DELIVERED, "pending": PENDING}, [])


def test_a_round_of_the_watch_does_so_too(
    spark_cluster: SparkCluster, lived: Cluster, tmp_path: Path
) -> None:
    command = ("audit", "watch", "--once", "--state", str(tmp_path / "state"))
    done = run_killed(spark_cluster, lived, "delayline audit watch", *command)
    assert f"round 0: {DELIVERED + PENDING} requests, " in done.err
    assert "violations" not in done.err


def test_tables_have_a_row_for_each_request(
    spark_cluster: SparkCluster, lived: Cluster, tmp_path: Path
) -> None:
    command = ("tables", "export", "--to", f"parquet:{tmp_path / 'tables'}", "-o", "json")
    done = run_killed(spark_cluster, lived, "delayline tables", *command)
    rows = {one["table"]: one["new"] + one["open"] for one in json.loads(done.out)["tables"]}
    assert (rows["requests"], rows["messages"]) == (DELIVERED + PENDING, DELIVERED)


def test_a_forecast_knows_what_waits(spark_cluster: SparkCluster, lived: Cluster) -> None:
    done = run_killed(spark_cluster, lived, "delayline forecast", "forecast", "-o", "json")
    assert json.loads(done.out)["pending"] == PENDING
