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
    CompactString,
    Int8,
    Int16,
    Int32,
    Schema,
    TaggedFields,
)

NO_EPOCH: Final = -1
READ_ALL: Final = 0
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


class _MetadataResponse(Response):
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


class _MetadataStruct(RequestStruct):
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


class MetadataRequest(Request[_MetadataStruct]):
    """Brokers, and of one topic its id and its partitions' leaders."""

    API_KEY: ClassVar[int] = 3

    def __init__(self, topic: str) -> None:
        self._topic = topic

    def build(self, request_struct_class: type[_MetadataStruct]) -> _MetadataStruct:
        """See the library."""
        return request_struct_class([(bytes(16), self._topic, {})], False, False, {})


class Fetched(NamedTuple):
    """What a broker says of one partition. `aborted`: of each aborted transaction that the records may have
    something of, its producer's id and its first offset. `diverges_at`: from which offset on the log is not
    the one that was read, if it is not.
    """

    partition: int
    code: int
    stable_end: int
    aborted: list[tuple[int, int]]
    records: memoryview
    diverges_at: int | None


class _FetchAnswer:
    """Version 13, read by hand: there is one for every few records, and the library takes its time."""

    API_KEY = 1
    API_VERSION = 13

    def __init__(self, error_code: int, partitions: list[Fetched]) -> None:
        self.error_code = error_code
        self.partitions = partitions

    @classmethod
    def decode(cls, data: BytesIO) -> _FetchAnswer:
        """What is behind the answer's header."""
        reader = _Reader(data.getvalue(), data.tell())
        _, error_code, _ = reader.take(_answer_head)
        partitions: list[Fetched] = []
        for _ in range(reader.count()):
            reader.skip(_TOPIC_ID_BYTES)
            partitions += [_fetched(reader) for _ in range(reader.count())]
            reader.tags()
        return cls(error_code, partitions)


def _fetched(reader: _Reader) -> Fetched:
    partition, code, _, stable_end, _ = reader.take(_partition_head)
    aborted: list[tuple[int, int]] = []
    for _ in range(reader.count()):
        producer, first = reader.take(_two_longs)
        aborted.append((producer, first))
        reader.tags()
    reader.skip(_INT_BYTES)  # of no account: the replica to read from
    records = reader.bytes(reader.count())
    raw = reader.tags().get(_DIVERGING)
    diverges_at = None if raw is None else _diverging.unpack_from(raw)[1]
    return Fetched(partition, code, stable_end, aborted, records, diverges_at)


_answer_head = Struct(">ihi")
_partition_head = Struct(">ihqqq")
_two_longs = Struct(">qq")
_wanted = Struct(">iiqiqi")
_request_head = Struct(">iiiibii")
_INT_BYTES: Final = 4
_TOPIC_ID_BYTES: Final = 16


class _Reader:
    """Reads an answer from a byte on. Raises `struct.error`, ValueError or IndexError at a wrong end."""

    def __init__(self, raw: bytes, at: int) -> None:
        self._raw = raw
        self._at = at

    def take(self, form: Struct) -> tuple[Any, ...]:
        found = form.unpack_from(self._raw, self._at)
        self._at += form.size
        return found

    def skip(self, size_bytes: int) -> None:
        self._at += size_bytes

    def number(self) -> int:
        """Seven bits to a byte, the lowest first."""
        value = shift = 0
        while True:
            byte = self._raw[self._at]
            self._at += 1
            value |= (byte & 0x7F) << shift
            if byte < 0x80:
                return value
            shift += 7

    def count(self) -> int:
        """Of what follows; of null there is none."""
        return max(0, self.number() - 1)

    def bytes(self, size_bytes: int) -> memoryview:
        begin = self._at
        self._at += size_bytes
        if self._at > len(self._raw):
            raise ValueError(f"{size_bytes} bytes where {len(self._raw) - begin} are left")
        return memoryview(self._raw)[begin : self._at]

    def tags(self) -> dict[int, memoryview]:
        return {self.number(): self.bytes(self.number()) for _ in range(self.number())}


class _FetchBody(RequestStruct):
    API_KEY = 1
    API_VERSION = 13
    FLEXIBLE_VERSION = True
    RESPONSE_TYPE = _FetchAnswer
    SCHEMA = Schema(("body", Int8))  # the library insists on one

    def __init__(self, body: bytes) -> None:
        super().__init__(0)
        self._body = body

    def encode(self) -> bytes:
        """See the library."""
        return self._body


class Wanted(NamedTuple):
    """A partition, from an offset on. `leader_epoch`: of who leads it now; `last_epoch`: of what was read of
    it last.
    """

    partition: int
    offset: int
    leader_epoch: int
    last_epoch: int


class FetchRequest(Request[_FetchBody]):
    """Records of some partitions of a topic that one broker leads, by default what is committed."""

    API_KEY: ClassVar[int] = 1

    def __init__(
        self,
        topic_id: bytes,
        wanted: Sequence[Wanted],
        max_wait_ms: int,
        partition_bytes: int,
        isolation: int = READ_COMMITTED,
    ) -> None:
        """`partition_bytes`: about what is wanted of each partition. The broker fills its answer in the order
        of the partitions, the first of them with one batch at least.
        """
        self._topic_id, self._wanted = topic_id, wanted
        self._max_wait_ms, self._partition_bytes = max_wait_ms, partition_bytes
        self._isolation = isolation

    def build(self, request_struct_class: type[_FetchBody]) -> _FetchBody:
        """See the library."""
        limit_bytes = self._partition_bytes
        parts = [
            _request_head.pack(
                _ANY_REPLICA,
                self._max_wait_ms,
                1,
                limit_bytes * len(self._wanted),
                self._isolation,
                *_NO_SESSION,
            ),
            _compact(1),
            self._topic_id,
            _compact(len(self._wanted)),
        ]
        for one in self._wanted:
            at = one.partition, one.leader_epoch, one.offset, one.last_epoch, -1, limit_bytes
            parts += (_wanted.pack(*at), _NO_TAGS)
        parts += (_NO_TAGS, _compact(0), _compact(0), _NO_TAGS)  # nothing is forgotten; of no rack
        return request_struct_class(b"".join(parts))


_NO_TAGS: Final = b"\x00"


def _compact(count: int) -> bytes:
    """How many there are of what follows."""
    left, encoded = count + 1, bytearray()
    while left >= 0x80:
        encoded.append(left & 0x7F | 0x80)
        left >>= 7
    encoded.append(left)
    return bytes(encoded)
