"""Whose open transaction blocks a partition.

The leader of a partition knows its open transactions by their producers' ids (DescribeProducers, KIP-664).
The transactional id and since when it is open only its coordinator knows, which may be any broker; one that
none of them knows is *hanging*: nobody will end it but an operator.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from typing import Any, NamedTuple

from node.kafka.fetch.brokers import NO_ERROR, Brokers, Unreachable, asked_once
from node.kafka.fetch.transaction_requests import DescribeRequest, ListRequest, ProducersRequest


class TransactionOwner(NamedTuple):
    """A producer whose transaction is open. `transactional_id`: None if no coordinator knows it; `since_ms`:
    since when it is open, and `timeout_ms`: after which time Kafka aborts it, where that is known.
    """

    producer_id: int
    transactional_id: str | None = None
    since_ms: int | None = None
    timeout_ms: int | None = None


def owners(config: Mapping[str, Any], topic: str, ends: Mapping[int, int]) -> dict[int, TransactionOwner]:
    """Who holds the last stable offsets of these partitions, as far as the brokers say. Raises `Unreachable`,
    and `KafkaException`.
    """
    return asyncio.run(_owners(config, topic, ends))


async def _owners(
    config: Mapping[str, Any], topic: str, ends: Mapping[int, int]
) -> dict[int, TransactionOwner]:
    async with asked_once(config, topic, "its producers are not known") as brokers:
        leaders = (await brokers.lead(topic)).leaders
        found: dict[int, int] = {}
        for partition, end in ends.items():
            if partition in leaders:
                answer = await brokers.ask(leaders[partition].broker, ProducersRequest(topic, partition))
                found.update((partition, producer) for producer in _producers_from(answer, end))
        named = await _named(brokers, sorted(set(found.values())))
    return {
        partition: named.get(producer, TransactionOwner(producer)) for partition, producer in found.items()
    }


def _producers_from(answer: Any, end: int) -> list[int]:
    """The producer whose open transaction begins at the last stable offset; none, if it has moved on."""
    ((_, ((_, code, _, active, _),), _),) = answer.topics
    if code != NO_ERROR:
        return []
    return [producer for producer, _, _, _, _, start, _ in active if start == end]


async def _named(brokers: Brokers, producers: list[int]) -> dict[int, TransactionOwner]:
    """What coordinators know of producers. One that does not answer keeps nobody from the others' answers."""
    found: dict[int, TransactionOwner] = {}
    for node in brokers.known if producers else ():
        try:
            listed = await brokers.ask(node, ListRequest(producers))
            for transactional_id, producer, *_ in listed.transactions:
                described = await brokers.ask(node, DescribeRequest(transactional_id))
                found[producer] = _described(producer, transactional_id, described)
        except Unreachable:
            continue
    return found


def _described(producer: int, transactional_id: str, answer: Any) -> TransactionOwner:
    ((code, _, _, timeout_ms, since_ms, *_),) = answer.transactions
    if code != NO_ERROR or since_ms < 0:
        return TransactionOwner(producer, transactional_id)
    return TransactionOwner(producer, transactional_id, since_ms, timeout_ms)
