"""What the brokers say of topics. Whoever asks here may have to wait: never the lane's thread."""

from __future__ import annotations

from collections.abc import Collection
from concurrent.futures import Future
from typing import Any, Final, NamedTuple

from confluent_kafka import KafkaError, KafkaException, Node, TopicCollection, TopicPartitionInfo
from confluent_kafka.admin import (
    AclOperation,
    ConfigEntry,
    ConfigResource,
    ResourceType,
    TopicDescription,
)

from node.core.ports import Unanswered
from node.kafka.broker_links import Address
from node.kafka.topics import TIMEOUT_S, Answers, admin_client, ask

MOST_BYTES: Final = 100_000_000
"""Brokers end the connection on a request above `socket.request.max.bytes`, 100 MiB by default: what cannot
be sent must not be tried, whatever the topic's own limit says, or its transaction is begun again for ever.
"""
NO_LEADER: Final = -1

# A topic that this node may not see is no different from one that is not there.
_MISSING: Final = frozenset((KafkaError.UNKNOWN_TOPIC_OR_PART, KafkaError.TOPIC_AUTHORIZATION_FAILED))


class TopicLimits(NamedTuple):
    """The largest batch, whether each record needs a key, and how many replicas must be in sync."""

    limit_bytes: int
    compacted: bool
    least_in_sync: int


NO_LIMITS: Final = TopicLimits(0, compacted=False, least_in_sync=0)


class Partition(NamedTuple):
    """The broker that leads it, or `NO_LEADER`; those that are in sync; how many replicas it has."""

    leader: int
    in_sync: tuple[int, ...]
    replicas: int


class FoundTopic(NamedTuple):
    """A topic that is there."""

    partitions: tuple[Partition, ...]
    writable: bool


class TargetAnswers:
    """Used by any thread that may wait. What is in doubt of one topic says nothing of the others: that one is
    left out of the answer; if it is all of them, `Unanswered` is raised.
    """

    def __init__(self, client_config: dict[str, Any], own_topic: str) -> None:
        """`own_topic`: by its name the client renews its metadata. It never forgets a topic that it was asked
        for so, and asks for it with each renewal: the users' names do not come into it.
        """
        self.addresses: dict[int, Address] = {}  # of the brokers that lead or follow; replaced as a whole
        self._admin = admin_client(client_config)
        self._own_topic = own_topic

    def names(self) -> frozenset[str]:
        """All topics that this node may see, in one request. Raises `Unanswered`."""
        try:
            return frozenset(self._admin.list_topics(timeout=TIMEOUT_S).topics)
        except KafkaException as error:
            raise Unanswered(f"the topics cannot be listed: {error}") from error

    def described(self, topics: Collection[str]) -> dict[str, FoundTopic | None]:
        """Partitions and their brokers; None: the topic is not there. Raises `Unanswered`."""
        (descriptions,) = ask(
            self._admin, self._own_topic, lambda timeout_s: self._ask_for_descriptions(topics, timeout_s)
        )
        return self._found(descriptions)

    def looked_up(self, topics: Collection[str]) -> dict[str, tuple[FoundTopic, TopicLimits] | None]:
        """All that is to be known of them. Raises `Unanswered`."""
        configs, descriptions = ask(
            self._admin,
            self._own_topic,
            lambda timeout_s: self._ask_for_limits(topics, timeout_s),
            lambda timeout_s: self._ask_for_descriptions(topics, timeout_s),
        )
        looked_up: dict[str, tuple[FoundTopic, TopicLimits] | None] = {}
        failed: list[Unanswered] = []
        for topic, found in self._found(descriptions).items():
            try:
                if found is None:
                    looked_up[topic] = None
                elif found.writable:
                    looked_up[topic] = found, _limits(topic, configs[topic])
                else:
                    looked_up[topic] = found, NO_LIMITS
            except Unanswered as error:
                failed.append(error)
        if failed and not looked_up:
            raise failed[0]
        return looked_up

    def _found(self, descriptions: Answers) -> dict[str, FoundTopic | None]:
        found: dict[str, FoundTopic | None] = {}
        failed: list[Unanswered] = []
        addresses: dict[int, Address] = {}
        for topic, future in descriptions.items():
            try:
                found[topic] = _described(topic, future, addresses)
            except Unanswered as error:
                failed.append(error)
        if failed and not found:
            raise failed[0]
        self.addresses = self.addresses | addresses
        return found

    def _ask_for_descriptions(self, topics: Collection[str], timeout_s: float) -> Answers:
        wanted = TopicCollection(list(topics))
        return dict(
            self._admin.describe_topics(wanted, include_authorized_operations=True, request_timeout=timeout_s)
        )

    def _ask_for_limits(self, topics: Collection[str], timeout_s: float) -> Answers:
        resources = [ConfigResource(ResourceType.TOPIC, topic) for topic in topics]
        futures = self._admin.describe_configs(resources, request_timeout=timeout_s)
        return {resource.name: future for resource, future in futures.items()}


def _described(
    topic: str, future: Future[TopicDescription], addresses: dict[int, Address]
) -> FoundTopic | None:
    """What was found, with its brokers' addresses added to `addresses`."""
    try:
        found = future.result()
    except KafkaException as error:
        if error.args[0].code() in _MISSING:
            return None
        raise Unanswered(f"{topic} cannot be looked up: {error}") from error
    described = [_partition(one, addresses) for one in sorted(found.partitions, key=lambda one: one.id)]
    return FoundTopic(tuple(described), AclOperation.WRITE in found.authorized_operations)


def _partition(described: TopicPartitionInfo, addresses: dict[int, Address]) -> Partition:
    # Of one without a leader the client says None; LEADER_NOT_AVAILABLE is no error of the topic's.
    leader: Node | None = described.leader
    brokers = described.isr if leader is None else [leader, *described.isr]
    addresses |= {node.id: (node.host, node.port) for node in brokers if node.host}
    in_sync = tuple(node.id for node in described.isr)
    return Partition(NO_LEADER if leader is None else leader.id, in_sync, len(described.replicas))


def _limits(topic: str, future: Future[dict[str, ConfigEntry]]) -> TopicLimits:
    """A topic may be open for writing and its configuration closed: then the broker decides."""
    try:
        config = future.result()
        compacted = "compact" in (config["cleanup.policy"].value or "")
        limit_bytes = min(int(config["max.message.bytes"].value or MOST_BYTES), MOST_BYTES)
        return TopicLimits(limit_bytes, compacted, int(config["min.insync.replicas"].value or 1))
    except KafkaException as error:
        if error.args[0].code() == KafkaError.TOPIC_AUTHORIZATION_FAILED:
            return TopicLimits(MOST_BYTES, compacted=False, least_in_sync=1)
        raise Unanswered(f"the limits of {topic} cannot be looked up: {error}") from error
