"""What watches a node: its health, its metrics, and clients that hang."""

from __future__ import annotations

import http.client
import json
import socket
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest
from prometheus_client.parser import text_string_to_metric_families

from bench.watcher import Watched, Watching
from node.config import NodeConfig
from node.core.ports import Pauses
from node.health.vitals import Nameplate, Vitals
from node.http import server
from node.http.app import application
from node.http.server import HttpServer
from node.http.watch import watched
from node.node import Node
from node.refusal import Refusal, RefusalCode
from node.status import NodeState
from ops.stack.ports import free_port
from tests.support.cluster import Cluster
from tests.support.requests import OpenTransaction, Sender, key_in, now_ms
from tests.support.waiting import PATIENCE_S, eventually

PLATE = Nameplate("delay", "n1", 0, "1")
STARTING = Vitals(PLATE, NodeState.STARTING, None, None, [], zookeeper=True, pauses=Pauses())
WAITING = STARTING._replace(waits_for="no connection to ZooKeeper")
CATCHING_UP = STARTING._replace(state=NodeState.CATCHING_UP, lag=500)
REFUSING = STARTING._replace(
    state=NodeState.REFUSING, refusal=Refusal(RefusalCode.DISK_FULL, "it is full", "Make room.")
)
FOLLOWER = STARTING._replace(state=NodeState.FOLLOWER, leader="n2", epoch=4, lag=10)
LEADER = FOLLOWER._replace(state=NodeState.LEADER, leads=True, leader=None, lag=0)
RELUCTANT = LEADER._replace(
    state=NodeState.REFUSING, refusal=Refusal(RefusalCode.BUFFER_MISSING, "it is not there", "See.")
)
SILENT = FOLLOWER._replace(lag=None)
STOPPING = FOLLOWER._replace(state=NodeState.STOPPING)
DYING = STOPPING._replace(dead=["lane"])


class Told:
    """A node's HTTP interface; the test says what it knows of itself."""

    def __init__(self) -> None:
        self.vitals = STARTING
        self._server = HttpServer("127.0.0.1", 0)
        self.port = self._server.port
        self._server.start(watched(application(lambda: None), lambda: self.vitals))

    def close(self) -> None:
        self._server.stop()
        self._server.join()


@pytest.fixture(scope="module")
def told() -> Iterator[Told]:
    told = Told()
    yield told
    told.close()


def got(port: int, path: str) -> tuple[int, str]:
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=PATIENCE_S)
    connection.request("GET", path)
    response = connection.getresponse()
    return response.status, response.read().decode()


def asked(port: int, path: str) -> tuple[int, dict[str, Any]]:
    status, body = got(port, path)
    return status, json.loads(body)


@pytest.mark.parametrize(
    ("path", "well", "ill"),
    [
        ("/livez", [STARTING, WAITING, CATCHING_UP, REFUSING, FOLLOWER, LEADER, STOPPING], [DYING]),
        ("/readyz", [FOLLOWER, LEADER], [STARTING, WAITING, CATCHING_UP, REFUSING, STOPPING, DYING]),
        ("/leader", [LEADER, RELUCTANT], [STARTING, CATCHING_UP, REFUSING, FOLLOWER, STOPPING]),
        ("/replica", [FOLLOWER, LEADER, SILENT], [STARTING, CATCHING_UP, REFUSING, STOPPING]),
        ("/replica?max_lag=10", [FOLLOWER, LEADER], [SILENT, CATCHING_UP]),
        ("/replica?max_lag=9", [LEADER], [FOLLOWER, SILENT]),
    ],
)
def test_a_node_is_well_in_these_states_alone(
    told: Told, path: str, well: list[Vitals], ill: list[Vitals]
) -> None:
    answers = []
    for told.vitals in (*well, *ill):
        status, said = asked(told.port, path)
        assert (said["node"], said["state"]) == ("n1", told.vitals.state)
        answers.append(status)
    assert answers == [200] * len(well) + [503] * len(ill)


