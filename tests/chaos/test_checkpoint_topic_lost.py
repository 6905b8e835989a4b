"""The checkpoint topic is deleted: nodes refuse until it is there again, then go on from what is known."""

from __future__ import annotations

import http.client
import shutil

import pytest

from delayline import Receipt
from delayline.names import parse_source
from node.status import NodeState
from ops.stack.ports import HOST
from store.checkpoint import Checkpoint
from tests.support.cluster import Cluster
from tests.support.fates import check_checkpoints, check_exactly_once, settle
from tests.support.requests import Sender, now_ms
from tests.support.waiting import PATIENCE_S, eventually

HOUR_MS = 3_600_000


def test_nodes_refuse_without_the_checkpoint_topic_and_say_what_to_do(cluster: Cluster) -> None:
    cluster.start("a")
    cluster.wait_candidates(1)
    cluster.start("b")
    cluster.wait_candidates(2)
    cluster.wait_epoch(1)
    cluster.delete_topic(cluster.names.checkpoint)
    for node_id in ("a", "b"):
        said = cluster.wait_state(node_id, NodeState.REFUSING)
        assert said["reason"].startswith("checkpoint-topic-missing: ")
        assert "delayline topics create" in said["way_out"]


def test_a_node_started_without_the_checkpoint_topic_refuses(cluster: Cluster) -> None:
    cluster.delete_topic(cluster.names.checkpoint)
    cluster.start("a")
    assert cluster.wait_state("a", NodeState.REFUSING)["reason"].startswith("checkpoint-topic-missing: ")
    cluster.create_again()
    cluster.wait_state("a", NodeState.LEADER)


@pytest.mark.walks("checkpoint-topic-missing")
def test_delivery_resumes_from_the_own_checkpoint_when_the_topic_is_made_anew(cluster: Cluster) -> None:
    cluster.start("a")
    cluster.wait_candidates(1)
    cluster.start("b")
    cluster.wait_candidates(2)
    with Sender(cluster) as sender:
        sources = []
        for number in range(100):
            sources.append(sender.schedule())
            sources.append(sender.schedule(at_ms=now_ms() + HOUR_MS, id=f"id-{number}"))
        sender.flush()
        cluster.wait_delivered(100)
        _wait_seen(cluster, sources)
        _lose_topic(cluster)
        for number in range(50):
            sender.cancel(f"id-{number}")
            sender.run_now(f"id-{number + 50}")
        ledger = sender.flush()
        cluster.create_again()
        cluster.wait_state("a", NodeState.LEADER)
        fates = settle(cluster, ledger)
    assert fates.count("delivered") == 150, "once each: the own checkpoint was the last one"
    assert fates.count("cancelled") == 50
    check_checkpoints(cluster)
    assert cluster.process("a").wait_event("checkpoint-topic-lost")["level"] == "error"
    assert _losses(cluster, "a") == 1
    cluster.wait_state("b", NodeState.FOLLOWER)


def test_without_topic_and_folders_the_znode_decides_and_only_the_gap_is_delivered_again(
    cluster: Cluster,
) -> None:
    node = cluster.start("a")
    with Sender(cluster) as sender:
        before = [sender.schedule() for _ in range(20)]
        sender.flush()
        cluster.wait_delivered(20)
        znode = cluster.znodes.checkpoint(0)
        ends = _wait_seen(cluster, before).applied
        eventually(lambda: _mirrored_up_to(cluster, ends), "the mirror has what was delivered")
        mirrored, _ = cluster.kazoo.get(znode)
        gap = [sender.schedule() for _ in range(20)]
        later = [sender.schedule(at_ms=now_ms() + HOUR_MS, id=f"id-{number}") for number in range(20)]
        sender.flush()
        cluster.wait_delivered(40)
        node.kill()
        shutil.rmtree(cluster.data_dir("a"))
        cluster.delete_topic(cluster.names.checkpoint)
        cluster.kazoo.set(znode, mirrored)  # a mirror may lag behind by what was committed in a moment
        for number in range(20):
            sender.run_now(f"id-{number}")
        ledger = sender.flush()
    cluster.create_again()
    node = cluster.start("a")
    fates = settle(cluster, ledger)
    assert {tuple(fates.of[receipt.result()]) for receipt in before} == {("delivered",)}
    assert {tuple(fates.of[receipt.result()]) for receipt in gap} == {("delivered", "delivered")}
    assert {tuple(fates.of[receipt.result()]) for receipt in later} == {("delivered",)}
    said = node.wait_event("checkpoint-topic-lost")
    assert (said["level"], said["checkpoint_epoch"]) == ("error", Checkpoint.decode(mirrored).epoch)


