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
    ProducerAt,
    open_in,
)
from ops.errors import UnavailableError

TIMEOUT_S: Final = 10.0
REST_S: Final = 0.05
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
        self._coordinators = Coordinators(brokers, int(TIMEOUT_S * 1000))
        self._committing: ProducerAt | None = None

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
        if last.state == ONGOING and producer == self._committing:
            await self._coordinators.commit(self._id, producer)
        elif last.state == ONGOING:
            return None
        elif last.state in DECIDED:
            left_epoch = await self._left_open(last.producer)
            if left_epoch is None:
                return None
            if last.state == COMMITTED and last.epoch == left_epoch:
                await self._commit(producer)
            elif last.state == ABORTED and last.epoch - left_epoch in (0, 1):  # to abort may raise it
                await self._coordinators.abort_in(self._id, last, [(self._topic, PARTITION)])
            else:
                return None
        return f"the last transaction of {self._id} is {last.state}"

    async def _left_open(self, producer: int) -> int | None:
        """In which epoch, if it is."""
        leader = (await self._brokers.lead(self._topic)).leaders.get(PARTITION)
        if leader is None:
            return None
        left = (await open_in(self._brokers, leader.broker, self._topic, PARTITION)).get(producer)
        return None if left is None else left.epoch

    async def _commit(self, producer: ProducerAt) -> None:
        """By a transaction of the same producer that does nothing else: whoever has initialised the id since
        has fenced it.
        """
        if await self._coordinators.add(self._id, producer, [(self._topic, PARTITION)]) is None:
            self._committing = producer
            await self._coordinators.commit(self._id, producer)
