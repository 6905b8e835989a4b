"""The lane's two transactional producers (rules 5 and 6, docs/design.md).

Two stable ids, `-a` and `-b`, in turn: after EndTxn the broker writes the transaction's markers while the
next transaction of the *same* id would be told CONCURRENT_TRANSACTIONS and wait for librdkafka's fixed 20 ms.

Why `open` initialises a, then b, and the first transaction after it is always on `-a`, then strictly in
turn: two nodes that both believe to be leader can open at the same time, and the calls may interleave so
that one ends with the valid `-a` and the other with the valid `-b`. If the second could begin on `-b`, both
would commit, each having read the same last checkpoint. As it is, the second's first transaction is on an
`-a` that is fenced, so it never commits; and the first's next one is on a `-b` that is fenced, so it
recovers. The exhaustive search over two leaders and both ids is in tests/simulation/fencing.py.

Nothing is begun on an id before the checkpoint of the last transaction, on the other one, is acknowledged. So
where a checkpoint is left open, and its id has had another transaction since, it can be seen to be committed
(node/kafka/own_transactions.py): its coordinator knows the last one only.
"""
# A transaction is a part of its outbox, and uses what is private to it: one module, one owner.
# ruff: noqa: SLF001

from __future__ import annotations

import random
import threading
import time
from collections.abc import Callable, Sequence
from collections.abc import Set as AbstractSet
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any, Final, NamedTuple, TypeVar, cast

import msgspec
import structlog
from confluent_kafka import KafkaError, KafkaException, Message, Producer

from delayline.names import ClusterNames, PartitionId
from delayline.rejects import RejectCode
from node.core.ports import (
    ANY_PARTITION,
    TARGET_UNAVAILABLE,
    Doubtful,
    Fenced,
    KeyringSource,
    Offsets,
    RecordRefused,
    Records,
    Unanswered,
)
from node.kafka.own_checkpoints import headers_of
from node.kafka.own_transactions import OwnTransactions, rest_s
from node.kafka.targets import BATCH_BYTES, KafkaTargets, KnownTargets, named
from node.refusal import Refusing, transactional_ids_forbidden
from store.checkpoint import Checkpoint
from store.keys import RowKey

log = structlog.get_logger("delayline.outbox")

SLOW_COMMIT_S: Final = 2.0
SLOW_FLUSH_S: Final = 0.5
OPEN_TIMEOUT_S: Final = 10.0
WARM_PRODUCERS: Final = 5
REPORTED_TRANSACTIONS: Final = 16
FATAL_TIMEOUT_S: Final = 0.1
CONNECT_TIMEOUT_S: Final = 5.0

# A broker that comes back is waited for by a whole transaction: ten seconds by default.
_RECONNECT: Final = {"reconnect.backoff.max.ms": 500}
_CONFIG: dict[str, Any] = {
    "enable.idempotence": True,
    "acks": "all",
    "partitioner": "murmur2_random",  # the Java client's: murmur2 of the key, any partition for a null key
    "allow.auto.create.topics": False,
    "batch.size": BATCH_BYTES,
    "linger.ms": 5,  # flush() does not wait for it; it fills batches of a large selection
    "message.max.bytes": 1_000_000_000,  # the brokers' limits decide, not the client's
    "queue.buffering.max.messages": 100_000,
    "queue.buffering.max.kbytes": 262_144,
}

