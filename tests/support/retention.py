"""What retention leaves of a buffer topic: its beginning taken, and records that have been there for long."""

from __future__ import annotations

import shutil
import uuid
from collections.abc import Sequence
from typing import Any

from confluent_kafka import TIMESTAMP_CREATE_TIME, Message, Producer, TopicPartition
from confluent_kafka.admin import (
    AlterConfigOpType,
    ConfigEntry,
    ConfigResource,
    ResourceType,
)

from node.node import Node
from tests.support.cluster import Cluster
from tests.support.requests import now_ms
from tests.support.waiting import PATIENCE_S, eventually

# A record: its partition, key, value and headers.
Placed = tuple[int, bytes | None, bytes | None, Any]


def send_of_the_past(cluster: Cluster, timestamp_ms: int) -> dict[int, int]:
    """A message into each of the two partitions, with a timestamp as if it had been there for long; their
    offsets.
    """
    headers: Any = [("delay-target-topic", cluster.target())]
    return send_dated(cluster, timestamp_ms, [(partition, None, b"v", headers) for partition in range(2)])


def send_dated(cluster: Cluster, timestamp_ms: int, records: Sequence[Placed]) -> dict[int, int]:
    """Records that keep the timestamp that their producer gives them, one to a partition; their offsets."""
    alter_buffer(cluster, "message.timestamp.type", "CreateTime")
    return eventually(lambda: _kept(cluster, timestamp_ms, records), "the logs keep what producers say")


def _kept(cluster: Cluster, timestamp_ms: int, records: Sequence[Placed]) -> dict[int, int]:
    """Sends nothing where a log has not heard yet of what its topic was set to."""
    named = f"{cluster.name}-{uuid.uuid4().hex}"
    producer = Producer({"bootstrap.servers": cluster.bootstrap, "transactional.id": named})
    producer.init_transactions(PATIENCE_S)
    producer.begin_transaction()
    sent: list[Message] = []
    for partition, key, value, headers in records:
        producer.produce(
            cluster.names.buffer,
            value,
            key,
            partition,
            headers=headers,
            timestamp=timestamp_ms,
            on_delivery=lambda _, message: sent.append(message),
        )
    assert producer.flush(PATIENCE_S) == 0
    if any(message.timestamp()[0] != TIMESTAMP_CREATE_TIME for message in sent):
        producer.abort_transaction(PATIENCE_S)
        return {}
    producer.commit_transaction(PATIENCE_S)
    return {message.partition() or 0: message.offset() or 0 for message in sent}


def rebuild_behind_retention(cluster: Cluster, node_id: str, running: Node) -> None:
    """Retention takes all that was applied; what is left is of long ago, and has been delivered. The node
    begins anew without its folder.
    """
    delivered = len(cluster.delivered)
    begins = send_of_the_past(cluster, now_ms() - 3 * 86_400_000)
    cluster.wait_delivered(delivered + 2)
    cluster.stop_here(running)
    delete_records(cluster, begins)
    shutil.rmtree(cluster.data_dir(node_id))
    cluster.start_here(node_id)


def alter_buffer(cluster: Cluster, name: str, value: str) -> None:
    alter_topic(cluster, cluster.names.buffer, name, value)


def alter_topic(cluster: Cluster, topic: str, name: str, value: str) -> None:
    """Returns once the broker has it."""
    entry = ConfigEntry(name, value, incremental_operation=AlterConfigOpType.SET)
    resource = ConfigResource(ResourceType.TOPIC, topic, incremental_configs=[entry])
    cluster.admin.incremental_alter_configs([resource])[resource].result()
    shown = ConfigResource(ResourceType.TOPIC, topic)
    eventually(
        lambda: cluster.admin.describe_configs([shown])[shown].result()[name].value == value,
        f"the broker has {name}={value}",
    )


def delete_records(cluster: Cluster, ends: dict[int, int]) -> None:
    wanted = [TopicPartition(cluster.names.buffer, partition, end) for partition, end in ends.items()]
    for future in cluster.admin.delete_records(wanted).values():
        future.result()


def applied_by(cluster: Cluster) -> dict[int, int]:
    return dict(cluster.checkpoints()[-1].applied)