@pytest.mark.parametrize(
    ("path", "vitals", "reason", "way_out"),
    [
        ("/livez", DYING, "threads have ended that should run: lane", "Restart the node: its log says why."),
        ("/readyz", REFUSING, "disk-full: it is full", "Make room."),
        (
            "/readyz",
            WAITING,
            "the node waits: no connection to ZooKeeper",
            "See to that: the node goes on by itself.",
        ),
        ("/readyz", STARTING, "the node has just started", "Wait: the node goes on by itself."),
        (
            "/readyz",
            CATCHING_UP,
            "the node reads the log to its end: 500 offsets of the buffer are left",
            "Wait: the node reads on.",
        ),
        ("/readyz", STOPPING, "the node ends", "Ask another node."),
        (
            "/replica?max_lag=9",
            FOLLOWER,
            "10 offsets of the buffer are not read yet; 9 are allowed",
            "Wait: the node reads on.",
        ),
        (
            "/replica?max_lag=9",
            SILENT,
            "Kafka does not say where the buffer ends",
            "See to that: the node goes on by itself.",
        ),
    ],
)
def test_a_node_that_is_not_well_says_why_and_the_way_out(
    told: Told, path: str, vitals: Vitals, reason: str, way_out: str
) -> None:
    told.vitals = vitals
    _, said = asked(told.port, path)
    assert (said["reason"], said["way_out"]) == (reason, way_out)


@pytest.mark.parametrize(("vitals", "leader"), [(LEADER, "n1"), (FOLLOWER, "n2"), (STARTING, None)])
def test_who_leads_is_said_as_far_as_it_is_known(told: Told, vitals: Vitals, leader: str | None) -> None:
    told.vitals = vitals
    assert asked(told.port, "/leader")[1]["leader"] == leader


def test_a_lag_that_is_no_number_is_a_wrong_question(told: Told) -> None:
    assert asked(told.port, "/replica?max_lag=-1") == (400, {"error": "max_lag is '-1': it must be a number"})


def test_clients_that_hang_keep_no_scrape_waiting(told: Told) -> None:
    told.vitals = LEADER
    with ExitStack() as ends:
        for number in range(server.MOST_CONNECTIONS // 2):
            hanging = ends.enter_context(socket.create_connection(("127.0.0.1", told.port), PATIENCE_S))
            hanging.sendall((b"GET /metr", b"GET /metrics HTTP/1.1\r\nHost: n1\r\n\r\n")[number % 2])
        status, said = got(told.port, "/metrics")
    assert status == 200
    assert "delayline_leader{" in said


def test_the_benchmarks_clients_hang_and_it_counts_its_scrapes(told: Told) -> None:
    told.vitals = LEADER
    watching = Watching("127.0.0.1", told.port, for_s=1.2, every_s=0.05, slow=2, half=2)
    with watching.begin() as worker:
        watched = Watched(**worker.result())
    assert 0 < watched.scrapes_per_s <= 20
    assert watched.longest_ms < PATIENCE_S * 1000


def test_a_server_ends_soon_whatever_its_clients_do(monkeypatch: pytest.MonkeyPatch) -> None:
    told = Told()
    with ExitStack() as ends:
        for _ in range(8):
            slow = ends.enter_context(socket.socket())
            slow.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 1)
            slow.connect(("127.0.0.1", told.port))
            slow.sendall(b"GET /metrics HTTP/1.1\r\nHost: n1\r\n\r\n" * 200)  # and reads none of it
            ends.enter_context(socket.create_connection(("127.0.0.1", told.port))).sendall(b"GET /me")
        assert got(told.port, "/livez")[0] == 200
        began_s = time.monotonic()
        told.close()
        assert time.monotonic() - began_s < server.END_TIMEOUT_S + 5


# -- a real node


def scraped(port: int) -> dict[str, float]:
    """The samples of the node by name and own labels, as they are written."""
    status, body = got(port, "/metrics")
    assert status == 200
    return {
        sample.name
        + "".join(f" {value}" for label, value in sorted(sample.labels.items()) if label not in OF_ALL): (
            sample.value
        )
        for family in text_string_to_metric_families(body)
        for sample in family.samples
    }


OF_ALL = ("cluster", "lane", "node", "le")


def port_of(cluster: Cluster, node: str, state: NodeState) -> int:
    return int(cluster.wait_state(node, state)["http_port"])


def shown(port: int, name: str, expected: Callable[[float], bool]) -> None:
    """Waits until a sample is as expected."""
    eventually(lambda: name in (found := scraped(port)) and expected(found[name]), f"{name} is as expected")


