"""What retention leaves of a buffer topic: its beginning taken, and records that have been there for long."""

from __future__ import annotations

import shutil

from confluent_kafka import TIMESTAMP_CREATE_TIME, Producer, TopicPartition
from confluent_kafka.admin import (
    AlterConfigOpType,
    ConfigEntry,
    ConfigResource,
    ResourceType,
)

from node.node import Node
from tests.support.cluster import Cluster
from tests.support.requests import now_ms
from tests.support.waiting import eventually


def send_of_the_past(cluster: Cluster, timestamp_ms: int) -> None:
    """A message into each of the two partitions, with a timestamp as if it had been there for long."""
    alter_buffer(cluster, "message.timestamp.type", "CreateTime")
    producer = Producer({"bootstrap.servers": cluster.bootstrap})
    types: list[int] = []
    for partition in range(2):
        headers: list[tuple[str, str | bytes | None]] = [("delay-target-topic", cluster.target())]
        producer.produce(
            cluster.names.buffer,
            b"v",
            partition=partition,
            headers=headers,
            timestamp=timestamp_ms,
            on_delivery=lambda _, message: types.append(message.timestamp()[0]),
        )
    assert producer.flush(10) == 0
    assert types == [TIMESTAMP_CREATE_TIME] * 2, "they have the timestamps that they were given"


def rebuild_behind_retention(cluster: Cluster, node_id: str, running: Node) -> None:
    """Retention takes all that was applied; what is left is of long ago, and has been delivered. The node
    begins anew without its folder.
    """
    ends, delivered = applied_by(cluster), len(cluster.delivered)
    send_of_the_past(cluster, now_ms() - 3 * 86_400_000)
    cluster.wait_delivered(delivered + 2)
    cluster.stop_here(running)
    delete_records(cluster, ends)
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
