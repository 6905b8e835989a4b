"""Sending requests, and remembering what was acknowledged: the tests' ledger."""

from __future__ import annotations

import itertools
import time
from collections.abc import Iterable, Mapping
from types import TracebackType
from typing import NamedTuple, Self

from confluent_kafka import Message, Producer

from delayline import DelayProducer, Receipt, requests
from delayline.names import parse_source, source
from delayline.partitioner import partition_for
from delayline.requests import BufferRecord, UserHeaders
from delayline.wire import Header
from tests.support.cluster import Cluster
from tests.support.tail import read_all
from tests.support.waiting import PATIENCE_S

DEFAULT_HEADERS: tuple[Header, ...] = (
    ("trace", b"1"),
    ("ce_type", b"\xff\x00"),
    ("trace", b"2"),
    ("none", None),
)
"""What must arrive as it was sent: doubled, binary and null headers."""


def now_ms() -> int:
    return time.time_ns() // 1_000_000


class Sent(NamedTuple):
    """One schedule as it was sent."""

    target: str
    key: bytes | None
    value: bytes | None
    headers: list[Header]
    deliver_at_ms: int | None  # None: counted from the record's timestamp
    id: str | None


class Ledger:
    """What was acknowledged, by source."""

    def __init__(self) -> None:
        self.schedules: dict[str, Sent] = {}
        self.cancels: dict[str, str] = {}  # source -> id
        self.reschedules: dict[str, str] = {}
        self.rejects: set[str] = set()

    def add(self, other: Ledger) -> None:
        """Takes another one's requests as well."""
        self.schedules |= other.schedules
        self.cancels |= other.cancels
        self.reschedules |= other.reschedules
        self.rejects |= other.rejects

    def source_of(self, value: bytes) -> str:
        """The schedule that was sent with this value."""
        return next(source for source, sent in self.schedules.items() if sent.value == value)


class Sender:
    """A producer of requests that keeps a ledger; `flush` makes the ledger complete."""

    def __init__(self, cluster: Cluster) -> None:
        self.ledger = Ledger()
        self._cluster = cluster
        self._numbers = itertools.count()
        self._producer = DelayProducer(
            {"bootstrap.servers": cluster.bootstrap, "linger.ms": 0, "log_level": 0}, cluster=cluster.name
        )
        self._schedules: list[tuple[Receipt, Sent]] = []
        self._cancels: list[tuple[Receipt, str]] = []
        self._reschedules: list[tuple[Receipt, str]] = []
        self._rejects: list[Receipt] = []

    def schedule(
        self,
        value: bytes | None = None,
        *,
        at_ms: int | None = None,
        after_ms: int | None = None,
        id: str | None = None,
        key: bytes | None = None,
        keyless: bool = False,
        target: str | None = None,
        partition: int | None = None,
        expire_at_ms: int | None = None,
        headers: UserHeaders = DEFAULT_HEADERS,
    ) -> Receipt:
        """Schedules a message, to the cluster's first target by default."""
        number = next(self._numbers)
        topic = self._cluster.targets[0] if target is None else self._cluster.target(target)
        value = b"message %d" % number if value is None else value
        key = None if keyless else b"key %d" % number if key is None else key
        receipt = self._producer.schedule(
            topic,
            value,
            key=key,
            headers=headers,
            deliver_at=at_ms,
            after=after_ms,
            id=id,
            partition=partition,
            expire_at=expire_at_ms,
        )
        pairs = headers.items() if isinstance(headers, Mapping) else headers
        kept = [(name, data.encode() if isinstance(data, str) else data) for name, data in pairs]
        self._schedules.append((receipt, Sent(topic, key, value, kept, at_ms, id)))
        return receipt

    def cancel(self, id: str) -> Receipt:
        receipt = self._producer.cancel(id)
        self._cancels.append((receipt, id))
        return receipt

    def reschedule(self, id: str, *, at_ms: int) -> Receipt:
        receipt = self._producer.reschedule(id, deliver_at=at_ms)
        self._reschedules.append((receipt, id))
        return receipt

    def run_now(self, id: str) -> Receipt:
        receipt = self._producer.run_now(id)
        self._reschedules.append((receipt, id))
        return receipt

    def reject(self) -> Receipt:
        """A request that no service can take."""
        receipt = self._producer.send(BufferRecord(b"k", b"v", [("delay-oops", b"")]))
        self._rejects.append(receipt)
        return receipt

    def flush(self) -> Ledger:
        """Waits for all acknowledgements; what was acknowledged until now."""
        self._producer.flush(PATIENCE_S)
        ledger = self.ledger
        ledger.schedules |= {receipt.result(): sent for receipt, sent in self._schedules}
        ledger.cancels |= {receipt.result(): id_ for receipt, id_ in self._cancels}
        ledger.reschedules |= {receipt.result(): id_ for receipt, id_ in self._reschedules}
        ledger.rejects |= {receipt.result() for receipt in self._rejects}
        for sent in (self._schedules, self._cancels, self._reschedules, self._rejects):
            sent.clear()
        return ledger

    def close(self) -> None:
        self._producer.close(PATIENCE_S)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if kind is None:
            self.flush()
        self.close()