def test_a_node_that_cannot_start_says_what_it_waits_for_and_ends_when_told(tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as free:
        nowhere = f"127.0.0.1:{free.getsockname()[1]}"
    config = NodeConfig(
        cluster="delay",
        bootstrap_servers=nowhere,
        zookeeper=nowhere,
        data_dir=tmp_path,
        peer_host="127.0.0.1",
        peer_port=free_port(),
        http_port=(port := free_port()),
    )
    node = Node(config)
    node.start()
    eventually(lambda: node.vitals().waits_for, "it waits")
    status, said = asked(port, "/readyz")
    assert (status, said["state"]) == (503, "starting")
    assert said["reason"].startswith("the node waits: cannot read /delayline/delay/settings: ")
    assert asked(port, "/livez")[0] == 200
    found = scraped(port)
    assert (found["delayline_zookeeper_connected"], found["delayline_state starting"]) == (0, 1)
    assert "delayline_pending_messages" not in found
    node.stop()
    node.join()


def test_a_node_tells_of_what_it_does(cluster: Cluster) -> None:
    cluster.start_here("a")
    port = port_of(cluster, "a", NodeState.LEADER)
    with Sender(cluster) as sender:
        for _ in range(20):
            sender.schedule()
        sender.schedule(target="missing")
        sender.schedule(id="later", at_ms=now_ms() + 3_600_000)
        sender.flush()
        sender.cancel("later")
        sender.schedule(at_ms=now_ms() + 3_600_000)
        sender.flush()
        cluster.wait_delivered(20)
    shown(port, "delayline_requests_total cancel cancelled ", lambda value: value == 1)
    shown(port, "delayline_pending_messages", lambda value: value == 1)
    shown(port, "delayline_overdue_messages", lambda value: value == 0)
    shown(port, "delayline_apply_lag_records", lambda value: value == 0)
    shown(port, "delayline_rocksdb_memtable_bytes", lambda value: value > 0)
    found = scraped(port)
    assert found["delayline_delivered_total"] == 20
    assert found["delayline_requests_total schedule dead-lettered target-missing"] == 1
    assert found["delayline_delivery_lateness_seconds_count"] == 21
    assert 0 < found["delayline_delivery_lateness_seconds_sum"] < 21 * PATIENCE_S
    assert found["delayline_commit_seconds_count"] > 1
    assert found["delayline_leader"] == 1
    assert found["delayline_epoch"] in {one.epoch for one in cluster.checkpoints()}
    assert found["delayline_zookeeper_connected"] == 1
    assert abs(found["delayline_delivered_up_to_timestamp_seconds"] - time.time()) < PATIENCE_S
    assert found["delayline_data_dir_free_bytes"] > 0
    assert found["delayline_rocksdb_write_stopped"] == 0
    follower = cluster.start_here("b")
    other = port_of(cluster, "b", NodeState.FOLLOWER)
    leader = {"cluster": cluster.name, "node": "b", "lane": 0, "state": "follower", "leader": "a"}
    eventually(
        lambda: asked(other, "/leader") == (503, leader | {"epoch": cluster.checkpoints()[-1].epoch}),
        "it tells of the leader",
    )
    assert asked(port, "/leader")[0] == 200
    eventually(lambda: asked(other, "/replica?max_lag=0")[0] == 200, "it has read all")
    shown(other, "delayline_pending_messages", lambda value: value == 1)
    theirs = scraped(other)
    assert theirs["delayline_leader"] == 0
    assert [("delayline_clock_offset_seconds" in one) for one in (found, theirs)] == [True, False], (
        "a leader's"
    )
    assert [asked(one, "/livez")[0] for one in (port, other)] == [200, 200]
    assert [asked(one, "/readyz")[0] for one in (port, other)] == [200, 200]
    died = threading.ExceptHookArgs((RuntimeError, RuntimeError("boom"), None, threading.Thread(name="lane")))
    follower._on_thread_death(died)
    assert follower.vitals().dead == ["lane"], "it is about to end"


def test_a_node_tells_of_what_an_open_transaction_holds_back(cluster: Cluster) -> None:
    cluster.start_here("a")
    port = port_of(cluster, "a", NodeState.LEADER)
    foreign = OpenTransaction(cluster)
    foreign.begin([b"open"] * 5, key=key_in(1))
    shown(port, "delayline_buffer_unstable_records", lambda value: value >= 5)
    shown(port, "delayline_buffer_blocked_records 1", lambda value: value >= 5)
    shown(port, "delayline_buffer_blocked_seconds 1", lambda value: value >= 3)
    assert [one["partition"] for one in asked(port, "/readyz")[1]["blocked"]] == [1]
    foreign.abort()
    shown(port, "delayline_buffer_unstable_records", lambda value: value == 0)
