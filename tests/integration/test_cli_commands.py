"""The commands as an operator types them, on a real Kafka and ZooKeeper: data, words, exit codes."""

from __future__ import annotations

import io
import json
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest
from confluent_kafka import Consumer, Producer, TopicPartition
from syrupy.assertion import SnapshotAssertion

from delayline.names import ClusterNames, parse_source
from delayline.partitioner import partition_for
from delayline.record import Schedule
from delayline.settings import ClusterSettings
from delayline.times import render_time
from delayline.wire import parse
from election.registry import Registry
from node.config import ConnectionConfig
from node.kafka.fetch.records import LogRecord
from node.kafka.own_checkpoints import headers_of
from ops.clients.zookeeper import read_keys, registry
from store.checkpoint import Checkpoint
from tests.stacks import Stack
from tests.support.checkpoints import sample_checkpoint
from tests.support.commands import Operator, operator_of
from tests.support.masked import masked
from tests.support.waiting import becomes


@pytest.fixture
def config(stack: Stack, cluster_name: str) -> ConnectionConfig:
    return ConnectionConfig(
        cluster=cluster_name, bootstrap_servers=stack.bootstrap, zookeeper=stack.zookeeper
    )


@pytest.fixture
def operator(
    config: ConnectionConfig, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> Iterator[Operator]:
    with operator_of(config, monkeypatch, capsys) as operator:
        yield operator


@pytest.fixture
def cluster(operator: Operator) -> Operator:
    assert operator("topics", "create", "--partitions", "2", "--lanes", "2").code == 0
    return operator


def read_request(config: ConnectionConfig, source: str) -> LogRecord:
    topic, partition, offset = parse_source(source)
    consumer = Consumer({"bootstrap.servers": config.bootstrap_servers, "group.id": "test"})
    try:
        consumer.assign([TopicPartition(topic, partition, offset)])
        message = consumer.poll(20.0)
        assert message is not None
        assert not message.error()
        headers: Any = message.headers() or []
        return LogRecord(partition, offset, message.timestamp()[1], message.key(), message.value(), headers)
    finally:
        consumer.close()


def test_topics_create_says_what_it_made(operator: Operator, snapshot: SnapshotAssertion) -> None:
    done = operator(
        "topics", "create", "--partitions", "2", "--max-delay", "1d", "--level", "5s", "-o", "json"
    )

    assert masked(done) == snapshot


def test_topics_check_of_a_sound_cluster_has_nothing_to_show(cluster: Operator) -> None:
    assert cluster("topics", "check") == (0, "", "All topics are as they must be.\n")


def test_topics_check_of_a_missing_target_fails(cluster: Operator) -> None:
    done = cluster("topics", "check", "--target", "nowhere", "-o", "json")

    assert (done.code, done.data[0]["problem"]) == (1, "is missing")


def test_a_scheduled_message_is_in_the_buffer_as_it_was_typed(
    cluster: Operator, config: ConnectionConfig
) -> None:
    due_ms = time.time_ns() // 1_000_000 + 3_600_000
    done = cluster(
        *("message", "schedule", "orders", "hello", "--key", "k", "--id", "order-1"),
        *("--at", render_time(due_ms), "-H", "kind=a=b", "-H", "kind=c", "-o", "json"),
    )

    assert done.code == 0
    record = read_request(config, done.data["source"])
    request = parse(
        record, ClusterSettings(config.cluster, partitions=2, lanes=2), ClusterNames(config.cluster)
    )
    assert isinstance(request, Schedule)
    assert (request.id, request.target_topic, request.target_key) == ("order-1", "orders", b"k")
    assert request.scheduled_for_ms == due_ms
    assert request.headers == [("kind", b"a=b"), ("kind", b"c")]
    assert record.value == b"hello"


def test_a_request_that_the_service_would_reject_is_a_usage_error(
    cluster: Operator, config: ConnectionConfig, snapshot: SnapshotAssertion
) -> None:
    assert masked(cluster("message", "schedule", ClusterNames(config.cluster).buffer, "hello")) == snapshot


def test_a_value_can_come_from_standard_input(
    cluster: Operator, config: ConnectionConfig, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("sys.stdin", io.TextIOWrapper(io.BytesIO(b"\x00bytes\n")))

    done = cluster("message", "schedule", "orders", "-", "-o", "json")

    assert read_request(config, done.data["source"]).value == b"\x00bytes\n"


def answer(config: ConnectionConfig, outcome: str) -> None:
    """Answer the first request for order-1, as the leader of its lane does."""
    names = ClusterNames(config.cluster)
    partition = partition_for(b"order-1", 2)
    request = read_request(config, f"{names.buffer}/{partition}/0")
    record = {
        "outcome": outcome,
        "op": "cancel",
        "id": "order-1",
        "message": None,
        "root": None,
        "code": None,
        "detail": None,
        "epoch": 1,
        "at_ms": 1_767_225_600_000,
    }
    producer = Producer({"bootstrap.servers": config.bootstrap_servers})
    source = f"{names.buffer}/{request.partition}/{request.offset}"
    producer.produce(names.outcomes, json.dumps(record), source, partition=partition)
    assert producer.flush(20) == 0


@pytest.mark.parametrize(
    ("outcome", "code"),
    [("cancelled", 0), ("rescheduled", 0), ("unknown", 3), ("too-late", 5), ("dead-lettered", 1)],
)
def test_a_request_ends_with_the_code_of_its_outcome(
    cluster: Operator, config: ConnectionConfig, outcome: str, code: int
) -> None:
    with ThreadPoolExecutor(1) as leader:
        answering = leader.submit(answer, config, outcome)
        done = cluster("message", "cancel", "order-1", "--wait", "30", "-o", "json")
        answering.result()

    assert (done.code, done.data["outcome"]) == (code, outcome)


def test_a_request_without_an_answer_in_time_is_unavailable_but_made(
    cluster: Operator, config: ConnectionConfig
) -> None:
    done = cluster("message", "cancel", "order-1", "--wait", "0.3", "-o", "json")

    assert (done.code, done.data["outcome"]) == (6, None)
    assert "no answer in 0.3 s" in done.err
    assert read_request(config, done.data["source"]).key == b"order-1"


def test_a_request_need_not_be_waited_for(cluster: Operator) -> None:
    done = cluster("message", "run-now", "order-1", "--wait", "0", "-o", "json")

    assert done.code == 0
    assert set(done.data) == {"source", "id"}


@pytest.mark.parametrize("command", ["schedule orders hello", "cancel x", "cancel x --wait 0"])
def test_without_topics_a_message_has_nowhere_to_go(
    operator: Operator, command: str, snapshot: SnapshotAssertion
) -> None:
    assert masked(operator("message", *command.split())) == snapshot


def test_cluster_status_warns_of_lanes_without_a_leader(cluster: Operator) -> None:
    done = cluster("cluster", "status", "-o", "json")

    assert done.code == 0
    assert [lane["leader"] for lane in done.data["lanes"]] == [None, None]
    assert done.err.count("has no leader, so nothing of it is delivered") == 2


def test_cluster_status_shows_what_a_member_says_of_itself(
    cluster: Operator, config: ConnectionConfig
) -> None:
    with registry(config) as znodes:
        said = {"node": "n1", "lane": 1, "state": "refusing", "reason": "clock: 700 ms", "way_out": "Set it."}
        znodes.publish_member("n1", json.dumps({**said, "applied": {"1": 0}}).encode())
        done = cluster("cluster", "status")

    assert done.out.splitlines()[-1].split()[:3] == ["n1", "1", "refusing"]
    assert "n1 refuses to lead: clock: 700 ms; Set it." in done.err


def test_the_lag_of_a_member_is_what_it_has_not_read_of_its_lane(
    cluster: Operator, config: ConnectionConfig
) -> None:
    producer = Producer({"bootstrap.servers": config.bootstrap_servers})
    for partition, count in ((0, 5), (1, 3)):
        for _ in range(count):
            producer.produce(ClusterNames(config.cluster).buffer, b"x", partition=partition)
    assert producer.flush(20) == 0

    with registry(config) as znodes:
        znodes.publish_member("n1", b'{"node": "n1", "lane": 1, "state": "follower", "applied": {"1": 1}}')
        becomes(
            lambda: [one["lag"] for one in cluster("cluster", "status", "-o", "json").data["members"]], [2]
        )


def test_a_member_that_cannot_be_read_hides_no_other(cluster: Operator, config: ConnectionConfig) -> None:
    with registry(config) as znodes:
        znodes.publish_member("n1", b"\xff")
        znodes.publish_member("n2", b'{"node": "n2", "lane": 0, "state": "follower"}')
        done = cluster("cluster", "status")

    assert [line.split()[0] for line in done.out.splitlines()[-2:]] == ["n1", "n2"]


def test_a_lane_that_does_not_exist_is_not_found(cluster: Operator, snapshot: SnapshotAssertion) -> None:
    assert masked(cluster("checkpoint", "show", "--lane", "2")) == snapshot


CHECKPOINT = sample_checkpoint(lane=1, epoch=3)


def write_topic(config: ConnectionConfig, checkpoint: Checkpoint) -> None:
    producer = Producer({"bootstrap.servers": config.bootstrap_servers})
    topic = ClusterNames(config.cluster).checkpoint
    raw = checkpoint.encode()
    headers = headers_of(checkpoint, raw, topic, read_keys(config))
    producer.produce(topic, raw, checkpoint.record_key, partition=checkpoint.lane, headers=headers)
    assert producer.flush(20) == 0


def write_znode(znodes: Registry, checkpoint: Checkpoint) -> None:
    znodes.mirror(checkpoint.lane).write(checkpoint.encode())


def test_checkpoint_show_has_topic_and_znode_side_by_side(
    cluster: Operator, config: ConnectionConfig, snapshot: SnapshotAssertion
) -> None:
    write_topic(config, CHECKPOINT)
    with registry(config) as znodes:
        write_znode(znodes, CHECKPOINT)

    assert masked(cluster("checkpoint", "show", "--lane", "1")) == snapshot


def test_checkpoint_show_as_json_has_every_lane(
    cluster: Operator, config: ConnectionConfig, snapshot: SnapshotAssertion
) -> None:
    write_topic(config, CHECKPOINT)

    assert cluster("checkpoint", "show", "-o", "json").data == snapshot


def test_a_znode_ahead_of_the_topic_is_an_alarm(
    cluster: Operator, config: ConnectionConfig, snapshot: SnapshotAssertion
) -> None:
    write_topic(config, CHECKPOINT)
    with registry(config) as znodes:
        write_znode(znodes, sample_checkpoint(lane=1, epoch=4))

    assert masked(cluster("checkpoint", "show", "--lane", "1")) == snapshot


def test_cluster_status_does_without_kafka(cluster: Operator, config: ConnectionConfig) -> None:
    with registry(config) as znodes:
        znodes.publish_member("n1", b'{"node": "n1", "lane": 0, "state": "follower", "applied": {"0": 0}}')
        done = cluster("cluster", "status", "--bootstrap", "127.0.0.1:1", "-o", "json")

    assert (done.code, done.data["members"][0]["lag"]) == (0, None)


@pytest.mark.parametrize("command", ["schedule orders hello", "reschedule order-1"])
def test_a_time_that_is_none_is_told_before_any_wait_for_kafka(
    operator: Operator, command: str, snapshot: SnapshotAssertion
) -> None:
    done = operator("message", *command.split(), "--after", "soon", "--bootstrap", "127.0.0.1:1")

    assert masked(done) == snapshot
