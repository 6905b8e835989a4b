"""The audit without end comes to the verdicts of the audit, wherever its rounds begin and end."""

from __future__ import annotations

import uuid
from collections.abc import Mapping
from pathlib import Path
from typing import Final

from confluent_kafka import Producer
from pyspark.sql import SparkSession

from delayline.wire import H_SOURCE
from ops.topics.audited import audit_config
from pipeline.audit.snapshot import Snapshot, take_snapshot
from pipeline.kafka.offsets import TopicOffsets
from pipeline.watch.round import WatchConfig, next_round
from pipeline.watch.state import StateFolder
from tests.integration.audited import Audited
from tests.integration.recurring_history import FaultyRecurring
from tests.integration.watched import Watched, check_rounds, check_violations
from tests.stacks import Stack
from tests.support.cluster import Cluster
from tests.support.requests import Sender
from tests.support.tail import Got
from tests.support.waiting import PATIENCE_S

DELIVERED: Final = 3
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


def test_a_topic_that_was_made_anew_is_not_read_on_from_where_the_one_before_it_had_been(
    cluster: Cluster, spark: SparkSession, tmp_path: Path
) -> None:
    node = cluster.start_here("a")
    with Sender(cluster) as sender:
        for _ in range(DELIVERED):
            sender.schedule(after_ms=0)
        sender.cancel("unknown")
        sender.flush()
    cluster.wait_delivered(DELIVERED)
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
