"""What a change of settings has left open: a transaction that has ended without its marker in their topic.

Kafka's coordinator passes over a partition without a leader when it writes a transaction's markers
(docs/design.md, rule 5). Then nobody reads on there, and so nobody can change the settings. What became of
the transaction its coordinator knows until the id is initialised. So it is asked before that, and what was
left open ends as the rest of it did: where that was committed, the marks in the buffer count.
"""

from __future__ import annotations

import asyncio
import time
from concurrent.futures import ThreadPoolExecutor
from typing import Any, Final

from confluent_kafka import KafkaError

from delayline.names import ClusterNames
from delayline.settings_record import PARTITION
from node.kafka.fetch.brokers import ANSWER_S, Brokers, Unreachable
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
from ops.errors import UnavailableError

TIMEOUT_S: Final = 10.0
REST_S: Final = 0.05
MARKED: Final = 0  # a partition of the buffer: any has a mark
CHANGE_SEQUENCE: Final = 1  # of the change's record; the one in front of it says nothing
# What passes. Of all else the client says what to do: then it is as if nobody had asked.
_PASSES: Final = frozenset(
    (
        KafkaError.COORDINATOR_LOAD_IN_PROGRESS,
        KafkaError.COORDINATOR_NOT_AVAILABLE,
        KafkaError.NOT_COORDINATOR,
        KafkaError.NOT_LEADER_FOR_PARTITION,
        KafkaError.CONCURRENT_TRANSACTIONS,
        KafkaError._TIMED_OUT,
        KafkaError._TRANSPORT,
    )
)


def end_left_open(client_config: dict[str, Any], names: ClusterNames) -> None:
    """Ends it as its coordinator says that it has ended. Does nothing where nothing is open, where a
    transaction is on its way, and where nobody knows how it has ended. Raises UnavailableError.

    To end it takes a transaction of the same producer, and whoever has begun that may die before its end.
    Then the coordinator aborts it in time, and what was left open with it: right for what was aborted, wrong
    for what was committed. So that one is committed by whoever comes next (`_is_committed_again`).
    """
    # The caller's thread may have a loop that runs, as in a notebook.
    with ThreadPoolExecutor(1, "delayline-settings") as beside:
        beside.submit(asyncio.run, _end(client_config, names)).result()


async def _end(client_config: dict[str, Any], names: ClusterNames) -> None:
    brokers, until_s = Brokers(client_config), time.monotonic() + TIMEOUT_S
    end = _End(brokers, names)
    try:
        while (why := await end.step()) is not None:
            if time.monotonic() > until_s:
                raise UnavailableError(f"what an earlier change has left open cannot be ended: {why}")
            await asyncio.sleep(REST_S)
    finally:
        await brokers.close()


class _End:
    def __init__(self, brokers: Brokers, names: ClusterNames) -> None:
        self._brokers = brokers
        self._id = names.settings_transactional_id
        self._topic = names.settings
        self._left = names.settings, PARTITION
        self._buffer = names.buffer
        self._coordinators = Coordinators(brokers, int(TIMEOUT_S * 1000))

    async def step(self) -> str | None:
        """One look, and what is to be done then; None if that is all, else what is waited for."""
        try:
            async with asyncio.timeout(ANSWER_S):
                return await self._step()
        except TimeoutError:
            return "the brokers do not answer"
        except Unreachable as error:
            return str(error) if error.error.code() in _PASSES else None

    async def _step(self) -> str | None:
        last = await self._coordinators.described(self._id)
        if last is None:
            return None
        producer = ProducerAt(last.producer, last.epoch)
        if last.state == ONGOING:
            if not await self._is_committed_again(last):
                return None
            await self._coordinators.commit(self._id, producer)
        elif last.state in DECIDED:
            left = await self._left_open(last.producer)
            if left is None:
                return None
            if last.state == COMMITTED and last.epoch == left.epoch:
                await self._coordinators.commit_in(self._id, producer, [self._left])
            elif last.state == ABORTED and last.epoch - left.epoch in (0, 1):  # to abort may raise it
                await self._coordinators.abort_in(self._id, last, [self._left, (self._buffer, MARKED)])
            else:
                return None
        return f"the last transaction of {self._id} is {last.state}"

    async def _is_committed_again(self, last: TransactionState) -> bool:
        """Whether a transaction that is open is one of `commit_in`, whose sender may have died.

        By what it ends in, which is the settings topic alone, and by what its producer has left open there,
        which has the change's record. For an epoch is of one command, which sends one change. The change's
        own transaction ends in the buffer as well before its record is sent: the marks are in front of that.
        One that aborts what was left open does from its begin. (Who writes without marks repeats what stands:
        once its record is there, to commit it is what it is about to do.)
        """
        await self._brokers.lead(self._buffer)  # who may not see that is not told that it is among them
        if await self._coordinators.partitions_of(self._id, last) != {self._left}:
            return False
        left = await self._left_open(last.producer)
        return left is not None and left.epoch == last.epoch and left.last >= CHANGE_SEQUENCE

    async def _left_open(self, producer: int) -> OpenAt | None:
        """What it has left open, if it has."""
        leader = (await self._brokers.lead(self._topic)).leaders.get(PARTITION)
        if leader is None:
            return None
        return (await open_in(self._brokers, leader.broker, self._topic, PARTITION)).get(producer)
