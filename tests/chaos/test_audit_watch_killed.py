"""A watch that is killed at any point of a round goes on without a gap, and tells nothing twice."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Final

import psutil
import pytest
from confluent_kafka import Producer

from delayline.wire import H_SOURCE
from ops.stack.ports import HOST
from pipeline.watch.journal import ROUND
from pipeline.watch.marker import Marker
from tests.support.cluster import Cluster
from tests.support.requests import Sender
from tests.support.tail import Got, Tail
from tests.support.waiting import PATIENCE_S, eventually

pytestmark = pytest.mark.timeout(900)  # there for what hangs: each watch starts Spark

REQUESTS: Final = 20
"""Before each watch; a stranger then repeats the delivery of one of them."""
ROUND_S: Final = 300.0
"""A round's patience: a JVM has to start first."""


class Watches:
    """Watches of one cluster, one after the other, and what they have written."""

    def __init__(self, cluster: Cluster, folder: Path) -> None:
        self._cluster = cluster
        self.state = folder / "state"
        self._log = folder / "watch.log"
        self._begun: list[subprocess.Popen[bytes]] = []
        self._left: set[str] = set()
        self._told: Tail | None = None

    def begin(self, *more: str) -> subprocess.Popen[bytes]:
        environment = os.environ | {
            "DELAYLINE_BOOTSTRAP_SERVERS": self._cluster.bootstrap,
            "DELAYLINE_ZOOKEEPER": self._cluster.zookeeper,
            "DELAYLINE_CLUSTER": self._cluster.name,
            "SPARK_LOCAL_IP": HOST,
        }
        self._left = self.kept
        delayline = Path(sys.executable).parent / "delayline"
        command = [str(delayline), "audit", "watch", "--state", str(self.state), "--every", "1", *more]
        with self._log.open("ab") as log:
            self._begun.append(subprocess.Popen(command, env=environment, stdout=log, stderr=log))
        return self._begun[-1]

    def wait(self, watch: subprocess.Popen[bytes], comes: Callable[[], bool], what: str) -> None:
        def come() -> bool:
            assert watch.poll() is None, self._log.read_text()
            return comes()

        eventually(come, what, ROUND_S)

    def writes(self, name: str) -> bool:
        """Whether a round of the last watch that has not ended has this in its folder."""
        new = self.kept - self._left - {marker.folder for marker in self.rounds()}
        return any(list(self.state.glob(f"*/{folder}/{name}")) for folder in new)

    @property
    def said(self) -> str:
        """All that they have printed."""
        return self._log.read_text()

    @property
    def kept(self) -> set[str]:
        """The folders of rounds that are there."""
        return {path.name for path in self.state.glob("*/round-*")}

    def rounds(self) -> list[Marker]:
        return [Marker.decode(got.value or b"") for got in self.told() if got.key == ROUND]

    def told(self) -> list[Got]:
        topic = self._cluster.names.audit
        if self._told is None:
            if topic not in self._cluster.admin.list_topics(timeout=PATIENCE_S).topics:
                return []
            self._told = Tail(self._cluster.bootstrap, [topic])
        self._told.catch_up()
        return self._told.records[topic]

    def close(self) -> None:
        for watch in self._begun:
            watch.kill()
            watch.wait()
        if self._told is not None:
            self._told.close()


@pytest.fixture
def watches(cluster: Cluster, tmp_path: Path) -> Iterator[Watches]:
    found = Watches(cluster, tmp_path)
    yield found
    found.close()


def test_watches_that_are_killed_in_a_round_leave_nothing_out_and_tell_nothing_twice(
    cluster: Cluster, watches: Watches
) -> None:
    cluster.start("a")
    sender = Sender(cluster)
    repeated: list[str] = []

    def something_new() -> None:
        for number in range(REQUESTS):
            sender.schedule(after_ms=1, id=f"{len(repeated)}-{number}")
        sender.flush()
        delivered = cluster.wait_delivered((len(repeated) + 1) * REQUESTS + len(repeated))
        repeated.append(_repeat(cluster, delivered[-1]))

    points: list[tuple[Callable[[], bool], str]] = [
        (lambda: watches.writes("requests"), "what is kept is begun"),
        (lambda: watches.writes("ends/_SUCCESS"), "what is kept is whole"),
    ]
    for comes, what in points:
        something_new()
        watch = watches.begin()
        watches.wait(watch, comes, what)
        watch.kill()
        watch.wait()
    something_new()
    assert watches.begin("--once").wait(ROUND_S) == 1
    told = Counter((got.key or b"").decode() for got in watches.told() if got.key != ROUND)
    assert told == {f"duplicated/{source}": 1 for source in repeated}
    assert {json.loads(got.value or b"")["state"] for got in watches.told() if got.key != ROUND} == {"found"}
    rounds = watches.rounds()
    assert [one.number for one in rounds] == list(range(len(rounds)))
    assert rounds[-1].requests == len(repeated) * REQUESTS
    assert watches.kept == {rounds[-1].folder}


def test_a_watch_whose_spark_has_died_says_so_and_ends(cluster: Cluster, watches: Watches) -> None:
    watch = watches.begin()
    watches.wait(watch, lambda: bool(watches.rounds()), "a round has ended")
    (spark,) = (child for child in psutil.Process(watch.pid).children() if "java" in child.name())
    spark.kill()
    assert watch.wait(PATIENCE_S) == 6
    assert "Exception occurred" not in watches.said
    assert re.search(
        r"\nerror: Spark has ended \([^\n]+\): start the watch again, it goes on\n\Z", watches.said
    )


def _repeat(cluster: Cluster, got: Got) -> str:
    """A stranger delivers it once more; returns the request that it is of."""
    producer = Producer({"bootstrap.servers": cluster.bootstrap})
    producer.produce(got.topic, got.value, got.key, got.partition, headers=list(got.headers))
    assert producer.flush(PATIENCE_S) == 0
    source = got.text(H_SOURCE)
    assert source is not None
    return source
