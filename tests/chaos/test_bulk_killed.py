"""Bulk loads that are killed, begun twice and stopped, and whose Spark loses a worker: each row is in the
buffer once, and delivered once.
"""

from __future__ import annotations

import os
import random
import signal
import subprocess
import sys
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Final

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from ops.clients.kafka import KafkaAdmin
from ops.stack.ports import HOST
from tests.support.cluster import Cluster
from tests.support.spark_cluster import SparkCluster
from tests.support.waiting import eventually

pytestmark = pytest.mark.timeout(900)  # there for what hangs: each starts Spark, some three times

ROWS: Final = 3_000
FILES: Final = 6
PATIENCE_S: Final = 400.0
REPLACE: Final = ("--column", "id=concat('n-', number)", "--column", "if_exists='replace'")
"""What is sent twice is delivered twice, unless it is replaced in time."""


def write_rows(folder: Path) -> None:
    folder.mkdir()
    for number in range(FILES):
        table = pa.table({"number": list(range(number, ROWS, FILES))})
        pq.write_table(table, folder / f"{number}.parquet")


Begin = Callable[..., "subprocess.Popen[str]"]


@pytest.fixture
def begin(cluster: Cluster, tmp_path: Path) -> Iterator[Begin]:
    """Begins a load of the rows; takes more of its words. None outlives the test."""
    write_rows(tmp_path / "rows")
    begun: list[subprocess.Popen[str]] = []

    def begin(*more: str) -> subprocess.Popen[str]:
        begun.append(_begun(cluster, tmp_path / "rows", *more))
        return begun[-1]

    yield begin
    for load in begun:
        load.kill()
        load.communicate()


def _begun(cluster: Cluster, rows: Path, *more: str) -> subprocess.Popen[str]:
    environment = os.environ | {
        "DELAYLINE_BOOTSTRAP_SERVERS": cluster.bootstrap,
        "DELAYLINE_ZOOKEEPER": cluster.zookeeper,
        "DELAYLINE_CLUSTER": cluster.name,
        "SPARK_LOCAL_IP": HOST,
    }
    command = [
        *(str(Path(sys.executable).parent / "delayline"), "bulk", "schedule", "--from", f"parquet:{rows}"),
        *("--job", "campaign", "--column", f"target='{cluster.target()}'", "--column", "delay='1s'"),
        *("--template", "value=number ${number}", *more),
    ]
    return subprocess.Popen(
        command, env=environment, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True
    )


def finish(load: subprocess.Popen[str]) -> str:
    said, _ = load.communicate(timeout=PATIENCE_S)
    assert load.returncode == 0, said
    return said


def wait_sent(cluster: Cluster, load: subprocess.Popen[str], count: int) -> None:
    """Waits until so many records are in the buffer."""
    admin = KafkaAdmin(cluster.connection)

    def is_sent() -> bool:
        assert load.poll() is None, load.communicate()[0]
        return sum(admin.ends(cluster.names.buffer).values()) >= count

    eventually(is_sent, f"{count} are sent", PATIENCE_S)


def require_each_once(cluster: Cluster) -> None:
    assert sum(KafkaAdmin(cluster.connection).ends(cluster.names.buffer).values()) == ROWS
    delivered = cluster.wait_delivered(ROWS, PATIENCE_S)
    cluster.tail.catch_up()
    assert Counter(got.value for got in delivered) == {b"number %d" % n: 1 for n in range(ROWS)}
    assert len(cluster.delivered) == ROWS


def test_a_load_that_is_killed_twice_and_begun_again_delivers_each_row_once(
    cluster: Cluster, begin: Begin, tmp_path: Path
) -> None:
    chance = random.Random(tmp_path.name)
    cluster.start("a")
    for least in (1, ROWS // 2):
        load = begin("--rate", "1000")
        wait_sent(cluster, load, least + chance.randrange(ROWS // 3))
        load.kill()
        load.wait()
    said = finish(begin("-o", "json"))
    assert '"rows": 3000' in said
    require_each_once(cluster)


def test_a_second_run_is_refused_and_one_that_stood_still_sends_nothing_beside_the_next(
    cluster: Cluster, begin: Begin
) -> None:
    cluster.start("a")
    first = begin(*REPLACE, "--rate", "150")
    wait_sent(cluster, first, ROWS // 10)
    second = begin(*REPLACE)
    said, _ = second.communicate(timeout=PATIENCE_S)
    assert second.returncode == 5, said
    assert f"error: job campaign is under way: process {first.pid} on " in said
    first.send_signal(signal.SIGSTOP)
    finish(begin(*REPLACE))
    first.send_signal(signal.SIGCONT)
    finish(first)
    require_each_once(cluster)


def test_a_spark_that_loses_a_worker_in_the_middle_delivers_each_row_once(
    cluster: Cluster, begin: Begin, tmp_path: Path
) -> None:
    cluster.start("a")
    with SparkCluster(tmp_path, 2) as spark:
        load = begin(*REPLACE, "--rate", "400", "--master", spark.url)
        wait_sent(cluster, load, ROWS // 3)
        spark.kill_worker()
        said = finish(load)
    assert "what is there is looked for, and the rest is sent" in said
    require_each_once(cluster)
