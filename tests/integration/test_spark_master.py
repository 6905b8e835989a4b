"""The commands that read with Spark, on a standalone cluster with two workers."""

from __future__ import annotations

import json
import subprocess
import sys
import uuid
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

import pytest

from delayline.times import HOUR_MS
from tests.stacks import Stack
from tests.support.cluster import Cluster
from tests.support.requests import Sender, now_ms
from tests.support.spark_cluster import SparkCluster

DELIVERED: Final = 40
PENDING: Final = 10
COMMAND_S: Final = 200.0

pytestmark = pytest.mark.timeout(300)


@pytest.fixture(scope="module")
def spark_cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SparkCluster]:
    with SparkCluster(tmp_path_factory.mktemp("spark"), 2) as cluster:
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


def run_there(spark: SparkCluster, cluster: Cluster, name: str, *command: str) -> tuple[str, str]:
    """What a command says on stdout and stderr, once it has ended well; its session of that name has worked
    there.
    """
    where = ["--bootstrap", cluster.bootstrap, "--zookeeper", cluster.zookeeper, "--cluster", cluster.name]
    done = subprocess.run(
        [sys.executable, "-m", "ops.cli.main", *command, "--master", spark.url, *where],
        capture_output=True,
        text=True,
        check=False,
        timeout=COMMAND_S,
    )
    assert done.returncode == 0, done.stderr
    assert name in spark.finished()
    return done.stdout, done.stderr


def test_an_audit_accounts_for_every_request(spark_cluster: SparkCluster, lived: Cluster) -> None:
    said, _ = run_there(spark_cluster, lived, "delayline audit", "audit", "-o", "json")
    report: dict[str, Any] = json.loads(said)
    classes = {name: count for name, count in report["classes"].items() if count}
    assert (classes, report["violations"]) == ({"delivered": DELIVERED, "pending": PENDING}, [])


def test_a_round_of_the_watch_does_so_too(
    spark_cluster: SparkCluster, lived: Cluster, tmp_path: Path
) -> None:
    command = ("audit", "watch", "--once", "--state", str(tmp_path / "state"))
    _, told = run_there(spark_cluster, lived, "delayline audit watch", *command)
    assert f"round 0: {DELIVERED + PENDING} requests, " in told
    assert "violations" not in told


def test_tables_have_a_row_for_each_request(
    spark_cluster: SparkCluster, lived: Cluster, tmp_path: Path
) -> None:
    command = ("tables", "export", "--to", f"parquet:{tmp_path / 'tables'}", "-o", "json")
    said, _ = run_there(spark_cluster, lived, "delayline tables", *command)
    rows = {one["table"]: one["new"] + one["open"] for one in json.loads(said)["tables"]}
    assert (rows["requests"], rows["messages"]) == (DELIVERED + PENDING, DELIVERED)


def test_a_forecast_knows_what_waits(spark_cluster: SparkCluster, lived: Cluster) -> None:
    said, _ = run_there(spark_cluster, lived, "delayline forecast", "forecast", "-o", "json")
    assert json.loads(said)["pending"] == PENDING
