"""A history of a delay service, written by hand: what producers ask for, and what a service does about it.

A history is a list of steps, requests and transactions, written to Kafka in their order. Until then all of
it can be changed: that is how a fault is planted.

Each history is the whole log of one lane, with a target topic of its own: so one cluster has many, and one
audit judges them all (tests/integration/lanes.py). A history speaks of its partitions as 0 and 1; where they
are in the buffer is its lane's affair.
"""

from __future__ import annotations

import itertools
import json
import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any, ClassVar, Final, TypeAlias

from confluent_kafka import KafkaError, Message, Producer
from confluent_kafka.admin import AdminClient, NewTopic

from delayline import requests, wire
from delayline.names import ClusterNames, source
from delayline.partitioner import partition_for
from delayline.requests import BufferRecord
from delayline.settings import ClusterSettings
from delayline.wire import Header
from node.kafka.fetch.records import LogRecord
from pipeline.audit import LedgerWriter
from store.checkpoint import FORMAT
from tests.support.keys import KEYRING
from tests.support.tail import read_all

LANE_PARTITIONS: Final = 2
"""Of the buffer, for each lane."""
TARGET_PARTITIONS = 2
LETTER_LIMIT_BYTES = 4_000


@dataclass(frozen=True)
class Lane:
    """A lane of a cluster, which has a history."""

    settings: ClusterSettings
    number: int

    @property
    def names(self) -> ClusterNames:
        return ClusterNames(self.settings.cluster)

    @property
    def partitions(self) -> list[int]:
        """Those of the buffer that the history calls 0, 1, ..."""
        return self.settings.partitions_of(self.number)

    @property
    def target(self) -> str:
        return f"{self.settings.cluster}.orders-{self.number}"

    def source(self, partition: int, offset: int) -> str:
        return source(self.names.buffer, self.partitions[partition], offset)


@dataclass
class Request:
    """A request, and, once it is written, its place in the buffer and what it means."""

    record: BufferRecord
    partition: int  # of its lane's
    written: LogRecord | None = None
    meaning: wire.Request | None = None
    source: str = ""
    cancels: Request | None = None  # by its source, which is known once that is written

    @property
    def place(self) -> LogRecord:
        assert self.written is not None, "not written yet: put it before what speaks of it"
        return self.written

    @property
    def schedule(self) -> wire.Schedule:
        assert isinstance(self.meaning, wire.Schedule), self.meaning
        return self.meaning

    @property
    def due_ms(self) -> int:
        return self.meaning.due_ms if isinstance(self.meaning, wire.Schedule) else self.place.timestamp_ms


class CopyOf(Request):
    """Of what the service has written back by then, sent by somebody: it is nothing."""

    def __init__(self, back: Back) -> None:
        self._back = back
        self.written, self.meaning, self.source = None, None, ""

    @property
    def record(self) -> BufferRecord:  # type: ignore[override]
        assert self._back.request is not None, "not written back yet"
        return self._back.request.record

    @property
    def partition(self) -> int:  # type: ignore[override]
        assert self._back.request is not None, "not written back yet"
        return self._back.request.partition


@dataclass
class Deferred:
    """A reschedule, or one that was deferred before, that is deferred: it is written back as it is."""

    of: Request | Deferred
    to_ms: int | None = None  # None: as it should be
    request: Request | None = None


@dataclass
class WrittenBack:
    """A request that the service writes back for a reschedule; `request` is made in its transaction."""

    message: Row
    reschedule: Request | Deferred
    request: Request | None = None


@dataclass
class Next:
    """The next occurrence of a recurring message, written back in the transaction that takes `of`."""

    of: Row
    at_ms: int
    number: int
    value: bytes | None = None  # None: as it should be
    request: Request | None = None


@dataclass
class Later:
    """What is written back for a row that is parked, in the transaction that takes it."""

    of: Row
    at_ms: int
    paused: bool = False  # by an operator: it is the same attempt
    request: Request | None = None


Row: TypeAlias = Request | WrittenBack | Deferred | Next | Later
"""What a message is delivered by, or a reschedule answered."""
Back: TypeAlias = WrittenBack | Deferred | Next | Later


