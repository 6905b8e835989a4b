"""Batches of less than a megabyte that unpack to very much; making them takes little memory.

A megabyte of zstd unpacks to anything, of gzip to a thousand times as much, of lz4 to 250, of snappy to 21
times.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from tests.support.raw.batch import RawBatch
from tests.support.raw.codecs import Codec, compress_all
from tests.support.raw.record import Field, RawRecord, header_bytes
from tests.support.raw.varint import varint

_PIECE: Final = bytes(1 << 20)
_LARGEST_RECORD_BYTES: Final = 2**31 - 1 - 64

Headers = tuple[tuple[Field, Field], ...]


def one_large(codec: Codec, unpacked_bytes: int, headers: Headers = ()) -> RawBatch:
    """One record whose value is zeros, so many bytes of them: 2,147,483,583 at most."""
    assert unpacked_bytes <= _LARGEST_RECORD_BYTES, "the length of a record has 32 bits"
    behind = varint(len(headers)) + b"".join(header_bytes(name, value) for name, value in headers)
    before = b"\x00" + varint(0) + varint(0) + varint(-1) + varint(unpacked_bytes)
    length = varint(len(before) + unpacked_bytes + len(behind))
    pieces = [length + before, *_zeros(unpacked_bytes), behind]
    return RawBatch(compress_all(codec, pieces), 1, attributes=codec)


def many_small(
    codec: Codec, unpacked_bytes: int, record_bytes: int = 16 * 1024, headers: Headers = ()
) -> RawBatch:
    """Records whose values are so many zeros, as many as it takes."""
    value = bytes(record_bytes)
    each = len(RawRecord(value=value, headers=headers).encode(1 << 20))
    count = max(1, unpacked_bytes // each)
    pieces = _pieces(count, RawRecord(value=value, headers=headers))
    return RawBatch(compress_all(codec, pieces), count, attributes=codec)


def _pieces(count: int, record: RawRecord) -> Iterator[bytes]:
    at_once = max(1, len(_PIECE) // max(1, len(record.encode())))
    for begin in range(0, count, at_once):
        yield b"".join([record.encode(place) for place in range(begin, min(count, begin + at_once))])


def _zeros(count: int) -> Iterator[bytes]:
    for _ in range(count // len(_PIECE)):
        yield _PIECE
    yield bytes(count % len(_PIECE))
