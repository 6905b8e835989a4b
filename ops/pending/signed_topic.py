"""A topic of an operator's own, of one partition: each record signed with the cluster's keys, so that what
anybody else writes there is nothing.

A copy of a record has a valid signature, too. Whoever reads takes a record only where it follows what is
there, so that the copy of one that counts changes nothing; copies of what was aborted are passed over, by
what was aborted before them; and what was signed for an earlier topic of that name is nothing here, for the
signature covers the topic's id.
"""

from __future__ import annotations

import secrets
from collections.abc import Iterator
from contextlib import closing
from dataclasses import replace
from typing import Any, Final, NamedTuple

from confluent_kafka import KafkaError, KafkaException, Producer

from delayline.signing import BadSignatureError, Keyring, signature_of
from delayline.wire import H_SIGNATURE
from node.config import ConnectionConfig
from node.core.ports import Unanswered
from node.kafka.fetch.records import ABORTED, LogRecord
from node.kafka.reader import TopicReader
from ops.clients.kafka import KafkaAdmin
from ops.clients.topic import Setting, Topic, WantedTopic, min_insync_replicas
from ops.clients.topic_findings import wrong_settings
from ops.errors import ConflictError, OperatorError, UnavailableError, from_kafka
from ops.pending.sending import send

MAX_MESSAGE_BYTES: Final = 32 << 20
"""A request of 16 MiB, which is the largest that nodes read, in base64."""
KAFKA_TIMEOUT_S: Final = 30.0
TRANSACTION_TIMEOUT_MS: Final = 15_000
"""For so long what was killed in the middle of a transaction holds up the readers of the buffer; brokers look
every 10 s, so it may be that much longer.
"""

_FOR_EVER: Final = "what it has must stay for ever"
_ANEW: Final = "import what it has, delete it, and run this again"
_PARTITION: Final = 0
_WAIT_S: Final = 0.2
_PATIENCE_S: Final = 30.0
_FENCED: Final = frozenset(
    (KafkaError._FENCED, KafkaError.INVALID_PRODUCER_EPOCH, KafkaError.PRODUCER_FENCED)
)
_PRODUCER: Final = {
    "allow.auto.create.topics": False,  # one that was deleted meanwhile stays so: what is sent there fails
    "transaction.timeout.ms": TRANSACTION_TIMEOUT_MS,
    "message.max.bytes": 1_000_000_000,  # the brokers' limits decide
    "compression.type": "lz4",
    "linger.ms": 5,
    "queue.buffering.max.messages": 100_000,
    "log_level": 0,
}


class Fenced(ConflictError):
    """Another run has begun since."""


class SignedRecord(NamedTuple):
    """A record that counts."""

    offset: int
    value: bytes


