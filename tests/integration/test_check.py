"""`delayline check` against a cluster: all well, nobody there, and somebody else at a node's address."""

from __future__ import annotations

import re

import msgspec
import pytest

from ops.cli.main import run
from tests.support.cluster import Cluster
from tests.support.requests import Sender
from tests.support.waiting import eventually

Capture = pytest.CaptureFixture[str]


def checked(capsys: Capture, cluster: Cluster, what: str, *options: str) -> tuple[int, str]:
    servers = ["--bootstrap", cluster.bootstrap, "--zookeeper", cluster.zookeeper]
    capsys.readouterr()
    code = run(["check", what, *servers, "--cluster", cluster.name, *options])
    said, wrong = capsys.readouterr()
    assert (said.count("\n"), wrong) == (1, "")
    return code, said.strip()


def known(capsys: Capture, cluster: Cluster, what: str, *options: str) -> tuple[int, str]:
    """What it says once all whom it asks have answered in its time."""
    found = 3, ""

    def is_known() -> bool:
        nonlocal found
        found = checked(capsys, cluster, what, *options)
        return found[0] != 3

    eventually(is_known, f"{what} is known")
    return found


def test_a_cluster_is_well_until_nobody_leads(cluster: Cluster, capsys: Capture) -> None:
    node = cluster.start_here("a")
    with Sender(cluster) as sender:
        sender.schedule()
        sender.flush()
    cluster.wait_delivered(1)
    code, said = eventually(
        lambda: (found := checked(capsys, cluster, "lateness"))[0] == 0 and found, "it is counted"
    ) or (3, "")
    assert re.fullmatch(
        r"OK - lane 0: (nothing is|[0-9.]+ s) overdue, says a \| 'lane 0'=[0-9.]+s;10;60;0", said
    )
    code, said = checked(capsys, cluster, "leader")
    assert code == 0
    assert said.startswith("OK - lane 0: a is leader, the last checkpoint is of a, ")
    assert re.search(r", [\d.]+ s old, epoch \d+ \| 'lane 0'=[\d.]+s;5;15;0$", said)
    code, said = known(capsys, cluster, "lag", "--warning", "0:1000", "--critical", "0:2000")
    assert code == 0
    assert re.fullmatch(r"OK - a is \d+ offsets behind \| 'a'=\d+;0:1000;0:2000;0", said)
    assert known(capsys, cluster, "lag", "--critical", "@0:1000")[0] == 2
    member = cluster.member("a")
    cluster.stop_here(node)
    eventually(lambda: not cluster.candidates() and not cluster.member("a"), "it has gone")
    nobody = "CRITICAL - lane 0 has no leader: nothing of it is delivered"
    assert checked(capsys, cluster, "leader") == (2, nobody)
    assert checked(capsys, cluster, "lag") == (3, "UNKNOWN - no node is running")
    assert checked(capsys, cluster, "lateness") == (3, "UNKNOWN - lane 0: no node is running")
    cluster.kazoo.create(cluster.znodes.member("a"), msgspec.json.encode(member), ephemeral=True)
    code, said = checked(capsys, cluster, "lateness")
    assert code == 3
    assert f"a at 127.0.0.1:{member['http_port']}: Connection refused" in said
    assert "by default from its own machine alone" in said
