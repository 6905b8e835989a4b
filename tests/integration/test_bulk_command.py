"""`delayline bulk` as an operator types it: a file, a table, a dry run, and what is typed wrong."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from ops.clients.kafka import KafkaAdmin
from ops.stack.ports import HOST
from tests.support.closing import Closing
from tests.support.cluster import Cluster
from tests.support.commands import Done

ROWS = 12
# The commands of a test share a process, and so a JVM, whose start takes longer than what they do.
LOOP = """
import contextlib, io, json, sys
from ops.cli.main import run
for line in sys.stdin:
    out, err = io.StringIO(), io.StringIO()
    with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
        code = run(json.loads(line))
    print(json.dumps([code, out.getvalue(), err.getvalue()]), flush=True)
"""
TABLE = """
import sys
from ops.spark import bulk_session
bulk_session("local[1]").read.parquet(sys.argv[1]).write.saveAsTable("reminders")
"""
CATALOG = """
spark.sql.catalogImplementation hive
spark.sql.warehouse.dir {folder}/warehouse
spark.hadoop.javax.jdo.option.ConnectionURL jdbc:derby:;databaseName={folder}/metastore;create=true
"""


class Commands(Closing):
    """A process that runs one command after the other."""

    def __init__(self, cluster: Cluster, folder: Path) -> None:
        conf = folder / "conf"
        conf.mkdir()
        (conf / "spark-defaults.conf").write_text(CATALOG.format(folder=folder))
        self.environment = os.environ | {
            "DELAYLINE_BOOTSTRAP_SERVERS": cluster.bootstrap,
            "DELAYLINE_ZOOKEEPER": cluster.zookeeper,
            "DELAYLINE_CLUSTER": cluster.name,
            "SPARK_CONF_DIR": str(conf),
            "SPARK_LOCAL_IP": HOST,
        }
        self._process = subprocess.Popen(
            [sys.executable, "-c", LOOP],
            cwd=folder,
            env=self.environment,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )

    def __call__(self, *arguments: str) -> Done:
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.write(json.dumps(["bulk", *arguments, "-o", "json"]) + "\n")
        self._process.stdin.flush()
        return Done(*json.loads(self._process.stdout.readline()))

    def close(self) -> None:
        assert self._process.stdin is not None
        self._process.stdin.close()
        self._process.wait()


@pytest.fixture
def commands(cluster: Cluster, tmp_path: Path) -> Iterator[Commands]:
    pq.write_table(pa.table({"number": list(range(ROWS))}), tmp_path / "rows.parquet")
    with closing(Commands(cluster, tmp_path)) as commands:
        yield commands


def sent(cluster: Cluster) -> int:
    return sum(KafkaAdmin(cluster.connection).ends(cluster.names.buffer).values())


def error_of(done: Done) -> str:
    (line,) = [line for line in done.err.splitlines() if line.startswith("error: ")]
    return line


@pytest.mark.timeout(300)
def test_rows_of_a_file_are_looked_at_then_sent_and_what_is_wrong_is_a_line(
    cluster: Cluster, commands: Commands, tmp_path: Path
) -> None:
    source, job = ("--from", f"parquet:{tmp_path}/rows.parquet"), ("--job", "file")
    words = (*source, *job, "--column", f"target='{cluster.target()}'", "--column", "delay='1h'")

    tried = commands("schedule", *words, "--dry-run")
    assert (tried.code, tried.data["rows"], tried.data["rejected"]) == (0, ROWS, 0)
    assert "nothing was sent: this was a dry run" in tried.err
    assert sent(cluster) == 0

    unknown = commands("schedule", *words, "--column", "value=nmber")
    assert unknown.code == 2
    assert error_of(unknown).startswith("error: Spark: [UNRESOLVED_COLUMN")
    misspelt = commands("schedule", *words, "--column", "vlaue=number")
    assert (misspelt.code, sent(cluster)) == (2, 0)
    assert "column 'vlaue' is none of a request: is value meant" in error_of(misspelt)
    missing = commands("schedule", "--from", f"parquet:{tmp_path}/none", *job)
    assert (missing.code, sent(cluster)) == (2, 0)
    assert "[PATH_NOT_FOUND]" in error_of(missing)

    again = ("--column", "id='one'", "--column", "if_exists='replace'")
    repeated = commands("schedule", *words, *again, "--dry-run")
    assert repeated.data["repeated_ids"] == 1
    assert (
        "warning: 1 id occurs in several rows that replace or move what is there, for example one"
        in repeated.err
    )

    loaded = commands("schedule", *words)
    assert (loaded.code, loaded.data["sent"], sent(cluster)) == (0, ROWS, ROWS)


@pytest.mark.timeout(300)
def test_rows_of_a_table_are_sent(cluster: Cluster, commands: Commands, tmp_path: Path) -> None:
    subprocess.run(
        [sys.executable, "-c", TABLE, str(tmp_path / "rows.parquet")],
        cwd=tmp_path,
        env=commands.environment,
        check=True,
    )
    words = ("--job", "table", "--column", f"target='{cluster.target()}'", "--column", "delay='1h'")
    missing = commands("schedule", "--from", "table:none", *words)
    assert (missing.code, sent(cluster)) == (2, 0)
    assert "[TABLE_OR_VIEW_NOT_FOUND]" in error_of(missing)
    loaded = commands("schedule", "--from", "table:reminders", *words)
    assert (loaded.code, loaded.data["sent"], sent(cluster)) == (0, ROWS, ROWS)
