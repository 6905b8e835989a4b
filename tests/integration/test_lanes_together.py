"""`delayline node run --lanes`: a process for each lane under one supervisor, and one HTTP port."""

from __future__ import annotations

import os
import signal
import socket
import time
import uuid
from collections.abc import Iterator
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import NamedTuple

import psutil
import pytest
from prometheus_client.parser import text_string_to_metric_families

from node.status import NodeState
from ops.cli.main import run
from ops.cluster import remove
from ops.lanes.supervisor import LOCK
from tests.stacks import Stack
from tests.support.cluster import Cluster
from tests.support.commands import Operator, operator_of
from tests.support.modes import open_to_others
from tests.support.requests import Sender, now_ms
from tests.support.supervised import Supervised
from tests.support.waiting import eventually

PASSING = 40
HOUR_MS = 3_600_000
SOON_S = 10.0
"""A process is known to hang after three seconds."""


class Running(NamedTuple):
    """A cluster of two lanes, whose nodes one command runs."""

    cluster: Cluster
    lanes: Supervised


@pytest.fixture(scope="module")
def running(stack: Stack, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Running]:
    """For tests that leave both lanes running. A message waits in each partition of each."""
    folder = tmp_path_factory.mktemp("together")
    name = f"t-together-{uuid.uuid4().hex[:8]}"
    with Cluster(stack, name, folder, lanes=2, partitions=4) as cluster:
        with Supervised(cluster) as lanes, Sender(cluster) as sender:
            lanes.wait_candidates()
            for number in range(PASSING):
                sender.schedule(b"waits", at_ms=now_ms() + HOUR_MS, id=f"waits-{number}")
            sender.flush()
            yield Running(cluster, lanes)
        cluster.delete_topics()


