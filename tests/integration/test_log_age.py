"""How old the buffer's records are, as a real Kafka tells it."""

from __future__ import annotations

import time
from typing import Any

from confluent_kafka import Message, Producer

from node.kafka.checkpoints import KafkaLog
from tests.support.cluster import Cluster
from tests.support.fixtures import MakeCluster
from tests.support.waiting import PATIENCE_S, eventually


def append(cluster: Cluster) -> int:
    """A record in partition 0 of the buffer, at a later millisecond than all before; its time."""
    times: list[int] = []

    def note(_: object, message: Message) -> None:
        times.append(message.timestamp()[1])

    producer = Producer({"bootstrap.servers": cluster.bootstrap})
    producer.produce(cluster.names.buffer, b"x", partition=0, on_delivery=note)
    assert producer.flush(PATIENCE_S) == 0
    eventually(lambda: time.time_ns() // 1_000_000 > times[0], "the next one is later")
    return times[0]


def test_where_what_is_of_a_time_or_later_begins(make_cluster: MakeCluster) -> None:
    cluster = make_cluster(targets=())
    first_ms, second_ms = append(cluster), append(cluster)
    no_reader: Any = None
    log = KafkaLog(cluster.connection.client_config(), cluster.names, 0, [0, 1], no_reader)

    ends = log.high_watermarks()
    found = [log.first_since(at_ms, ends)[0] for at_ms in (first_ms, first_ms + 1, second_ms + 1)]

    assert (ends, found) == ({0: 2, 1: 0}, [0, 1, 2])
    assert log.first_since(0, ends)[1] == 0
    assert log.first_since(second_ms, {0: 1}) == {0: 1}


def test_a_partition_whose_leader_does_not_answer_is_left_out_and_the_others_are_known(
    make_cluster: MakeCluster,
) -> None:
    """One that is not there has none."""
    cluster = make_cluster(targets=())
    first_ms = append(cluster)
    no_reader: Any = None
    log = KafkaLog(cluster.connection.client_config(), cluster.names, 0, [0, 1, 7], no_reader)

    assert log.led_high_watermarks() == {0: 1, 1: 0}
    assert log.first_since(first_ms, {0: 1, 1: 0, 7: 5}) == {0: 0, 1: 0}
