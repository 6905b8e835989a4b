"""Transactional ids as their coordinators know them: what became of the last transaction of each, and the end
of what was left open. Used by one thread, on its own event loop.

Nothing here makes a producer, so nothing here forgets: to initialise an id is to lose what became of its last
transaction.
"""

from __future__ import annotations

import asyncio
from collections.abc import Collection
from typing import Any, Final, NamedTuple

from aiokafka.protocol.transaction import AddPartitionsToTxnRequest, EndTxnRequest
from confluent_kafka import KafkaError

from node.kafka.fetch.brokers import NO_ERROR, Brokers, Unreachable
from node.kafka.fetch.transaction_requests import DescribeRequest, FenceRequest, InitRequest, ProducersRequest

ONGOING: Final = "Ongoing"
EMPTY: Final = "Empty"
COMMITTED: Final = "CompleteCommit"
ABORTED: Final = "CompleteAbort"
DECIDED: Final = frozenset((EMPTY, COMMITTED, ABORTED))

_NOT_FOUND: Final = 105  # no name of the library has it
_ELSEWHERE: Final = frozenset(
    (
        KafkaError.NOT_COORDINATOR,
        KafkaError.COORDINATOR_NOT_AVAILABLE,
        KafkaError.COORDINATOR_LOAD_IN_PROGRESS,
    )
)


class TransactionState(NamedTuple):
    """The last transaction of an id: its state, by whom it is, and since when, by which it differs from the
    one before. `EMPTY`: there was none since the id was initialised.
    """

    state: str
    producer: int
    epoch: int
    since_ms: int


class ProducerAt(NamedTuple):
    """A producer of an id, as long as nobody has initialised the id since."""

    producer: int
    epoch: int


class OpenAt(NamedTuple):
    """What a producer has open in a partition: its epoch, and the offset at which it begins. `last`: of which
    sequence its last record is.
    """

    epoch: int
    begin: int
    last: int


class Coordinators:
    """The coordinators of some transactional ids."""

    def __init__(self, brokers: Brokers, timeout_ms: int) -> None:
        self._brokers = brokers
        self._timeout_ms = timeout_ms
        self._of: dict[str, int] = {}  # by id

    async def described(self, id_: str) -> TransactionState | None:
        """None if the id was never used. Raises `Unreachable`."""
        found = await self._described(id_)
        return None if found is None else found[0]

    async def partitions_of(self, id_: str, last: TransactionState) -> set[tuple[str, int]]:
        """In which partitions a transaction is to end that is open, as far as whoever asks may see their
        topics; none if it is not the last one any more. Raises `Unreachable`.
        """
        found = await self._described(id_)
        return set() if found is None or found[0] != last else found[1]

    async def abort(self, id_: str, producer: int) -> bool:
        """Begins to abort what is open, and fences its producer. False if nothing is: nothing has changed.
        Raises `Unreachable`.
        """
        answer = await self._ask(id_, FenceRequest(id_, producer, self._timeout_ms))
        if answer.error_code == KafkaError.CONCURRENT_TRANSACTIONS:
            return True
        if answer.error_code in (KafkaError.PRODUCER_FENCED, KafkaError.INVALID_PRODUCER_EPOCH):
            return False
        self._expect(id_, answer.error_code)
        return True

    async def abort_in(
        self, id_: str, last: TransactionState, partition_ids: Collection[tuple[str, int]]
    ) -> str | None:
        """Begins to abort what a producer of this id has left open in partitions: by a transaction that ends
        there and does nothing else. If a topic may not be written to, that one, and nothing is done. Raises
        `Unreachable`.
        """
        forbidden = await self.add(id_, ProducerAt(last.producer, last.epoch), partition_ids)
        if forbidden is None:
            await self.abort(id_, last.producer)
        return forbidden

    async def initialise(self, id_: str) -> ProducerAt:
        """A new producer of an id: all others are fenced. Raises `Unreachable`."""
        answer = await self._ask(id_, InitRequest(id_, self._timeout_ms))
        self._expect(id_, answer.error_code)
        return ProducerAt(answer.producer_id, answer.producer_epoch)

    async def add(self, id_: str, at: ProducerAt, partition_ids: Collection[tuple[str, int]]) -> str | None:
        """Begins a transaction that is to end in partitions. If a topic may not be written to, that one, and
        nothing is done. Raises `Unreachable`, also where the producer is fenced.
        """
        topics: dict[str, list[int]] = {}
        for topic, partition in partition_ids:
            topics.setdefault(topic, []).append(partition)
        request = AddPartitionsToTxnRequest(id_, *at, list(topics.items()))
        answer = await self._ask(id_, request)
        for topic, answers in answer.errors:
            for partition, code in answers:
                if code == KafkaError.TOPIC_AUTHORIZATION_FAILED:
                    return str(topic)
                if code != KafkaError.OPERATION_NOT_ATTEMPTED:  # another one's says why
                    self._expect(id_, code, f"{topic}/{partition}")
        return None

    async def commit(self, id_: str, at: ProducerAt) -> None:
        """Commits what this producer has open. Raises `Unreachable`, also where it is fenced."""
        answer = await self._ask(id_, EndTxnRequest(id_, *at, transaction_result=True))
        self._expect(id_, answer.error_code)

    async def commit_in(self, id_: str, at: ProducerAt, partition_ids: Collection[tuple[str, int]]) -> None:
        """Commits what this producer has left open in partitions, as the last transaction was committed: by
        one that ends there and does nothing else. Raises `Unreachable`, also where it is fenced.

        Both requests are sent at once, and the coordinator takes them in order: between the two nobody dies
        who sends them. Where nothing was begun, nothing is committed.
        """
        begun = self.add(id_, at, partition_ids)
        answers = await asyncio.gather(begun, self.commit(id_, at), return_exceptions=True)
        for answer in answers:
            if isinstance(answer, BaseException):
                raise answer

    async def _described(self, id_: str) -> tuple[TransactionState, set[tuple[str, int]]] | None:
        answer = await self._ask(id_, DescribeRequest(id_))
        ((code, _, state, _, since_ms, producer, epoch, topics, _),) = answer.transactions
        if code == _NOT_FOUND:
            return None
        self._expect(id_, code)
        found = {(topic, partition) for topic, partitions, _ in topics for partition in partitions}
        return TransactionState(state, producer, epoch, since_ms), found

    async def _ask(self, id_: str, request: Any) -> Any:
        if id_ not in self._of:
            self._of[id_] = await self._brokers.coordinator(id_)
        try:
            return await self._brokers.ask(self._of[id_], request)
        except Unreachable:
            self._of.pop(id_, None)
            raise

    def _expect(self, id_: str, code: int, what: str = "") -> None:
        if code in _ELSEWHERE:
            self._of.pop(id_, None)
        if code != NO_ERROR:
            raise Unreachable(code, f"{what or f'the coordinator of {id_}'}: {KafkaError(code).str()}")


async def open_in(brokers: Brokers, leader: int, topic: str, partition: int) -> dict[int, OpenAt]:
    """What is open in a partition, by its producer's id. Raises `Unreachable`."""
    answer = await brokers.ask(leader, ProducersRequest(topic, partition))
    ((_, ((_, code, _, active, _),), _),) = answer.topics
    if code != NO_ERROR:
        raise Unreachable(code, f"{topic}/{partition}: {KafkaError(code).str()}")
    return {
        producer: OpenAt(epoch, begin, last) for producer, epoch, last, _, _, begin, _ in active if begin >= 0
    }
