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

from node.status import NodeState
from ops import logs
from tests.support.cluster import Cluster
from tests.support.commands import Done, Operator, operator_of
from tests.support.requests import Sender, key_in, now_ms
from tests.support.waiting import eventually


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
