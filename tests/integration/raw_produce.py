"""A produce request made by hand, for what client libraries cannot send: header keys that are not UTF-8."""

from __future__ import annotations

import socket
import struct
import time
from collections.abc import Iterator, Sequence
from typing import TypeAlias

_DEADLINE_S = 10.0
_NO_LEADER_YET = (3, 5, 6)  # what a broker answers for a topic that was made a moment ago
_CASTAGNOLI = 0x82F63B78
_BATCH_HEADER_BYTES = 61
_PRODUCE, _VERSION = 0, 3  # https://kafka.apache.org/protocol#The_Messages_Produce

RawHeaders: TypeAlias = Sequence[tuple[bytes, bytes | None]]


def produce_raw(
    bootstrap: str, topic: str, value: bytes | None, headers: RawHeaders, key: bytes | None = None
) -> int:
    """Append one record to partition 0; its offset. AssertionError with the broker's error code if it
    refuses.
    """
    host, port = bootstrap.split(",", 1)[0].rsplit(":", 1)
    request = _request(topic.encode(), _batch(_record(key, value, headers)))
    deadline = time.monotonic() + _DEADLINE_S
    with socket.create_connection((host, int(port)), timeout=_DEADLINE_S) as connection:
        error, offset = _ask(connection, request, topic)
        while error in _NO_LEADER_YET and time.monotonic() < deadline:
            error, offset = _ask(connection, request, topic)
    assert error == 0, f"the broker refused the record: error code {error}"
    return offset


def batch_bytes(key: bytes | None, value: bytes | None, headers: RawHeaders) -> int:
    """The size of a batch of this record alone, which is what the brokers' limits are on."""
    return _BATCH_HEADER_BYTES + len(_record(key, value, headers))


def _ask(connection: socket.socket, request: bytes, topic: str) -> tuple[int, int]:
    connection.sendall(struct.pack(">i", len(request)) + request)
    return _error_and_offset(_answer(connection), topic.encode())


def _request(topic: bytes, batch: bytes) -> bytes:
    header = struct.pack(">hhih", _PRODUCE, _VERSION, 1, -1)  # correlation id 1, no client id
    body = struct.pack(">hhi", -1, -1, 10_000)  # no transactional id, acks=all, timeout in ms
    topics = struct.pack(">ih", 1, len(topic)) + topic
    partitions = struct.pack(">iii", 1, 0, len(batch)) + batch
    return header + body + topics + partitions


def _batch(record: bytes) -> bytes:
    """A record batch of format 2: https://kafka.apache.org/documentation/#recordbatch."""
    after_crc = struct.pack(">hiqqqhii", 0, 0, 0, 0, -1, -1, -1, 1) + record
    after_length = struct.pack(">ibI", -1, 2, _crc32c(after_crc)) + after_crc
    return struct.pack(">qi", 0, len(after_length)) + after_length


def _record(key: bytes | None, value: bytes | None, headers: RawHeaders) -> bytes:
    body = b"\x00" + _varint(0) + _varint(0) + _sized(key) + _sized(value) + _varint(len(headers))
    for name, header_value in headers:
        body += _sized(name) + _sized(header_value)
    return _varint(len(body)) + body


def _sized(data: bytes | None) -> bytes:
    return _varint(-1) if data is None else _varint(len(data)) + data


def _varint(number: int) -> bytes:
    return bytes(_varint_bytes(number << 1 ^ number >> 63))


def _varint_bytes(zigzag: int) -> Iterator[int]:
    while zigzag > 0x7F:
        yield zigzag & 0x7F | 0x80
        zigzag >>= 7
    yield zigzag


def _crc32c(data: bytes) -> int:
    crc = 0xFFFFFFFF
    for byte in data:
        crc ^= byte
        for _ in range(8):
            crc = crc >> 1 ^ _CASTAGNOLI if crc & 1 else crc >> 1
    return crc ^ 0xFFFFFFFF


def _answer(connection: socket.socket) -> bytes:
    (length,) = struct.unpack(">i", _exactly(connection, 4))
    return _exactly(connection, length)


def _exactly(connection: socket.socket, count: int) -> bytes:
    data = b""
    while len(data) < count:
        received = connection.recv(count - len(data))
        assert received, "the broker closed the connection"
        data += received
    return data


def _error_and_offset(answer: bytes, topic: bytes) -> tuple[int, int]:
    # correlation id, number of topics, name, number of partitions, index, error code, base offset
    code, offset = struct.unpack_from(">hq", answer, 4 + 4 + 2 + len(topic) + 4 + 4)
    return int(code), int(offset)
