"""The audit topic: what a watch tells, and the end of each round, in one transaction.

A round counts once its marker is committed. So who reads the topic as committed sees each violation once,
whatever becomes of the watch; and of two watches of a cluster the later one ends the earlier.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator
from contextlib import closing
from typing import Any, Final

from confluent_kafka import OFFSET_BEGINNING, Consumer, KafkaError, KafkaException, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic
from pyspark.sql import DataFrame

from pipeline.audit.config import AuditConfig
from pipeline.errors import KafkaFailed, KafkaSilent, PipelineError, WrongInput
from pipeline.watch.marker import CLEARED, FOUND, Marker

TIMEOUT_S: Final = 30.0
MOST_TOLD: Final = 1_000
"""Characters of a source, or of a detail."""
ROUND: Final = b"round"
_TAKEN_OVER: Final = (KafkaError._FENCED, KafkaError.INVALID_PRODUCER_EPOCH, KafkaError.PRODUCER_FENCED)


class TakenOver(PipelineError):
    """Another watch of the cluster has begun."""


class Journal:
    """One watch's. Raises `KafkaFailed`, `KafkaSilent`, and `TakenOver` once another one has begun.

    After a `commit` that has failed it is of no use: whether that counts, another one's `last` says.
    """

    def __init__(self, config: AuditConfig) -> None:
        self._config = config
        self._topic = config.names.audit
        self._make_topic()
        quiet = {"log_level": 0, **config.client_config}
        self._producer = Producer(
            {
                **quiet,
                "transactional.id": config.names.watch_transactional_id,
                "transaction.timeout.ms": 300_000,  # a broker's most by default is 15 minutes
                "linger.ms": 20,
            }
        )
        self._reader_config = {
            **quiet,
            "group.id": config.names.watch_transactional_id,
            "enable.auto.commit": False,
            "isolation.level": "read_committed",
            "enable.partition.eof": True,
        }

    def begin(self) -> None:
        """From now on no other watch of the cluster commits a round."""
        self._ask(lambda: self._producer.init_transactions(TIMEOUT_S))

    def last(self) -> Marker | None:
        """The end of the last round; None: there was none. Raises `WrongInput` if it cannot be read."""
        found: bytes | None = None
        with closing(Consumer(self._reader_config)) as reader:
            reader.assign([TopicPartition(self._topic, 0, OFFSET_BEGINNING)])
            while (message := reader.poll(TIMEOUT_S)) is not None:
                error = message.error()
                if error is not None and error.code() == KafkaError._PARTITION_EOF:  # noqa: SLF001
                    return None if found is None else self._decoded(found)
                if error is not None and error.code() == KafkaError.GROUP_AUTHORIZATION_FAILED:
                    continue  # the client asks for its group all the same; it reads without
                if error is not None:
                    raise KafkaFailed(error, self._config.bootstrap_servers)
                # What the service delivers there for somebody has headers.
                if message.key() == ROUND and not message.headers():
                    found = message.value()
        raise KafkaSilent(f"{self._topic} cannot be read within {TIMEOUT_S:.0f} s")

    def _decoded(self, raw: bytes) -> Marker:
        try:
            return Marker.decode(raw)
        except ValueError as error:
            raise WrongInput(f"{self._topic}: the end of the last round cannot be read: {error}") from error

    def commit(self, found: DataFrame, cleared: DataFrame, marker: Marker) -> None:
        """Tells them, and that the round has ended."""
        self._ask(self._producer.begin_transaction)
        for state, rows in ((FOUND, found), (CLEARED, cleared)):
            for key, told in _records(rows, state, marker):
                self._produce(key, told)
        self._produce(ROUND, marker.encode())
        self._ask(lambda: self._producer.commit_transaction(TIMEOUT_S))

    def _produce(self, key: bytes, value: bytes) -> None:
        while True:
            try:
                self._ask(lambda: self._producer.produce(self._topic, key=key, value=value, partition=0))
            except BufferError:
                self._producer.poll(1.0)
            else:
                return

    def _make_topic(self) -> None:
        admin = AdminClient({"log_level": 0, **self._config.client_config})
        topic = NewTopic(self._topic, 1, -1, config={"cleanup.policy": "compact"})

        def make() -> None:
            try:
                admin.create_topics([topic], request_timeout=TIMEOUT_S)[self._topic].result()
            except KafkaException as error:
                if error.args[0].code() != KafkaError.TOPIC_ALREADY_EXISTS:
                    raise

        if self._topic not in self._ask(lambda: admin.list_topics(timeout=TIMEOUT_S)).topics:
            self._ask(make)

    def _ask(self, call: Any) -> Any:
        try:
            return call()
        except KafkaException as error:
            if error.args[0].code() in _TAKEN_OVER:
                raise TakenOver(
                    f"another watch of cluster {self._config.names.cluster} has begun, or this one has stood"
                    " still for minutes: this one ends"
                ) from error
            raise KafkaFailed(error.args[0], self._config.bootstrap_servers) from error


def _records(rows: DataFrame, state: str, marker: Marker) -> Iterator[tuple[bytes, bytes]]:
    for row in rows.toLocalIterator():
        what = {name: _shortened(text) for name, text in row.asDict().items()}
        told = {"state": state, **what, "round": marker.number, "at_ms": marker.taken_ms}
        yield f"{what['kind']}/{what['source']}".encode(), json.dumps(told).encode()


def _shortened(text: str) -> str:
    """A record in a target may name a source of any length: it must not be too large to be told."""
    if len(text) <= MOST_TOLD:
        return text
    digest = hashlib.sha256(text.encode()).hexdigest()
    return f"{text[:MOST_TOLD]}... ({len(text)} characters, sha256 {digest})"
