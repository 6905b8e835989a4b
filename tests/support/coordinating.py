"""A model of Kafka as node/kafka/own_transactions.py sees it: a broker, a lane's ids and its checkpoint
topic.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import dataclass, field
from types import SimpleNamespace
from typing import Any, Final, TypeVar

import msgspec
from aiokafka.protocol.transaction import AddPartitionsToTxnRequest, EndTxnRequest
from confluent_kafka import KafkaError

from delayline.headers import H_SIGNATURE
from delayline.names import ClusterNames
from node.kafka.fetch.brokers import Led, PartitionLeader, Unreachable
from node.kafka.fetch.protocol import Fetched, FetchRequest
from node.kafka.fetch.records import ABORTED, LogRecord
from node.kafka.fetch.transaction_requests import DescribeRequest, FenceRequest, InitRequest, ProducersRequest
from node.kafka.own_checkpoints import OwnCheckpoints
from store.checkpoint import Checkpoint
from tests.support.keys import KEYRING
from tests.support.raw import Attribute, RawRecord, records_bytes
from tests.support.raw.batch import RawBatch

T = TypeVar("T")

NAMES: Final = ClusterNames("delay")
TOPIC: Final = NAMES.checkpoint
OPEN_EPOCH: Final = 0
APPENDED_MS: Final = 1_000_000  # all records
NONE, REFUSED, CONCURRENT, NOT_FOUND = 0, KafkaError.PRODUCER_FENCED, KafkaError.CONCURRENT_TRANSACTIONS, 105


class Died(Exception):
    """The node has."""


@dataclass
class Transactions:
    """Of one id. `adds`: whether the one that is open has the checkpoint partition."""

    producer: int
    state: str
    epoch: int = 0
    since_ms: int = 1
    adds: bool = False
    becomes: list[str] = field(default_factory=list)  # before the next answers


@dataclass
class Kafka:
    """The brokers. `dies_at`: before which answer the node does."""

    ids: dict[str, Transactions] = field(default_factory=dict)
    log: list[tuple[int, Checkpoint, bool]] = field(default_factory=list)  # producer or -1, and if signed
    open: dict[int, int] = field(default_factory=dict)  # by producer, where it begins
    aborted: set[int] = field(default_factory=set)  # offsets
    forbidden: frozenset[str] = frozenset()
    ended_in: list[tuple[str, int]] = field(default_factory=list)  # by transactions that do nothing else
    meanwhile: Callable[[], None] = lambda: None  # before it is asked what is open
    dies_at: int = -1
    loses: type | None = None  # a request whose answer is lost, once
    asked: int = 0
    fetches: int = 1_000  # records at a time
    takes_s: float = 0.0  # each time
    fails_each: int = 0  # one of so many times, if any
    fails_with: int = KafkaError._TRANSPORT
    fetched: int = 0  # times

    def sent(self, suffix: str, checkpoint: Checkpoint, *, signed: bool = True) -> None:
        """In a transaction of the id, without a marker."""
        producer = self.ids[suffix].producer
        self.open.setdefault(producer, len(self.log))
        self.log.append((producer, checkpoint, signed))

    def latest(self) -> Checkpoint | None:
        """What a reader of the topic finds; nothing is open."""
        assert not self.open
        own = OwnCheckpoints(TOPIC)
        for offset, (_, checkpoint, signed) in enumerate(self.log):
            flaw = ABORTED if offset in self.aborted else None
            record = LogRecord(
                0, offset, 0, b"0", checkpoint.encode(), _headers(checkpoint, signed=signed), flaw
            )
            own.take(record, KEYRING)
        return own.latest

    # ------------------------------------------------------------------ as the lane's brokers

    async def coordinator(self, _: str) -> int:
        return self._answer(1)

    async def lead(self, _: str) -> Led:
        return self._answer(Led(bytes(16), {0: PartitionLeader(1, 0)}))

    async def offset(self, *_: object) -> int:
        return self._answer(len(self.log))

    async def close(self) -> None:
        """There is no connection."""

    async def ask(self, _: int, request: Any) -> Any:
        self._answer(None)
        if isinstance(request, DescribeRequest):
            return self._described(request._transactional_id)
        if isinstance(request, FenceRequest):
            return SimpleNamespace(error_code=self._fenced(request._at[0]))
        if isinstance(request, AddPartitionsToTxnRequest | EndTxnRequest | InitRequest):
            answer = self._changed(request)
            if isinstance(request, self.loses or ()):
                self.loses = None
                raise Unreachable(KafkaError._TRANSPORT, "the connection has ended")
            return answer
        if isinstance(request, ProducersRequest):
            self.meanwhile()
            self.meanwhile = lambda: None
            open_ = self.open.items()
            active: list[Any] = [(one, OPEN_EPOCH, self._last(one), 0, 0, at, {}) for one, at in open_]
            return SimpleNamespace(topics=[(TOPIC, [(0, NONE, None, active, {})], {})])
        assert isinstance(request, FetchRequest)
        await asyncio.sleep(self.takes_s)
        self.fetched += 1
        if self.fails_each and self.fetched % self.fails_each == 0:
            raise Unreachable(self.fails_with, "the connection has ended")
        fetched = Fetched(0, NONE, 0, [], memoryview(self._bytes(request._wanted[0].offset)), None)
        return SimpleNamespace(error_code=NONE, partitions=[fetched])

    def _last(self, producer: int) -> int:
        return sum(who == producer for who, *_ in self.log)

    def _answer(self, answer: T) -> T:
        self.asked += 1
        if self.asked == self.dies_at:
            raise Died
        return answer

    def _described(self, id_: str) -> Any:
        one = self.ids.get(id_[-1])
        if one is None:
            return SimpleNamespace(transactions=[(NOT_FOUND, id_, "", 0, 0, 0, 0, [], {})])
        answer: Any = NONE, id_, one.state, 0, one.since_ms, one.producer, one.epoch, [], {}
        self._go_on(one)
        return SimpleNamespace(transactions=[answer])

    def _go_on(self, one: Transactions) -> None:
        if one.becomes:
            one.state = one.becomes.pop(0)

    def _fenced(self, id_: str) -> int:
        one = self.ids[id_[-1]]
        self._go_on(one)
        if one.state != "Ongoing":
            return REFUSED if one.state.startswith("Complete") or one.state == "Empty" else CONCURRENT
        one.state, one.epoch = "CompleteAbort", one.epoch + 1
        begin = self.open.pop(one.producer, None) if one.adds else None
        if begin is not None:
            here = enumerate(self.log)
            self.aborted |= {at for at, (who, *_) in here if who == one.producer and at >= begin}
        return CONCURRENT

    def _changed(self, request: Any) -> Any:
        if isinstance(request, AddPartitionsToTxnRequest):
            return self._added(request)
        if isinstance(request, EndTxnRequest):
            one = self.ids[request._transactional_id[-1]]
            is_its_own = (one.producer, one.epoch) == (request._producer_id, request._producer_epoch)
            if is_its_own and one.state == "Ongoing":
                one.state = "CompleteCommit"
            return SimpleNamespace(error_code=NONE if is_its_own else REFUSED)
        one = self.ids[request._at[0][-1]]
        one.state, one.epoch = "Empty", one.epoch + 1
        return SimpleNamespace(error_code=NONE, producer_id=one.producer, producer_epoch=one.epoch)

    def _added(self, request: Any) -> Any:
        one = self.ids[request._transactional_id[-1]]
        assert (one.producer, one.epoch) == (request._producer_id, request._producer_epoch)
        topics: list[tuple[str, list[int]]] = request._topics
        if one.state.startswith("Prepare"):
            code, forbidden = CONCURRENT, CONCURRENT
        elif self.forbidden & {topic for topic, _ in topics}:
            code, forbidden = KafkaError.OPERATION_NOT_ATTEMPTED, KafkaError.TOPIC_AUTHORIZATION_FAILED
        else:
            code, forbidden = NONE, NONE
            one.state = "Ongoing"
            one.adds |= TOPIC in dict(topics)
            self.ended_in += [(topic, partition) for topic, partitions in topics for partition in partitions]
        codes = {topic: forbidden if topic in self.forbidden else code for topic, _ in topics}
        errors = [(topic, [(one, codes[topic]) for one in partitions]) for topic, partitions in topics]
        return SimpleNamespace(errors=errors)

    def _bytes(self, begin: int) -> bytes:
        batches = b""
        for offset, (producer, one, signed) in list(enumerate(self.log))[begin : begin + self.fetches]:
            batches += batch_bytes(offset, [one], producer, signed=signed)
        return batches


def batch_bytes(offset: int, checkpoints: list[Checkpoint], producer: int, *, signed: bool) -> bytes:
    """A batch as a producer sends it, -1: outside of transactions."""
    records = [
        RawRecord(
            b"0", one.encode(), [(name.encode(), value) for name, value in _headers(one, signed=signed)]
        )
        for one in checkpoints
    ]
    kind = Attribute.TRANSACTIONAL if producer >= 0 else 0
    return RawBatch(
        records_bytes(records),
        len(records),
        offset,
        attributes=kind,
        max_timestamp_ms=APPENDED_MS,
        producer_id=producer,
    ).encode()


def _headers(checkpoint: Checkpoint, *, signed: bool) -> list[Any]:
    raw = checkpoint.encode()
    return [(H_SIGNATURE, KEYRING.sign_checkpoint(TOPIC, 0, b"0", raw))] if signed else []


def confirming(kafka: Kafka) -> type:
    """A producer that appends to its log, outside of any transaction."""

    class Appending:
        def __init__(self, _: object) -> None:
            pass

        def produce(self, _: str, raw: bytes, *__: Any, **___: Any) -> None:
            kafka._answer(None)
            kafka.log.append((-1, msgspec.json.decode(raw, type=Checkpoint), True))

        def flush(self, _: float) -> int:
            return 0

    return Appending
