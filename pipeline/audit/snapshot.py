"""Which part of each topic an audit reads: offsets noted in an order that makes the topics agree.

On a running cluster the topics grow while they are read. The checkpoint topic's end is noted first, then
the ends of the topics with evidence (targets, outcomes, dead letters), then the buffer's. So what a
checkpoint claims has its evidence in the part that is read, and what the evidence speaks of has its request
there.
"""

from __future__ import annotations

import time
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass

from confluent_kafka import IsolationLevel, KafkaError, KafkaException, TopicPartition
from confluent_kafka.admin import (
    AdminClient,
    ConfigEntry,
    ConfigResource,
    OffsetSpec,
    ResourceType,
)

from delayline.names import ClusterNames, PartitionId
from pipeline.audit.config import AuditConfig
from pipeline.errors import KafkaFailed, KafkaSilent, MissingInKafka

TIMEOUT_S = 15.0
# An open transaction hides what is behind it from read_committed readers; the service's own last 10 s at
# most.
SETTLE_S = 20.0
FOREVER_MS = 2**62

_EARLIEST = OffsetSpec.earliest()
_LATEST = OffsetSpec.latest()

# Of anybody's topic that was made a moment ago.
_SOON_LED = (KafkaError.NOT_LEADER_FOR_PARTITION, KafkaError.LEADER_NOT_AVAILABLE)


@dataclass(frozen=True, slots=True)
class TopicExtent:
    """The part of some topics that is read: of each partition the first offset and the end (exclusive)."""

    first: Mapping[PartitionId, int]
    end: Mapping[PartitionId, int]

    def of(self, topics: Iterable[str]) -> TopicExtent:
        """The same for some of the topics."""
        wanted = frozenset(topics)
        return TopicExtent(
            {
                partition_id: offset
                for partition_id, offset in self.first.items()
                if partition_id[0] in wanted
            },
            {partition_id: offset for partition_id, offset in self.end.items() if partition_id[0] in wanted},
        )

    def filled(self) -> list[PartitionId]:
        """The partitions that hold anything."""
        return sorted(
            partition_id for partition_id, end in self.end.items() if end > self.first.get(partition_id, 0)
        )


@dataclass(frozen=True, slots=True)
class Keeping:
    """How long a topic keeps its records: all of them at least `retention_ms` (0 where size or compaction may
    take any); `compaction_lag_ms` None: it is not compacted.
    """

    compaction_lag_ms: int | None
    retention_ms: int


@dataclass(frozen=True, slots=True)
class Snapshot:
    """The topics of a cluster at one time."""

    partitions: Mapping[str, int]
    checkpoint: TopicExtent
    evidence: TopicExtent  # outcomes, dead letters, and every topic that could be a target
    buffer: TopicExtent
    taken_ms: int


