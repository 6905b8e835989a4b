"""Outcomes that are written by hand, in a cluster without nodes, and what is believed of them."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from confluent_kafka import IsolationLevel, Producer, TopicPartition

from delayline.names import source
from delayline.outcome_kinds import OutcomeKind
from node.core.outcome_record import OutcomeRecord, encode_outcome
from node.core.ports import Unanswered
from node.kafka.applier import NotRebuildable
from node.kafka.checkpoints import CheckpointReader, KafkaLog
from node.kafka.duplicates import Duplicates, read_duplicates
from store.told import Look, Told, looked
from tests.support.cluster import Cluster
from tests.support.keys import KEYRING, FixedKeys
from tests.support.requests import Sender, now_ms
from tests.support.waiting import PATIENCE_S, eventually

REQUESTS = 10
ALL = {0: REQUESTS, 1: REQUESTS}


class Topics:
    """A cluster without nodes; ten requests in each partition."""

    def __init__(self, cluster: Cluster) -> None:
        self.cluster = cluster
        self._client = {"bootstrap.servers": cluster.bootstrap}
        follower = CheckpointReader(self._client, cluster.names, 0, FixedKeys(KEYRING), lambda: None)
        self._log = KafkaLog(self._client, cluster.names, 0, [0, 1], follower)
        self.known: Told | None = None
        self.look(is_first=True)
        with Sender(cluster) as sender:
            for number in range(2 * REQUESTS):
                sender.schedule(partition=number % 2)

    def look(self, *, is_first: bool = False) -> None:
        """As a leader looks at the outcomes topic, once it has all markers."""
        look = eventually(self._found, "all is committed")
        assert look is not None, "eventually returns what is true"
        self.known = looked(self.known, look, is_first=is_first)

    def _found(self) -> Look | None:
        topic, every = self.cluster.names.outcomes, IsolationLevel.READ_UNCOMMITTED
        try:
            is_settled = self._log.ends(topic, [0]) == self._log.ends(topic, [0], every)
            return self._log.outcomes(self.known) if is_settled else None
        except Unanswered:
            return None  # of another leader the client has to learn first

    def lack(self) -> str:
        """What it lacks to tell which requests are duplicates, once the brokers tell."""

        def found() -> str:
            try:
                self.read({0: 0, 1: 0})
            except NotRebuildable as error:
                return str(error)
            except Unanswered:
                pass  # of another topic the client has to learn first
            return ""

        return eventually(found, "it lacks something")

    def read(
        self, begins: dict[int, int], to: dict[int, int] | None = None, *, ends: bool = False
    ) -> Duplicates:
        asked = begins, to or ALL, self.known
        return read_duplicates(self._client, self.cluster.names, 0, self._log, lambda: ends, *asked)

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
    def transaction(
        self, *places: tuple[int, int], kind: str = OutcomeKind.DUPLICATE, ago_ms: int = 0
    ) -> Iterator[Producer]:
        """One that is open, with these outcomes, told so long ago."""
        producer = Producer(
            self._client | {"transactional.id": f"{self.cluster.name}-writer", "linger.ms": 0, "log_level": 0}
        )
        producer.init_transactions(PATIENCE_S)
        producer.begin_transaction()
        for place in places:
            producer.produce(*self.told(*place, kind), partition=0, timestamp=now_ms() - ago_ms)
        assert producer.flush(PATIENCE_S) == 0
        yield producer

    def commit(self, *places: tuple[int, int], kind: str = OutcomeKind.DUPLICATE, ago_ms: int = 0) -> None:
        with self.transaction(*places, kind=kind, ago_ms=ago_ms) as producer:
            producer.commit_transaction(PATIENCE_S)

    def forget(self, end: int) -> None:
        """Retention takes the outcomes below that."""
        gone = TopicPartition(self.cluster.names.outcomes, 0, end)
        self.cluster.admin.delete_records([gone])[gone].result(PATIENCE_S)

    def among(self, found: Duplicates) -> list[tuple[int, int]]:
        return [
            place
            for partition in range(3)
            for offset in range(2 * REQUESTS)
            if (place := (partition, offset)) in found
        ]
