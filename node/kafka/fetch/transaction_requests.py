"""Requests about producers and their transactions that neither library has, or not in the right version.

https://kafka.apache.org/protocol
"""

from __future__ import annotations

from typing import ClassVar, Final

from aiokafka.protocol.api import Request, RequestStruct, Response
from aiokafka.protocol.types import CompactArray, CompactString, Int16, Int32, Int64, Schema, TaggedFields

NO_SUCH_EPOCH: Final = 0x7FFF
"""No producer ever has it."""
NO_PRODUCER: Final = -1


class _ProducersResponse(Response):
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


class _ProducersStruct(RequestStruct):
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


class ProducersRequest(Request[_ProducersStruct]):
    """Who has written into a partition lately, and what of it is open."""

    API_KEY: ClassVar[int] = 61

    def __init__(self, topic: str, partition: int) -> None:
        self._topic, self._partition = topic, partition

    def build(self, request_struct_class: type[_ProducersStruct]) -> _ProducersStruct:
        """See the library."""
        return request_struct_class([(self._topic, [self._partition], {})], {})


class _ListResponse(Response):
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


class _ListStruct(RequestStruct):
    API_KEY = 66
    API_VERSION = 0
    FLEXIBLE_VERSION = True
    RESPONSE_TYPE = _ListResponse
    SCHEMA = Schema(
        ("states", CompactArray(CompactString())),
        ("producer_ids", CompactArray(Int64)),
        ("tags", TaggedFields),
    )


class ListRequest(Request[_ListStruct]):
    """The transactions of some producers that a broker coordinates."""

    API_KEY: ClassVar[int] = 66

    def __init__(self, producer_ids: list[int]) -> None:
        self._producer_ids = producer_ids

    def build(self, request_struct_class: type[_ListStruct]) -> _ListStruct:
        """See the library."""
        return request_struct_class([], self._producer_ids, {})


class _DescribeResponse(Response):
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


class _DescribeStruct(RequestStruct):
    API_KEY = 65
    API_VERSION = 0
    FLEXIBLE_VERSION = True
    RESPONSE_TYPE = _DescribeResponse
    SCHEMA = Schema(("transactional_ids", CompactArray(CompactString())), ("tags", TaggedFields))


class DescribeRequest(Request[_DescribeStruct]):
    """Since when a transaction is open, and for how long it may be."""

    API_KEY: ClassVar[int] = 65

    def __init__(self, transactional_id: str) -> None:
        self._transactional_id = transactional_id

    def build(self, request_struct_class: type[_DescribeStruct]) -> _DescribeStruct:
        """See the library."""
        return request_struct_class([self._transactional_id], {})


class _InitResponse(Response):
    API_KEY = 22
    API_VERSION = 4
    SCHEMA = Schema(
        ("throttle_time_ms", Int32),
        ("error_code", Int16),
        ("producer_id", Int64),
        ("producer_epoch", Int16),
        ("tags", TaggedFields),
    )


class _InitStruct(RequestStruct):
    API_KEY = 22
    API_VERSION = 4
    FLEXIBLE_VERSION = True
    RESPONSE_TYPE = _InitResponse
    SCHEMA = Schema(
        ("transactional_id", CompactString()),
        ("transaction_timeout_ms", Int32),
        ("producer_id", Int64),
        ("producer_epoch", Int16),
        ("tags", TaggedFields),
    )


class InitRequest(Request[_InitStruct]):
    """Initialises an id: what was open is aborted, and every earlier producer is fenced."""

    API_KEY: ClassVar[int] = 22

    def __init__(self, transactional_id: str, timeout_ms: int) -> None:
        self._at = transactional_id, timeout_ms, NO_PRODUCER, NO_PRODUCER

    def build(self, request_struct_class: type[_InitStruct]) -> _InitStruct:
        """See the library."""
        return request_struct_class(*self._at, {})


class FenceRequest(InitRequest):
    """Initialises an id for a producer that there cannot be: with an epoch that none has.

    Where a transaction is open, the coordinator aborts it and fences its producer, whatever the epoch; else
    it refuses, and nothing has changed [measured, 4.3.0]: what became of the last transaction is still known.
    """

    def __init__(self, transactional_id: str, producer_id: int, timeout_ms: int) -> None:
        self._at = transactional_id, timeout_ms, producer_id, NO_SUCH_EPOCH
