"""The audit without end comes to the verdicts of the audit, wherever its rounds begin and end."""

from __future__ import annotations

import uuid
from collections.abc import Callable, Mapping
from contextlib import closing
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Final

from confluent_kafka import Producer
from pyspark.sql import SparkSession

from delayline.wire import H_ID, H_SOURCE
from node.node import Node
from ops.topics.audited import audit_config
from pipeline.audit.snapshot import Snapshot, take_snapshot
from pipeline.kafka.offsets import TopicOffsets
from pipeline.tables.place import Place
from pipeline.tables.run import export
from pipeline.watch.round import MARGIN_MS, WatchConfig, next_round
from pipeline.watch.state import StateFolder
from tests.integration.audited import Audited
from tests.integration.held_history import DisorderedHeld
from tests.integration.recurring_history import FaultyRecurring
from tests.integration.watched import AT_ONCE_MS, Watched, check_rounds, check_violations
from tests.stacks import Stack
from tests.support.cluster import Cluster
from tests.support.requests import Sender
from tests.support.tables import Tables
from tests.support.tail import Got, Tail
from tests.support.waiting import PATIENCE_S

DELIVERED: Final = 3
HOUR_MS: Final = 3_600_000
STEPS_OF_HELD: Final = 23
CUT_BEFORE_IT_COMES: Final = 27
"""The seed by which a round ends before an occurrence is delivered whose successor is there."""


def test_rounds_come_to_what_an_audit_of_everything_finds(
    faulty: Audited, spark: SparkSession, tmp_path: Path
) -> None:
    check_rounds(faulty, spark, tmp_path, faulty.cuts)


def test_what_was_taken_for_lost_and_comes_after_all_is_cleared(
    stack: Stack, spark: SparkSession, tmp_path: Path
) -> None:
    name = f"t-late-{uuid.uuid4().hex[:8]}"
    late = Audited(stack.bootstrap, spark, tmp_path, name, (FaultyRecurring,), seed=CUT_BEFORE_IT_COMES)
    check_violations(late, spark, tmp_path / "state", late.cuts)


def test_what_comes_is_compared_with_what_rounds_before_have_read(
    stack: Stack, spark: SparkSession, tmp_path: Path
) -> None:
    """Also where a round reads what was delivered, and not the checkpoint of the same transaction."""
    name = f"t-order-{uuid.uuid4().hex[:8]}"
    alone = Audited(stack.bootstrap, spark, tmp_path, name, (DisorderedHeld,), parts=STEPS_OF_HELD)
    history, told = alone[DisorderedHeld]
    assert [(one.kind, one.source) for one in told.violations] == [
        ("out_of_order", history.disordered.source)
    ]
    steps = history.steps
    assert len(steps) == STEPS_OF_HELD, "each part is one step"
    first, rest = alone.cuts[(at := steps.index(history.lets_go))], alone.cuts[at + 1]
    ahead = replace(rest, checkpoint=first.checkpoint)
    for number, cuts in enumerate([(first, alone.cuts[-1]), (ahead, alone.cuts[-1])]):
        watched = check_violations(alone, spark, tmp_path / str(number), cuts, margin_ms=MARGIN_MS)
        assert watched.in_full == [False, False]


def test_a_topic_that_was_made_anew_is_not_read_on_from_where_the_one_before_it_had_been(
    cluster: Cluster, spark: SparkSession, tmp_path: Path
) -> None:
    node = deliver_some(cluster, lambda sender: sender.cancel("unknown"))
    cluster.tail.wait(lambda: cluster.outcomes, "the cancel is answered")
    cluster.stop_here(node)
    config = WatchConfig(audit_config(cluster.connection))
    watched = Watched(spark, tmp_path, config)
    watched.round(snapshot(config))
    assert watched.stands == set()
    (first, *_) = cluster.delivered
    make_anew(cluster, first.topic, {first.partition: first})
    watched.round(snapshot(config))
    assert watched.stands == {("duplicated", first.text(H_SOURCE))}
    make_anew(cluster, cluster.names.outcomes, {})
    assert watched.marker is not None
    state = StateFolder(spark, str(tmp_path)).read(watched.marker.folder)
    assert next_round(spark, config, watched.marker, state) is None


