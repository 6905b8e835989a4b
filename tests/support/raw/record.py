"""Records of format 2, each number of them free: https://kafka.apache.org/documentation/#record."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TypeAlias

from tests.support.raw.varint import varint


@dataclass(frozen=True, slots=True)
class Odd:
    """Bytes with another length before them than their own. As bytes, the length is written as it is."""

    length: int | bytes
    data: bytes = b""


Number: TypeAlias = int | bytes
"""Bytes are written as they are, such as an overlong varint."""

Field: TypeAlias = bytes | Odd | None


@dataclass(frozen=True, slots=True)
class RawRecord:
    """One record. What is None is what it should be: the length, the number of headers, and the offset delta,
    which is the record's place in its batch.
    """

    key: Field = None
    value: Field = None
    headers: Sequence[tuple[Field, Field]] = ()
    attributes: int = 0
    timestamp_delta: Number = 0
    offset_delta: Number | None = None
    length: Number | None = None
    header_count: Number | None = None
    tail: bytes = b""  # behind the headers, counted in the length

    def encode(self, place: int = 0) -> bytes:
        """Its bytes as the record at this place of a batch."""
        count = len(self.headers) if self.header_count is None else self.header_count
        delta = place if self.offset_delta is None else self.offset_delta
        parts = [
            bytes((self.attributes,)),
            _number(self.timestamp_delta),
            _number(delta),
            _sized(self.key),
            _sized(self.value),
            _number(count),
        ]
        parts += [header_bytes(name, value) for name, value in self.headers]
        parts.append(self.tail)
        body = b"".join(parts)
        return _number(len(body) if self.length is None else self.length) + body


def records_bytes(records: Sequence[RawRecord]) -> bytes:
    """Records one after the other, uncompressed."""
    return b"".join([record.encode(place) for place, record in enumerate(records)])


def header_bytes(name: Field, value: Field) -> bytes:
    """A header as a record has it."""
    return _sized(name) + _sized(value)


def _number(number: Number) -> bytes:
    return number if isinstance(number, bytes) else varint(number)


def _sized(field: Field) -> bytes:
    if field is None:
        return varint(-1)
    if isinstance(field, Odd):
        return _number(field.length) + field.data
    return varint(len(field)) + field