@pytest.fixture
def operator(
    running: Running, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> Iterator[Operator]:
    with operator_of(running.cluster.connection, monkeypatch, capsys) as types:
        yield types


def is_there(process: psutil.Process) -> bool:
    with suppress(psutil.NoSuchProcess):
        return process.is_running() and process.status() != psutil.STATUS_ZOMBIE
    return False


def wait_gone(processes: list[psutil.Process]) -> None:
    eventually(lambda: not any(map(is_there, processes)), "all of them have ended")


def test_all_lanes_deliver(running: Running) -> None:
    cluster = running.cluster
    before = len(cluster.delivered)
    with Sender(cluster) as sender:
        for number in range(PASSING):
            sender.schedule(str(number).encode(), at_ms=now_ms(), id=f"passing-{number}")
        sender.flush()
    cluster.wait_delivered(before + PASSING)
    assert {cluster.mirrored(lane).node for lane in (0, 1)} == {"n-0", "n-1"}


def test_each_lane_has_a_process_a_folder_and_a_port_of_its_own_and_all_have_one_for_http(
    running: Running,
) -> None:
    said = [running.cluster.wait_state(f"n-{lane}", NodeState.LEADER) for lane in (0, 1)]
    assert {one["pid"] for one in said} == {child.pid for child in running.lanes.children()}
    assert [(one["http_port"], one["http_path"]) for one in said] == [
        (running.lanes.http_port, "/lanes/0"),
        (running.lanes.http_port, "/lanes/1"),
    ]
    assert {one.name for one in running.lanes.folder.iterdir()} == {"0", "1", LOCK}
    assert open_to_others(running.lanes.folder) == []


def test_commands_reach_each_lane_through_the_one_port(operator: Operator) -> None:
    ids = {f"waits-{number}" for number in range(PASSING)}
    eventually(
        lambda: {one["id"] for one in operator("message", "list", "-o", "json").data["messages"]} >= ids,
        "all that wait are listed",
    )
    shown = [operator("message", "show", f"waits-{number}", "-o", "json").data for number in range(8)]
    assert {one["message"]["state"] for one in shown} == {"pending"}
    assert {one["node"]["node"] for one in shown} == {"n-0", "n-1"}
    assert operator("due", "-o", "json").code == 0
    assert operator("check", "lateness").code == 0
    findings = {one["check"]: one for one in operator("doctor", "-o", "json").data}
    assert findings["http"]["found"] == "every node answers"


def test_a_node_behind_the_one_port_is_known_to_live(
    running: Running, operator: Operator, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(remove, "STALE_MS", -1_000)  # what was written just now is long ago
    monkeypatch.setattr(remove, "_greets", lambda _: False)  # its peer port would tell as well
    name = running.cluster.connection.cluster
    done = operator("cluster", "remove", "n-1", "--reason", "test", "--confirm", name)
    assert done.code == 5
    assert f"it answers at 127.0.0.1:{running.lanes.http_port}" in done.err


def test_the_metrics_of_all_lanes_are_one_exposition(running: Running) -> None:
    heard = running.lanes.ask("/metrics")
    families = {family.name: family for family in text_string_to_metric_families(heard.body.decode())}
    assert heard.body.decode().count("# TYPE delayline_state gauge") == 1
    assert {sample.labels["lane"] for sample in families["delayline_state"].samples} == {"0", "1"}
    assert all(sample.labels["lane"] in "01" for family in families.values() for sample in family.samples)
    assert [sample.value for sample in families["delayline_lane_up"].samples] == [1, 1]


@pytest.mark.parametrize("path", ["/livez", "/readyz", "/replica?max_lag=1000000"])
def test_all_lanes_are_asked_at_once(running: Running, path: str) -> None:
    eventually(lambda: running.lanes.ask(path).status == 200, f"{path} is so of all")
    assert [one["node"] for one in running.lanes.ask(path).data["lanes"]] == ["n-0", "n-1"]
    assert running.lanes.ask("/leader").status == 400
    assert running.lanes.ask("/lanes/1/leader").data["leader"] == "n-1"


def test_a_new_node_and_a_cold_copy_have_the_view_of_a_lane_through_the_one_port(
    running: Running, operator: Operator, tmp_path: Path
) -> None:
    done = operator("node", "snapshot", "--lane", "1", "--to", str(tmp_path / "copy"), "-o", "json")
    assert (done.code, done.data["node"]) == (0, "n-1"), done.err
    with Supervised(running.cluster, name="m") as others:
        others.wait_candidates()
        takers = [running.cluster.wait_state(others.node(lane), NodeState.FOLLOWER) for lane in (0, 1)]
        assert [one["snapshot"]["giver"] for one in takers] == ["n-0", "n-1"]
        assert others.stop() == 0


def test_a_process_that_is_killed_is_started_again_and_the_other_lives(running: Running) -> None:
    cluster, lanes = running
    killed, other = lanes.pid(0), lanes.pid(1)
    os.kill(killed, signal.SIGKILL)
    eventually(
        lambda: cluster.member("n-0").get("pid", killed) != killed and cluster.candidates(0) == ["n-0"],
        "lane 0 has a process again",
    )
    eventually(lambda: lanes.ask("/lanes/0/readyz").status == 200, "it is reached as before")
    assert lanes.pid(1) == other
    assert [line["lane"] for line in lanes.events("lane-process-ended")] == [0]
    before = len(cluster.delivered)
    with Sender(cluster) as sender:
        for number in range(PASSING):
            sender.schedule(at_ms=now_ms(), id=f"later-{number}")
        sender.flush()
    cluster.wait_delivered(before + PASSING)


def test_a_process_that_hangs_is_told_of_soon_and_holds_up_no_other_lane(running: Running) -> None:
    lanes = running.lanes
    hangs = psutil.Process(lanes.pid(1))
    hangs.suspend()
    try:
        begin_s = time.monotonic()
        waited = lanes.ask("/lanes/1/due", timeout_s=SOON_S)
        assert (waited.status, time.monotonic() - begin_s < SOON_S) == (504, True)
        assert waited.data["error"].startswith("lane 1: its process has given no sign for ")
        assert lanes.ask("/lanes/1/due", timeout_s=SOON_S).status == 503
        assert lanes.ask("/lanes/0/due", timeout_s=SOON_S).status == 200
        ready = lanes.ask("/readyz", timeout_s=SOON_S)
        assert (ready.status, ready.data["reason"].partition(" for ")[0]) == (
            503,
            "lane 1: its process has given no sign",
        )
        eventually(
            lambda: b'lane="1",node="n-1"} 0.0' in lanes.ask("/metrics", timeout_s=SOON_S).body,
            "its samples are missing, and that is told",
        )
    finally:
        hangs.resume()
    eventually(lambda: lanes.ask("/readyz").status == 200, "it goes on, none the wiser")
    assert lanes.pid(1) == hangs.pid


def test_the_supervisor_s_end_is_the_end_of_all_in_good_order(running: Running, tmp_path: Path) -> None:
    """And systemd hears of all lanes from it."""
    told: list[str] = []
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as listener:
        listener.bind(str(tmp_path / "s"))
        listener.setblocking(False)
        systemd = {"NOTIFY_SOCKET": str(tmp_path / "s"), "WATCHDOG_USEC": "30000000"}
        with Supervised(running.cluster, name="o", environment=systemd) as lanes:
            eventually(partial(hear, listener, told, "READY=1"), "it is ready")
            for node in ("o-0", "o-1"):
                running.cluster.wait_state(node, NodeState.FOLLOWER)
            children = lanes.children()
            assert len(children) == 2
            assert lanes.stop() == 0
            assert list(lanes.temporary.iterdir()) == []
        wait_gone(children)
        assert hear(listener, told, "STOPPING=1")
    assert "STATUS=lane 0, 1: follower" in told
    assert "WATCHDOG=1" in told
    assert running.cluster.member("o-0") == running.cluster.member("o-1") == {}
    assert {line["logger"].partition(".")[0] for line in lanes.lines()} == {"delayline"}


def hear(listener: socket.socket, told: list[str], wanted: str) -> bool:
    with suppress(BlockingIOError):
        while True:
            told += listener.recv(65_536).decode().splitlines()
    return wanted in told


def test_no_process_outlives_a_supervisor_that_is_killed_not_even_one_that_is_stopped(
    running: Running,
) -> None:
    with Supervised(running.cluster, name="k") as lanes:
        lanes.wait_candidates()
        children = lanes.children()
        psutil.Process(lanes.pid(0)).suspend()
        lanes.process.kill()
        lanes.process.wait()
        wait_gone(children)


def test_what_no_restart_mends_is_said_once_and_ends_it(
    running: Running, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    cluster, lanes = running
    servers = [
        "--bootstrap",
        cluster.bootstrap,
        "--zookeeper",
        cluster.zookeeper,
        "--data-dir",
        str(tmp_path),
    ]
    for code, more, why in (
        (2, ["--lanes", "0-"], "--lanes: '0-' is no list of lanes"),
        (2, ["--lanes", "0-1", "--lane", "0"], "lane (0) and lanes (0-1) are both given"),
        (5, ["--lanes", "0-1", "--data-dir", str(lanes.folder)], "another 'delayline node run --lanes' has"),
        (5, ["--lanes", "0-1", "--http-port", str(lanes.http_port)], "cannot listen on HTTP port"),
        (
            5,
            ["--lanes", "0-1", "--peer-port", str(lanes.peer_port)],
            f"cannot listen on peer port {lanes.peer_port}",
        ),
    ):
        capsys.readouterr()
        assert run(["node", "run", *servers, *more]) == code
        said = capsys.readouterr().err.splitlines()
        assert (len(said), why in said[-1]) == (1, True), said