class SignedTopic:
    """One such topic of a cluster."""

    def __init__(self, config: ConnectionConfig, topic: str, ring: Keyring) -> None:
        self.topic = topic
        self.strangers = 0  # records that were passed over
        # No two runs write the same record: that of one that was aborted counts for no other.
        self.run = secrets.token_hex(8).encode()
        self._id: str | None = None
        self._config = config
        self._ring = ring
        self._wanted = WantedTopic(
            topic,
            1,
            "exactly",
            (
                Setting("cleanup.policy", "delete", "exactly", _FOR_EVER),
                Setting("retention.ms", "-1", "exactly", _FOR_EVER),
                Setting("retention.bytes", "-1", "exactly", _FOR_EVER),
                Setting("max.message.bytes", str(MAX_MESSAGE_BYTES), "free"),
                Setting("unclean.leader.election.enable", "false", "exactly", _FOR_EVER),
            ),
        )

    def make(self, beside: str) -> str:
        """Makes it if it is not there, with as many replicas as the topic `beside` has; its id.

        Raises ConflictError if it is there, and is not as it must be: it would lose what it has.
        """
        admin = KafkaAdmin(self._config)
        admin.require(beside)
        there = admin.topics([self.topic, beside])
        replication = there[beside].replication
        if self.topic in there:
            self._require_as_wanted(there[self.topic], replication)
        else:
            admin.create(self._wanted, replication)
        return self.id()

    def _require_as_wanted(self, actual: Topic, replication: int) -> None:
        """`replication`: what it would be made with."""
        insync = Setting("min.insync.replicas", str(min_insync_replicas(replication)), "at least", _FOR_EVER)
        wanted = replace(self._wanted, settings=(*self._wanted.settings, insync))
        found = [
            f"{one.problem}; mend it: {one.mend}"
            for one in wrong_settings(wanted, actual, self._config.bootstrap_servers)
        ]
        if actual.replication < replication:
            found.insert(0, f"it has {actual.replication} replicas, must have {replication}: {_ANEW}")
        if not wanted.takes(actual.partitions):
            found.insert(0, f"it has {actual.partitions} partitions, must have 1: {_ANEW}")
        if found:
            raise ConflictError(f"topic {self.topic} is not as it must be: {'; '.join(found)}")

    def id(self) -> str:
        """The topic's id. ConflictError if it is another topic than it was when it was asked for before."""
        found = KafkaAdmin(self._config).topic_id(self.topic)
        if self._id not in {None, found}:
            raise ConflictError(f"{self.topic} was deleted and made anew meanwhile: run it again")
        self._id = found
        return found

    def exists(self) -> bool:
        """Whether it is there."""
        return KafkaAdmin(self._config).exists(self.topic)

    def records(self) -> Iterator[SignedRecord]:
        """What is committed there, and signed, from the beginning to the end that it has now.

        Raises UnavailableError if somebody's transaction is open there, or Kafka does not answer, and
        ConflictError if it was made anew.
        """
        admin, signed_name = KafkaAdmin(self._config), self._signed_name(self.id())
        begin, end = admin.begins(self.topic)[_PARTITION], admin.ends(self.topic)[_PARTITION]
        self.strangers = 0
        aborted: set[bytes] = set()
        with closing(TopicReader(self._config.client_config(), self.topic, aborted=True)) as reader:
            reader.start({_PARTITION: begin})
            try:
                for records in reader.read_to({_PARTITION: end}, poll_s=_WAIT_S, patience_s=_PATIENCE_S):
                    for record in records:
                        if self._counts(record, signed_name, aborted):
                            yield SignedRecord(record.offset, record.value or b"")
            except Unanswered as error:
                raise UnavailableError(str(error)) from error

    def _counts(self, record: LogRecord, signed_name: str, aborted: set[bytes]) -> bool:
        signature = signature_of(record.headers)
        if signature is None:
            self.strangers += 1
            return False
        try:
            self._ring.check_checkpoint(signature, signed_name, _PARTITION, record.key, record.value)
        except BadSignatureError as error:
            if error.unknown_key is not None:
                raise OperatorError(f"{self.topic}: {error}: see 'delayline key'") from None
            self.strangers += 1
            return False
        if record.flaw is ABORTED:
            aborted.add(signature)
        return signature not in aborted

    def produce(self, producer: Producer, key: bytes, value: bytes) -> None:
        """Sends a record of it, signed: for the topic that was made or read before."""
        assert self._id is not None, "it was made or read"
        signature = self._ring.sign_checkpoint(self._signed_name(self._id), _PARTITION, key, value)
        headers: Any = [(H_SIGNATURE, signature)]  # the client's type says str | bytes, invariantly
        send(producer, self.topic, key, value, headers, _PARTITION)

    def _signed_name(self, id_: str) -> str:
        """What signatures cover. No topic's name has a slash, so no checkpoint is signed for this."""
        return f"{self.topic}/{id_}"


class Transactions:
    """Transactions of an operator's command, one at a time: of two that are started, the later one goes on.

    Raises OperatorError, with what to do.
    """

    def __init__(self, config: ConnectionConfig, transactional_id: str, what: str) -> None:
        self._servers = config.bootstrap_servers
        self._what = what
        self.producer = Producer(config.client_config() | _PRODUCER | {"transactional.id": transactional_id})
        try:
            self.producer.init_transactions(KAFKA_TIMEOUT_S)
        except KafkaException as error:
            raise self.failure(error.args[0]) from error

    def begin(self) -> None:
        """Begins one."""
        try:
            self.producer.begin_transaction()
        except KafkaException as error:
            raise self.failure(error.args[0]) from error

    def flush(self) -> None:
        """Waits until all that was sent is acknowledged, or refused."""
        if self.producer.flush(KAFKA_TIMEOUT_S):
            raise UnavailableError(
                f"Kafka has not taken what was sent within {KAFKA_TIMEOUT_S:g} s: run it again"
            )

    def commit(self) -> None:
        """Commits it."""
        try:
            self.producer.commit_transaction(KAFKA_TIMEOUT_S)
        except KafkaException as error:
            raise self.failure(error.args[0]) from error

    def failure(self, error: KafkaError) -> OperatorError:
        """What an error of one of them means."""
        if error.code() in _FENCED:
            return Fenced(f"another {self._what} of this cluster has begun: this one ends")
        return from_kafka(error, self._servers)
