"""Which part of each topic an audit reads: offsets noted in an order that makes the topics agree.

On a running cluster the topics grow while they are read. The checkpoint topic's end is noted first, then
the ends of the topics with evidence (targets, outcomes, dead letters), then the buffer's. So what a
checkpoint claims has its evidence in the part that is read, and what the evidence speaks of has its request
there.
"""

from __future__ import annotations

import time
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Final

from confluent_kafka import KafkaError

from delayline.names import ClusterNames
from pipeline.audit.report import unseen_words
from pipeline.errors import Conflict, KafkaFailed, MissingInKafka, NotAllowed
from pipeline.kafka.extent import TopicExtent
from pipeline.kafka.offsets import TIMEOUT_S, TopicOffsets, partition_ids

_SHOWN: Final = 5


@dataclass(frozen=True, slots=True)
class Snapshot:
    """The topics of a cluster at one time. `topic_ids`: Kafka's, of those that are read."""

    partitions: Mapping[str, int]
    topic_ids: Mapping[str, str]
    checkpoint: TopicExtent
    evidence: TopicExtent  # outcomes, dead letters, and every topic that could be a target
    buffer: TopicExtent
    taken_ms: int

    @property
    def records(self) -> int:
        """How many there are of the buffer and of the checkpoints, at the most."""
        return self.buffer.records + self.checkpoint.records


def take_snapshot(offsets: TopicOffsets, names: ClusterNames) -> Snapshot:
    """Note where every topic begins and ends; missing topics of the cluster's own are an error.

    Anybody may delete a topic between its listing and the question, and not every broker knows of a new
    one at once: all is noted anew then.
    """
    deadline = time.monotonic() + TIMEOUT_S
    while True:
        try:
            found = _noted(offsets, names)
        except KafkaFailed as error:
            unknown = error.kafka_error.code() == KafkaError.UNKNOWN_TOPIC_OR_PART
            if not unknown or time.monotonic() > deadline:
                raise
        else:
            if found is not None:
                return found
            if time.monotonic() > deadline:
                raise Conflict(f"topics are made anew all the time, for {TIMEOUT_S:.0f} s now: run it again")
        time.sleep(0.05)


def require_seen(offsets: TopicOffsets, topics: Iterable[str]) -> None:
    """Raises `NotAllowed` if one of them, which the snapshot does not have, may be there: nobody can say what
    was delivered to a topic that this user may not see.
    """
    hidden = offsets.hidden(topics)
    if hidden:
        raise NotAllowed(unseen_words(hidden))


def require_same(offsets: TopicOffsets, snapshot: Snapshot, read: Iterable[str]) -> None:
    """Raises `Conflict` if one of the topics that were `read` was deleted since the snapshot: if it was made
    anew, nobody can say which one was read.
    """
    topics = sorted(read)
    now = offsets.topic_ids(topics, and_gone=True)
    other = [topic for topic in topics if now.get(topic) != snapshot.topic_ids[topic]]
    if other:
        raise Conflict(f"{', '.join(other[:_SHOWN])} was deleted while it was read: run it again")


def _noted(offsets: TopicOffsets, names: ClusterNames) -> Snapshot | None:
    """None if a topic was made anew meanwhile."""
    taken_ms = time.time_ns() // 1_000_000
    partitions = offsets.partitions()
    _require_own(names, partitions)
    own = names.own_topics
    others = [topic for topic in partitions if topic not in own and not topic.startswith("__")]
    evidence = [names.outcomes, names.dead_letter, *others]
    topic_ids = offsets.topic_ids([*own, *others])
    checkpoint_end = offsets.ends(partition_ids([names.checkpoint], partitions), committed=True)
    evidence_end = offsets.ends(partition_ids(evidence, partitions))
    buffer_end = offsets.ends(partition_ids([names.buffer], partitions))
    first = offsets.begins(partition_ids([*own, *others], partitions))
    if offsets.topic_ids([*own, *others]) != topic_ids:
        return None
    return Snapshot(
        partitions,
        topic_ids,
        TopicExtent(first, checkpoint_end).of([names.checkpoint]),
        TopicExtent(first, evidence_end).of(evidence),
        TopicExtent(first, buffer_end).of([names.buffer]),
        taken_ms,
    )


def _require_own(names: ClusterNames, partitions: Mapping[str, int]) -> None:
    missing = sorted(names.own_topics - set(partitions))
    if missing:
        raise MissingInKafka(
            f"cluster {names.cluster} has no topic {', '.join(missing)}: is that the cluster's name? "
            "`delayline topics create` makes them"
        )
