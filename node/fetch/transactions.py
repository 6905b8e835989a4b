"""Whose open transaction holds back the end of a partition: three requests that neither library has.

The leader of a partition knows its open transactions by their producers' ids (DescribeProducers, KIP-664).
The transactional id and since when it is open only its coordinator knows, which may be any broker; one that
none of them knows is *hanging*: nobody will end it but an operator.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from typing import Any, ClassVar, Final, NamedTuple

from aiokafka.protocol.api import Request, RequestStruct, Response
from aiokafka.protocol.types import CompactArray, CompactString, Int16, Int32, Int64, Schema, TaggedFields
from confluent_kafka import KafkaError

from node.fetch.brokers import NO_ERROR, Brokers, Unreachable

TIMEOUT_S: Final = 5.0


class Holder(NamedTuple):
    """A producer whose transaction is open. `transactional_id`: None if no coordinator knows it; `since_ms`:
    since when it is open, and `timeout_ms`: after which time Kafka aborts it, where that is known.
    """

    producer_id: int
    transactional_id: str | None = None
    since_ms: int | None = None
    timeout_ms: int | None = None


def holders(config: Mapping[str, Any], topic: str, ends: Mapping[int, int]) -> dict[int, Holder]:
    """Who holds the stable ends of these partitions, as far as the brokers say. Raises `Unreachable`, and
    `options.Unsupported`.
    """
    return asyncio.run(_holders(Brokers(config), topic, ends))


async def _holders(brokers: Brokers, topic: str, ends: Mapping[int, int]) -> dict[int, Holder]:
    try:
        async with asyncio.timeout(TIMEOUT_S):
            leaders = (await brokers.lead(topic)).leaders
            found: dict[int, int] = {}
            for partition, end in ends.items():
                if partition in leaders:
                    answer = await brokers.ask(leaders[partition].broker, _ProducersRequest(topic, partition))
                    found.update((partition, producer) for producer in _producers_from(answer, end))
            named = await _named(brokers, sorted(set(found.values())))
            return {partition: named.get(producer, Holder(producer)) for partition, producer in found.items()}
    except TimeoutError as error:
        raise Unreachable(KafkaError._TIMED_OUT, f"{topic}: its producers are not known") from error  # noqa: SLF001
    except (TypeError, ValueError) as error:
        raise Unreachable(KafkaError._BAD_MSG, f"{topic}: no sound answer: {error}") from error  # noqa: SLF001
    finally:
        await brokers.close()


def _producers_from(answer: Any, end: int) -> list[int]:
    """The producer whose open transaction begins at the stable end; none, if it has moved on."""
    ((_, ((_, code, _, active, _),), _),) = answer.topics
    if code != NO_ERROR:
        return []
    return [producer for producer, _, _, _, _, start, _ in active if start == end]


async def _named(brokers: Brokers, producers: list[int]) -> dict[int, Holder]:
    """What coordinators know of producers. One that does not answer keeps nobody from the others' answers."""
    found: dict[int, Holder] = {}
    for node in brokers.known if producers else ():
        try:
            listed = await brokers.ask(node, _ListRequest(producers))
            for transactional_id, producer, *_ in listed.transactions:
                described = await brokers.ask(node, _DescribeRequest(transactional_id))
                found[producer] = _described(producer, transactional_id, described)
        except Unreachable:
            continue
    return found


def _described(producer: int, transactional_id: str, answer: Any) -> Holder:
    ((code, _, _, timeout_ms, since_ms, *_),) = answer.transactions
    if code != NO_ERROR or since_ms < 0:
        return Holder(producer, transactional_id)
    return Holder(producer, transactional_id, since_ms, timeout_ms)


class _ProducersResponse(Response):  # type: ignore[misc]  # no types
    API_KEY = 61
    API_VERSION = 0
    SCHEMA = Schema(
        ("throttle_time_ms", Int32),
        (
            "topics",
            CompactArray(
                ("name", CompactString()),
                (
                    "partitions",
                    CompactArray(
                        ("partition", Int32),
                        ("error_code", Int16),
                        ("error_message", CompactString()),
                        (
                            "active_producers",
                            CompactArray(
                                ("producer_id", Int64),
                                ("producer_epoch", Int32),
                                ("last_sequence", Int32),
                                ("last_timestamp", Int64),
                                ("coordinator_epoch", Int32),
                                ("transaction_start_offset", Int64),
                                ("tags", TaggedFields),
                            ),
                        ),
                        ("tags", TaggedFields),
                    ),
                ),
                ("tags", TaggedFields),
            ),
        ),
        ("tags", TaggedFields),
    )


