"""A user's own job, submitted to a Spark whose machines have nothing of delayline's but the archive."""

from __future__ import annotations

import sys
from collections import Counter
from datetime import UTC, datetime
from pathlib import Path
from zipfile import ZipFile

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from ops.setup import spark_archive
from tests.support.cluster import Cluster
from tests.support.spark_cluster import SparkCluster

SCRIPT = Path(__file__).parents[2] / "examples" / "bulk_reminders.py"
PAGE = Path(__file__).parents[2] / "docs" / "bulk.md"
SUBMITTED = (
    "--archives",
    "build/delayline-spark.zip#packages",
    "--conf",
    "spark.executorEnv.PYTHONPATH=packages",
)
ROWS = 20


@pytest.mark.timeout(300)
def test_a_job_of_ones_own_schedules_where_only_the_archive_has_delayline(
    cluster: Cluster, tmp_path: Path
) -> None:
    cluster.start_here("a")
    write_rows(tmp_path / "rows")
    spark_archive.pack(tmp_path / "build" / "delayline-spark.zip")
    ZipFile(tmp_path / "build" / "delayline-spark.zip").extractall(tmp_path / "packages")
    arguments = [cluster.bootstrap, cluster.zookeeper, cluster.name, cluster.target(), f"{tmp_path}/rows"]
    with SparkCluster(tmp_path, 1) as spark:
        spark.submit(*SUBMITTED, str(SCRIPT), *arguments, python=bare_python(tmp_path), folder=tmp_path)
    delivered = cluster.wait_delivered(ROWS)
    assert Counter(got.value for got in delivered) == {b"order %d" % number: 1 for number in range(ROWS)}


def test_the_page_has_the_command_and_the_script() -> None:
    page = PAGE.read_text()
    assert " ".join(SUBMITTED) in " ".join(page.replace("\\", " ").split())
    assert "examples/bulk_reminders.py" in page


def write_rows(folder: Path) -> None:
    folder.mkdir()
    due = [datetime.now(UTC)] * ROWS
    pq.write_table(pa.table({"order_id": list(range(ROWS)), "remind_at": due}), folder / "rows.parquet")


def bare_python(folder: Path) -> Path:
    """A Python that has Spark's own pyarrow, and no other package."""
    own = folder / "pyarrow-alone"
    own.mkdir()
    (own / "pyarrow").symlink_to(Path(pa.__file__).parent)
    program = folder / "python"
    program.write_text(f'#!/bin/sh\nexport PYTHONPATH="$PYTHONPATH:{own}"\nexec {sys.executable} -S "$@"\n')
    program.chmod(0o755)
    return program
