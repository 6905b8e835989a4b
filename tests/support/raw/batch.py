"""Record batches of format 2, each field of them free: https://kafka.apache.org/documentation/#recordbatch."""

from __future__ import annotations

import struct
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from enum import IntFlag
from typing import Any, Final

from tests.support.raw.codecs import Codec, Framing, compress
from tests.support.raw.crc32c import crc32c
from tests.support.raw.record import RawRecord, records_bytes

HEADER_BYTES: Final = 61
_LENGTH_COUNTS_FROM: Final = 12
_SUMMED_FROM: Final = 21
_NOBODY: Final = -1


class Attribute(IntFlag):
    """The bits of a batch's attributes. The lowest three are the codec."""

    LOG_APPEND_TIME = 0x08
    TRANSACTIONAL = 0x10
    CONTROL = 0x20
    DELETE_HORIZON = 0x40
    UNKNOWN = 0x0080  # the lowest of those that mean nothing


@dataclass(frozen=True, slots=True)
class RawBatch:
    """One batch. What is None is what it should be: the length, the checksum and the last offset delta.

    `payload`: its records, compressed as the attributes say, or not; `count`: how many it says they are.
    """

    payload: bytes
    count: int
    base_offset: int = 0
    length: int | None = None
    leader_epoch: int = -1
    magic: int = 2
    crc: int | None = None
    attributes: int = 0
    last_offset_delta: int | None = None
    first_timestamp_ms: int = 0
    max_timestamp_ms: int = 0
    producer_id: int = _NOBODY
    producer_epoch: int = -1
    base_sequence: int = -1

    def encode(self) -> bytes:
        """Its bytes, for a produce request."""
        delta = self.count - 1 if self.last_offset_delta is None else self.last_offset_delta
        summed = (
            struct.pack(
                ">HiqqqhiI",
                self.attributes & 0xFFFF,
                delta,
                self.first_timestamp_ms,
                self.max_timestamp_ms,
                self.producer_id,
                self.producer_epoch,
                self.base_sequence,
                self.count & 0xFFFFFFFF,
            )
            + self.payload
        )
        crc = crc32c(summed) if self.crc is None else self.crc
        behind = struct.pack(">ibI", self.leader_epoch, self.magic, crc) + summed
        return (
            struct.pack(">qi", self.base_offset, len(behind) if self.length is None else self.length) + behind
        )


def batches_in(raw: bytes) -> Iterator[RawBatch]:
    """The whole batches of format 2 that a broker has answered with; fields as they are."""
    at = 0
    while at + HEADER_BYTES <= len(raw):
        base, length, epoch, magic, crc = struct.unpack_from(">qiibI", raw, at)
        end = at + _LENGTH_COUNTS_FROM + length
        if end > len(raw):
            return
        behind = struct.unpack_from(">HiqqqhiI", raw, at + _SUMMED_FROM)
        attributes, delta, first_ms, max_ms, producer, producer_epoch, sequence, count = behind
        payload = raw[at + HEADER_BYTES : end]
        yield RawBatch(
            payload, count, base, length, epoch, magic, crc, attributes, delta, first_ms, max_ms, producer,
            producer_epoch, sequence,
        )  # fmt: skip
        at = end


def batch_of(
    records: Sequence[RawRecord],
    codec: Codec = Codec.NONE,
    framing: Framing = Framing.XERIAL,
    *,
    attributes: int = 0,
    **fields: Any,
) -> RawBatch:
    """A batch of these records; `attributes` beside the codec's bits, `fields` are further ones of its."""
    payload = compress(codec, records_bytes(records), framing)
    return RawBatch(**{"payload": payload, "count": len(records), "attributes": codec | attributes, **fields})
