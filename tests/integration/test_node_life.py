"""A node from its start to its end, undisturbed: what it waits for, says of itself, and how exact it is."""

from __future__ import annotations

from itertools import pairwise

import pytest

from node.core import delivery
from node.status import NodeState
from ops.topics import cluster_topics
from store.checkpoint import Checkpoint
from tests.stacks import Stack
from tests.support.cluster import Cluster
from tests.support.fates import check_exactly_once
from tests.support.requests import Sender, now_ms
from tests.support.waiting import becomes, eventually


@pytest.fixture
def no_heartbeats(monkeypatch: pytest.MonkeyPatch) -> None:
    """But for a leader's first one: what is delivered has not waited for the next."""
    monkeypatch.setattr(delivery, "HEARTBEAT_MS", 3_600_000)


@pytest.mark.usefixtures("no_heartbeats")
def test_a_message_is_delivered_when_it_is_due_and_not_at_the_next_heartbeat(cluster: Cluster) -> None:
    cluster.start_here("a")
    cluster.wait_epoch(1)
    with Sender(cluster) as sender:
        begin_ms = now_ms() + 300
        for number in range(15):
            sender.schedule(at_ms=begin_ms + 170 * number)
        ledger = sender.flush()
    check_exactly_once(cluster, ledger)


@pytest.mark.usefixtures("no_heartbeats")
def test_a_due_time_that_comes_before_the_one_waited_for_wakes_the_leader(cluster: Cluster) -> None:
    cluster.start_here("a")
    cluster.wait_epoch(1)
    with Sender(cluster) as sender:
        sender.schedule(at_ms=now_ms() + 3_600_000)
        sender.flush()
        for number in range(7):
            sender.schedule(at_ms=now_ms() + 50)
            sender.flush()
            cluster.wait_delivered(number + 1)


def test_an_idle_leader_writes_a_heartbeat_a_second(cluster: Cluster) -> None:
    cluster.start_here("a")
    cluster.wait_epoch(1)

    def heartbeats() -> list[Checkpoint]:
        return [checkpoint for checkpoint in cluster.checkpoints() if not checkpoint.first]

    eventually(lambda: len(heartbeats()) > 3, "heartbeats")
    ups_ms = [heartbeat.delivered_up_to_ms for heartbeat in heartbeats()]
    gaps_ms = [after - before for before, after in pairwise(ups_ms)]
    assert min(gaps_ms) >= 1_000, "each is of the time that it was begun"


def test_a_node_waits_for_a_cluster_that_is_not_made_yet(
    cluster: Cluster, stack: Stack, cluster_name: str
) -> None:
    other = f"{cluster_name}-later"
    connection = cluster.connection.model_copy(update={"cluster": other})
    node = cluster.start("a", cluster=other)
    eventually(
        lambda: any("topics create" in waits["detail"] for waits in node.events("node-startup-delayed")),
        "it says what to do",
    )
    cluster_topics.create(connection, {"partitions": 2})
    node.wait_event("leadership-begun")


def test_a_member_says_how_much_is_pending_and_how_far_it_is(cluster: Cluster) -> None:
    cluster.start_here("a")
    with Sender(cluster) as sender:
        for _ in range(10):
            sender.schedule(at_ms=now_ms() + 3_600_000)
        sender.flush()
        becomes(lambda: cluster.member("a").get("pending"), 10)
        said = cluster.wait_state("a", NodeState.LEADER)
    assert sum(said["applied"].values()) == 10
    assert (said["node"], said["lane"], said["reason"], said["way_out"]) == ("a", 0, None, None)


def test_sigterm_ends_a_refusing_node_with_code_0(cluster: Cluster) -> None:
    node = cluster.start("a", lane=7)
    cluster.wait_state("a", NodeState.REFUSING)
    node.terminate()
    assert node.wait_exit() == 0
    becomes(lambda: cluster.member("a"), {})


def test_a_leader_that_ends_leaves_its_last_checkpoint_in_the_znode(cluster: Cluster) -> None:
    node = cluster.start_here("a")
    with Sender(cluster) as sender:
        for _ in range(20):
            sender.schedule()
        sender.flush()
    cluster.wait_delivered(20)
    cluster.stop_here(node)
    assert cluster.mirrored() == cluster.checkpoints()[-1]
