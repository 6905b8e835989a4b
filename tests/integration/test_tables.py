"""`delayline tables export` on a cluster that runs: what an operator sees, one run at a time, and a run that
is killed on its way.
"""

from __future__ import annotations

import json
import random
import shutil
import subprocess
import sys
import uuid
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple

import pytest
from confluent_kafka import OFFSET_END

from election.operators import Author
from ops.tables.turn import Turn
from pipeline.tables.marker import Card, decode
from pipeline.tables.schema import TABLES
from tests.stacks import Stack
from tests.support.closing import Closing
from tests.support.cluster import Cluster
from tests.support.requests import Sender, now_ms
from tests.support.retention import delete_records
from tests.support.tables import Tables

pytestmark = pytest.mark.timeout(600)  # each that is killed has a JVM of its own

HOUR_MS = 3_600_000
SEED = 1


class Ended(NamedTuple):
    """How a command has ended; `steps`: see tests/integration/tables_process.py."""

    code: int
    out: str
    err: str
    steps: list[str]


class Commands(Closing):
    """A process that runs one export after the other. What is killed begins anew with the next one."""

    def __init__(self) -> None:
        self._process: subprocess.Popen[str] | None = None

    def __call__(self, cluster: Cluster, folder: Path, *words: str, last: int = 0) -> Ended | None:
        """None: it has killed itself at step `last`."""
        said = cluster.connection
        where = (
            "--bootstrap",
            said.bootstrap_servers,
            "--zookeeper",
            said.zookeeper,
            "--cluster",
            said.cluster,
        )
        command = "tables", "export", "--to", f"parquet:{folder}", "--replay-window", "0", *where, *words
        process = self._process or self._started()
        assert process.stdin is not None
        assert process.stdout is not None
        process.stdin.write(json.dumps([last, command]) + "\n")
        process.stdin.flush()
        line = process.stdout.readline()
        if line:
            return Ended(*json.loads(line))
        self.close()
        return None

    def _started(self) -> subprocess.Popen[str]:
        self._process = subprocess.Popen(
            [sys.executable, "-m", "tests.integration.tables_process"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        return self._process

    def close(self) -> None:
        if self._process is not None:
            assert self._process.stdin is not None
            self._process.stdin.close()
            self._process.wait()
            self._process = None


@pytest.fixture(scope="module")
def commands() -> Iterator[Commands]:
    with Commands() as commands:
        yield commands


class Lived(NamedTuple):
    """A cluster in which nothing happens any more. `first`: how an export into `tables` has ended, after a
    part of what was there.
    """

    cluster: Cluster
    tables: Path
    first: Ended


@pytest.fixture(scope="module")
def lived(stack: Stack, commands: Commands, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Lived]:
    """For tests that leave it as it is."""
    with living(stack, commands, tmp_path_factory.mktemp("lived"), parts=2) as lived:
        yield lived


@contextmanager
def living(stack: Stack, commands: Commands, folder: Path, *, parts: int) -> Iterator[Lived]:
    """The first part is exported, once it is over."""
    with Cluster(stack, f"t-tables-{uuid.uuid4().hex[:8]}", folder) as cluster:
        node = cluster.start_here("a")
        with Sender(cluster) as sender:
            use(cluster, sender, 1)
            first = commands(cluster, folder / "tables", "-o", "json")
            for part in range(2, parts + 1):
                use(cluster, sender, part)
        cluster.stop_here(node)
        assert first is not None
        yield Lived(cluster, folder / "tables", first)
        cluster.delete_topics()


DELIVERED, PENDING = 12, 4  # in each part of its life


def use(cluster: Cluster, sender: Sender, part: int) -> None:
    for number in range(DELIVERED):
        sender.schedule(after_ms=0, id=f"now-{part}-{number}")
    for number in range(PENDING):
        sender.schedule(at_ms=now_ms() + HOUR_MS, id=f"later-{part}-{number}")
    sender.schedule(at_ms=now_ms() + HOUR_MS, id=f"cancelled-{part}")
    sender.schedule(after_ms=0, target="missing")
    sender.flush()
    sender.cancel(f"cancelled-{part}")
    if part > 1:
        sender.cancel("later-1-0")  # that was open
    sender.flush()
    cluster.wait_delivered(part * DELIVERED)
    cluster.tail.wait(lambda: len(cluster.dead_letters) == part, "what has no target is dead")
    cluster.tail.wait(lambda: len(cancelled(cluster)) == 2 * part - 1, "what is cancelled is so")


def cancelled(cluster: Cluster) -> Sequence[Any]:
    return [one for one in cluster.outcomes if one["outcome"] == "cancelled" and one["op"] == "cancel"]


def test_the_first_run_says_what_it_has_written(lived: Lived) -> None:
    done = lived.first
    assert done.code == 0, done.err
    said = json.loads(done.out)
    found = {one.pop("table"): one for one in said["tables"]}
    assert said["run"] == 0
    assert list(found) == list(TABLES)
    assert found["messages"]["new"] + found["messages"]["open"] == DELIVERED
    assert found["requests"]["new"] + found["requests"]["open"] == DELIVERED + PENDING + 3
    assert done.err.splitlines()[0] == "starting Spark"
    assert done.err.splitlines()[-1].startswith("run 0: requests +")


def test_a_second_run_at_once_is_refused(lived: Lived, commands: Commands) -> None:
    cluster, tables, _ = lived
    card = decode((tables / "_delayline" / "card.json").read_bytes(), Card, "the card")
    with Turn(cluster.connection, card.place, str(tables), Author("somebody", "a reason", 0)):
        done = commands(cluster, tables)
    assert done is not None
    assert (done.code, done.out) == (5, "")
    assert f"error: an export into {tables} is under way: process " in done.err
    assert "has begun it, for somebody, at 1970-01-01T00:00:00.000Z; wait until it ends" in done.err


def test_a_run_that_is_killed_again_and_again_comes_to_the_tables_of_one_that_was_not(
    lived: Lived, commands: Commands, tmp_path: Path
) -> None:
    cluster, tables, _ = lived
    undisturbed, killed = tmp_path / "undisturbed", tmp_path / "killed"
    for copy in (undisturbed, killed):
        shutil.copytree(tables, copy)
    done = commands(cluster, undisturbed)
    assert done is not None
    assert done.code == 0, done.err
    points = kills(done.steps)
    assert [commands(cluster, killed, last=last) for last in points] == [None, None], f"killed at {points}"
    own = {path.name[:16] for path in (killed / "_delayline").iterdir()}
    assert {"marker-000000000", "intent-000000001"} < own, own
    assert "marker-000000001" not in own
    last = commands(cluster, killed)
    assert last is not None
    assert last.code == 0, last.err
    for name in TABLES:
        assert rows(killed, name) == rows(undisturbed, name), f"killed at {points}"
    found = Tables(killed).rows("requests")
    assert len(found) == 2 * (DELIVERED + PENDING + 3) + 1
    classes = {row["id"]: row["class"] for row in found if row["kind"] == "schedule"}
    assert classes["later-1-0"] == classes["cancelled-2"] == "cancelled"
    assert [row["code"] for row in found if row["class"] == "dead-lettered"] == 2 * ["target-missing"]
    assert {row["id"] for row in Tables(killed).rows("messages")} == {
        f"now-{part}-{number}" for part in (1, 2) for number in range(DELIVERED)
    }
    beside = [path.name for path in (killed / "_delayline").iterdir() if not path.name.startswith(".")]
    assert len(beside) == 3, f"the card, the marker, and what is kept: {beside}"


def kills(steps: Sequence[str]) -> list[int]:
    """The steps at which runs are killed: one before a run says what it is about to do, and one of the next
    run, between that and its marker.
    """
    intent, marker = (
        next(number for number, step in enumerate(steps, 1) if step.startswith(f"write _delayline/{name}-"))
        for name in ("intent", "marker")
    )
    rng = random.Random(SEED)
    return [rng.randrange(1, intent), rng.randrange(intent + 2, marker)]


def rows(folder: Path, name: str) -> list[str]:
    return sorted(repr(sorted(row.items())) for row in Tables(folder).rows(name))


def test_what_kafka_has_lost_before_it_was_read_is_not_passed_over(
    stack: Stack, commands: Commands, tmp_path: Path
) -> None:
    with living(stack, commands, tmp_path, parts=1) as lived:
        lose_and_export(lived, commands, tmp_path / "anew")


def lose_and_export(lived: Lived, commands: Commands, anew: Path) -> None:
    cluster, tables, _ = lived
    before = rows(tables, "requests")
    with Sender(cluster) as sender:
        for number in range(20):
            sender.schedule(at_ms=now_ms() + HOUR_MS, id=f"lost-{number}")
    delete_records(cluster, dict.fromkeys(range(cluster.settings.partitions), OFFSET_END))
    done = commands(cluster, tables)
    assert done is not None
    assert (done.code, done.out) == (5, "")
    assert f"Kafka has lost what was not read yet since the last export into {tables}" in done.err
    assert rows(tables, "requests") == before
    with Sender(cluster) as sender:
        for number in range(3):
            sender.schedule(at_ms=now_ms() + HOUR_MS, id=f"left-{number}")
    done = commands(cluster, anew)
    assert done is not None
    assert done.code == 0, done.err
    assert {row["id"]: row["class"] for row in Tables(anew).rows("requests")} == dict.fromkeys(
        ("left-0", "left-1", "left-2"), "pending"
    )


@pytest.mark.parametrize(
    ("changed", "said"),
    [
        ({"cluster": "other"}, "has the tables of cluster other, not of "),
        ({"buffer": "another"}, "has the tables of another buffer topic, another; that of cluster "),
        ({"format": 2}, "_delayline/card.json has format 2, this version reads 1: upgrade it"),
    ],
)
def test_tables_that_are_not_of_this_cluster_and_format_are_left_alone(
    lived: Lived, commands: Commands, tmp_path: Path, changed: dict[str, Any], said: str
) -> None:
    cluster, tables, _ = lived
    card = json.loads((tables / "_delayline" / "card.json").read_bytes())
    (tmp_path / "_delayline").mkdir()
    (tmp_path / "_delayline" / "card.json").write_text(json.dumps(card | changed))
    done = commands(cluster, tmp_path)
    assert done is not None
    assert (done.code, done.out) == (5, "")
    assert said in done.err
    assert len(done.err.splitlines()) == 2, "that it starts Spark, and what is wrong"


def test_a_folder_that_cannot_be_made_is_refused_in_one_line(
    lived: Lived, commands: Commands, tmp_path: Path
) -> None:
    (tmp_path / "file").touch()
    done = commands(lived.cluster, tmp_path / "file" / "tables")
    assert done is not None
    assert (done.code, done.out) == (2, "")
    assert done.err.splitlines()[1].startswith(f"error: {tmp_path}/file/tables: ")
    assert len(done.err.splitlines()) == 2
