"""What became of the lane's own last transactions, before anybody initialises their ids (rule 5).

Kafka's coordinator passes over a partition without a leader when it writes a transaction's markers [measured,
4.3.0]: the transaction has ended, and what it has sent there is left open for ever. In the checkpoint
partition that would keep every leader from reading the last checkpoint.

What became of a transaction its coordinator knows until the id is initialised. So that is asked first: what
is being decided is waited for, and what is open is aborted without a new producer (`FenceRequest`). Where a
checkpoint is left open then, one that was committed is *confirmed*: written once more, in no transaction and
with another time, so that it counts whatever becomes of the first. Then what was left open is aborted, by a
transaction of the same producer that has nothing else. The node may die between any two of these steps: who
comes next finds the coordinator's word, or the confirmation.

The coordinator's word is of the id's last transaction. What was left open may be of an earlier one of the
same leadership. Then that one was committed, and the one between them, on the other id, has sent its
checkpoint: the last one is not begun before that is acknowledged (node/kafka/outbox.py). It stands behind
what was left open, and shows that it was committed. So nothing of a leadership that was committed is taken
for aborted.

Of an earlier leadership's the coordinator's word says nothing, nor once the id is initialised: between the
question and the initialisation another leader, not fenced yet, may begin a transaction. Nor does it where the
topic has lost what stood behind: the id's last transaction has begun after the checkpoint was sent then.
Nobody knows what became of such a one. It is said, and aborted: what was committed of it is known to
ZooKeeper, or to the node that did so, or is delivered again.

What is committed here has no record of its own: where a transaction of the id was committed and lacks a
marker, it is committed again, by a new producer, which is fenced as any other. All else that is done to the
ids is to fence them. So what node/kafka/outbox.py says of two leaders holds.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable, Collection
from contextlib import suppress
from typing import Any, Final, NamedTuple, TypeVar

import msgspec
import structlog
from confluent_kafka import KafkaError, Producer

from delayline.names import ClusterNames, PartitionId
from node.core.ports import Doubtful, KeyringSource
from node.kafka.fetch.batches import RecordBatch, batches_of
from node.kafka.fetch.brokers import ANSWER_S, LATEST, NO_ERROR, Brokers, Led, PartitionLeader, Unreachable
from node.kafka.fetch.coordinators import (
    ABORTED,
    COMMITTED,
    DECIDED,
    ONGOING,
    Coordinators,
    OpenAt,
    ProducerAt,
    TransactionState,
    open_in,
)
from node.kafka.fetch.protocol import NO_EPOCH, READ_ALL, FetchRequest, Wanted
from node.kafka.left_open import LeftOpen
from node.kafka.own_checkpoints import headers_of
from store.checkpoint import Checkpoint

log = structlog.get_logger("delayline.outbox")

TIMEOUT_S: Final = 10.0
SHORTEST_REST_S: Final = 0.003  # about what an answer takes on one network
LONGEST_REST_S: Final = 0.25
CONFIRM_S: Final = 5.0
GONE_S: Final = 1.0
UNKNOWN_TOPIC_ID: Final = 100  # no name of the library has it
FETCH_BYTES: Final = 1 << 20
APART_MS: Final = 1_000
"""The clocks of two brokers are less apart; a partition is rarely without a leader for less."""

_CONFIG: Final = {"acks": "all", "message.max.bytes": 1_000_000_000}
# Then it is as it was before anybody asked: the client initialises the ids, and aborts.
_NOT_SAID: Final = frozenset(
    (
        KafkaError.UNSUPPORTED_VERSION,
        KafkaError.TRANSACTIONAL_ID_AUTHORIZATION_FAILED,
        KafkaError.TOPIC_AUTHORIZATION_FAILED,
    )
)
# A broker that has just started may not know yet what there is.
_GONE: Final = frozenset((KafkaError.UNKNOWN_TOPIC_OR_PART, UNKNOWN_TOPIC_ID))

T = TypeVar("T")


class _Left(NamedTuple):
    """What an id's producer has left open in the lane's partition, and what became of the id's last one."""

    id_: str
    last: TransactionState
    at: OpenAt

    @property
    def was_committed(self) -> bool:
        """By the coordinator's word. A commit leaves the epoch as it is, and shows that whatever the same
        leadership has sent before was committed.
        """
        return self.last.state == COMMITTED and self.last.epoch == self.at.epoch

    def was_aborted(self, found: LeftOpen) -> bool:
        """By the coordinator's word, if nothing stands behind it that shows otherwise. Who aborts for the
        producer raises the epoch, and so does who initialises the id: what is further on is of another
        leadership. And what has begun long after the checkpoint was sent, has not sent it.
        """
        last = self.last
        is_its_own = last.since_ms <= found.appended_ms + APART_MS
        return last.state == ABORTED and last.epoch - self.at.epoch in (0, 1) and is_its_own