_FENCED: Final = frozenset(
    (
        KafkaError._FENCED,
        KafkaError.PRODUCER_FENCED,
        KafkaError.INVALID_PRODUCER_EPOCH,
        KafkaError.INVALID_PRODUCER_ID_MAPPING,
    )
)
# What a record's size or content has to do with: it will be refused again, alone or in another batch.
_REFUSED: Final = {
    KafkaError.MSG_SIZE_TOO_LARGE: RejectCode.TOO_LARGE,
    KafkaError.RECORD_LIST_TOO_LARGE: RejectCode.TOO_LARGE,
    KafkaError.INVALID_RECORD: RejectCode.UNDELIVERABLE,
    KafkaError.INVALID_MSG: RejectCode.UNDELIVERABLE,
    KafkaError.INVALID_TIMESTAMP: RejectCode.UNDELIVERABLE,
    KafkaError.POLICY_VIOLATION: RejectCode.UNDELIVERABLE,
}
_GONE: Final = frozenset((RejectCode.TARGET_MISSING, RejectCode.TARGET_PARTITION))
# What says nothing of the record itself: another one's error, where it is reported, says why.
_NOT_ITS_OWN: Final = frozenset(
    (
        KafkaError._PURGE_QUEUE,
        KafkaError._PURGE_INFLIGHT,
        KafkaError._INVALID_DIFFERENT_RECORD,
    )
)

T = TypeVar("T")

Sent = tuple[AbstractSet[str], AbstractSet[PartitionId]]
"""The topics that a transaction has sent to, and which partitions were unavailable then."""

_Odd = SystemError | AttributeError

ProducerRef = list[Producer]
"""One producer, or none once it was discarded: whoever still has the list does not keep it alive."""


class Touched(NamedTuple):
    """Where a transaction may have something open: since when, by `time.monotonic`, in topics as they were
    known then, in all of their partitions or only in some; and which of them were unavailable then.
    """

    begun_s: float
    known: KnownTargets
    partition_ids: AbstractSet[PartitionId] | None = None
    unavailable: AbstractSet[PartitionId] = frozenset()

    def lost(self, targets: KafkaTargets) -> set[PartitionId]:
        """Where of these there may have been no leader since."""
        lost = targets.unled_since(self.begun_s, self.known) - self.unavailable
        return lost if self.partition_ids is None else lost & self.partition_ids


class Unmarked:
    """Where the transactions of an id may lack a marker, though they are decided: what was aborted there is
    open again, or what was committed. No partition_id is among both: nothing is sent to what is among either.
    """

    def __init__(self) -> None:
        self.aborted: set[PartitionId] = set()
        self.committed: set[PartitionId] = set()
        self._again: tuple[set[PartitionId], Touched] | None = None

    @property
    def partition_ids(self) -> set[PartitionId]:
        """All of them."""
        return self.aborted | self.committed

    @property
    def ending(self) -> Touched | None:
        """What is being aborted or committed again."""
        return None if self._again is None else self._again[1]

    def note_aborted(self, partition_ids: AbstractSet[PartitionId]) -> None:
        """What has sent to these was aborted; it has sent nothing to what is known here."""
        self.aborted |= partition_ids - self.committed

    def note_committed(self, partition_ids: AbstractSet[PartitionId]) -> None:
        """As `note_aborted`."""
        self.committed |= partition_ids - self.aborted

    def end_again(self, which: set[PartitionId], touched: Touched) -> None:
        """These of `which` are about to be ended again."""
        self._again = which, touched

    def note_ended(self, targets: KafkaTargets) -> None:
        """What was ended again is so; it may lack a marker again."""
        if self._again is not None:
            which, touched = self._again
            which |= touched.lost(targets)
            self._again = None


class CommitTime(NamedTuple):
    """When a commit was known, epoch ms, and how long it took since it was begun."""

    at_ms: int
    took_s: float


