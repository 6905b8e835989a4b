"""`delayline node run` as a process, and the commands that talk to the node's lane."""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import sys
import time
import uuid
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from node.config import ConnectionConfig
from node.status import NodeState
from ops.checkpoint import show
from ops.cluster import status
from ops.stack.ports import HOST, free_port
from ops.topics import cluster_topics
from store.checkpoint import Checkpoint
from tests.stacks import Stack
from tests.support.modes import open_to_others
from tests.support.waiting import eventually

ROOT = Path(__file__).parents[2]
DEADLINE_S = 60.0


@dataclass
class Service:
    """A cluster with one node, run by the command line."""

    config: ConnectionConfig
    environment: dict[str, str]
    process: subprocess.Popen[bytes]
    log: Path

    def command(self, *arguments: str) -> subprocess.CompletedProcess[str]:
        line = [sys.executable, "-m", "ops.cli.main", *arguments, "-o", "json"]
        return subprocess.run(
            line, cwd=ROOT, env=self.environment, capture_output=True, text=True, timeout=60, check=False
        )

    def data(self, *arguments: str) -> Any:
        done = self.command(*arguments)
        assert done.returncode == 0, done.stderr
        return json.loads(done.stdout)

    def stop(self) -> int:
        self.process.send_signal(signal.SIGTERM)
        return self.process.wait(DEADLINE_S)


@contextmanager
def running_service(stack: Stack, folder: Path, **variables: str) -> Iterator[Service]:
    config = ConnectionConfig(
        cluster=f"t-cli-node-{uuid.uuid4().hex[:8]}",
        bootstrap_servers=stack.bootstrap,
        zookeeper=stack.zookeeper,
    )
    cluster_topics.create(config, {"partitions": 2})
    environment = {
        **os.environ,
        "DELAYLINE_BOOTSTRAP_SERVERS": stack.bootstrap,
        "DELAYLINE_ZOOKEEPER": stack.zookeeper,
        "DELAYLINE_CLUSTER": config.cluster,
        **variables,
    }
    log = folder / "node.log"
    options = ["--node-id", "n1", "--data-dir", str(folder / "data")]
    options += ["--peer-host", HOST, "--peer-port", str(free_port())]
    line = [sys.executable, "-m", "ops.cli.main", "node", "run", "--lane", "0", *options]
    with log.open("wb") as stream:
        process = subprocess.Popen(line, cwd=ROOT, env=environment, stderr=stream, umask=0o022)
        try:
            service = Service(config, environment, process, log)
            _wait_for_leader(service)
            yield service
        finally:
            process.kill()
            process.wait()


@pytest.fixture(scope="module")
def service(stack: Stack, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Service]:
    """One node for all tests that leave it running."""
    with running_service(stack, tmp_path_factory.mktemp("node")) as service:
        yield service


def _wait_for_leader(service: Service) -> None:
    deadline_s = time.monotonic() + DEADLINE_S
    while not _leads(service.config):
        assert service.process.poll() is None, service.log.read_text()
        assert time.monotonic() < deadline_s, service.log.read_text()


def _leads(config: ConnectionConfig) -> bool:
    shown = status.status(config)
    led = "n1" in shown.members and shown.members["n1"].state == NodeState.LEADER
    return led and shown.lanes[0].checkpoint is not None


def test_a_node_leads_its_lane(service: Service) -> None:
    before = mirrored_epoch(service)
    status = service.data("cluster", "status")

    assert status["lanes"][0]["leader"] == "n1"
    assert before <= status["lanes"][0]["epoch"] <= mirrored_epoch(service)
    assert (status["members"][0]["node"], status["members"][0]["state"]) == ("n1", "leader")


def test_nobody_else_can_read_what_a_node_keeps(service: Service) -> None:
    assert open_to_others(service.log.parent / "data") == []


@dataclass
class Ended:
    """A node that led, was told to stop, and ended; `told`: what systemd would have heard of it, in lines."""

    service: Service
    exit_code: int
    leader: str | None
    told: list[list[str]]


