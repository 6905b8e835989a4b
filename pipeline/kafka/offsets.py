"""What the brokers say of topics: where they begin and end, and how long they keep what they have."""

from __future__ import annotations

import time
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass

from confluent_kafka import IsolationLevel, KafkaError, KafkaException, TopicCollection, TopicPartition
from confluent_kafka.admin import (
    AdminClient,
    ConfigEntry,
    ConfigResource,
    OffsetSpec,
    ResourceType,
)

from delayline.names import PartitionId
from node.kafka.topics import Answers, ask
from pipeline.errors import KafkaFailed, KafkaSilent
from pipeline.kafka.access import KafkaAccess
from pipeline.kafka.extent import TopicExtent

TIMEOUT_S = 15.0
# An open transaction hides what is behind it from read_committed readers; the service's own last 10 s at
# most.
SETTLE_S = 20.0
FOREVER_MS = 2**62
_IS_NONE = KafkaError.UNKNOWN_TOPIC_OR_PART, KafkaError.TOPIC_EXCEPTION
"""What is said of a name that no topic has, or can have."""

_HIDDEN = KafkaError.TOPIC_AUTHORIZATION_FAILED
_EARLIEST = OffsetSpec.earliest()
_LATEST = OffsetSpec.latest()


@dataclass(frozen=True, slots=True)
class Keeping:
    """How long a topic keeps its records: all of them at least `retention_ms` (0 where size or compaction may
    take any); `compaction_lag_ms` None: it is not compacted.
    """

    compaction_lag_ms: int | None
    retention_ms: int


class TopicOffsets:
    """Asks the brokers; every method raises `KafkaFailed` if they do not answer."""

    def __init__(self, access: KafkaAccess) -> None:
        self._bootstrap = access.bootstrap_servers
        self._admin = AdminClient({"bootstrap.servers": self._bootstrap, "log_level": 0, **access.kafka})

    def partitions(self) -> dict[str, int]:
        """The topics that are there, and how many partitions each has."""
        with self._asking():
            topics = self._admin.list_topics(timeout=TIMEOUT_S).topics
        return {name: len(topic.partitions) for name, topic in topics.items()}

    def topic_ids(self, topics: Iterable[str], *, and_gone: bool = False) -> dict[str, str]:
        """Kafka's own ids of topics: one that is made anew has another. `and_gone`: those that are not there,
        or cannot be seen, are left out; else they are an error.
        """
        with self._asking():
            answers = self._described(list(topics))
            gone = {topic for topic, future in answers.items() if and_gone and _is_gone(future.exception())}
            return {
                topic: str(future.result().topic_id) for topic, future in answers.items() if topic not in gone
            }

    def hidden(self, topics: Iterable[str]) -> list[str]:
        """Of topics that `partitions` does not name those which this user may not see: they may be there."""
        found = list[str]()
        with self._asking():
            for topic, future in self._described(sorted(topics)).items():
                try:
                    future.result()
                except KafkaException as error:
                    code = error.args[0].code()
                    if code == _HIDDEN:
                        found.append(topic)
                    elif code not in _IS_NONE:
                        raise
        return found

    def begins(self, partition_ids: list[PartitionId]) -> dict[PartitionId, int]:
        """The offsets of their first records."""
        return self._list(partition_ids, _EARLIEST)

    def ends(self, partition_ids: list[PartitionId], *, committed: bool = False) -> dict[PartitionId, int]:
        """The offsets that their next records get; `committed`: for readers of what is committed."""
        return self._list(partition_ids, _LATEST, committed=committed)

    def settle(self, extent: TopicExtent) -> None:
        """Wait until read_committed readers see all of `extent`: until no transaction is open in it."""
        partition_ids = extent.filled()
        deadline = time.monotonic() + SETTLE_S
        while True:
            stable = self.ends(partition_ids, committed=True)
            partition_ids = [one for one in partition_ids if stable[one] < extent.end[one]]
            if not partition_ids:
                return
            if time.monotonic() > deadline:
                topic, partition = first = partition_ids[0]
                raise KafkaSilent(
                    f"{topic}/{partition} has had an open transaction for {SETTLE_S:.0f} s, at offset "
                    f"{stable[first]}: nobody can read on from there; run it again when it has ended"
                )
            time.sleep(0.05)

    def keeping(self, topics: Iterable[str]) -> dict[str, Keeping]:
        """How long each topic keeps its records."""
        return {topic: _keeping(config) for topic, config in self._configs(topics).items()}

    def retention_ms(self, topic: str) -> int | None:
        """How long the topic keeps what it has; None: for ever."""
        found = int(self._configs([topic])[topic]["retention.ms"].value or -1)
        return None if found < 0 else found

    def limit_bytes(self, topic: str) -> int:
        """The largest batch that the topic takes."""
        return int(self._configs([topic])[topic]["max.message.bytes"].value or 0)

    def _configs(self, topics: Iterable[str]) -> dict[str, Mapping[str, ConfigEntry]]:
        wanted = [ConfigResource(ResourceType.TOPIC, topic) for topic in topics]
        if not wanted:
            return {}
        with self._asking():
            answers = self._admin.describe_configs(wanted, request_timeout=TIMEOUT_S)
            return {resource.name: future.result() for resource, future in answers.items()}

    def _described(self, topics: list[str]) -> Answers:
        if not topics:
            return {}
        (answers,) = ask(
            self._admin,
            topics[0],
            lambda _: self._admin.describe_topics(TopicCollection(topics), request_timeout=TIMEOUT_S),
            within_s=TIMEOUT_S,
        )
        return answers

    def _list(
        self, partition_ids: list[PartitionId], spec: OffsetSpec, *, committed: bool = False
    ) -> dict[PartitionId, int]:
        if not partition_ids:
            return {}
        level = IsolationLevel.READ_COMMITTED if committed else IsolationLevel.READ_UNCOMMITTED
        request = {TopicPartition(*partition_id): spec for partition_id in partition_ids}
        with self._asking():
            (answers,) = ask(
                self._admin,
                partition_ids[0][0],
                lambda _: self._admin.list_offsets(request, isolation_level=level, request_timeout=TIMEOUT_S),
                within_s=TIMEOUT_S,
            )
            return {(at.topic, at.partition): one.result().offset for at, one in answers.items()}

    @contextmanager
    def _asking(self) -> Iterator[None]:
        try:
            yield
        except KafkaException as error:
            raise KafkaFailed(error.args[0], self._bootstrap) from error


def _is_gone(error: BaseException | None) -> bool:
    return isinstance(error, KafkaException) and error.args[0].code() in (*_IS_NONE, _HIDDEN)


def _keeping(config: Mapping[str, ConfigEntry]) -> Keeping:
    def number(name: str) -> int:
        return int(config[name].value or 0)

    policy = config["cleanup.policy"].value or ""
    by_time_alone = policy == "delete" and number("retention.bytes") < 0 <= number("retention.ms")
    lag_ms = number("min.compaction.lag.ms") if "compact" in policy else None
    return Keeping(lag_ms, number("retention.ms") if by_time_alone else 0)


def partition_ids(topics: Iterable[str], partitions: Mapping[str, int]) -> list[PartitionId]:
    """All partitions of some topics. `partitions`: how many each topic has."""
    return [(topic, partition) for topic in topics for partition in range(partitions[topic])]
