"""What the brokers say of a topic: what tells it from another one of the same name."""

from __future__ import annotations

from typing import Final, NamedTuple

from confluent_kafka import KafkaError, KafkaException, TopicCollection
from confluent_kafka.admin import AdminClient

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
