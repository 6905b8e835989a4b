"""How old the buffer's records are, as a real Kafka tells it."""

from __future__ import annotations

import time
from typing import Any

from confluent_kafka import Message, Producer

from node.kafka.checkpoints import KafkaLog
from node.status import NodeState
from ops.doctor import Level, examine
from tests.integration.test_watch import scraped
from tests.support.cluster import Cluster
from tests.support.fixtures import MakeCluster
from tests.support.requests import OpenTransaction, Sender, key_in
from tests.support.waiting import PATIENCE_S, becomes, eventually

HOUR_MS = 3_600_000


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


def near_by_doctor(cluster: Cluster) -> list[str]:
    """Which lanes it says that of."""
    found = [one for one in examine(cluster.connection) if one.found.startswith("retention will soon remove")]
    assert {one.level for one in found} <= {Level.PROBLEM}
    return [one.check for one in found]


def test_where_retention_comes_near_status_doctor_and_metric_say_so_until_it_is_over(
    make_cluster: MakeCluster,
) -> None:
    """An open transaction hides what was carried, so that what waits is not let go of."""
    cluster = make_cluster(retention_ms=8_000, dedup_window_ms=500)
    cluster.start_here("a", replay_window_s=0.5)
    port = int(cluster.wait_state("a", NodeState.LEADER)["http_port"])
    open_one = OpenTransaction(cluster)
    with Sender(cluster) as sender:
        sender.schedule(after_ms=HOUR_MS, partition=0)
        sender.flush()
    open_one.begin([b"hides"], key=key_in(0))
    near = eventually(lambda: cluster.member("a").get("near") or [], "it says so")
    assert [(one["partition"], one["carried"]) for one in near] == [(0, 0)]
    becomes(lambda: scraped(port).get("delayline_retention_near_partitions"), 1.0)
    assert near_by_doctor(cluster) == ["lane 0"]
    open_one.abort()
    becomes(lambda: scraped(port).get("delayline_retention_near_partitions"), 0.0)
    eventually(lambda: cluster.member("a").get("near") == [], "it says so no more")
    assert near_by_doctor(cluster) == []


def test_a_replay_window_that_is_too_long_for_the_retention_is_said_by_the_doctor(
    make_cluster: MakeCluster,
) -> None:
    cluster = make_cluster(retention_ms=8_000, dedup_window_ms=500)
    cluster.start_here("a", replay_window_s=4)
    cluster.wait_state("a", NodeState.LEADER)
    found = [one for one in examine(cluster.connection) if "replay_window_s is 4;" in one.found]
    assert [(one.check, one.level) for one in found] == [("a", Level.PROBLEM)]


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