def test_what_was_delivered_and_closed_is_not_lost_with_its_target(
    cluster: Cluster, spark: SparkSession, tmp_path: Path
) -> None:
    """Though a record of the new target has everything audited, which sees the old one no more."""
    # The target is read as long as an open request names it.
    cluster.stop_here(deliver_some(cluster, lambda sender: sender.schedule(after_ms=HOUR_MS)))
    (first, *_) = cluster.delivered
    config = WatchConfig(replace(audit_config(cluster.connection), grace_ms=0), margin_ms=AT_ONCE_MS)
    watched = Watched(spark, tmp_path, config)
    watched.round(snapshot(config))
    make_anew(cluster, first.topic, {first.partition: first})
    watched.round(snapshot(config))
    assert (watched.in_full, watched.stands) == ([False, True], set())


def test_what_two_topics_of_one_name_have_at_one_place_is_told_apart(
    cluster: Cluster, spark: SparkSession, tmp_path: Path
) -> None:
    config = WatchConfig(replace(audit_config(cluster.connection), grace_ms=0))
    place = Place(spark, str(tmp_path))
    place.claim(cluster.name, "the buffer")
    wrong = []

    def judge() -> None:
        wrong.append(export(spark, config, place, lambda: None).marker.found)

    def answered(count: int) -> bool:
        return len(cluster.outcomes) == count

    topic = cluster.target("anew")
    cluster.make_topics({topic: {}})
    first = deliver(cluster, topic, "first")
    judge()
    deliver(cluster, topic, "not read")
    cluster.delete_topic(topic)
    judge()
    cluster.make_topics({topic: {}})
    second = deliver(cluster, topic, "second")
    assert first[:3] == second[:3]
    node, asked = cluster.start_here("a"), 0
    with Sender(cluster) as sender:
        for ids in (["first", "second"], ["first"], ["second"]):  # both are judged at once, then each alone
            for id_ in ids:
                sender.cancel(id_)
            sender.flush()
            asked += len(ids)
            cluster.tail.wait(partial(answered, asked), "all is answered")
            judge()
    cluster.stop_here(node)
    assert wrong == [{}] * 5
    requests = {
        row["id"]: row["class"] for row in Tables(tmp_path).rows("requests") if row["kind"] == "schedule"
    }
    assert requests == {"first": "delivered", "not read": "aged-out", "second": "delivered"}
    rows = Tables(tmp_path).rows("messages")
    assert sorted((row["id"], row["delivered_at"].timestamp()) for row in rows) == [
        ("first", first.timestamp_ms / 1000),
        ("second", second.timestamp_ms / 1000),
    ]
    assert len({row["topic_id"] for row in rows}) == 2


def deliver_some(cluster: Cluster, also: Callable[[Sender], object]) -> Node:
    """And sends something beside; the node that has delivered them."""
    node = cluster.start_here("a")
    with Sender(cluster) as sender:
        for _ in range(DELIVERED):
            sender.schedule(after_ms=0)
        also(sender)
    cluster.wait_delivered(DELIVERED)
    return node


def deliver(cluster: Cluster, topic: str, id_: str) -> Got:
    """One message, to the partition 0."""
    node = cluster.start_here("a")
    with Sender(cluster) as sender, closing(Tail(cluster.bootstrap, [topic])) as tail:

        def arrived() -> list[Got]:
            return [got for got in tail.records[topic] if got.text(H_ID) == id_]

        sender.schedule(target="anew", id=id_, partition=0, after_ms=0)
        sender.flush()
        tail.wait(arrived, f"{id_} is delivered")
        cluster.stop_here(node)
        return arrived()[0]


def snapshot(config: WatchConfig) -> Snapshot:
    return take_snapshot(TopicOffsets(config.audit), config.audit.names)


def make_anew(cluster: Cluster, topic: str, first: Mapping[int, Got]) -> None:
    """It has more than it had; these first, and what is nobody's."""
    partitions = len(cluster.admin.list_topics(topic, timeout=PATIENCE_S).topics[topic].partitions)
    more = 2 * (DELIVERED + 2)  # with the markers
    cluster.delete_topic(topic)
    cluster.make_topics({topic: {}}, partitions)
    producer = Producer({"bootstrap.servers": cluster.bootstrap})
    for partition in range(partitions):
        if partition in first:
            got = first[partition]
            producer.produce(topic, got.value, got.key, partition, headers=[*got.headers])
        for _ in range(more):
            producer.produce(topic, b"", partition=partition)
    assert producer.flush(PATIENCE_S) == 0