@pytest.mark.walks("checkpoint-unreadable")
def test_what_is_no_checkpoint_is_refused_until_the_topic_is_made_anew(cluster: Cluster) -> None:
    node = cluster.start("a")
    with Sender(cluster) as sender:
        for _ in range(20):
            sender.schedule()
        ledger = sender.flush()
    cluster.wait_delivered(20)
    node.terminate()
    node.wait_exit()
    cluster.append_checkpoint(b"another program's")
    cluster.start("a")
    assert cluster.wait_state("a", NodeState.REFUSING)["reason"].startswith("checkpoint-unreadable: ")
    cluster.delete_topic(cluster.names.checkpoint)
    cluster.create_again()
    cluster.wait_state("a", NodeState.LEADER)
    fates = settle(cluster, ledger)
    assert fates.count("delivered") == 20, "once each: the own checkpoint was the last one"


def test_a_mirror_that_cannot_be_read_is_refused_where_it_has_to_decide(cluster: Cluster) -> None:
    node = cluster.start("a")
    cluster.wait_epoch(1)
    eventually(lambda: cluster.kazoo.exists(cluster.znodes.checkpoint(0)), "it is mirrored")
    node.kill()
    cluster.kazoo.set(cluster.znodes.checkpoint(0), b"{")
    cluster.delete_topic(cluster.names.checkpoint)
    cluster.create_again()
    node = cluster.start("a")
    said = cluster.wait_state("a", NodeState.REFUSING)
    assert said["reason"].startswith(f"checkpoint-unreadable: {cluster.znodes.checkpoint(0)}")
    cluster.kazoo.delete(cluster.znodes.checkpoint(0))
    cluster.wait_state("a", NodeState.LEADER)
    assert node.running


def test_a_checkpoint_topic_made_anew_decides_again(cluster: Cluster) -> None:
    """Once there is a checkpoint in the new topic, a failover is like any other."""
    cluster.start("a")
    cluster.wait_epoch(1)
    _lose_topic(cluster)
    cluster.create_again()
    cluster.wait_epoch(2)
    with Sender(cluster) as sender:
        for _ in range(50):
            sender.schedule()
        ledger = sender.flush()
        cluster.wait_delivered(50)
    cluster.process("a").kill()
    cluster.start("b")
    assert cluster.wait_leadership(2).node == "b"
    check_exactly_once(cluster, ledger)


def _losses(cluster: Cluster, node_id: str) -> float:
    """How many the node's metrics tell of."""
    port = int(cluster.member(node_id)["http_port"])
    connection = http.client.HTTPConnection(HOST, port, timeout=PATIENCE_S)
    connection.request("GET", "/metrics")
    lines = connection.getresponse().read().decode().splitlines()
    (line,) = (line for line in lines if line.startswith("delayline_checkpoint_losses_total{"))
    return float(line.split()[-1])


def _wait_seen(cluster: Cluster, sources: list[Receipt]) -> Checkpoint:
    """The first committed checkpoint that has seen these requests."""
    places = [parse_source(receipt.result()) for receipt in sources]

    def seen() -> list[Checkpoint]:
        return [
            one
            for one in cluster.checkpoints()
            if all(one.seen[partition] > offset for _, partition, offset in places)
        ]

    return eventually(seen, "they are seen")[0]


def _lose_topic(cluster: Cluster) -> None:
    """Deletes it; returns when the leader a has failed to commit. Were it made anew before that, a would go
    on: its next checkpoint says all.
    """
    cluster.delete_topic(cluster.names.checkpoint)
    cluster.process("a").wait_event("transaction-abandoned")
    cluster.wait_state("a", NodeState.REFUSING)


def _mirrored_up_to(cluster: Cluster, ends: dict[int, int]) -> bool:
    applied = cluster.mirrored().applied
    return all(applied[partition] >= end for partition, end in ends.items())
