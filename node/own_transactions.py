"""What became of the lane's own last transactions, before anybody initialises their ids (rule 5).

Kafka's coordinator passes over a partition without a leader when it writes a transaction's markers [measured,
4.3.0]: the transaction has ended, and what it has sent there is left open for ever. In the checkpoint
partition that would keep every master from reading the last checkpoint.

What became of a transaction its coordinator knows until the id is initialised. So that is asked first: what
is being decided is waited for, and what is open is aborted without a new producer (`FenceRequest`). Where a
checkpoint is left open then, one that was committed is *confirmed*: written once more, in no transaction and
with another time, so that it counts whatever becomes of the first. Then what was left open is aborted, by a
transaction of the same producer that has nothing else. The node may die between any two of these steps: who
comes next finds the coordinator's word, or the confirmation.

The coordinator's word is of the id's last transaction. What was left open is of an earlier one only where the
last one was aborted before it had sent its checkpoint. Then the checkpoint of the one between them, on the
other id, stands behind it and shows that it was committed; unless the master has died in the milliseconds in
which both were being sent.

Nothing here commits, and all that it does to the ids is to fence them: so what node/outbox.py says of two
masters holds. Between the question and the initialisation another master, not fenced yet, may begin a
transaction. Should Kafka end that one, too, without a marker in the checkpoint partition, in these
milliseconds, then nobody knows what became of it. It is said, and delivery aborts it (`LeftOpen`): what was
committed of it is known to ZooKeeper, or to the node that did so, or is delivered again.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Collection
from contextlib import suppress
from typing import Any, Final, NamedTuple, TypeVar

import msgspec
import structlog
from confluent_kafka import KafkaError, KafkaException, Producer

from delayline.names import ClusterNames
from node.fetch.batches import Batch, batches_of, open_batch
from node.fetch.brokers import ANSWER_S, LATEST, NO_ERROR, Brokers, Leader, Led, Unreachable
from node.fetch.compression import Scratch
from node.fetch.coordinators import (
    ABORTED,
    COMMITTED,
    DECIDED,
    ONGOING,
    Coordinators,
    Described,
    OpenAt,
    open_in,
)
from node.fetch.options import Unsupported
from node.fetch.protocol import NO_EPOCH, READ_ALL, FetchRequest, Wanted
from node.fetch.records import LogRecord
from node.own_checkpoints import headers_of, own_checkpoint
from node.ports import Doubtful, Keys
from node.targets import Place
from store.checkpoint import Checkpoint, UnreadableCheckpoint

log = structlog.get_logger("delayline.outbox")

TIMEOUT_S: Final = 10.0
SHORTEST_REST_S: Final = 0.003
LONGEST_REST_S: Final = 0.25
CONFIRM_S: Final = 5.0
GONE_S: Final = 1.0
UNKNOWN_TOPIC_ID: Final = 100  # no name of the library has it
FETCH_BYTES: Final = 1 << 20

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


class _Open(NamedTuple):
    """The last checkpoint that a producer has left open in the lane's partition, and the others of the
    service's own that stand behind it and are not earlier.
    """

    checkpoint: Checkpoint
    behind: list[Checkpoint]

    @property
    def is_confirmed(self) -> bool:
        return any(one.order == self.checkpoint.order for one in self.behind)


class OwnTransactions:
    """Those of one lane. Used by one thread."""

    def __init__(
        self,
        client_config: dict[str, Any],
        names: ClusterNames,
        lane: int,
        transaction_timeout_ms: int,
        keys: Keys,
    ) -> None:
        """Raises `KafkaException` where the configuration asks for what is not to be had."""
        self._client_config = client_config
        self._topic = names.checkpoint
        self._lane = lane
        self._ids = names.transactional_ids(lane)
        self._keys = keys
        self._loop = asyncio.new_event_loop()
        try:
            self._brokers = Brokers(client_config)
        except Unsupported as error:
            raise KafkaException(KafkaError(KafkaError._INVALID_ARG, str(error))) from error  # noqa: SLF001
        self._coordinators = Coordinators(self._brokers, transaction_timeout_ms)
        self._led: Led | None = None

    def warm_up(self) -> None:
        """Connects to whom `settle` will ask."""
        with suppress(Unreachable):
            self._loop.run_until_complete(_sound(self._learn()))

    def settle(self, resigning: Callable[[], bool], why: Callable[[], str]) -> None:
        """Waits until the last transaction of each id is decided, and ends what of it was left open in the
        checkpoint partition. Raises `Doubtful` where that takes too long; `why` says what may hold it up.
        """
        self._loop.run_until_complete(self._settle(resigning, why))

    def abort(self, turn: int, places: Collection[Place]) -> str | None:
        """Begins to abort what the producer of an id may have left open in these partitions, and fences it:
        `settle` waits for the end. If a topic may not be written to, that one, and nothing is done. Raises
        `Doubtful`.
        """
        try:
            return self._loop.run_until_complete(_sound(self._abort(self._ids[turn], places)))
        except Unreachable as error:
            raise Doubtful(str(error)) from error

    def close(self) -> None:
        """Lets go of the connections."""
        if not self._loop.is_closed():
            self._loop.run_until_complete(self._brokers.close())
            self._loop.close()

    async def _abort(self, id_: str, places: Collection[Place]) -> str | None:
        last = await self._coordinators.described(id_)
        return None if last is None else await self._coordinators.abort_in(id_, last, places)

    async def _settle(self, resigning: Callable[[], bool], why: Callable[[], str]) -> None:
        begun_s = time.monotonic()
        while True:
            try:
                id_ = await _sound(self._step())
                if id_ is None:
                    return
                left = f"{id_} cannot be initialised{why()}"
            except Unreachable as error:
                code, left, self._led = error.error.code(), str(error), None
                if code in _NOT_SAID or (code in _GONE and time.monotonic() - begun_s > GONE_S):
                    log.debug("own-transactions-not-known", detail=left)
                    return
            waited_s = time.monotonic() - begun_s
            if waited_s > TIMEOUT_S or resigning():
                raise Doubtful(left)
            await asyncio.sleep(min(max(SHORTEST_REST_S, waited_s / 4), LONGEST_REST_S))

    async def _step(self) -> str | None:
        """One look, and what is to be done then; the id that is waited for, if any. Raises `Unreachable`."""
        described = await self._learn()
        for id_, last in described.items():
            if last.state == ONGOING and not await self._can_abort(id_, last):
                return None  # another Kafka than the one that was measured: the client aborts it
            if last.state not in DECIDED:
                return id_
        open_ = await self._open() if described else {}
        for id_, last in described.items():
            if last.producer in open_ and await self._end(id_, last, open_[last.producer]):
                return id_
        return None

    async def _learn(self) -> dict[str, Described]:
        """What became of the last transaction of each id that was ever used."""
        found = await asyncio.gather(*(self._coordinators.described(id_) for id_ in self._ids))
        if self._led is None:
            self._led = await self._brokers.lead(self._topic)
        return {id_: last for id_, last in zip(self._ids, found, strict=True) if last is not None}

    async def _can_abort(self, id_: str, last: Described) -> bool:
        """Begins to abort it, if it is open still."""
        return await self._coordinators.abort(id_, last.producer) or (
            last != await self._coordinators.described(id_)
        )

    @property
    def _leader(self) -> Leader:
        assert self._led is not None, "it was asked for"
        leader = self._led.leaders.get(self._lane)
        if leader is None:
            code = KafkaError.LEADER_NOT_AVAILABLE
            raise Unreachable(code, f"{self._topic}/{self._lane} has no leader")
        return leader

    async def _open(self) -> dict[int, OpenAt]:
        return await open_in(self._brokers, self._leader.broker, self._topic, self._lane)

    async def _end(self, id_: str, last: Described, at: OpenAt) -> bool:
        """Ends what a producer has left open, if it is known how; False if not."""
        found = await self._read(last.producer, at.begin)
        if found is None:
            return False  # none of the service's own: whoever has sent it ends it
        again, described = await self._open(), await self._coordinators.described(id_)
        if again.get(last.producer) != at or described != last:
            return True  # somebody is at work there: this is no more what became of it
        # Of an earlier epoch's transaction the state of the last one says nothing.
        was_committed = last.state == COMMITTED and at.epoch == last.epoch
        is_known = was_committed or last.state == ABORTED or bool(found.behind)
        if not is_known and not found.checkpoint.first:
            self._say_open(at)
            return False
        is_committed = was_committed or bool(found.behind)
        if is_committed and not found.is_confirmed:
            self._confirm(found.checkpoint)
        await self._coordinators.abort_in(id_, last, [(self._topic, self._lane)])
        log.warning(
            "checkpoint-without-marker",
            record=f"{self._topic}/{self._lane}/{at.begin}",
            was="committed" if is_committed else "aborted",
        )
        return True

    async def _read(self, producer: int, begin: int) -> _Open | None:
        """What is open there of a producer, None if it is no checkpoint of the service's own. What stands
        behind that was sent by who knew it to be committed: the next one of a mastership is (rule 5), and so
        is what confirms it.
        """
        found = [one async for one in self._read_from(begin)]
        ends = [at for at, (one, _) in enumerate(found) if one == producer]
        if not ends or any(found[at][1] is None for at in ends):
            return None
        last = found[ends[-1]][1]
        assert last is not None, "none is"
        later = [one for _, one in found[ends[-1] + 1 :] if one is not None and one != last]
        return _Open(last, [one for one in later if one.order >= last.order])

    async def _read_from(self, begin: int) -> AsyncIterator[tuple[int | None, Checkpoint | None]]:
        """What stands from an offset on, committed or not, each with the producer in whose transaction it was
        sent: a checkpoint, or None where it is none of the service's own that can be read here. Raises
        `Unreachable`.
        """
        scratch, broker = Scratch(), self._leader.broker
        end = await self._brokers.offset(self._topic, self._lane, broker, LATEST)
        while begin < end:
            batches = [one for one in await self._fetch(begin) if one.next_offset > begin]
            for batch in batches:
                for record in () if batch.is_control else open_batch(self._lane, batch, scratch).records:
                    yield batch.producer_of_transaction, self._own(record)
            if not batches:
                raise Unreachable(KafkaError._BAD_MSG, f"{self._topic} is not read to {end}")  # noqa: SLF001
            begin = batches[-1].next_offset

    async def _fetch(self, begin: int) -> list[Batch]:
        assert self._led is not None, "it was asked for"
        wanted = [Wanted(self._lane, begin, self._leader.epoch, NO_EPOCH)]
        request = FetchRequest(self._led.topic_id, wanted, 0, FETCH_BYTES, READ_ALL)
        answer = await self._brokers.ask(self._leader.broker, request)
        code = answer.error_code or answer.partitions[0].code
        if code != NO_ERROR:
            raise Unreachable(code, f"{self._topic}/{self._lane}: {KafkaError(code).str()}")
        return batches_of(answer.partitions[0].records)

    def _own(self, record: LogRecord) -> Checkpoint | None:
        try:
            found = own_checkpoint(record, self._topic, self._keys.ring)
        except UnreadableCheckpoint:
            return None
        return found if isinstance(found, Checkpoint) else None

    def _confirm(self, checkpoint: Checkpoint) -> None:
        """Writes down that it was committed, whatever becomes of its record. Raises `Unreachable`.

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
            code = failed[0].code() if failed else KafkaError._TIMED_OUT  # noqa: SLF001
            raise Unreachable(code, f"a checkpoint was not written to {self._topic}/{self._lane}")

    def _say_open(self, at: OpenAt) -> None:
        log.error(
            "own-transaction-open",
            record=f"{self._topic}/{self._lane}/{at.begin}",
            consequence="it is aborted; what it has delivered is delivered again, if it was committed and "
            "neither ZooKeeper nor this node knows that",
        )


async def _sound(asked: Awaitable[T]) -> T:
    """A sound answer in time. Raises `Unreachable`."""
    try:
        async with asyncio.timeout(ANSWER_S):
            return await asked
    except TimeoutError as error:
        raise Unreachable(KafkaError._TIMED_OUT, "the brokers do not answer") from error  # noqa: SLF001
    except (TypeError, ValueError, LookupError) as error:
        raise Unreachable(KafkaError._BAD_MSG, f"no sound answer: {error}") from error  # noqa: SLF001