class OwnTransactions:
    """Those of one lane. Used by one thread."""

    def __init__(
        self,
        client_config: dict[str, Any],
        names: ClusterNames,
        lane: int,
        transaction_timeout_ms: int,
        keys: KeyringSource,
    ) -> None:
        """Raises `KafkaException` where the configuration asks for what is not to be had."""
        self._client_config = client_config
        self._topic = names.checkpoint
        self._lane = lane
        self._ids = names.transactional_ids(lane)
        self._keys = keys
        self._loop = asyncio.new_event_loop()
        self._brokers = Brokers(client_config)
        self._coordinators = Coordinators(self._brokers, transaction_timeout_ms)
        self._led: Led | None = None
        self._found: dict[str, tuple[tuple[Any, ...], LeftOpen]] = {}  # by id, and of what
        self._read_s = 0.0  # so long `settle` has read
        self._committing: dict[str, ProducerAt] = {}  # by id: what it has open is to be committed

    def warm_up(self) -> None:
        """Connects to whom `settle` will ask."""
        with suppress(Unreachable):
            self._loop.run_until_complete(_sound(self._learn()))

    def settle(self, is_to_step_down: Callable[[], bool], why: Callable[[], str]) -> None:
        """Waits until the last transaction of each id is decided, and ends what of it was left open in the
        checkpoint partition. Raises `Doubtful` where that takes too long; `why` says what may hold it up.
        """
        self._loop.run_until_complete(self._settle(is_to_step_down, why))

    def abort(self, turn: int, partition_ids: Collection[PartitionId]) -> str | None:
        """Begins to abort what the producer of an id may have left open in these partitions, and fences it:
        `settle` waits for the end. If a topic may not be written to, that one, and nothing is done. Raises
        `Doubtful`.
        """
        return self._done(self._abort(self._ids[turn], partition_ids))

    def commit(self, turn: int, partition_ids: Collection[PartitionId]) -> str | None:
        """As `abort`, but commits. Until the id is initialised by somebody else, `settle` does so where the
        coordinator has not answered.
        """
        return self._done(self._commit(self._ids[turn], partition_ids))

    def close(self) -> None:
        """Lets go of the connections."""
        if not self._loop.is_closed():
            self._loop.run_until_complete(self._brokers.close())
            self._loop.close()

    def _done(self, asked: Awaitable[str | None]) -> str | None:
        try:
            return self._loop.run_until_complete(_sound(asked))
        except Unreachable as error:
            raise Doubtful(str(error)) from error

    async def _abort(self, id_: str, partition_ids: Collection[PartitionId]) -> str | None:
        last = await self._coordinators.described(id_)
        return None if last is None else await self._coordinators.abort_in(id_, last, partition_ids)

    async def _commit(self, id_: str, partition_ids: Collection[PartitionId]) -> str | None:
        """Only the answer to an initialisation says which producer is this node's own: another leader's, who
        may have initialised the id meanwhile, must not be committed for.
        """
        at = self._committing[id_] = await self._coordinators.initialise(id_)
        forbidden = await self._coordinators.add(id_, at, partition_ids)
        if forbidden is None:
            await self._coordinators.commit(id_, at)
        return forbidden

    async def _settle(self, is_to_step_down: Callable[[], bool], why: Callable[[], str]) -> None:
        begun_s, self._read_s = time.monotonic(), 0.0
        while True:
            code = NO_ERROR
            try:
                id_ = await self._step(is_to_step_down)
                if id_ is None:
                    return
                left = f"{id_} cannot be initialised{why()}"
            except Unreachable as error:
                code, left, self._led = error.error.code(), str(error), None
            waited_s = time.monotonic() - begun_s - self._read_s
            if code in _NOT_SAID or (code in _GONE and waited_s > GONE_S):
                log.debug("transactions-lookup-failed", detail=left)
                return
            if waited_s > TIMEOUT_S or is_to_step_down():
                raise Doubtful(left)
            await asyncio.sleep(rest_s(waited_s))

    async def _step(self, is_to_step_down: Callable[[], bool]) -> str | None:
        """One look, and what is to be done then; the id that is waited for, if any. Raises `Unreachable`."""
        found = await _sound(self._look())
        if not isinstance(found, _Left):
            return found
        await _sound(self._end(found, await self._read(found, is_to_step_down)))
        return found.id_

    async def _look(self) -> _Left | str | None:
        """What is to be ended first; or the id that is waited for. Raises `Unreachable`."""
        described = await self._learn()
        for id_, last in described.items():
            own = self._committing.get(id_)
            if last.state == ONGOING and own == (last.producer, last.epoch):
                await self._coordinators.commit(id_, own)
            elif last.state == ONGOING and not await self._can_abort(id_, last):
                return None  # another Kafka than the one that was measured: the client aborts it
            if last.state not in DECIDED:
                return id_
        open_ = await self._open() if described else {}
        left = (
            _Left(id_, last, open_[last.producer])
            for id_, last in described.items()
            if last.producer in open_
        )
        return next(left, None)

    async def _learn(self) -> dict[str, TransactionState]:
        """What became of the last transaction of each id that was ever used."""
        found = await asyncio.gather(*(self._coordinators.described(id_) for id_ in self._ids))
        if self._led is None:
            self._led = await self._brokers.lead(self._topic)
        return {id_: last for id_, last in zip(self._ids, found, strict=True) if last is not None}

    async def _can_abort(self, id_: str, last: TransactionState) -> bool:
        """Begins to abort it, if it is open still."""
        return await self._coordinators.abort(id_, last.producer) or (
            last != await self._coordinators.described(id_)
        )

    @property
    def _partition_leader(self) -> PartitionLeader:
        assert self._led is not None, "it was asked for"
        leader = self._led.leaders.get(self._lane)
        if leader is None:
            code = KafkaError.LEADER_NOT_AVAILABLE
            raise Unreachable(code, f"{self._topic}/{self._lane} has no leader")
        return leader

    async def _open(self) -> dict[int, OpenAt]:
        return await open_in(self._brokers, self._partition_leader.broker, self._topic, self._lane)

    async def _end(self, left: _Left, found: LeftOpen) -> None:
        """Ends what a producer has left open, unless somebody is at work there: then `left` says no more what
        became of it. Raises `Doubtful` and `Unreachable`.
        """
        id_, last, at = left
        again, described = await self._open(), await self._coordinators.described(id_)
        if again.get(last.producer) != at or described != last:
            return
        checkpoint = found.checkpoint
        is_committed = checkpoint is not None and (left.was_committed or found.is_followed)
        if checkpoint is not None and is_committed and not found.is_confirmed:
            self._confirm(checkpoint)
        is_nothing = checkpoint is None or checkpoint.first
        is_aborted = not is_committed and not found.is_unreadable and (left.was_aborted(found) or is_nothing)
        self._say(at, "committed" if is_committed else "aborted" if is_aborted else None)
        if await self._coordinators.abort_in(id_, last, [(self._topic, self._lane)]) is not None:
            raise Doubtful(f"what was left open in {self._topic} cannot be aborted: Write was withdrawn")

    async def _read(self, left: _Left, is_to_step_down: Callable[[], bool]) -> LeftOpen:
        """What the topic itself says of it. However much stands there, it is read to the end that it has now,
        also by more than one call: what was read stays as it is while the partition's leader does. Raises
        `Doubtful` where this node is to step down, and `Unreachable`.
        """
        end = await _sound(
            self._brokers.offset(self._topic, self._lane, self._partition_leader.broker, LATEST)
        )
        found, begun_s = self._what_was_read(left), time.monotonic() - self._read_s
        while found.reached < end:
            if is_to_step_down():
                raise Doubtful(f"{self._topic}/{self._lane} is read to {found.reached}, not to {end}")
            for batch in await _sound(self._fetch(found.reached)):
                found.take(batch)
            before_s, self._read_s = self._read_s, time.monotonic() - begun_s
            if before_s <= TIMEOUT_S < self._read_s:
                log.warning(
                    "unmarked-checkpoint-read",
                    record=f"{self._topic}/{self._lane}/{left.at.begin}",
                    reached=found.reached,
                    end=end,
                    consequence="the lane waits until all of it is read",
                    way_out=f"see who may write to {self._topic}: only the nodes have to",
                )
        return found

    def _what_was_read(self, left: _Left) -> LeftOpen:
        """What was read of it before, by another call; else nothing yet."""
        assert self._led is not None, "it was asked for"
        producer, begin = left.last.producer, left.at.begin
        of = self._led.topic_id, self._partition_leader, self._keys.ring, producer, begin
        known_of, found = self._found.get(left.id_, (None, None))
        if found is None or known_of != of:
            found = LeftOpen(self._topic, self._lane, self._keys, producer, begin)
            self._found[left.id_] = of, found
        return found

    async def _fetch(self, begin: int) -> list[RecordBatch]:
        assert self._led is not None, "it was asked for"
        wanted = [Wanted(self._lane, begin, self._partition_leader.epoch, NO_EPOCH)]
        request = FetchRequest(self._led.topic_id, wanted, 0, FETCH_BYTES, READ_ALL)
        answer = await self._brokers.ask(self._partition_leader.broker, request)
        code = answer.error_code or answer.partitions[0].code
        if code != NO_ERROR:
            raise Unreachable(code, f"{self._topic}/{self._lane}: {KafkaError(code).str()}")
        found = [one for one in batches_of(answer.partitions[0].records) if one.next_offset > begin]
        if not found:
            raise Unreachable(KafkaError._BAD_MSG, f"{self._topic} is not read behind {begin}")
        return found

    def _confirm(self, checkpoint: Checkpoint) -> None:
        """Writes down that it was committed, whatever becomes of its record. Raises `Doubtful`.

        It bears another time: what is the same as what was aborted would count as a copy of that.
        """
        confirmed = msgspec.structs.replace(checkpoint, at_ms=checkpoint.at_ms + 1)
        raw = confirmed.encode()
        failed: list[KafkaError] = []
        producer = Producer(self._client_config | _CONFIG)
        producer.produce(
            self._topic,
            raw,
            confirmed.record_key,
            self._lane,
            headers=headers_of(confirmed, raw, self._topic, self._keys.ring),
            on_delivery=lambda error, _: failed.append(error) if error is not None else None,
        )
        if producer.flush(CONFIRM_S) or failed:
            why = failed[0].str() if failed else "the brokers do not answer"
            raise Doubtful(f"a checkpoint was not written to {self._topic}/{self._lane}: {why}")

    def _say(self, at: OpenAt, was: str | None) -> None:
        """What it was; None: nobody knows, and here exactly once may become at least once."""
        record = f"{self._topic}/{self._lane}/{at.begin}"
        if was is not None:
            log.warning("checkpoint-marker-lost", record=record, was=was)
            return
        log.error(
            "transaction-left-open",
            record=record,
            consequence="it is aborted; what it has delivered is delivered again, if it was committed and "
            "neither ZooKeeper nor this node knows that",
        )


def rest_s(waited_s: float) -> float:
    """Before the next try, once so much was waited: little is added, and nobody is asked all the time."""
    return min(max(SHORTEST_REST_S, waited_s / 4), LONGEST_REST_S)


async def _sound(asked: Awaitable[T]) -> T:
    """A sound answer in time. Raises `Unreachable`."""
    try:
        async with asyncio.timeout(ANSWER_S):
            return await asked
    except TimeoutError as error:
        raise Unreachable(KafkaError._TIMED_OUT, "the brokers do not answer") from error
    except (TypeError, ValueError, LookupError) as error:
        raise Unreachable(KafkaError._BAD_MSG, f"no sound answer: {error}") from error
