"""The admin's view of Kafka: the topics that are there, and making new ones."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Mapping
from typing import Any, NamedTuple, TypeVar

from confluent_kafka import KafkaError, KafkaException, TopicCollection, TopicPartition
from confluent_kafka.admin import (
    AdminClient,
    AlterConfigOpType,
    ConfigEntry,
    ConfigResource,
    DescribeClusterResult,
    NewTopic,
    OffsetSpec,
    ResourceType,
    TopicMetadata,
)

from delayline.names import is_legal_topic
from node.config import KafkaConfig
from node.kafka.errors import LastComplaint
from node.kafka.topics import ask
from ops.clients.topic import Topic, WantedTopic, min_insync_replicas
from ops.errors import NotFoundError, OperatorError, UnavailableError, from_kafka

_FIRST_ANSWER_S = 0.5

T = TypeVar("T")


class TopicRights(NamedTuple):
    """A topic's id, and the names of the operations that this user may do with it (`READ` and the like)."""

    id: str
    rights: frozenset[str]


class KafkaAdmin:
    """Asks and tells one Kafka cluster; every call raises an OperatorError that says what to do.

    Not for more than one thread: the reason of the last failure to connect is kept here.
    """

    def __init__(self, config: KafkaConfig, timeout_s: float = 5.0) -> None:
        self._timeout_s = timeout_s
        self.bootstrap_servers = config.bootstrap_servers
        self._complaint = LastComplaint()
        # librdkafka's own lines on stderr would say the same again, over and over.
        quiet = {"log_level": 0, "error_cb": self._complaint}
        # To ask about a topic makes none, whatever the brokers are set to.
        properties = config.client_config() | quiet | {"allow.auto.create.topics": False}
        try:
            self._client = AdminClient(properties)
        except KafkaException as error:
            raise from_kafka(error.args[0], self.bootstrap_servers) from error

    def brokers(self) -> int:
        """The number of brokers that are up."""
        return len(self._cluster().nodes)

    def cluster_id(self) -> str:
        """What tells this Kafka cluster from any other."""
        return str(self._cluster().cluster_id)

    def topics(self, names: Iterable[str]) -> dict[str, Topic]:
        """The topics among `names` that exist, with their settings, defaults included."""
        asked = ((name, self._topic(name)) for name in names)
        there = {name: found for name, found in asked if found is not None}
        settings = self._settings(list(there))
        return {
            name: Topic(
                name,
                partitions=len(found.partitions),
                replication=min(len(p.replicas) for p in found.partitions.values()),
                settings=settings[name],
                unavailable=_unavailable(found, int(settings[name]["min.insync.replicas"])),
            )
            for name, found in there.items()
        }

    def described(self, names: list[str]) -> dict[str, TopicRights]:
        """The id of each of these topics, and what this user may do with it."""
        if not names:
            return {}
        asked = self._client.describe_topics(
            TopicCollection(names), include_authorized_operations=True, request_timeout=self._timeout_s
        )
        try:
            found = {name: future.result() for name, future in asked.items()}
        except KafkaException as error:
            raise self._failure(error) from error
        return {
            name: TopicRights(str(one.topic_id), frozenset(right.name for right in one.authorized_operations))
            for name, one in found.items()
        }

    def topic_id(self, topic: str) -> str:
        """A topic's id, which may have been made a moment ago: brokers learn of it one by one."""
        deadline_s = time.monotonic() + self._timeout_s
        while True:
            try:
                return self.described([topic])[topic].id
            except NotFoundError:
                if time.monotonic() > deadline_s:
                    raise
                time.sleep(0.02)

    def exists(self, topic: str) -> bool:
        """Whether there is such a topic."""
        return self._topic(topic) is not None

    def require(self, topic: str) -> TopicMetadata:
        """The topic's partitions; NotFoundError if one of the cluster's own topics is not there."""
        there = self._topic(topic)
        if there is None:
            raise NotFoundError(
                f"topic {topic} is missing: check the cluster's name, or run 'delayline topics create'"
            )
        return there

    def ends(self, topic: str) -> dict[int, int]:
        """The offset that the next record of each partition gets; NotFoundError if there is no such topic."""
        return self._offsets(topic, OffsetSpec.latest())

    def begins(self, topic: str, from_ms: int | None = None) -> dict[int, int]:
        """The offset of the first record of each partition, or of the first with such a timestamp or a later
        one (where there is none: the end); NotFoundError if there is no such topic.
        """
        if from_ms is None:
            return self._offsets(topic, OffsetSpec.earliest())
        found = self._offsets(topic, OffsetSpec.for_timestamp(from_ms))
        ends = self.ends(topic)
        return {partition: ends[partition] if offset < 0 else offset for partition, offset in found.items()}

    def _offsets(self, topic: str, spec: OffsetSpec) -> dict[int, int]:
        there = self.require(topic)
        wanted = {TopicPartition(topic, partition): spec for partition in there.partitions}
        return {partition: one.offset for partition, one in self._listed(topic, wanted).items()}

    def _listed(self, topic: str, wanted: dict[TopicPartition, OffsetSpec]) -> dict[int, Any]:
        """What their leaders say of these offsets."""
        (futures,) = ask(
            self._client,
            topic,
            lambda _: self._client.list_offsets(wanted, request_timeout=self._timeout_s),
            within_s=self._timeout_s,
        )
        try:
            return {asked.partition: future.result() for asked, future in futures.items()}
        except KafkaException as error:
            raise self._failure(error) from error

    def create(self, topic: WantedTopic, replication: int) -> bool:
        """Make a topic and wait until each partition has a leader; False if it was there already."""
        settings = {setting.key: setting.value for setting in topic.settings}
        settings["min.insync.replicas"] = str(min_insync_replicas(replication))
        request = NewTopic(
            topic.name, num_partitions=topic.partitions, replication_factor=replication, config=settings
        )
        try:
            self._result(self._client.create_topics([request], request_timeout=self._timeout_s))
        except KafkaException as error:
            if error.args[0].code() == KafkaError.TOPIC_ALREADY_EXISTS:
                return False
            raise self._failure(error) from error
        self._wait_for_leaders(topic)
        return True

    def set_topic(self, topic: str, key: str, value: str) -> None:
        """Sets one of a topic's settings."""
        entry = ConfigEntry(key, value, incremental_operation=AlterConfigOpType.SET)
        resource = ConfigResource(ResourceType.TOPIC, topic, incremental_configs=[entry])
        futures = self._client.incremental_alter_configs([resource], request_timeout=self._timeout_s)
        try:
            self._result(futures)
        except KafkaException as error:
            raise self._failure(error) from error

    def newest_ms(self, topic: str) -> dict[int, int]:
        """The newest timestamp in each partition that has a record; NotFoundError if there is no such
        topic.
        """
        there = self.require(topic)
        wanted = {
            TopicPartition(topic, partition): OffsetSpec.max_timestamp() for partition in there.partitions
        }
        found = self._listed(topic, wanted)
        return {partition: int(one.timestamp) for partition, one in found.items() if one.offset >= 0}

    def delete(self, topic: str) -> None:
        """Deletes a topic."""
        try:
            self._result(self._client.delete_topics([topic], request_timeout=self._timeout_s))
        except KafkaException as error:
            raise self._failure(error) from error

    def _settings(self, names: list[str]) -> dict[str, dict[str, str]]:
        if not names:
            return {}
        resources = [ConfigResource(ResourceType.TOPIC, name) for name in names]
        futures = self._client.describe_configs(resources, request_timeout=self._timeout_s)
        try:
            return {
                resource.name: {entry.name: entry.value for entry in future.result().values()}
                for resource, future in futures.items()
            }
        except KafkaException as error:
            raise self._failure(error) from error

    def _wait_for_leaders(self, topic: WantedTopic) -> None:
        deadline_s = time.monotonic() + self._timeout_s
        while time.monotonic() < deadline_s:
            there = self._topic(topic.name)
            if there and sum(p.leader >= 0 for p in there.partitions.values()) == topic.partitions:
                return
            time.sleep(0.02)
        raise UnavailableError(
            f"topic {topic.name} was made, but its partitions have no leaders: are brokers down?"
        )

    def _topic(self, name: str) -> TopicMetadata | None:
        """None if it is not there. It alone is asked for: there may be ten thousand."""
        if not is_legal_topic(name):
            return None  # the client would not even ask
        found = self._answer(lambda: self._client.list_topics(name, timeout=_FIRST_ANSWER_S)).topics[name]
        if found.error is None:
            return found
        if found.error.code() == KafkaError.UNKNOWN_TOPIC_OR_PART:
            return None
        raise from_kafka(found.error, self.bootstrap_servers)

    def _cluster(self) -> DescribeClusterResult:
        found: DescribeClusterResult = self._answer(
            lambda: self._client.describe_cluster(request_timeout=_FIRST_ANSWER_S).result()
        )
        return found

    def _answer(self, ask: Callable[[], T]) -> T:
        """Waits for an answer, but not when a broker has already refused us."""
        deadline_s = time.monotonic() + self._timeout_s
        while True:
            try:
                return ask()
            except KafkaException as error:
                failure = self._failure(error)
                if not isinstance(failure, UnavailableError) or time.monotonic() > deadline_s:
                    raise failure from error

    def _result(self, futures: Mapping[Any, Any]) -> None:
        for future in futures.values():
            future.result()

    def _failure(self, error: KafkaException) -> OperatorError:
        """The reason behind a time-out, if the client has told it."""
        self._client.poll(0)
        return from_kafka(self._complaint.behind(error.args[0]), self.bootstrap_servers)


def _unavailable(topic: TopicMetadata, least_in_sync: int) -> tuple[int, ...]:
    """The partitions where nothing can be committed. Brokers ask for no more replicas than there are."""
    return tuple(
        number
        for number, one in sorted(topic.partitions.items())
        if one.leader < 0 or len(one.isrs) < min(least_in_sync, len(one.replicas))
    )