class KafkaOutbox:
    """Implements `node.core.ports.Outbox`. Used by the lane's thread; commits run on threads of their own."""

    def __init__(
        self,
        client_config: dict[str, Any],
        names: ClusterNames,
        lane: int,
        transaction_timeout_ms: int,
        targets: KafkaTargets,
        wake: Callable[[], None],
        is_to_step_down: Callable[[], bool],
        keys: KeyringSource,
    ) -> None:
        """`wake` is called, on another thread, when a commit is known; `is_to_step_down` says whether this
        node is to, and waits for the brokers no longer.
        """
        self.clock_offset_ms = 0
        self.committed: CommitTime | None = None  # the last one, before whoever waits for it knows
        self._config = (
            _RECONNECT | client_config | _CONFIG | {"transaction.timeout.ms": transaction_timeout_ms}
        )
        self._names = names
        self._lane = lane
        self._timeout_s = transaction_timeout_ms / 1000
        self._targets = targets
        self._wake = wake
        self._is_to_step_down = is_to_step_down
        self._keys = keys
        self._own = OwnTransactions(client_config, names, lane, transaction_timeout_ms, keys)
        self._warm: dict[str, list[ProducerRef]] = {"a": [], "b": []}
        self._pair: list[ProducerRef] = []
        self._turn = 0
        self._last: list[KafkaTransaction | None] = [None, None]  # of each id
        self._earlier: list[KafkaTransaction | None] = [None, None]  # the one before it
        self._unmarked = [Unmarked(), Unmarked()]  # see `_note_unmarked`
        self._doubtful: list[tuple[int, KafkaTransaction]] = []
        self._reported_left = 0
        # Two commit in turn; one in doubt may hang for a while and must not hold up those after it.
        self._committers = ThreadPoolExecutor(4, thread_name_prefix="commit")

    def warm_up(self) -> bool:
        """Connects another producer for each id ahead of the election: their first call costs half a second
        otherwise. False once there are enough of them: one for each try that a dead leader's open transaction
        may cost (see `_initialised`).

        They touch no transactional id before `open` initialises them. What a new leader has to know first is
        looked up meanwhile.
        """
        self._targets.expect(self._names.own_topics)
        self._own.warm_up()
        for suffix, refs in self._warm.items():
            if len(refs) < WARM_PRODUCERS:
                refs.append(self._connected(suffix))
        return any(len(refs) < WARM_PRODUCERS for refs in self._warm.values())

    def drop(self) -> None:
        """Lets the pair go; closing can take for ever, so it has a thread of its own."""
        while self._pair:
            _discard(self._pair.pop())

    def close(self) -> None:
        """Lets all producers go."""
        self.drop()
        self._discard_warm()
        self._own.close()
        self._committers.shutdown(wait=False, cancel_futures=True)

    def open(self) -> None:
        self._initialise()
        for how, end in (("committed", self._own.commit), ("aborted", self._own.abort)):
            if self._end_again(how, end):
                self._initialise()

    def forget_committed(self) -> None:
        """Another node may be leader: what it sends on the ids decides over what this one has committed, and
        no checkpoint of its tells what became of what is in doubt here.
        """
        for turn, last in enumerate(self._last):
            if last is not None and last.committed:
                self._last[turn] = None
            self._unmarked[turn].committed.clear()
        self._earlier, self._doubtful = [None, None], []

    def _initialise(self) -> None:
        self.drop()
        if topics := self._undecided:
            self._targets.keep(topics)
        self._fit_batches()
        self._own.settle(self._is_to_step_down, self._why)
        self._pair = [self._initialised("a"), self._initialised("b")]
        self._note_unmarked()
        self._turn = 0
        self._reported_left = REPORTED_TRANSACTIONS

    def begin(self) -> KafkaTransaction:
        turn = self._turn
        ref, unmarked = self._pair[turn], self._unmarked[turn]
        before, between = self._last[turn], self._last[1 - turn]
        if before is not None and between is not None:
            between.await_recorded()
        self._note_committed(turn)
        self._expect_unled()
        self._turn = 1 - turn
        try:
            ref[0].begin_transaction()
        except KafkaException as error:
            raise _translated(error, "a transaction cannot begin") from error
        reported, self._reported_left = self._reported_left > 0, max(0, self._reported_left - 1)
        self._earlier[turn] = before
        self._last[turn] = begun = KafkaTransaction(
            self,
            ref,
            unmarked,
            reported=reported,
            before=None if before is None else before.sent,
        )
        return begun

    def _note_committed(self, turn: int) -> None:
        """Where the last transactions of an id may lack a marker, which were committed: of the last one the
        markers may still be on their way, those of the one before were not when it was noted.
        """
        for one in (self._earlier[turn], self._last[turn]):
            if one is not None and one.committed and not self._targets.were_led_since(one.begun_s):
                self._unmarked[turn].note_committed(one.touched.lost(self._targets))

    def _expect_unled(self) -> None:
        for what in ("aborted", "committed"):
            unmarked: list[set[PartitionId]] = [getattr(one, what) for one in self._unmarked]
            if led := set[PartitionId]().union(*map(self._led, unmarked)):
                raise Doubtful(f"{named(led)} has a leader again: what was {what} there is {what} again")

    def _note_unmarked(self) -> None:
        """Where the last transactions of each id have no marker, now that they are decided.

        Kafka's coordinator passes over a partition without a leader when it writes a transaction's markers
        [measured, 4.3.0]: as soon as there is a leader again, what was aborted there is open again. Readers
        stop at it, and the next transaction of the id that ends there decides over it as well. So nothing is
        sent there before it is aborted again; or committed again, if it was committed. The last but one of an
        id was committed, and had ended when Kafka let the last one begin: what lacks a marker where both have
        sent, is the last one's.

        Whether there was a leader all the time, the watch can say once it has looked after the decision.
        """
        if topics := self._undecided:
            self._targets.await_look(topics)
        for turn, (unmarked, last) in enumerate(zip(self._unmarked, self._last, strict=True)):
            unmarked.note_ended(self._targets)
            lost = set[PartitionId]() if last is None else last.touched.lost(self._targets)
            if last is not None and last.committing and not last.committed:
                self._doubtful.append((turn, last))
            elif last is not None and not last.committed:
                unmarked.note_aborted(lost)
            else:
                unmarked.note_committed(lost)
            earlier = self._earlier[turn]
            if earlier is not None and earlier.committed:
                unmarked.note_committed(earlier.touched.lost(self._targets) - lost)
        self._last, self._earlier = [None, None], [None, None]

    @property
    def _undecided(self) -> frozenset[str]:
        """Where something may have been sent that may lack its marker. What is in doubt stays so over a
        recovery that fails.
        """
        doubtful = [one for _, one in self._doubtful]
        sent = [one.touched for one in (*doubtful, *self._earlier, *self._last) if one is not None]
        again = [one.ending for one in self._unmarked if one.ending is not None]
        return frozenset[str]().union(*(one.known for one in (*sent, *again)))

    def _decide(self, first: Checkpoint) -> None:
        """The first checkpoint of an epoch repeats the last one that was committed: a doubtful transaction
        that has another one was aborted.
        """
        for turn, last in self._doubtful:
            unmarked, lost = self._unmarked[turn], last.touched.lost(self._targets)
            if last.has_left(first):
                unmarked.note_committed(lost)
            else:
                unmarked.note_aborted(lost)
        self._doubtful = []

    def _end_again(self, how: str, end: Callable[[int, set[PartitionId]], str | None]) -> bool:
        """Begins to end what ended so and may be open still, where there is a leader again; the next
        initialisation waits for it. False if there is nothing.
        """
        unmarked: list[set[PartitionId]] = [getattr(one, how) for one in self._unmarked]
        led = [self._led(partition_ids) for partition_ids in unmarked]
        for turn, partition_ids in enumerate(led):
            if partition_ids:
                known = self._targets.known
                topics = {topic: known[topic] for topic, _ in partition_ids if topic in known}
                self._unmarked[turn].end_again(
                    unmarked[turn], Touched(time.monotonic(), topics, partition_ids)
                )
                if (forbidden := end(turn, partition_ids)) is not None:
                    self._targets.obstruct(
                        forbidden, RejectCode.TARGET_FORBIDDEN, f"{forbidden}: Write was withdrawn"
                    )
                    raise Doubtful(f"what was {how} in {forbidden} cannot be {how} again there")
                unmarked[turn] -= partition_ids
                log.warning(
                    "transaction-reaborted" if how == "aborted" else "transaction-recommitted",
                    partitions=named(partition_ids),
                )
        return any(led)

    def _led(self, unmarked: set[PartitionId]) -> set[PartitionId]:
        """Those of them that have a leader. What is not there any more is forgotten."""
        if unmarked:
            self._targets.keep({topic for topic, _ in unmarked})
        problems = {partition_id: self._targets.problem(*partition_id, b"", 0) for partition_id in unmarked}
        unmarked -= {
            partition_id for partition_id, problem in problems.items() if problem and problem[0] in _GONE
        }
        return {partition_id for partition_id, problem in problems.items() if problem is None}

    def _fit_batches(self) -> None:
        """A target that takes smaller messages than the others takes smaller batches, too."""
        batch_bytes = self._targets.batch_bytes()
        if batch_bytes != self._config["batch.size"]:
            self._config["batch.size"] = batch_bytes
            self._discard_warm()

    def _discard_warm(self) -> None:
        for refs in self._warm.values():
            while refs:
                _discard(refs.pop())

    def _connected(self, suffix: str) -> ProducerRef:
        producer = Producer(
            self._config | {"transactional.id": self._names.transactional_id(self._lane, suffix)}
        )
        try:
            producer.list_topics(self._names.checkpoint, timeout=CONNECT_TIMEOUT_S)
        except KafkaException as error:
            raise Unanswered(f"Kafka cannot be reached: {error}") from error
        return [producer]

    def _initialised(self, suffix: str) -> ProducerRef:
        """A producer whose id is initialised.

        Where a dead leader left a transaction open, the broker aborts it and answers CONCURRENT_TRANSACTIONS
        for some milliseconds; librdkafka's next try comes after a fixed 500 ms. Another producer, connected
        already, tries sooner. All other answers are waited for: the call resumes where it was.
        """
        begun_s = time.monotonic()
        ref = self._next(suffix)
        while True:
            waited_s = time.monotonic() - begun_s
            try:
                # A refusal is told at the end of the call, however soon it has come: so the call is short.
                ref[0].init_transactions(rest_s(waited_s))
                return ref
            except KafkaException as error:
                code = error.args[0].code()
                if code not in _TRY_AGAIN or waited_s > OPEN_TIMEOUT_S or self._is_to_step_down():
                    _discard(ref)
                    self._refuse_forbidden(error.args[0])
                    raise _translated(error, f"id {suffix} cannot be initialised{self._why()}") from error
            if code == KafkaError.CONCURRENT_TRANSACTIONS:
                _discard(ref)  # at once: its own next try would fence the one that comes after it
                time.sleep(rest_s(waited_s))
                ref = self._next(suffix)

    def _refuse_forbidden(self, error: KafkaError) -> None:
        if error.code() == KafkaError.TRANSACTIONAL_ID_AUTHORIZATION_FAILED:
            raise Refusing(transactional_ids_forbidden(self._names.transactional_ids(self._lane)))

    def _why(self) -> str:
        """What keeps a transaction from its end: the marker of a partition that is unavailable."""
        troubles = "; ".join(self._targets.troubles())
        return f", for its last transaction cannot end: {troubles}" if troubles else ""

    def _next(self, suffix: str) -> ProducerRef:
        return self._warm[suffix].pop() if self._warm[suffix] else self._connected(suffix)

    def _submit(self, commit: Callable[[], None]) -> Future[None]:
        future = self._committers.submit(commit)
        future.add_done_callback(lambda _: self._wake())
        return future


