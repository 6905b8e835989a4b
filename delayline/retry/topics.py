"""The topics of retries and dead letters: their names, whether they are there, and how they are made."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, Final

from confluent_kafka import Consumer, KafkaError, KafkaException
from confluent_kafka.admin import (
    AdminClient,
    ConfigResource,
    NewTopic,
    ResourceType,
)

from delayline.errors import ConfigurationError, RetryTopicsError
from delayline.names import TOPIC_MAX_LENGTH, ClusterNames, is_legal_topic
from delayline.retry.config import connection, group_of

_TIMEOUT_S: Final = 30.0
# What a retry has more than its message: a history of 20 failures in the longest writing, and the headers.
_HEADROOM_BYTES: Final = 131_072
_MOST_BYTES: Final = 2**31 - 1


class RetryTopics:
    """The topics that a group reads, each with its retries and its dead letters.

    Raises:
        ConfigurationError: there is none, one is no topic's name, or a name made of it and the group is none.
    """

    def __init__(self, group: str, topics: Iterable[str]) -> None:
        self.group = group
        self.topics = [topics] if isinstance(topics, str) else list(dict.fromkeys(topics))
        if not self.topics:
            raise ConfigurationError("no topics: give at least one to read")
        for topic in self.topics:
            _check_name(topic, f"topic {topic!r}")
            _check_name(self.retry(topic), f"group.id {group!r} with topic {topic!r}")
        self._origins = {self.retry(topic): topic for topic in self.topics}

    def retry(self, topic: str) -> str:
        """Where the messages of a topic come back."""
        return f"{topic}.retry.{self.group}"

    def dead_letters(self, topic: str) -> str:
        """Where the messages of a topic end that were not handled."""
        return f"{topic}.dlq.{self.group}"

    @property
    def subscribed(self) -> list[str]:
        """The topics, and those of their retries."""
        return [*self.topics, *self._origins]

    def is_retry(self, topic: str) -> bool:
        """Whether it is one that messages come back to."""
        return topic in self._origins

    def origin(self, topic: str) -> str:
        """The topic whose messages come back to this one; a topic of the user's own is its own."""
        return self._origins.get(topic, topic)

    def check(self, consumer: Consumer, cluster: str) -> None:
        """RetryTopicsError, with the command that makes it, if one of them or the buffer is missing."""
        there = {topic: about for topic, about in _list(consumer).items() if about.error is None}
        buffer = ClusterNames(cluster).buffer
        if buffer not in there:
            raise RetryTopicsError(
                f"topic {buffer} is missing: check the cluster's name, or make it with"
                " `delayline topics create`"
            )
        for topic in self.topics:
            if topic not in there:
                raise RetryTopicsError(f"topic {topic} is missing: make it before its consumers")
            for made in (self.retry(topic), self.dead_letters(topic)):
                if made not in there:
                    raise RetryTopicsError(
                        f"topic {made} is missing: make it with"
                        f" delayline.retry.create_topics(config, [{topic!r}]), or kafka-topics.sh"
                        f" --bootstrap-server HOST:PORT --create --topic {made}"
                        f" --partitions {len(there[topic].partitions)}"
                    )


def create_topics(config: Mapping[str, object], topics: Iterable[str]) -> list[str]:
    """Make the retry and dead-letter topics that are missing; the names of those that were made.

    Each has as many partitions, replicas and in-sync replicas as its topic, and takes messages as large as
    that one does with what a retry adds; dead letters are kept until they are deleted.

    Args:
        config: the consumer's configuration, with `bootstrap.servers` and `group.id`.
        topics: what the consumer reads.

    Raises:
        ConfigurationError: as `RetryingConsumer`.
        RetryTopicsError: a topic is missing, or the brokers refuse to make one.
    """
    names = RetryTopics(group_of(config), topics)
    admin = AdminClient(connection(config))
    there = _list(admin)
    wanted = []
    for topic in names.topics:
        if topic not in there:
            raise RetryTopicsError(f"topic {topic} is missing: make it before its retry topics")
        extra = {names.retry(topic): {}, names.dead_letters(topic): {"retention.ms": "-1"}}
        if missing := extra.keys() - there.keys():
            partitions, settings = there[topic].partitions, _settings(admin, topic)
            shape = len(partitions), len(partitions[0].replicas)
            wanted += [NewTopic(name, *shape, config={**settings, **extra[name]}) for name in sorted(missing)]
    return _create(admin, wanted)


def _check_name(name: str, what: str) -> None:
    if not is_legal_topic(name):
        raise ConfigurationError(
            f"{what} gives no topic name: Kafka takes 1 to {TOPIC_MAX_LENGTH} of a-z A-Z 0-9 . _ -"
        )


def _list(client: Consumer | AdminClient) -> dict[str, Any]:
    try:
        return client.list_topics(timeout=_TIMEOUT_S).topics
    except KafkaException as error:
        raise RetryTopicsError(
            f"no broker answered within {_TIMEOUT_S:g} s: check bootstrap.servers ({error.args[0].str()})"
        ) from error


def _settings(admin: AdminClient, topic: str) -> dict[str, str]:
    """What the topics of a topic's retries have of its settings."""
    resource = ConfigResource(ResourceType.TOPIC, topic)
    try:
        found = admin.describe_configs([resource], request_timeout=_TIMEOUT_S)[resource].result(_TIMEOUT_S)
    except KafkaException as error:
        raise RetryTopicsError(
            f"the settings of topic {topic} cannot be read: {error.args[0].str()}"
        ) from error
    largest_bytes = int(found["max.message.bytes"].value) + _HEADROOM_BYTES
    return {
        "max.message.bytes": str(min(largest_bytes, _MOST_BYTES)),
        "min.insync.replicas": found["min.insync.replicas"].value,
    }


def _create(admin: AdminClient, wanted: list[NewTopic]) -> list[str]:
    made = []
    for topic, future in (admin.create_topics(wanted) if wanted else {}).items():
        try:
            future.result(_TIMEOUT_S)
        except KafkaException as error:
            if error.args[0].code() != KafkaError.TOPIC_ALREADY_EXISTS:
                raise RetryTopicsError(f"topic {topic} was not made: {error.args[0].str()}") from error
        else:
            made.append(topic)
    return made