class _ProducersStruct(RequestStruct):  # type: ignore[misc]  # no types
    API_KEY = 61
    API_VERSION = 0
    FLEXIBLE_VERSION = True
    RESPONSE_TYPE = _ProducersResponse
    SCHEMA = Schema(
        (
            "topics",
            CompactArray(
                ("name", CompactString()), ("partitions", CompactArray(Int32)), ("tags", TaggedFields)
            ),
        ),
        ("tags", TaggedFields),
    )


class _ProducersRequest(Request[_ProducersStruct]):  # type: ignore[misc]  # no types
    """Who has written into a partition lately, and what of it is open."""

    API_KEY: ClassVar[int] = 61

    def __init__(self, topic: str, partition: int) -> None:
        self._topic, self._partition = topic, partition

    def build(self, request_struct_class: type[_ProducersStruct]) -> _ProducersStruct:
        """See the library."""
        return request_struct_class([(self._topic, [self._partition], {})], {})


class _ListResponse(Response):  # type: ignore[misc]  # no types
    API_KEY = 66
    API_VERSION = 0
    SCHEMA = Schema(
        ("throttle_time_ms", Int32),
        ("error_code", Int16),
        ("unknown_filters", CompactArray(CompactString())),
        (
            "transactions",
            CompactArray(
                ("transactional_id", CompactString()),
                ("producer_id", Int64),
                ("state", CompactString()),
                ("tags", TaggedFields),
            ),
        ),
        ("tags", TaggedFields),
    )


class _ListStruct(RequestStruct):  # type: ignore[misc]  # no types
    API_KEY = 66
    API_VERSION = 0
    FLEXIBLE_VERSION = True
    RESPONSE_TYPE = _ListResponse
    SCHEMA = Schema(
        ("states", CompactArray(CompactString())),
        ("producer_ids", CompactArray(Int64)),
        ("tags", TaggedFields),
    )


class _ListRequest(Request[_ListStruct]):  # type: ignore[misc]  # no types
    """The transactions of some producers that a broker coordinates."""

    API_KEY: ClassVar[int] = 66

    def __init__(self, producer_ids: list[int]) -> None:
        self._producer_ids = producer_ids

    def build(self, request_struct_class: type[_ListStruct]) -> _ListStruct:
        """See the library."""
        return request_struct_class([], self._producer_ids, {})


class _DescribeResponse(Response):  # type: ignore[misc]  # no types
    API_KEY = 65
    API_VERSION = 0
    SCHEMA = Schema(
        ("throttle_time_ms", Int32),
        (
            "transactions",
            CompactArray(
                ("error_code", Int16),
                ("transactional_id", CompactString()),
                ("state", CompactString()),
                ("timeout_ms", Int32),
                ("start_ms", Int64),
                ("producer_id", Int64),
                ("producer_epoch", Int16),
                (
                    "topics",
                    CompactArray(
                        ("name", CompactString()),
                        ("partitions", CompactArray(Int32)),
                        ("tags", TaggedFields),
                    ),
                ),
                ("tags", TaggedFields),
            ),
        ),
        ("tags", TaggedFields),
    )


class _DescribeStruct(RequestStruct):  # type: ignore[misc]  # no types
    API_KEY = 65
    API_VERSION = 0
    FLEXIBLE_VERSION = True
    RESPONSE_TYPE = _DescribeResponse
    SCHEMA = Schema(("transactional_ids", CompactArray(CompactString())), ("tags", TaggedFields))


class _DescribeRequest(Request[_DescribeStruct]):  # type: ignore[misc]  # no types
    """Since when a transaction is open, and for how long it may be."""

    API_KEY: ClassVar[int] = 65

    def __init__(self, transactional_id: str) -> None:
        self._transactional_id = transactional_id

    def build(self, request_struct_class: type[_DescribeStruct]) -> _DescribeStruct:
        """See the library."""
        return request_struct_class([self._transactional_id], {})