@dataclass
class Delivery:
    """A record of the target topic. What is None, or 0, is as it should be."""

    of: Row
    early_ms: int = 0
    as_ms: int | None = None  # the time that it stands for
    headers: list[Header] | None = None
    value: bytes | None = None
    source: str | None = None
    again: bool = False  # by a replay


@dataclass
class Outcome:
    """A record of the outcomes topic: what became of `by`, with the row that it speaks of. A reschedule that
    was deferred is answered as the user's own.
    """

    outcome: str
    by: Row
    op: str = "schedule"
    message: Row | None = None
    code: str | None = None
    at_ms: int | None = None  # None: when it was due
    keyed_by: Row | None = None  # None: as it should be


@dataclass
class DeadLetter:
    of: Row
    code: str
    with_value: bool = True
    to: Request | None = None  # the last record of the batch that it stands for


@dataclass
class Transaction:
    """One transaction of a leader. It has applied and seen all that the steps before it have written, but
    not what users write `meanwhile`, before it writes back, and nothing from `hidden` on.
    """

    delivers: list[Delivery] = field(default_factory=list)
    tells: list[Outcome] = field(default_factory=list)
    buries: list[DeadLetter] = field(default_factory=list)
    meanwhile: list[Request] = field(default_factory=list)
    writes_back: list[Back] = field(default_factory=list)
    hidden: Back | None = None  # written back before, and not to be read yet
    passes: list[Row] = field(default_factory=list)  # the last by key is the position
    rewinds_to_ms: int | None = None
    epoch: int = 1
    node: str = "n1"
    first: bool = False  # it repeats the checkpoint before it
    holds: list[Holding] = field(default_factory=list)
    claims: dict[str, Any] = field(default_factory=dict)  # what its checkpoint says that is not so
    early_ms: int = 0  # by the broker's clock
    aborted: bool = False


@dataclass
class Holding:
    """A hold of the target, as a checkpoint has it: keys of rows, None for what is before all of them."""

    first: Row | None
    next: Row | None
    last: Row | None = None  # None: the pause goes on


@dataclass
class ForgedCheckpoints:
    """What nobody has signed, and a copy of each checkpoint of the lane, of the aborted ones too."""

    unsigned: list[bytes]


@dataclass
class Acknowledged:
    """A line of the ledger for what is not in the buffer."""

    source: str
    record: BufferRecord


Step = Request | Transaction | ForgedCheckpoints | Acknowledged


class History(ABC):
    """What happens in one lane. Times are seconds after `base_ms`, epoch ms, which is a multiple of 10 s.

    All is due by `END_S` but what is pending.
    """

    END_S: ClassVar = 600
    ID_PARTITIONS: ClassVar = LANE_PARTITIONS  # over how many of its partitions its ids are spread

    def __init__(self, lane: Lane, base_ms: int) -> None:
        self.lane = lane
        self.base_ms = base_ms

    @property
    @abstractmethod
    def steps(self) -> list[Step]:
        """All of it, in order."""

    def _schedule(
        self,
        value: str,
        at_s: float,
        *,
        partition: int = 0,
        id: str | None = None,
        expire_at_s: float | None = None,
        **more: Any,
    ) -> Request:
        """Its partition is that of its id, if it has one."""

        def record(spelled: str | None) -> BufferRecord:
            expire_at = None if expire_at_s is None else self._ms(expire_at_s)
            at_ms = self._ms(at_s)
            return requests.schedule(
                self.lane.target, value, deliver_at=at_ms, id=spelled, expire_at=expire_at, **more
            )

        return Request(record(None), partition) if id is None else self._of_id(id, record)

    def _cancel(self, id: str) -> Request:
        return self._of_id(id, requests.cancel)

    def _move(self, id: str, to_s: float) -> Request:
        return self._of_id(id, lambda spelled: requests.reschedule(spelled, deliver_at=self._ms(to_s)))

    def _of_id(self, id: str, record: Callable[[str], BufferRecord]) -> Request:
        """A request with an id has to be in the partition of the id, of all that the buffer has: so the id is
        spelled to be in that of the lane's in which `id` is, of these alone.
        """
        partition = partition_for(id.encode(), self.ID_PARTITIONS)
        wanted, there_are = self.lane.partitions[partition], self.lane.settings.partitions
        spellings = (f"{id}-{number}" for number in itertools.count())
        spelled = next(one for one in spellings if partition_for(one.encode(), there_are) == wanted)
        return Request(record(spelled), partition)

    @staticmethod
    def _each(*rows: Row) -> list[Delivery]:
        return [Delivery(row) for row in rows]

    def _ms(self, seconds: float) -> int:
        return self.base_ms + round(seconds * 1000)


