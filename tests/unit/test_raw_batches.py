"""Batches made by hand are what they say: checksums, varints, lengths, and each codec's payload."""

from __future__ import annotations

import struct
import tracemalloc
import zlib

import cramjam
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.support.raw import (
    Attribute,
    Codec,
    Framing,
    Odd,
    RawRecord,
    batch_of,
    compress,
    crc32c,
    overlong,
    records_bytes,
    varint,
)
from tests.support.raw.batch import HEADER_BYTES
from tests.support.raw.bombs import many_small, one_large

_XERIAL_HEADER_BYTES = 16


def read_varint(raw: bytes) -> tuple[int, int]:
    """The number at the beginning, and how many bytes it takes."""
    zigzag = shift = 0
    for place, byte in enumerate(raw):
        zigzag |= (byte & 0x7F) << shift
        shift += 7
        if byte < 0x80:
            return (zigzag >> 1) ^ -(zigzag & 1), place + 1
    raise AssertionError(f"{raw!r} ends in a number")


def unpacked(codec: Codec, framing: Framing, payload: bytes) -> bytes:
    if codec is Codec.GZIP:
        return zlib.decompress(payload, 31)
    if codec is Codec.LZ4:
        return bytes(cramjam.lz4.decompress(payload))
    if codec is Codec.ZSTD:
        return bytes(cramjam.zstd.decompress(payload))
    if codec is Codec.NONE:
        return payload
    if framing is Framing.RAW:
        return bytes(cramjam.snappy.decompress_raw(payload))
    at, out = _XERIAL_HEADER_BYTES, b""
    while at < len(payload):
        (length,) = struct.unpack_from(">i", payload, at)
        out += bytes(cramjam.snappy.decompress_raw(payload[at + 4 : at + 4 + length]))
        at += 4 + length
    return out


@pytest.mark.parametrize(
    ("data", "sum_"),
    [(b"123456789", 0xE3069283), (bytes(32), 0x8A9136AA), (bytes(range(32)), 0x46DD794E), (b"", 0)],
)
def test_the_checksum_is_castagnoli_s(data: bytes, sum_: int) -> None:
    assert crc32c(data) == sum_


@given(st.integers(-(2**63), 2**63 - 1))
def test_a_varint_reads_back(number: int) -> None:
    assert read_varint(varint(number)) == (number, len(varint(number)))


@given(st.integers(-(2**31), 2**31 - 1), st.integers(1, 12))
def test_an_overlong_varint_is_the_same_number_in_more_bytes(number: int, size: int) -> None:
    assert read_varint(overlong(number, size)) == (number, max(size, len(varint(number))))


@pytest.mark.parametrize(
    ("codec", "framing"), [*((codec, Framing.XERIAL) for codec in Codec), (Codec.SNAPPY, Framing.RAW)]
)
@given(data=st.one_of(st.binary(max_size=100), st.integers(30_000, 100_000).map(bytes)))
def test_each_codec_s_payload_unpacks_to_what_went_in(codec: Codec, framing: Framing, data: bytes) -> None:
    assert unpacked(codec, framing, compress(codec, data, framing)) == data


def test_a_length_may_be_any_and_the_record_s_own_length_is_still_right() -> None:
    record = RawRecord(key=Odd(-2), value=Odd(-(2**31)), headers=((b"", Odd(overlong(1, 5), b"x")),)).encode()
    length, begin = read_varint(record)
    assert length == len(record) - begin
    body = b"\x00\x00\x00" + b"\x03" + b"\xff\xff\xff\xff\x0f" + b"\x02" + b"\x00" + b"\x82\x80\x80\x80\x00x"
    assert record[begin:] == body


def test_a_batch_has_its_right_length_count_and_checksum_unless_told_otherwise() -> None:
    raw = batch_of([RawRecord(), RawRecord()], attributes=Attribute.CONTROL).encode()
    base, length, epoch, magic, crc, attributes, delta = struct.unpack_from(">qiibIhi", raw)
    (count,) = struct.unpack_from(">i", raw, HEADER_BYTES - 4)
    assert (base, length, epoch, magic, attributes) == (0, len(raw) - 12, -1, 2, Attribute.CONTROL)
    assert (delta, count, crc) == (1, 2, crc32c(raw[21:]))
    odd = batch_of([RawRecord()], length=7, crc=8, count=-1, magic=1, last_offset_delta=-5).encode()
    assert struct.unpack_from(">qiibIhi", odd) == (0, 7, -1, 1, 8, 0, -5)
    assert struct.unpack_from(">i", odd, HEADER_BYTES - 4) == (-1,)


@pytest.mark.parametrize("codec", [Codec.GZIP, Codec.SNAPPY, Codec.LZ4, Codec.ZSTD])
def test_a_bomb_unpacks_to_sound_records(codec: Codec) -> None:
    headers = ((b"h", b"1"),)
    large = unpacked(codec, Framing.XERIAL, one_large(codec, 3_000_001, headers).payload)
    assert large == records_bytes([RawRecord(value=bytes(3_000_001), headers=headers)])
    small = many_small(codec, 100_000, 100, headers)
    records = [RawRecord(value=bytes(100), headers=headers)] * small.count
    assert unpacked(codec, Framing.XERIAL, small.payload) == records_bytes(records)


def test_making_a_bomb_takes_little_memory() -> None:
    tracemalloc.start()
    try:
        bomb = one_large(Codec.ZSTD, 200_000_000)
        assert tracemalloc.get_traced_memory()[1] < 20_000_000
    finally:
        tracemalloc.stop()
    assert len(bomb.encode()) < 100_000
