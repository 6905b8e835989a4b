"""Which requests are duplicates, from outcomes that are written by hand: aborted, still open, gone, a
stranger's.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import pytest
from confluent_kafka import Producer, TopicPartition

from delayline.names import source
from delayline.outcome_kinds import OutcomeKind
from node.core.outcome_record import OutcomeRecord, encode_outcome
from node.core.ports import Unanswered
from node.kafka import duplicates
from node.kafka.applier import NotRebuildable
from node.kafka.checkpoints import CheckpointReader, KafkaLog
from node.kafka.duplicates import Duplicates, read_duplicates
from tests.support.cluster import Cluster
from tests.support.keys import KEYRING, FixedKeys
from tests.support.requests import Sender, now_ms
from tests.support.retention import alter_topic
from tests.support.waiting import PATIENCE_S

REQUESTS = 10
ALL = {0: REQUESTS, 1: REQUESTS}


class Topics:
    """A cluster without nodes; ten requests in each partition."""

    def __init__(self, cluster: Cluster) -> None:
        self.cluster = cluster
        self._client = {"bootstrap.servers": cluster.bootstrap}
        with Sender(cluster) as sender:
            for number in range(2 * REQUESTS):
                sender.schedule(partition=number % 2)

    def read(
        self, begins: dict[int, int], to: dict[int, int] | None = None, *, ends: bool = False
    ) -> Duplicates:
        names = self.cluster.names
        follower = CheckpointReader(self._client, names, 0, FixedKeys(KEYRING), lambda: None)
        kafka_log = KafkaLog(self._client, names, 0, [0, 1], follower)
        return read_duplicates(self._client, names, 0, kafka_log, lambda: ends, begins, to or ALL)

    def told(
        self, partition: int, offset: int, kind: str = OutcomeKind.DUPLICATE
    ) -> tuple[str, bytes, bytes]:
        """A record that says what became of a request."""
        outcome = OutcomeRecord(kind, "schedule", "duplicate", None, None, None, None, 1, now_ms())
        return (
            self.cluster.names.outcomes,
            encode_outcome(outcome),
            source(self.cluster.names.buffer, partition, offset).encode(),
        )

    @contextmanager
    def transaction(self, *places: tuple[int, int], kind: str = OutcomeKind.DUPLICATE) -> Iterator[Producer]:
        """One that is open, with these outcomes."""
        producer = Producer(
            self._client | {"transactional.id": f"{self.cluster.name}-writer", "linger.ms": 0, "log_level": 0}
        )
        producer.init_transactions(PATIENCE_S)
        producer.begin_transaction()
        for place in places:
            producer.produce(*self.told(*place, kind), partition=0)
        assert producer.flush(PATIENCE_S) == 0
        yield producer

    def commit(self, *places: tuple[int, int], kind: str = OutcomeKind.DUPLICATE) -> None:
        with self.transaction(*places, kind=kind) as producer:
            producer.commit_transaction(PATIENCE_S)

    def among(self, found: Duplicates) -> list[tuple[int, int]]:
        return [
            place
            for partition in range(3)
            for offset in range(2 * REQUESTS)
            if (place := (partition, offset)) in found
        ]


@pytest.fixture
def topics(cluster: Cluster) -> Topics:
    return Topics(cluster)


def test_those_that_committed_outcomes_call_so_are_duplicates_as_far_as_they_are_asked_about(
    topics: Topics,
) -> None:
    topics.commit((0, 7), (0, 2), (1, 3), (1, 9))
    topics.commit((0, 8), (1, 5), kind=OutcomeKind.CANCELLED)
    with topics.transaction((0, 6)) as aborted:
        aborted.abort_transaction(PATIENCE_S)
    topics.commit((0, 4), (2, 4))
    assert topics.among(topics.read({0: 3, 1: 0}, {0: REQUESTS, 1: 9})) == [(0, 4), (0, 7), (1, 3)]


def test_what_is_no_outcome_is_passed_over(topics: Topics) -> None:
    producer = Producer({"bootstrap.servers": topics.cluster.bootstrap, "linger.ms": 0})
    topic, sound, key = topics.told(0, 1)
    for value, of in (
        (b'"duplicate"', key),
        (sound, b"\xff"),
        (sound, None),
        (None, key),
        (sound, b"other/0/1"),
    ):
        producer.produce(topic, value, of, 0)
    producer.produce(topic, sound, topics.told(1, 1)[2], 0)
    assert producer.flush(PATIENCE_S) == 0
    assert topics.among(topics.read({0: 0, 1: 0})) == [(1, 1)]


def test_while_a_transaction_is_open_there_nobody_knows(
    topics: Topics, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(duplicates, "TIMEOUT_S", 0.5)
    topics.commit((0, 1))
    with topics.transaction((0, 2)) as producer:
        with pytest.raises(Unanswered, match="outcomes could not be read on"):
            topics.read({0: 0, 1: 0})
        producer.commit_transaction(PATIENCE_S)
    monkeypatch.undo()
    assert topics.among(topics.read({0: 0, 1: 0})) == [(0, 1), (0, 2)]


def test_a_node_that_is_to_end_reads_no_further(topics: Topics) -> None:
    topics.commit((0, 1))
    with pytest.raises(Unanswered, match="is to end"):
        topics.read({0: 0, 1: 0}, ends=True)


def test_where_no_request_is_in_question_no_outcome_is(topics: Topics) -> None:
    topics.cluster.delete_topic(topics.cluster.names.outcomes)
    assert topics.among(topics.read({0: REQUESTS, 1: REQUESTS})) == []


def test_outcomes_that_retention_may_have_taken_are_missed(topics: Topics) -> None:
    """They are as old as the requests, unless the topic keeps what is older than these."""
    cluster = topics.cluster
    topics.commit((0, 1), (0, 2))
    gone = TopicPartition(cluster.names.outcomes, 0, 1)
    cluster.admin.delete_records([gone])[gone].result(PATIENCE_S)
    assert topics.among(topics.read({0: 0, 1: 0})) == [(0, 2)], "it keeps outcomes for a week"
    alter_topic(cluster, cluster.names.outcomes, "retention.ms", "1000")
    with pytest.raises(NotRebuildable, match="outcomes/0 begins at offset 1"):
        topics.read({0: 0, 1: 0})