def make_topics(bootstrap: str, settings: ClusterSettings) -> list[Lane]:
    """Makes a cluster's topics, with a target for each of its lanes."""
    names = ClusterNames(settings.cluster)
    lanes = [Lane(settings, number) for number in range(settings.lanes)]
    by_broker = {"message.timestamp.type": "LogAppendTime"}
    kept = {"cleanup.policy": "compact", "min.compaction.lag.ms": "86400000"}
    letters = {"max.message.bytes": str(LETTER_LIMIT_BYTES)}
    topics = [
        NewTopic(names.buffer, settings.partitions, 1, config=by_broker),
        # Not by the broker: these histories are of another time.
        NewTopic(names.checkpoint, settings.lanes, 1, config=kept),
        NewTopic(names.outcomes, settings.lanes, 1),
        NewTopic(names.dead_letter, 1, 1, config=letters),
        *(NewTopic(lane.target, TARGET_PARTITIONS, 1) for lane in lanes),
    ]
    admin = AdminClient({"bootstrap.servers": bootstrap})
    for made in admin.create_topics(topics).values():
        made.result()
    return lanes


class Writer:
    """Writes a lane's steps: users' requests, and a leader's transactions."""

    def __init__(self, bootstrap: str, lane: Lane, ledger: LedgerWriter) -> None:
        self._lane = lane
        self._names = lane.names
        self._ledger = ledger
        self._ends = dict.fromkeys(lane.partitions, 0)
        self._applied = dict(self._ends)
        self._position: tuple[int, int, int] | None = None
        self._overruns: list[dict[str, Any]] = []
        self._number = 0
        self._bootstrap = bootstrap
        self._users = Producer({"bootstrap.servers": bootstrap, "enable.idempotence": True})
        self._leader = self._new_leader()

    def write(self, steps: Sequence[Step]) -> None:
        """Returns when read_committed consumers see all of it."""
        for step in steps:
            match step:
                case CopyOf():
                    self._append(self._users, step)  # a stranger keeps no ledger
                case Request():
                    self._ask(step)
                case Transaction():
                    self._commit(step)
                case ForgedCheckpoints():
                    self._forge(step)
                case Acknowledged():
                    self._ledger.add(step.source, step.record)
        self._wait_for_markers()

    def _wait_for_markers(self) -> None:
        """A commit returns before its markers are written; who takes the same id waits for them."""
        self._leader = self._new_leader()

    def _new_leader(self) -> Producer:
        id_ = self._names.transactional_id(self._lane.number, "a")
        leader = Producer({"bootstrap.servers": self._bootstrap, "transactional.id": id_})
        leader.init_transactions(30)
        return leader

    def _ask(self, request: Request) -> None:
        self._append(self._users, request)
        self._ledger.add(request.source, request.record)

    def _forge(self, step: ForgedCheckpoints) -> None:
        self._wait_for_markers()
        topic, lane = self._names.checkpoint, self._lane.number
        for got in read_all(self._bootstrap, topic, and_aborted=True):
            if got.partition == lane:
                record = BufferRecord(got.key, got.value, got.headers)
                _produce(self._users, topic, record, lane)
        for raw in step.unsigned:
            _produce(self._users, topic, BufferRecord(f"{lane}".encode(), raw, []), lane)

    def _append(self, producer: Producer, request: Request) -> None:
        """Write a request to the buffer, and wait for its place there."""

        def acknowledged(error: KafkaError | None, message: Message) -> None:
            assert error is None, error
            offset, (_, timestamp_ms) = message.offset(), message.timestamp()
            assert offset is not None
            request.written = LogRecord(partition, offset, timestamp_ms, *request.record)

        if request.cancels is not None:
            request.record = requests.cancel(source=request.cancels.source)
            request.partition = request.cancels.partition
        partition = self._lane.partitions[request.partition]
        _produce(producer, self._names.buffer, request.record, partition, on_delivery=acknowledged)
        request.source = source(self._names.buffer, partition, request.place.offset)
        request.meaning = wire.parse(request.place, self._lane.settings, self._names, KEYRING)
        self._ends[partition] = request.place.offset + 1

    def _move(self, step: Transaction) -> None:
        if step.passes:
            self._position = max(_key(_row(passed)) for passed in step.passes)
        if step.rewinds_to_ms is not None:
            self._overruns.append({"position": self._position})
            self._position = step.rewinds_to_ms, 0, 0

    def _commit(self, step: Transaction) -> None:
        self._number += not step.first
        if not step.first and not step.aborted:
            self._applied = dict(self._ends)
        if step.hidden is not None:
            place = _row(step.hidden).place
            self._applied[place.partition] = place.offset
        self._move(step)
        self._leader.begin_transaction()
        for delivery in step.delivers:
            self._deliver(delivery)
        for letter in step.buries:
            self._bury(letter)
        for outcome in step.tells:
            self._tell(outcome, step.epoch)
        for request in step.meanwhile:
            self._ask(request)
        for back in step.writes_back:
            back.request = self._write_back(back)
        self._checkpoint(step)
        if step.aborted:
            self._leader.abort_transaction(30)
        else:
            self._leader.commit_transaction(30)

    def _deliver(self, delivery: Delivery) -> None:
        row, root = _row(delivery.of), _root(delivery.of)
        wanted = row.schedule
        headers = wire.delivery_headers(
            wanted.headers if delivery.headers is None else delivery.headers,
            id=wanted.id,
            source=(delivery.source or root.source).encode(),
            scheduled_for_ms=wanted.scheduled_for_ms if delivery.as_ms is None else delivery.as_ms,
            attempt=wanted.attempt + delivery.again,
            occurrence=wanted.occurrence,
        )
        key = wanted.target_key
        value = root.record.value if delivery.value is None else delivery.value
        partition = 0 if key is None else partition_for(key, TARGET_PARTITIONS)
        at_ms = row.due_ms - delivery.early_ms
        _produce(
            self._leader, self._lane.target, BufferRecord(key, value, headers), partition, timestamp=at_ms
        )

    def _bury(self, letter: DeadLetter) -> None:
        row, detail = _row(letter.of), "as the test has it"
        record = row.record
        if letter.to is not None:
            record = BufferRecord(None, None, [])
            detail = (
                f"offsets {row.place.offset} to {letter.to.place.offset} are a batch of which none is read"
            )
        headers = wire.dead_letter_headers(
            record.headers, source=_root(letter.of).source, code=letter.code, detail=detail
        )
        buried = record._replace(headers=headers, value=record.value if letter.with_value else None)
        _produce(self._leader, self._names.dead_letter, buried, 0)

    def _tell(self, outcome: Outcome, epoch: int) -> None:
        message, by = outcome.message, _row(outcome.by)
        named = by.cancels and by.cancels.source
        keyed_by = _user_own(outcome.by) if outcome.keyed_by is None else _row(outcome.keyed_by)
        told = {
            "outcome": outcome.outcome,
            "op": outcome.op,
            "id": None,
            "message": message and _row(message).source,
            "root": named or (message and _root(message).source),
            "code": outcome.code,
            "detail": None,
            "epoch": epoch,
            "at_ms": by.due_ms if outcome.at_ms is None else outcome.at_ms,
        }
        record = BufferRecord(keyed_by.source.encode(), json.dumps(told).encode(), [])
        _produce(self._leader, self._names.outcomes, record, self._lane.number)

    def _write_back(self, back: Back) -> Request:
        if isinstance(back, Deferred):
            row = parent = _row(back.of)
            headers = _deferred_headers(back)
        else:
            row, parent, root, schedule = _written_back(back)
            headers = wire.rewrite_headers(schedule._replace(parent=parent.place.offset, root=root.source))
        record = row.record
        if isinstance(back, Next) and back.value is not None:
            record = record._replace(value=back.value)
        partition = parent.place.partition
        serial = self._ends[partition], self._ends[partition]
        headers = wire.signed_headers(headers, KEYRING, serial, partition, record.key, record.value)
        record = record._replace(headers=headers)
        request = Request(record, parent.partition)
        self._append(self._leader, request)
        return request

    def _checkpoint(self, step: Transaction) -> None:
        lane, now_ms = self._lane.number, time.time_ns() // 1_000_000
        taken_ms = now_ms if self._position is None else max(now_ms, self._position[0])
        applied = {str(partition): end for partition, end in self._applied.items()}
        checkpoint = {
            "format": FORMAT,
            "lane": lane,
            "epoch": step.epoch,
            "number": self._number,
            "position": self._position,
            "overruns": self._overruns,
            "applied": applied,
            "seen": applied,
            "read": applied,
            "written_back": {} if self._position is None else applied,
            "delivered_up_to_ms": 0 if self._position is None else self._position[0] - 1,
            "node": step.node,
            "at_ms": taken_ms,
            "first": step.first,
            "holds": [self._hold(one) for one in step.holds],
        }
        key = f"{lane}/{step.epoch}" if step.first else f"{lane}"
        raw, topic = json.dumps(checkpoint | step.claims).encode(), self._names.checkpoint
        signature = KEYRING.sign_checkpoint(topic, lane, key.encode(), raw)
        record = BufferRecord(key.encode(), raw, [(wire.H_SIGNATURE, signature)])
        _produce(self._leader, topic, record, lane, timestamp=taken_ms - step.early_ms)

    def _hold(self, one: Holding) -> dict[str, Any]:
        first, next_ = ((0, 0, 0) if row is None else _key(_row(row)) for row in (one.first, one.next))
        last = None if one.last is None else _key(_row(one.last))
        return {"target": self._lane.target, "first": first, "next": next_, "last": last, "rows": 0}