_TRY_AGAIN: Final = frozenset(
    (
        KafkaError.CONCURRENT_TRANSACTIONS,
        KafkaError._TIMED_OUT,
        KafkaError.COORDINATOR_LOAD_IN_PROGRESS,
        KafkaError.COORDINATOR_NOT_AVAILABLE,
        KafkaError.NOT_COORDINATOR,
    )
)


class KafkaTransaction:
    """Implements `node.core.ports.Transaction`.

    A record that the brokers refuse fails its transaction, reported or not; the report says why, and so which
    row it was. Each report takes the GIL, and where apply is busy waits for it: so only the first
    transactions after `open`, which every failure leads to, have them.
    """

    def __init__(
        self,
        outbox: KafkaOutbox,
        ref: ProducerRef,
        unmarked: Unmarked,
        *,
        reported: bool,
        before: Sent | None,
    ) -> None:
        """`unmarked`: where the id's transactions lack a marker. `before`: what the last one of the id has
        sent.
        """
        self.committing = False  # its end may be a commit
        self.committed = False
        self._flushed = threading.Event()  # its checkpoint is acknowledged, or never will be
        self._unsent: Exception | None = None  # why it never will be
        self._checkpoint: Checkpoint | None = None
        self.begun_s = time.monotonic()
        self.topics: AbstractSet[str] = frozenset()  # where it has sent anything
        self._unavailable: set[PartitionId] = set()  # when it was sent
        self._known: KnownTargets = {}  # when it was sent
        self._unmarked = unmarked
        self._before = before
        self._reported = reported
        self._outbox = outbox
        self._ref = ref
        self._written_back: Offsets = {}
        self._failed: tuple[str, KafkaError] | None = None  # the first failure: topic and error

    def send(self, records: Records) -> None:
        """A local rejection does not fail the transaction, so each is looked at."""
        self.topics = frozenset(records.topics)
        open_partitions = self._expect_open(records)
        produce = self._held().produce
        buffer = self._outbox._names.buffer
        on_delivery, on_written_back = self._on_delivery if self._reported else None, self._on_written_back
        for record in records:
            topic = record.topic
            report = on_written_back if topic == buffer else on_delivery
            headers = cast("Any", record.headers)  # the stub's list is invariant
            partition = record.partition
            if (
                open_partitions
                and partition == ANY_PARTITION
                and record.key is None
                and topic in open_partitions
            ):
                partition = random.choice(
                    open_partitions[topic]
                )  # the client would take an unavailable one, too
            while True:
                try:
                    # By position: names cost a fifth more. The one left out is another name of `on_delivery`.
                    produce(
                        topic,
                        record.value,
                        record.key,
                        partition,
                        report,
                        None,
                        record.timestamp_ms,
                        headers,
                    )
                    break
                except BufferError:
                    self._serve(lambda: self._held().poll(0.01))  # the queue is full: let some go out
                except KafkaException as error:
                    self._refuse(topic, error.args[0], record.row)

    @property
    def sent(self) -> Sent:
        """Where it has sent anything."""
        return self.topics, self._unavailable

    @property
    def touched(self) -> Touched:
        """Where it may have something open."""
        known = {topic: self._known[topic] for topic in self.topics if topic in self._known}
        return Touched(self.begun_s, known, None, self._unavailable)

    def _expect_open(self, records: Records) -> dict[str, Sequence[int]]:
        """Of topics of which some partitions are unavailable, those that are not.

        Raises `Doubtful` where what was planned has been unavailable since: it would hold this transaction
        up.
        """
        targets = self._outbox._targets
        self._known, unavailable = targets.known, targets.unavailable
        topics = unavailable.keys() & self.topics if unavailable else set[str]()
        self._unavailable = {(topic, number) for topic in topics for number in unavailable[topic]}
        if self._unmarked.aborted or self._unmarked.committed:
            self._expect_marked()
        for record in records if topics else ():  # made once more than sent: a target is in trouble
            if record.topic in topics:
                problem = targets.problem(record.topic, record.partition, record.key, 0)
                if problem is not None and problem[0] == TARGET_UNAVAILABLE:
                    raise Doubtful(f"{problem[1]}: it was open when this was planned")
        return {topic: partition_ids for topic in topics if (partition_ids := targets.open_partitions(topic))}

    def _expect_marked(self) -> None:
        """What is sent where a marker lacks would be committed with what was aborted there, or what was
        committed be aborted with it. Where such a partition is unavailable, nothing is sent there.
        """
        unmarked = {
            partition_id
            for partition_id in self._unmarked.partition_ids - self._unavailable
            if partition_id[0] in self.topics
        }
        if unmarked:
            raise Doubtful(f"what was aborted or committed in {named(unmarked)} may be open there still")

    def has_left(self, first: Checkpoint) -> bool:
        """Whether its checkpoint is the one that the first of an epoch repeats."""
        own = self._checkpoint
        return own is not None and first == msgspec.structs.replace(
            own,
            epoch=first.epoch,
            node=first.node,
            at_ms=first.at_ms,
            first=True,
            lineage=first.lineage,
        )

    def flush(self) -> Offsets:
        timeout_s = self._outbox._timeout_s
        until_s = time.monotonic() + SLOW_FLUSH_S + timeout_s
        left = self._serve(lambda: self._held().flush(SLOW_FLUSH_S))
        while left and self._failed is None and time.monotonic() < until_s:
            self._expect_targets()
            left = self._serve(lambda: self._held().flush(SLOW_FLUSH_S))
        if self._failed is not None:
            self._refuse(*self._failed, None)
        if left:
            raise Doubtful(f"{left} records were not acknowledged in {timeout_s} s")
        # An idempotent producer's records stand in their order, in whatever order they are acknowledged.
        return {partition: sorted(offsets) for partition, offsets in self._written_back.items()}

    def _expect_targets(self) -> None:
        """The client waits for a topic or partition that has gone; all else would wait with it. And it waits
        for the end of the id's last transaction, without a word. Only what the watch has seen counts: to ask
        here might take longer than what it is asked for.
        """
        targets = self._outbox._targets
        changed = targets.changed(self.topics, self._known, self._unavailable)
        if changed is not None:
            raise Doubtful(f"{changed} was deleted, changed or unavailable while records were sent to it")
        if self._before is not None and targets.unavailable:
            topics, unavailable = self._before
            held_up_by = targets.changed(topics, {}, unavailable)
            if held_up_by is not None:
                why = "; ".join(targets.troubles())
                raise Doubtful(
                    f"the last transaction of the id, with records for {held_up_by}, cannot end: {why}"
                )

    def checkpoint(self, checkpoint: Checkpoint) -> None:
        """Its acknowledgement also shows how far the brokers' clock is off."""
        self._checkpoint = checkpoint
        if checkpoint.first:
            self._outbox._decide(checkpoint)
        topic = self._outbox._names.checkpoint
        raw = checkpoint.encode()
        headers = headers_of(checkpoint, raw, topic, self._outbox._keys.ring)
        sent_ms = time.time_ns() // 1_000_000
        try:
            self._held().produce(
                topic,
                raw,
                checkpoint.record_key,
                checkpoint.lane,
                headers=headers,
                on_delivery=lambda error, message: self._on_checkpoint(error, message, sent_ms),
            )
        except (KafkaException, BufferError) as error:
            raise Doubtful(f"the checkpoint was refused: {error}") from error

    def commit(self) -> KafkaCommit:
        begun_s = time.monotonic()
        return KafkaCommit(self._outbox._submit(lambda: self._commit(begun_s)))

    def await_recorded(self) -> None:
        """Waits until its checkpoint is acknowledged. Raises `Doubtful`."""
        is_flushed = self._flushed.wait(SLOW_FLUSH_S + self._outbox._timeout_s)
        if not is_flushed or self._unsent is not None:
            why = self._unsent or "it takes too long"
            raise Doubtful(f"the checkpoint before is not acknowledged: {why}") from self._unsent

    def _commit(self, begun_s: float) -> None:
        try:
            self.flush()  # it says what is wrong, where the commit would only say that something is
        except Exception as error:
            self._unsent = error
            raise
        finally:
            self._flushed.set()
        self.committing = True
        try:
            self._serve(lambda: self._held().commit_transaction(SLOW_COMMIT_S), "the commit is not known")
        except Fenced:
            self.committing = False  # it was refused
            raise
        self.committed, self._before = True, None
        took_s = time.monotonic() - begun_s
        self._outbox.committed = CommitTime(time.time_ns() // 1_000_000, took_s)

    def _held(self) -> Producer:
        """The producer. It is not kept as such: librdkafka keeps the reports' callbacks until they are
        served, they keep this object, and a producer that its own callbacks keep alive never ends.
        """
        if not self._ref:
            raise Doubtful("the producer was let go")
        return self._ref[0]

    def _serve(self, call: Callable[[], T], what: str = "records were not acknowledged") -> T:
        """A call that serves the client's events. A fatal error, fencing above all, comes out of it as an
        exception; and as another one if a delivery report or the client's own log line met that exception
        first: what runs while an exception is set fails in odd ways, down to methods that are not found.
        """
        try:
            return call()
        except KafkaException as error:
            raise _translated(error, what) from error
        except (SystemError, AttributeError) as error:
            raise _translated(self._behind(error), what) from error

    def _behind(self, error: _Odd) -> KafkaException | _Odd:
        """The fatal error that a report or log line met. Where that has lost it (`returned NULL without
        setting an exception`), the next call has it; the transaction is given up in any case.
        """
        if isinstance(error.__cause__, KafkaException):
            return error.__cause__
        try:
            self._held().abort_transaction(FATAL_TIMEOUT_S)
        except KafkaException as fatal:
            return fatal
        return error

    def _refuse(self, topic: str, error: KafkaError, row: RowKey | None) -> None:
        """Raises what the failure of a record means for its transaction."""
        code = error.code()
        detail = f"{topic}: {error.str()}"
        if code == KafkaError.TOPIC_AUTHORIZATION_FAILED:
            self._outbox._targets.obstruct(topic, RejectCode.TARGET_FORBIDDEN, detail)
            raise Doubtful(detail)
        if code in _REFUSED:
            raise RecordRefused(
                detail, {} if row is None else {row: (_REFUSED[code], detail)}, _REFUSED[code]
            )
        raise _translated(KafkaException(error), "a record was not acknowledged")

    def _on_delivery(self, error: KafkaError | None, message: Message) -> None:
        if error is not None and (self._failed is None or self._failed[1].code() in _NOT_ITS_OWN):
            self._failed = message.topic() or "", error

    def _on_written_back(self, error: KafkaError | None, message: Message) -> None:
        if error is not None:
            self._on_delivery(error, message)
            return
        partition, offset = message.partition(), message.offset()
        assert partition is not None, "an acknowledged record has a partition"
        assert offset is not None, "an acknowledged record has an offset"
        self._written_back.setdefault(partition, []).append(offset)

    def _on_checkpoint(self, error: KafkaError | None, message: Message, sent_ms: int) -> None:
        if error is not None:
            return  # the commit fails
        acknowledged_ms = time.time_ns() // 1_000_000
        _, broker_ms = message.timestamp()
        if broker_ms < sent_ms:
            self._outbox.clock_offset_ms = broker_ms - sent_ms
        else:
            self._outbox.clock_offset_ms = max(0, broker_ms - acknowledged_ms)


class KafkaCommit:
    """Implements `node.core.ports.Commit`."""

    def __init__(self, future: Future[None]) -> None:
        self._future = future

    def done(self) -> bool:
        return self._future.done()

    def result(self) -> None:
        self._future.result()


def _translated(error: KafkaException | _Odd, what: str) -> Doubtful | Fenced:
    if not isinstance(error, KafkaException):
        return Doubtful(f"{what}: {error}")
    cause = error.args[0]
    if cause.code() in _FENCED:
        return Fenced(f"{what}: another producer has taken its id: {cause.str()}")
    return Doubtful(f"{what}: {cause.str()}")


def _discard(ref: ProducerRef) -> None:
    """Ends a producer without waiting for it: the last reference goes on a thread of its own.
    `close()` would abort and flush first, without a limit in time; the next `open` aborts for it.
    """
    threading.Thread(target=ref.clear, name="discard-producer", daemon=True).start()
