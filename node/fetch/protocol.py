"""The two requests of Kafka's protocol that the library does not have in the versions needed here.

By the topic's id, so that a topic that was made anew is not read on as if it were the old one (KIP-516); and
with the leader epoch of what was read last, so that a log that has lost its end is noticed (KIP-595). Both
need brokers of Kafka 3.1 or newer. https://kafka.apache.org/protocol
"""

from __future__ import annotations

from collections.abc import Sequence
from io import BytesIO
from struct import Struct
from typing import Any, ClassVar, Final, NamedTuple

from aiokafka.protocol.api import Request, RequestStruct, Response
from aiokafka.protocol.types import (
    Boolean,
    CompactArray,
    CompactBytes,
    CompactString,
    Int8,
    Int16,
    Int32,
    Int64,
    Schema,
    TaggedFields,
)

NO_EPOCH: Final = -1
READ_COMMITTED: Final = 1
_ANY_REPLICA: Final = -1
_NO_SESSION: Final = (0, -1)
_DIVERGING: Final = 0  # the tag of what says from where on the log is another one
_diverging = Struct(">iq")


class Uuid:
    """A topic's id: 16 bytes."""

    @classmethod
    def encode(cls, value: bytes) -> bytes:
        """As it is."""
        return value

    @classmethod
    def decode(cls, data: BytesIO) -> bytes:
        """As it is."""
        return data.read(16)

    @classmethod
    def repr(cls, value: bytes) -> str:
        """For the library's log."""
        return value.hex()


class _MetadataResponse(Response):  # type: ignore[misc]  # no types
    API_KEY = 3
    API_VERSION = 12
    SCHEMA = Schema(
        ("throttle_time_ms", Int32),
        (
            "brokers",
            CompactArray(
                ("node_id", Int32),
                ("host", CompactString()),
                ("port", Int32),
                ("rack", CompactString()),
                ("tags", TaggedFields),
            ),
        ),
        ("cluster_id", CompactString()),
        ("controller_id", Int32),
        (
            "topics",
            CompactArray(
                ("error_code", Int16),
                ("name", CompactString()),
                ("topic_id", Uuid),
                ("is_internal", Boolean),
                (
                    "partitions",
                    CompactArray(
                        ("error_code", Int16),
                        ("partition", Int32),
                        ("leader", Int32),
                        ("leader_epoch", Int32),
                        ("replicas", CompactArray(Int32)),
                        ("in_sync", CompactArray(Int32)),
                        ("offline", CompactArray(Int32)),
                        ("tags", TaggedFields),
                    ),
                ),
                ("authorized_operations", Int32),
                ("tags", TaggedFields),
            ),
        ),
        ("tags", TaggedFields),
    )


class _MetadataStruct(RequestStruct):  # type: ignore[misc]  # no types
    API_KEY = 3
    API_VERSION = 12
    FLEXIBLE_VERSION = True
    RESPONSE_TYPE = _MetadataResponse
    SCHEMA = Schema(
        (
            "topics",
            CompactArray(
                ("topic_id", Uuid),
                ("name", CompactString()),
                ("tags", TaggedFields),
            ),
        ),
        ("allow_auto_topic_creation", Boolean),
        ("include_topic_authorized_operations", Boolean),
        ("tags", TaggedFields),
    )


class MetadataRequest(Request[_MetadataStruct]):  # type: ignore[misc]  # no types
    """Brokers, and of one topic its id and its partitions' leaders."""

    API_KEY: ClassVar[int] = 3

    def __init__(self, topic: str) -> None:
        self._topic = topic

    def build(self, request_struct_class: type[_MetadataStruct]) -> _MetadataStruct:
        """See the library."""
        return request_struct_class([(bytes(16), self._topic, {})], False, False, {})


class _FetchResponse(Response):  # type: ignore[misc]  # no types
    API_KEY = 1
    API_VERSION = 13
    SCHEMA = Schema(
        ("throttle_time_ms", Int32),
        ("error_code", Int16),
        ("session_id", Int32),
        (
            "topics",
            CompactArray(
                ("topic_id", Uuid),
                (
                    "partitions",
                    CompactArray(
                        ("partition", Int32),
                        ("error_code", Int16),
                        ("high_watermark", Int64),
                        ("last_stable_offset", Int64),
                        ("log_start_offset", Int64),
                        (
                            "aborted_transactions",
                            CompactArray(
                                ("producer_id", Int64), ("first_offset", Int64), ("tags", TaggedFields)
                            ),
                        ),
                        ("preferred_read_replica", Int32),
                        ("records", CompactBytes),
                        ("tags", TaggedFields),
                    ),
                ),
                ("tags", TaggedFields),
            ),
        ),
        ("tags", TaggedFields),
    )


class _FetchStruct(RequestStruct):  # type: ignore[misc]  # no types
    API_KEY = 1
    API_VERSION = 13
    FLEXIBLE_VERSION = True
    RESPONSE_TYPE = _FetchResponse
    SCHEMA = Schema(
        ("replica_id", Int32),
        ("max_wait_ms", Int32),
        ("min_bytes", Int32),
        ("max_bytes", Int32),
        ("isolation_level", Int8),
        ("session_id", Int32),
        ("session_epoch", Int32),
        (
            "topics",
            CompactArray(
                ("topic_id", Uuid),
                (
                    "partitions",
                    CompactArray(
                        ("partition", Int32),
                        ("current_leader_epoch", Int32),
                        ("fetch_offset", Int64),
                        ("last_fetched_epoch", Int32),
                        ("log_start_offset", Int64),
                        ("partition_max_bytes", Int32),
                        ("tags", TaggedFields),
                    ),
                ),
                ("tags", TaggedFields),
            ),
        ),
        (
            "forgotten_topics",
            CompactArray(
                ("topic_id", Uuid),
                ("partitions", CompactArray(Int32)),
                ("tags", TaggedFields),
            ),
        ),
        ("rack_id", CompactString()),
        ("tags", TaggedFields),
    )


class Wanted(NamedTuple):
    """A partition, from an offset on. `leader_epoch`: of who leads it now; `last_epoch`: of what was read of
    it last.
    """

    partition: int
    offset: int
    leader_epoch: int
    last_epoch: int


class FetchRequest(Request[_FetchStruct]):  # type: ignore[misc]  # no types
    """Committed records of some partitions of a topic that one broker leads."""

    API_KEY: ClassVar[int] = 1

    def __init__(
        self, topic_id: bytes, wanted: Sequence[Wanted], max_wait_ms: int, partition_bytes: int
    ) -> None:
        """`partition_bytes`: about what is wanted of each partition. The broker fills its answer in the order
        of the partitions, the first of them with one batch at least.
        """
        self._topic_id, self._wanted = topic_id, wanted
        self._max_wait_ms, self._partition_bytes = max_wait_ms, partition_bytes

    def build(self, request_struct_class: type[_FetchStruct]) -> _FetchStruct:
        """See the library."""
        partitions: list[tuple[Any, ...]] = [
            (one.partition, one.leader_epoch, one.offset, one.last_epoch, -1, self._partition_bytes, {})
            for one in self._wanted
        ]
        return request_struct_class(
            _ANY_REPLICA,
            self._max_wait_ms,
            1,
            self._partition_bytes * len(self._wanted),
            READ_COMMITTED,
            *_NO_SESSION,
            [(self._topic_id, partitions, {})],
            [],
            "",
            {},
        )


def diverges_at(tags: dict[int, Any]) -> int | None:
    """From which offset on the log is not the one that was read, if it is not."""
    raw = tags.get(_DIVERGING)
    return None if raw is None else int(_diverging.unpack_from(raw)[1])
