"""What a retrying consumer is made of, and what it does with what it holds; no broker is there."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator
from functools import partial
from typing import Any, cast

import pytest
from confluent_kafka import TopicPartition

from delayline.errors import ClosedError, ConfigurationError
from delayline.names import PartitionId
from delayline.retry import Attempt, RetryingConsumer
from delayline.retry.progress import CLOSED, Mark, PartitionProgress, State
from delayline.retry.worker import HandledRecord, Handling

CONFIG = {"bootstrap.servers": "127.0.0.1:1", "group.id": "g", "log_level": 0}
KEPT, LOST = ("t", 0), ("t", 1)


def record_of(place: PartitionId) -> HandledRecord:
    return HandledRecord(place, 0, cast("Any", None))


def test_what_waits_and_what_is_in_hand_of_a_lost_partition_is_the_next_ones() -> None:
    consumer = RetryingConsumer(CONFIG, ["t"], lambda _: None)
    consumer._partitions = {place: PartitionProgress(0, CLOSED) for place in (KEPT, LOST)}
    consumer._waiting.extend([record_of(LOST), record_of(KEPT)])
    consumer._handling = Handling(record_of(LOST), None)
    consumer._lost(consumer._consumer, [TopicPartition(*LOST)])
    assert consumer._handling.is_abandoned
    assert [record.partition_id for record in consumer._waiting] == [KEPT]
    assert list(consumer._partitions) == [KEPT]


async def waits(_: Attempt) -> None: ...


async def waits_and_yields(_: Attempt) -> AsyncIterator[None]:
    yield


def yields(_: Attempt) -> Iterator[None]:
    yield


class Waits:
    async def __call__(self, _: Attempt) -> None: ...

    async def handle(self, _: Attempt) -> None: ...


@pytest.mark.parametrize(
    "handler",
    [waits, partial(waits), waits_and_yields, yields, Waits(), Waits().handle, None],
    ids=["async", "partial", "async generator", "generator", "async object", "async method", "none"],
)
def test_a_handler_whose_call_does_not_run_it_is_refused(handler: Any) -> None:
    with pytest.raises(ConfigurationError, match=r"the handler .*: give a (plain )?function"):
        RetryingConsumer(CONFIG, ["t"], handler)


@pytest.mark.parametrize(
    ("argument", "value"),
    [
        *[("max_deaths", wrong) for wrong in (0, -1, True, 1.5, "3")],
        *[("grace_s", wrong) for wrong in (-0.1, float("nan"), float("inf"), "5", None)],
    ],
)
def test_numbers_that_mean_nothing_are_refused(argument: str, value: Any) -> None:
    with pytest.raises(ConfigurationError, match=f"{argument} is {value!r}: use"):
        RetryingConsumer(CONFIG, ["t"], lambda _: None, **{argument: value})


def test_without_a_most_of_deaths_a_message_that_kills_is_handed_over_again() -> None:
    consumer = RetryingConsumer(CONFIG, ["t"], lambda _: None, max_deaths=None)
    progress = PartitionProgress(0, Mark(State.IN_HAND, 99))
    consumer._partitions = {KEPT: progress}
    cast("Any", consumer)._commit = lambda _: True  # there is no broker to take it
    consumer._waiting.append(record_of(KEPT))
    consumer._begin(consumer._waiting[0])
    assert consumer._handling is not None
    assert consumer._handling.outcome is None


def test_a_consumer_that_does_not_run_can_be_closed() -> None:
    with RetryingConsumer(CONFIG, ["t"], lambda _: None) as consumer:
        pass
    consumer.close()
    with pytest.raises(RuntimeError, match="closed"):
        consumer._consumer.poll(0)
    with pytest.raises(ClosedError, match="closed"):
        consumer._sender.open()
    with pytest.raises(ClosedError, match="has run or is closed"):
        consumer.run()
