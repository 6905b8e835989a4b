"""Retention has taken what no node had read: going on without it, by the command that operators type."""

from __future__ import annotations

import logging
import shutil
from collections.abc import Iterator

import pytest
from confluent_kafka import TopicPartition
from confluent_kafka.admin import (
    AlterConfigOpType,
    ConfigEntry,
    ConfigResource,
    ResourceType,
)

from delayline.names import parse_source
from node.status import NodeState
from ops import logs
from tests.support.cluster import Cluster
from tests.support.commands import Done, Operator, operator_of
from tests.support.fixtures import MakeCluster
from tests.support.requests import Sender, key_in, now_ms
from tests.support.retention import delete_records
from tests.support.waiting import eventually

RETENTION_MS = 6_000
HOUR_MS = 3_600_000
COUNT = 10


@pytest.fixture
def operator(
    cluster: Cluster, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> Iterator[Operator]:
    with operator_of(cluster.connection, monkeypatch, capsys) as typing:
        logs.configure(logging.ERROR)  # the nodes of this process say nothing on stdout
        yield typing


def accept(cluster: Cluster, operator: Operator, *more: str) -> Done:
    why = ("--reason", "it was too short", "--confirm", cluster.name, "-o", "json")
    return operator("cluster", "accept-gap", *why, *more)


def take_from_log(cluster: Cluster, sent: int) -> None:
    """So much is requested that nobody reads, and retention takes it: one far too short for what may be
    delayed by a year.
    """
    short = ConfigEntry("retention.ms", "3600000", incremental_operation=AlterConfigOpType.SET)
    buffer = ConfigResource(ResourceType.TOPIC, cluster.names.buffer, incremental_configs=[short])
    cluster.admin.incremental_alter_configs([buffer])[buffer].result()
    with Sender(cluster) as sender:
        for number in range(2 * sent):
            sender.schedule(key=key_in(number % 2), at_ms=now_ms() + 2_000)
        sender.flush()
    ends = {partition: reached + sent for partition, reached in cluster.checkpoints()[-1].applied.items()}
    wanted = [TopicPartition(cluster.names.buffer, partition, end) for partition, end in ends.items()]
    for future in cluster.admin.delete_records(wanted).values():
        future.result()


@pytest.mark.walks("retention-gap")
def test_nodes_that_have_read_the_same_go_on_with_what_is_pending_and_lose_the_gap_alone(
    cluster: Cluster, operator: Operator
) -> None:
    running = [cluster.start_here(node) for node in "ab"]
    with Sender(cluster) as sender:
        sender.schedule(b"delivered")
        for number in range(10):
            sender.schedule(b"kept", key=key_in(number % 2), at_ms=now_ms() + 3_600_000)
        sender.flush()
        cluster.wait_delivered(1)
        eventually(lambda: sum(cluster.checkpoints()[-1].applied.values()) == 11, "all is applied")
        eventually(lambda: [cluster.member(node).get("pending") for node in "ab"] == [10, 10], "by both")
        for one in running:
            cluster.stop_here(one)
        take_from_log(cluster, 5)
        for node in "abc":
            cluster.start_here(node)
            cluster.wait_state(node, NodeState.REFUSING)
        dry = accept(cluster, operator)
        assert (dry.code, dry.data["accepted"], dry.data["goes_on"]) == (0, False, ["a", "b"])
        assert dry.data["goes_on_refusing"] == ["c"]
        assert [part["lost"] for part in dry.data["partitions"]] == [5, 5]
        assert accept(cluster, operator, "--execute").code == 0
        cluster.wait_candidates(2)
        sender.schedule(b"after")
        sender.flush()
        cluster.wait_delivered(2)
    assert [got.value for got in cluster.delivered] == [b"delivered", b"after"]
    eventually(
        lambda: [cluster.member(node)["pending"] for node in "ab"] == [10, 10], "what is pending stays"
    )
    assert cluster.member("c")["state"] == "refusing"
    assert accept(cluster, operator).code == 5


def test_where_no_node_has_anything_all_begin_anew(cluster: Cluster, operator: Operator) -> None:
    running = cluster.start_here("a")
    with Sender(cluster) as sender:
        for number in range(10):
            sender.schedule(key=key_in(number % 2))
        sender.flush()
        cluster.wait_delivered(10)
        eventually(lambda: sum(cluster.checkpoints()[-1].applied.values()) == 10, "all is applied")
        cluster.stop_here(running)
        take_from_log(cluster, 5)
        shutil.rmtree(cluster.data_dir("a"))
        for node in "ab":
            cluster.start_here(node)
            cluster.wait_state(node, NodeState.REFUSING)
        assert accept(cluster, operator, "--execute").data["goes_on"] == ["a", "b"]
        cluster.wait_candidates(2)
        sender.schedule(b"after")
        sender.flush()
        cluster.wait_delivered(11)
    assert cluster.delivered[-1].value == b"after"


@pytest.fixture
def carrying(make_cluster: MakeCluster) -> Cluster:
    return make_cluster(retention_ms=RETENTION_MS, dedup_window_ms=500)


@pytest.fixture
def carrying_operator(
    carrying: Cluster, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> Iterator[Operator]:
    with operator_of(carrying.connection, monkeypatch, capsys) as typing:
        logs.configure(logging.ERROR)
        yield typing


def waiting_in(partition: int) -> list[str]:
    """The ids of what waits there."""
    return [key_in(partition, prefix=f"{number}-").decode() for number in range(COUNT)]


def carry_all(cluster: Cluster, sender: Sender) -> None:
    """Messages in both partitions, due in an hour, are carried by a node, which is stopped then."""
    running = cluster.start_here("a", replay_window_s=0.5)
    for id_ in (*waiting_in(0), *waiting_in(1)):
        sender.schedule(at_ms=now_ms() + HOUR_MS, id=id_)
    ends: dict[int, int] = {}
    for one in sender.flush().schedules:
        _, partition, offset = parse_source(one)
        ends[partition] = max(ends.get(partition, 0), offset + 1)

    def carried() -> bool:
        checkpoints = cluster.checkpoints()
        found = checkpoints[-1].carried if checkpoints else {}
        return all(found.get(partition, 0) >= end for partition, end in ends.items())

    eventually(carried, "all that waits has been carried")
    cluster.stop_here(running)


def test_an_empty_node_of_a_cluster_that_carries_loses_what_is_gone_since_the_last_checkpoint_alone(
    carrying: Cluster, carrying_operator: Operator
) -> None:
    """What waits in the other partition is not given up."""
    cluster = carrying
    with Sender(cluster) as sender:
        carry_all(cluster, sender)
        last = cluster.checkpoints()[-1]
        begin = parse_source(sender.schedule(at_ms=now_ms() + HOUR_MS, key=key_in(0)).result())[2] + 1
        delete_records(cluster, {0: begin, 1: last.carried[1]})
        shutil.rmtree(cluster.data_dir("a"))
        for node in "ab":
            cluster.start_here(node, replay_window_s=0.5)
            cluster.wait_state(node, NodeState.REFUSING)
        done = accept(cluster, carrying_operator, "--execute")
        assert done.code == 0
        read = {partition: min(at, last.seen[partition]) for partition, at in last.carried.items()}
        assert [(part["partition"], part["read"], part["lost"]) for part in done.data["partitions"]] == [
            (0, read[0], begin - read[0]),
            (1, read[1], max(0, last.carried[1] - read[1])),
        ]
        assert done.data["goes_on"] == ["a", "b"]
        cluster.wait_candidates(2)
        for id_ in waiting_in(1):
            sender.run_now(id_)
        sender.schedule(b"after", key=key_in(0))
        sender.flush()
        cluster.wait_delivered(COUNT + 1)
    eventually(lambda: {cluster.member(node)["pending"] for node in "ab"} == {0}, "all else is lost")


def test_where_the_outcomes_topic_was_made_anew_an_empty_node_begins_once_that_is_accepted(
    carrying: Cluster, carrying_operator: Operator
) -> None:
    cluster = carrying
    with Sender(cluster) as sender:
        carry_all(cluster, sender)
        cluster.delete_topic(cluster.names.outcomes)
        cluster.create_again()
        shutil.rmtree(cluster.data_dir("a"))
        cluster.start_here("a", replay_window_s=0.5)
        assert "it was made anew" in cluster.wait_state("a", NodeState.REFUSING)["reason"]
        done = accept(cluster, carrying_operator, "--execute")
        assert (done.code, done.data["goes_on"]) == (0, ["a"])
        cluster.wait_candidates(1)
        for id_ in (*waiting_in(0), *waiting_in(1)):
            sender.run_now(id_)
        sender.flush()
        cluster.wait_delivered(2 * COUNT)