def _row(of: Row) -> Request:
    """The request whose key a message is delivered by."""
    if isinstance(of, Request):
        return of
    assert of.request is not None, "not written back yet"
    return of.request


def _root(of: Row) -> Request:
    """The user's own request."""
    if isinstance(of, Next):
        # What the service cannot accept itself it treats as anybody's.
        return _row(of) if isinstance(_row(of).meaning, wire.Reject) else _root(of.of)
    if isinstance(of, Later | Deferred):
        return _root(of.of)
    return of if isinstance(of, Request) else _root(of.message)


def _user_own(of: Row) -> Request:
    """The request that an outcome is keyed by: what is written back of a message has one of its own."""
    return _user_own(of.of) if isinstance(of, Deferred) else _row(of)


def _deferred_headers(back: Deferred) -> list[Header]:
    row = _row(back.of)
    wanted = row.meaning
    assert isinstance(wanted, wire.Reschedule), wanted
    again = wanted._replace(
        scheduled_for_ms=wanted.scheduled_for_ms if back.to_ms is None else back.to_ms,
        parent=row.place.offset,
        root=_user_own(back).source,
        attempt=wanted.attempt + 1,
    )
    return wire.deferred_headers(again)


def _written_back(back: WrittenBack | Next | Later) -> tuple[Request, Request, Request, wire.Schedule]:
    """The row that is followed, the parent, the root, and what is asked for."""
    if isinstance(back, WrittenBack):
        row, reschedule = _row(back.message), _row(back.reschedule)
        wanted, word = reschedule.meaning, _user_own(back.reschedule).place.offset
        assert isinstance(wanted, wire.Reschedule)
        at_ms = wanted.scheduled_for_ms
        moved = row.schedule._replace(scheduled_for_ms=at_ms, due_ms=at_ms, moved_by=word)
        return row, reschedule, _root(back.message), moved
    row = _row(back.of)
    later = row.schedule._replace(due_ms=back.at_ms)
    if isinstance(back, Next):
        later = later._replace(scheduled_for_ms=back.at_ms, occurrence=back.number, attempt=1)
    else:
        later = later._replace(attempt=later.attempt + (not back.paused))
    return row, row, _root(back.of), later


def _key(request: Request) -> tuple[int, int, int]:
    return request.due_ms, request.place.partition, request.place.offset


def _produce(producer: Producer, topic: str, record: BufferRecord, partition: int, **more: Any) -> None:
    """Write one record and wait for it: records stand in the order of these calls."""
    headers: Any = record.headers
    producer.produce(topic, key=record.key, value=record.value, headers=headers, partition=partition, **more)
    assert producer.flush(30) == 0, f"{topic} takes nothing"
