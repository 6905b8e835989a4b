"""What the brokers say of a topic: what tells it from another one of the same name."""

from __future__ import annotations

import time
from typing import Final, NamedTuple

from confluent_kafka import KafkaError, KafkaException, TopicCollection, TopicPartition
from confluent_kafka.admin import (  # type: ignore[attr-defined]  # missing from the stubs' __all__
    AdminClient,
    ConfigResource,
    OffsetSpec,
    ResourceType,
)

from node.ports import Doubtful

TIMEOUT_S: Final = 5.0


class TopicMissing(Exception):
    """The topic does not exist."""


class Described(NamedTuple):
    """A topic's id, and its number of partitions."""

    id: str
    partitions: int


def describe(admin: AdminClient, topic: str) -> Described:
    """Asks the brokers. Raises `TopicMissing`, and `Doubtful` if nobody answers."""
    future = admin.describe_topics(TopicCollection([topic]), request_timeout=TIMEOUT_S)[topic]
    try:
        found = future.result()
        return Described(str(found.topic_id), len(found.partitions))
    except KafkaException as error:
        if error.args[0].code() == KafkaError.UNKNOWN_TOPIC_OR_PART:
            raise TopicMissing(f"{topic} does not exist") from error
        raise Doubtful(f"{topic} cannot be described: {error}") from error


def newest_gone_ms(admin: AdminClient, topic: str, partition: int) -> int | None:
    """The latest timestamp that a record may have had that retention has taken from a partition of a topic
    with LogAppendTime: no later than the first one left, and old enough for the topic's retention. None: the
    topic says nothing of either. Raises `Doubtful`.
    """
    place = TopicPartition(topic, partition)
    resource = ConfigResource(ResourceType.TOPIC, topic)
    first = OffsetSpec.for_timestamp(0)
    found = admin.list_offsets({place: first}, request_timeout=TIMEOUT_S)[place]
    described = admin.describe_configs([resource], request_timeout=TIMEOUT_S)[resource]
    try:
        left, config = found.result(), described.result()
    except KafkaException as error:
        raise Doubtful(f"what retention has taken from {topic} is not known: {error}") from error
    bounds_ms = []
    if left.offset >= 0 and left.timestamp is not None and left.timestamp >= 0:
        bounds_ms.append(int(left.timestamp))
    retention_ms, size_bytes = (int(config[name].value or 0) for name in ("retention.ms", "retention.bytes"))
    if size_bytes < 0 <= retention_ms:
        bounds_ms.append(time.time_ns() // 1_000_000 - retention_ms)
    return min(bounds_ms, default=None)