@pytest.fixture(scope="module")
def ended(stack: Stack, tmp_path_factory: pytest.TempPathFactory) -> Ended:
    folder = tmp_path_factory.mktemp("ended")
    manager = str(folder / "notify")
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as listener:
        listener.bind(manager)
        listener.setblocking(False)
        with running_service(stack, folder, NOTIFY_SOCKET=manager, WATCHDOG_USEC="30000000") as service:
            first = _heard_until(listener, lambda line: line == "STATUS=leader")
            exit_code = service.stop()
        return Ended(
            service, exit_code, status.status(service.config).lanes[0].leader, first + _heard(listener)
        )


def _heard_until(listener: socket.socket, is_it: Callable[[str], bool]) -> list[list[str]]:
    lines: list[list[str]] = []

    def come() -> bool:
        lines.extend(_heard(listener))
        return any(is_it(line) for datagram in lines for line in datagram)

    eventually(come, "systemd hears it")
    return lines


def _heard(listener: socket.socket) -> list[list[str]]:
    datagrams = []
    while True:
        try:
            datagrams.append(listener.recv(65_536).decode().splitlines())
        except BlockingIOError:
            return datagrams


def test_a_node_that_is_told_to_stop_hands_over_and_has_logged_json_that_names_it(ended: Ended) -> None:
    assert (ended.exit_code, ended.leader) == (0, None)
    lines = [json.loads(line) for line in ended.service.log.read_text().splitlines()]
    assert {(line["node"], line["lane"]) for line in lines} == {("n1", 0)}
    assert {line["logger"].partition(".")[0] for line in lines} == {"delayline"}


def test_systemd_hears_that_a_node_is_ready_lives_and_stops(ended: Ended) -> None:
    lines = [line for datagram in ended.told for line in datagram]
    assert [line for line in lines if line in ("READY=1", "STOPPING=1")] == ["READY=1", "STOPPING=1"]
    assert next(datagram for datagram in ended.told if "READY=1" in datagram)[1] in (
        "STATUS=follower",
        "STATUS=leader",
    )
    assert all("WATCHDOG=1" in datagram for datagram in ended.told[:-1])


def test_a_pending_message_is_cancelled_once(service: Service) -> None:
    scheduled = service.data("message", "schedule", "orders", "hello", "--after", "1h", "--id", "order-1")

    cancelled = service.command("message", "cancel", "order-1", "--wait", "30")
    again = service.command("message", "cancel", "order-1", "--wait", "30")

    assert cancelled.returncode == 0
    answer = json.loads(cancelled.stdout)
    assert (answer["outcome"], answer["message"]) == ("cancelled", scheduled["source"])
    assert (again.returncode, json.loads(again.stdout)["outcome"]) == (3, "unknown")


def test_a_pending_message_is_rescheduled(service: Service) -> None:
    service.data("message", "schedule", "orders", "hello", "--after", "1h", "--id", "order-2")

    answer = service.data("message", "reschedule", "order-2", "--after", "2h", "--wait", "30")

    assert answer["outcome"] == "rescheduled"


def test_checkpoint_show_has_what_the_leader_wrote(service: Service) -> None:
    before = committed_epoch(service)
    (lane,) = service.data("checkpoint", "show")

    assert (lane["topic"]["node"], lane["alarming"]) == ("n1", False)
    assert before <= lane["topic"]["epoch"] <= committed_epoch(service)


def mirrored_epoch(service: Service) -> int:
    """As the znode has it. A node whose commit was slow begins another one."""
    return epoch_of(show.show(service.config, 0).pairs[0].in_znode)


def committed_epoch(service: Service) -> int:
    """As the topic has it."""
    return epoch_of(show.show(service.config, 0).pairs[0].in_topic)


def epoch_of(checkpoint: Checkpoint | None) -> int:
    assert checkpoint is not None, "its node has led"
    return checkpoint.epoch
