"""Where in a partition what was written under an earlier leader epoch ends, as its leader has it."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from typing import Any, ClassVar, Final

from aiokafka.protocol.api import Request, RequestStruct, Response
from aiokafka.protocol.types import CompactArray, CompactString, Int16, Int32, Int64, Schema, TaggedFields
from confluent_kafka import KafkaError

from node.kafka.fetch.brokers import NO_ERROR, Unreachable, asked_once

_CONSUMER: Final = -1


class _EpochEndResponse(Response):
    API_KEY = 23
    API_VERSION = 4
    SCHEMA = Schema(
        ("throttle_time_ms", Int32),
        (
            "topics",
            CompactArray(
                ("topic", CompactString()),
                (
                    "partitions",
                    CompactArray(
                        ("error_code", Int16),
                        ("partition", Int32),
                        ("leader_epoch", Int32),
                        ("end_offset", Int64),
                        ("tags", TaggedFields),
                    ),
                ),
                ("tags", TaggedFields),
            ),
        ),
        ("tags", TaggedFields),
    )


class _EpochEndStruct(RequestStruct):
    API_KEY = 23
    API_VERSION = 4
    FLEXIBLE_VERSION = True
    RESPONSE_TYPE = _EpochEndResponse
    SCHEMA = Schema(
        ("replica_id", Int32),
        (
            "topics",
            CompactArray(
                ("topic", CompactString()),
                (
                    "partitions",
                    CompactArray(
                        ("partition", Int32),
                        ("current_leader_epoch", Int32),
                        ("leader_epoch", Int32),
                        ("tags", TaggedFields),
                    ),
                ),
                ("tags", TaggedFields),
            ),
        ),
        ("tags", TaggedFields),
    )


class EpochEndRequest(Request[_EpochEndStruct]):
    """Where an epoch ends. A leader of another epoch than `leader_epoch` refuses."""

    API_KEY: ClassVar[int] = 23

    def __init__(self, topic: str, partition: int, epoch: int, leader_epoch: int) -> None:
        self._topic = topic
        self._wanted: tuple[Any, ...] = partition, leader_epoch, epoch, {}

    def build(self, request_struct_class: type[_EpochEndStruct]) -> _EpochEndStruct:
        """See the library."""
        return request_struct_class(_CONSUMER, [(self._topic, [self._wanted], {})], {})


def epoch_end(config: Mapping[str, Any], topic: str, partition: int, epoch: int, leader_epoch: int) -> int:
    """Where what was written up to an epoch ends, in the log of who leads the partition with `leader_epoch`;
    below zero: it does not know. Raises `Unreachable`, also where another one leads, and `KafkaException`.
    """
    return asyncio.run(_epoch_end(config, topic, partition, epoch, leader_epoch))


async def _epoch_end(
    config: Mapping[str, Any], topic: str, partition: int, epoch: int, leader_epoch: int
) -> int:
    where = f"{topic}/{partition}"
    async with asked_once(config, where, "the brokers do not answer") as brokers:
        leader = (await brokers.lead(topic)).leaders.get(partition)
        if leader is None:
            raise Unreachable(KafkaError.LEADER_NOT_AVAILABLE, f"{where} has no leader")
        answer = await brokers.ask(leader.broker, EpochEndRequest(topic, partition, epoch, leader_epoch))
        ((_, ((code, _, _, end, _),), _),) = answer.topics
    if code != NO_ERROR:
        raise Unreachable(code, f"{where}: {KafkaError(code).str()}")
    return int(end)