class TopicOffsets:
    """What the brokers say of topics and offsets; every method raises an OperatorError if they do not."""

    def __init__(self, config: AuditConfig) -> None:
        self._bootstrap = config.bootstrap_servers
        self._admin = AdminClient({"bootstrap.servers": self._bootstrap, "log_level": 0, **config.kafka})

    def snapshot(self, names: ClusterNames) -> Snapshot:
        """Note where every topic begins and ends; missing topics of the cluster's own are an error.

        Anybody may delete a topic between its listing and the question, and not every broker knows of a new
        one at once: all is noted anew then.
        """
        deadline = time.monotonic() + TIMEOUT_S
        while True:
            try:
                return self._snapshot(names)
            except KafkaFailed as error:
                unknown = error.kafka_error.code() == KafkaError.UNKNOWN_TOPIC_OR_PART
                if not unknown or time.monotonic() > deadline:
                    raise
            time.sleep(0.05)

    def _snapshot(self, names: ClusterNames) -> Snapshot:
        taken_ms = time.time_ns() // 1_000_000
        partitions = self._partitions()
        _require_own(names, partitions)
        own = names.own_topics
        others = [topic for topic in partitions if topic not in own and not topic.startswith("__")]
        evidence = [names.outcomes, names.dead_letter, *others]
        checkpoint_end = self._ends([names.checkpoint], partitions, committed=True)
        evidence_end = self._ends(evidence, partitions)
        buffer_end = self._ends([names.buffer], partitions)
        first = self._list(_partition_ids([*own, *others], partitions), _EARLIEST)
        return Snapshot(
            partitions,
            TopicExtent(first, checkpoint_end).of([names.checkpoint]),
            TopicExtent(first, evidence_end).of(evidence),
            TopicExtent(first, buffer_end).of([names.buffer]),
            taken_ms,
        )

    def settle(self, extent: TopicExtent) -> None:
        """Wait until read_committed readers see all of `extent`: until no transaction is open in it."""
        partition_ids = extent.filled()
        deadline = time.monotonic() + SETTLE_S
        while True:
            stable = self._list(partition_ids, _LATEST, committed=True)
            partition_ids = [one for one in partition_ids if stable[one] < extent.end[one]]
            if not partition_ids:
                return
            if time.monotonic() > deadline:
                topic, partition = first = partition_ids[0]
                raise KafkaSilent(
                    f"{topic}/{partition} has had an open transaction for {SETTLE_S:.0f} s, at offset "
                    f"{stable[first]}: nobody can read on from there; audit again when it has ended"
                )
            time.sleep(0.05)

    def keeping(self, topics: Iterable[str]) -> dict[str, Keeping]:
        """How long each topic keeps its records."""
        return {topic: _keeping(config) for topic, config in self._configs(topics).items()}

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

    def _partitions(self) -> dict[str, int]:
        with self._asking():
            topics = self._admin.list_topics(timeout=TIMEOUT_S).topics
        return {name: len(topic.partitions) for name, topic in topics.items()}

    def _ends(
        self, topics: Iterable[str], partitions: Mapping[str, int], *, committed: bool = False
    ) -> dict[PartitionId, int]:
        return self._list(_partition_ids(topics, partitions), _LATEST, committed=committed)

    def _list(
        self, partition_ids: list[PartitionId], spec: OffsetSpec, *, committed: bool = False
    ) -> dict[PartitionId, int]:
        if not partition_ids:
            return {}
        level = IsolationLevel.READ_COMMITTED if committed else IsolationLevel.READ_UNCOMMITTED
        request = {TopicPartition(*partition_id): spec for partition_id in partition_ids}
        deadline = time.monotonic() + TIMEOUT_S
        while True:
            with self._asking():
                answers = self._admin.list_offsets(request, isolation_level=level, request_timeout=TIMEOUT_S)
                try:
                    return {(at.topic, at.partition): one.result().offset for at, one in answers.items()}
                except KafkaException as error:
                    if error.args[0].code() not in _SOON_LED or time.monotonic() > deadline:
                        raise
            time.sleep(0.05)

    @contextmanager
    def _asking(self) -> Iterator[None]:
        try:
            yield
        except KafkaException as error:
            raise KafkaFailed(error.args[0], self._bootstrap) from error


def _keeping(config: Mapping[str, ConfigEntry]) -> Keeping:
    def number(name: str) -> int:
        return int(config[name].value or 0)

    policy = config["cleanup.policy"].value or ""
    by_time_alone = policy == "delete" and number("retention.bytes") < 0 <= number("retention.ms")
    lag_ms = number("min.compaction.lag.ms") if "compact" in policy else None
    return Keeping(lag_ms, number("retention.ms") if by_time_alone else 0)


def _partition_ids(topics: Iterable[str], partitions: Mapping[str, int]) -> list[PartitionId]:
    return [(topic, partition) for topic in topics for partition in range(partitions[topic])]


def _require_own(names: ClusterNames, partitions: Mapping[str, int]) -> None:
    missing = sorted(names.own_topics - set(partitions))
    if missing:
        raise MissingInKafka(
            f"cluster {names.cluster} has no topic {', '.join(missing)}: is that the cluster's name? "
            "`delayline topics create` makes them"
        )
