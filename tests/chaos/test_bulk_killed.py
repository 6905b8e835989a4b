"""Bulk loads that are killed, and whose Spark loses a worker: each row is delivered, and none twice."""

from __future__ import annotations

import os
import random
import subprocess
import sys
from collections import Counter
from pathlib import Path
from typing import Final

import pyarrow as pa
import pyarrow.parquet as pq

from ops.clients.kafka import KafkaAdmin
from ops.stack.ports import HOST
from tests.support.cluster import Cluster
from tests.support.spark_cluster import SparkCluster
from tests.support.waiting import eventually

ROWS: Final = 3_000
FILES: Final = 6
PATIENCE_S: Final = 240.0


def write_rows(folder: Path) -> None:
    folder.mkdir()
    for number in range(FILES):
        table = pa.table({"number": list(range(number, ROWS, FILES))})
        pq.write_table(table, folder / f"{number}.parquet")


def begin(cluster: Cluster, rows: Path, *more: str) -> subprocess.Popen[str]:
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
    delivered = cluster.wait_delivered(ROWS, PATIENCE_S)
    cluster.tail.catch_up()
    assert Counter(got.value for got in delivered) == {b"number %d" % n: 1 for n in range(ROWS)}
    assert len(cluster.delivered) == ROWS


def test_a_load_that_is_killed_twice_and_begun_again_delivers_each_row_once(
    cluster: Cluster, tmp_path: Path
) -> None:
    chance = random.Random(tmp_path.name)
    cluster.start("a")
    write_rows(tmp_path / "rows")
    for least in (1, ROWS // 2):
        load = begin(cluster, tmp_path / "rows", "--rate", "1000")
        wait_sent(cluster, load, least + chance.randrange(ROWS // 3))
        load.kill()
        load.wait()
    said = finish(begin(cluster, tmp_path / "rows", "-o", "json"))
    assert '"rows": 3000' in said
    require_each_once(cluster)


def test_a_spark_that_loses_a_worker_in_the_middle_delivers_each_row_once(
    cluster: Cluster, tmp_path: Path
) -> None:
    cluster.start("a")
    write_rows(tmp_path / "rows")
    with SparkCluster(tmp_path, 2) as spark:
        load = begin(cluster, tmp_path / "rows", "--rate", "400", "--master", spark.url)
        wait_sent(cluster, load, ROWS // 3)
        spark.kill_worker()
        finish(load)
    require_each_once(cluster)