class OpenTransaction:
    """Requests of a producer whose transaction stays open until `commit` or `abort`: it blocks all that
    comes after it in its partitions, and what it commits arrives late.
    """

    def __init__(self, cluster: Cluster) -> None:
        self._cluster = cluster
        self._producer = Producer(
            {
                "bootstrap.servers": cluster.bootstrap,
                "transactional.id": f"{cluster.name}-foreign",
                "partitioner": "murmur2_random",
                "linger.ms": 0,
                "log_level": 0,
            }
        )
        self._producer.list_topics(cluster.names.buffer, timeout=PATIENCE_S)
        self._producer.init_transactions(PATIENCE_S)
        self._sent: dict[str, Sent] = {}

    def begin(self, values: Iterable[bytes], *, key: bytes | None = None) -> None:
        """Begins one with schedules for now: in the partition of `key`, or anywhere."""
        self._sent = {}
        self._producer.begin_transaction()
        for value in values:
            self._produce(value, key)
        left = self._producer.flush(PATIENCE_S)
        assert not left, "the broker takes the foreign transaction's records"

    @property
    def first_offset(self) -> int:
        """Where its records begin."""
        return min(parse_source(one)[2] for one in self._sent)

    def commit(self) -> Ledger:
        """Commits it; what it had sent."""
        self._producer.commit_transaction(PATIENCE_S)
        ledger = Ledger()
        ledger.schedules = self._sent
        return ledger

    def abort(self) -> None:
        self._producer.abort_transaction(PATIENCE_S)

    def _produce(self, value: bytes, key: bytes | None) -> None:
        target = self._cluster.targets[0]
        record = requests.schedule(target, value, key=key or value, headers=DEFAULT_HEADERS)
        sent = Sent(target, record.key, value, list(DEFAULT_HEADERS), None, None)

        def acknowledged(error: object, message: Message) -> None:
            assert error is None, error
            topic, partition, offset = message.topic(), message.partition(), message.offset()
            assert topic is not None and partition is not None and offset is not None  # noqa: PT018
            self._sent[source(topic, partition, offset)] = sent

        self._producer.produce(
            self._cluster.names.buffer,
            value,
            record.key,
            headers=record.headers,  # type: ignore[arg-type]  # the stub's list is invariant
            on_delivery=acknowledged,
        )


def due_times(cluster: Cluster, ledger: Ledger) -> list[tuple[int, bytes | None]]:
    """When each schedule at a time was due, epoch ms, with its value; in order. Not before the broker has had
    it, however long it took to be sent.
    """
    buffer = cluster.names.buffer
    had_ms = {
        source(buffer, got.partition, got.offset): got.timestamp_ms
        for got in read_all(cluster.bootstrap, buffer)
    }
    timed = [(id_, sent) for id_, sent in ledger.schedules.items() if sent.deliver_at_ms is not None]
    return sorted((max(sent.deliver_at_ms or 0, had_ms[id_]), sent.value) for id_, sent in timed)


def key_in(partition: int, partitions: int = 2, prefix: str = "k") -> bytes:
    """A key (or an id) whose place is this partition of the buffer."""
    candidates = (f"{prefix}-{number}".encode() for number in itertools.count())
    return next(key for key in candidates if partition_for(key, partitions) == partition)
