"""From a fetch's bytes to records: what ordinary clients send, and whatever else a broker takes."""

from __future__ import annotations

import zlib
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from delayline.times import MAX_MS
from node.kafka.fetch import batches
from node.kafka.fetch.batches import (
    BatchContent,
    CommittedFilter,
    DamagedLog,
    RecordBatch,
    batches_of,
    open_aborted,
    open_batch,
)
from node.kafka.fetch.compression import Scratch, UnpackError
from node.kafka.fetch.records import (
    ABORTED,
    LARGEST_RECORD_BYTES,
    MOST_BATCH_HEADERS,
    MOST_HEADERS,
    MOST_RECORDS,
    LogRecord,
)
from tests.support.raw import (
    Attribute,
    Codec,
    Framing,
    Odd,
    RawBatch,
    RawRecord,
    batch_of,
    compress,
    overlong,
)
from tests.support.raw.bombs import one_large

BASE = 1000
APPEND_MS = 1_800_000_000_000
PARTITION = 3


def as_stored(raw: RawBatch) -> RecordBatch:
    """A batch as the broker hands it out: with its own first offset and time."""
    fields = {"base_offset": BASE, "max_timestamp_ms": APPEND_MS}
    stored = {name: getattr(raw, name) for name in RawBatch.__slots__} | fields
    stored["attributes"] |= Attribute.LOG_APPEND_TIME
    (found,) = batches_of(RawBatch(**stored).encode())
    return found


def read(raw: RawBatch, scratch: Scratch | None = None) -> list[LogRecord]:
    return list(open_batch(PARTITION, as_stored(raw), scratch or Scratch()).records)


def codes(found: Sequence[LogRecord]) -> list[str | None]:
    return [None if one.flaw is None else one.flaw.code for one in found]


def places(found: Sequence[LogRecord]) -> list[int]:
    assert {(one.partition, one.timestamp_ms) for one in found} <= {(PARTITION, APPEND_MS)}
    return [one.offset - BASE for one in found]


def plain(number: int) -> RawRecord:
    return RawRecord(b"k%d" % number, b"v" * number, ((b"h", b"x"), (b"", None)))


texts = st.text(max_size=20).map(str.encode)
fields = st.none() | st.binary(max_size=40)
sound = st.builds(
    RawRecord,
    key=fields,
    value=fields,
    headers=st.lists(st.tuples(texts, fields), max_size=4).map(tuple),
    timestamp_delta=st.integers(-(2**40), 2**40),
)


@given(
    st.lists(sound, min_size=1, max_size=20),
    st.sampled_from([*((codec, Framing.XERIAL) for codec in Codec), (Codec.SNAPPY, Framing.RAW)]),
)
def test_both_decoders_read_what_was_written(records: list[RawRecord], packed: tuple[Codec, Framing]) -> None:
    batch, scratch = as_stored(batch_of(records, *packed)), Scratch()
    raw = batches._unpacked(batch, scratch)
    fast = batches._fast(PARTITION, batch, raw)
    careful = list(batches._carefully(PARTITION, batch, raw[batches.HEAD_BYTES :]))
    assert fast == careful
    assert [(one.offset, one.key, one.value, one.headers) for one in careful] == [
        (BASE + at, one.key, one.value, [(str(key, "utf-8"), value) for key, value in one.headers])  # type: ignore[arg-type]
        for at, one in enumerate(records)
    ]
    assert codes(careful) == [None] * len(records)


@given(st.binary(max_size=300), st.integers(1, 5), st.sampled_from(list(Codec)))
def test_whatever_a_batch_holds_each_of_its_offsets_is_read_once_or_one_stands_for_all(
    payload: bytes, count: int, codec: Codec
) -> None:
    found = read(RawBatch(payload, count, attributes=codec))
    assert places(found) in ([0], list(range(count)))
    if len(found) < count:
        assert codes(found) == ["undecodable"]


@given(st.binary(max_size=200), st.integers(0, 199), st.integers(1, 4))
def test_a_batch_that_is_cut_or_altered_is_read_to_its_last_offset(noise: bytes, at: int, count: int) -> None:
    payload = batch_of([plain(number) for number in range(count)]).payload
    assert places(read(RawBatch(payload[:at] + noise, count))) == list(range(count))


def test_any_length_below_zero_is_a_null_as_for_kafkas_own_clients() -> None:
    odd = RawRecord(Odd(-2), Odd(-(2**31)), ((b"h", Odd(-3)),))
    found = read(batch_of([plain(1), odd, plain(2)]))
    assert codes(found) == [None] * 3
    assert (found[1].key, found[1].value, found[1].headers) == (None, None, [("h", None)])


def test_a_record_that_is_longer_than_its_fields_is_none() -> None:
    found = read(batch_of([plain(1), RawRecord(b"k", b"v", tail=b"more"), plain(2)]))
    assert codes(found) == [None, "undecodable", None]


def test_a_length_of_more_than_32_bits_is_what_is_left_of_it_as_for_brokers() -> None:
    key = Odd(b"\x82\x80\x80\x80\x70", b"k")  # the fifth byte has bits that 32 have no room for
    found = read(batch_of([RawRecord(key, b"v")]))
    assert [(one.key, one.value, one.flaw) for one in found] == [(b"k", b"v", None)]


def test_several_streams_of_framed_snappy_are_one() -> None:
    records = [plain(5), plain(6)]
    halves = [RawRecord.encode(record, place) for place, record in enumerate(records)]
    packed = b"".join(compress(Codec.SNAPPY, half) for half in halves)
    found = read(RawBatch(packed, 2, attributes=Codec.SNAPPY))
    assert [one.value for one in found] == [b"v" * 5, b"v" * 6]


def test_overlong_numbers_are_numbers() -> None:
    found = read(batch_of([RawRecord(b"k", b"v", timestamp_delta=overlong(7, 9))]))
    assert [(one.key, one.flaw) for one in found] == [(b"k", None)]


def test_a_record_with_a_wrong_length_hides_what_is_behind_it_and_nothing_before() -> None:
    found = read(batch_of([plain(1), RawRecord(b"k", length=2**31 - 1), plain(2)], Codec.LZ4))
    assert codes(found) == [None, "undecodable", "undecodable"]
    assert places(found) == [0, 1, 2]


def test_a_record_that_claims_anothers_place_is_none() -> None:
    found = read(batch_of([plain(1), RawRecord(b"k", b"v", offset_delta=0), plain(2)]))
    assert codes(found) == [None, "undecodable", None]
    assert places(found) == [0, 1, 2]


def test_only_the_record_whose_header_key_is_not_utf8_loses_its_headers() -> None:
    found = read(batch_of([plain(1), RawRecord(b"k", b"v", ((b"\xff", b"x"),)), plain(2)]))
    assert codes(found) == [None, "header-key", None]
    assert found[1][3:6] == (b"k", b"v", [])


@pytest.mark.parametrize("codec", [Codec.NONE, Codec.ZSTD])
def test_of_a_record_with_too_many_headers_none_is_read(codec: Codec) -> None:
    found = read(batch_of([RawRecord(b"k", b"v", ((b"", None),) * (MOST_HEADERS + 1)), plain(1)], codec))
    assert codes(found) == ["undecodable", None]
    assert found[0][3:6] == (b"k", b"v", [])


def test_of_a_batch_with_too_many_headers_so_many_are_read_and_what_has_none_is() -> None:
    full = RawRecord(headers=((b"", None),) * MOST_HEADERS)
    fit = MOST_BATCH_HEADERS // MOST_HEADERS
    found = read(batch_of([*[full] * (fit + 2), RawRecord(b"k")], Codec.ZSTD))
    assert codes(found) == [None] * fit + ["undecodable"] * 2 + [None]
    assert sum(len(one.headers) for one in found) == MOST_BATCH_HEADERS


def test_as_many_headers_as_are_allowed_are_read() -> None:
    found = read(batch_of([RawRecord(headers=((b"", None),) * MOST_HEADERS)]))
    assert len(found[0].headers) == MOST_HEADERS


def test_what_is_written_back_has_room_for_the_services_own_headers() -> None:
    full, parent = ((b"", None),) * MOST_HEADERS, (b"delay-parent", b"1")
    found = read(batch_of([RawRecord(headers=(*full, parent)), RawRecord(headers=(*full, (b"", None)))]))
    assert codes(found) == [None, "undecodable"]


def test_so_has_a_carry_for_what_the_store_has_beside_a_request() -> None:
    large = one_large(Codec.ZSTD, LARGEST_RECORD_BYTES, headers=((b"delay-op", b"carry"),))
    other = one_large(Codec.ZSTD, LARGEST_RECORD_BYTES, headers=((b"delay-op", b"cancel"),))
    assert (codes(read(large)), codes(read(other))) == ([None], ["undecodable"])


def test_of_a_record_that_is_too_large_nothing_is_read() -> None:
    found = read(one_large(Codec.ZSTD, LARGEST_RECORD_BYTES))
    assert codes(found) == ["undecodable"]
    assert found[0][3:6] == (None, None, [])


@pytest.mark.parametrize("codec", [codec for codec in Codec if codec])
def test_a_batch_that_unpacks_to_too_much_is_one_reject(codec: Codec) -> None:
    whole = batch_of([plain(100)] * 5, codec)
    size_bytes = len(batch_of([plain(100)] * 5).payload)
    assert codes(read(whole, Scratch(size_bytes))) == [None] * 5
    found = read(whole, Scratch(size_bytes - 1))
    assert (codes(found), places(found)) == (["undecodable"], [0])
    assert found[0].flaw is not None
    assert f"offsets {BASE} to {BASE + 4}" in found[0].flaw.detail


def test_what_was_unpacked_before_is_not_seen_in_what_comes_next() -> None:
    scratch = Scratch(1000)
    read(batch_of([RawRecord(value=b"secret" * 100)], Codec.ZSTD), scratch)
    with pytest.raises(UnpackError, match="zstd"):
        scratch.unpack(Codec.ZSTD, b"head", memoryview(b"nonsense"))
    assert (
        bytes(scratch.unpack(Codec.GZIP, b"head", memoryview(zlib.compress(b"new", wbits=31)))) == b"headnew"
    )


@pytest.mark.parametrize(
    "raw",
    [
        RawBatch(b"", MOST_RECORDS + 1),
        RawBatch(b"", 1, magic=1),
        RawBatch(b"", -1, last_offset_delta=4),
        RawBatch(b"", 7, last_offset_delta=4),
    ],
)
def test_a_batch_with_a_wrong_head_is_one_reject_at_its_first_offset(raw: RawBatch) -> None:
    found = read(raw)
    assert (codes(found), places(found)) == (["undecodable"], [0])


def test_where_compaction_has_taken_records_out_the_others_keep_their_offsets() -> None:
    left = [RawRecord(b"a", offset_delta=1), RawRecord(b"b", offset_delta=5)]
    batch = as_stored(batch_of(left, last_offset_delta=9))
    for found in (
        list(open_batch(PARTITION, batch, Scratch()).records),
        list(batches._carefully(PARTITION, batch, batch.raw[batches.HEAD_BYTES :])),
    ):
        assert [(one.key, one.offset - BASE) for one in found] == [(b"a", 1), (b"b", 5)]


@pytest.mark.parametrize(
    ("first_ms", "delta_ms", "is_ms"),
    [(7, 3, 10), (-5, 0, 0), (2**62, 0, 2**62), (2**63 - 1, 2**40, MAX_MS)],
)
def test_a_clients_own_time_is_bounded(first_ms: int, delta_ms: int, is_ms: int) -> None:
    record = RawRecord(timestamp_delta=delta_ms)
    raw = batch_of([record], first_timestamp_ms=first_ms, max_timestamp_ms=first_ms)
    (batch,) = batches_of(raw.encode())
    careful = list(batches._carefully(0, batch, batch.raw[batches.HEAD_BYTES :]))
    assert [one.timestamp_ms for one in careful] == [is_ms]


def a_batch(base: int, **fields: Any) -> bytes:
    return batch_of([plain(1), plain(2)], base_offset=base, **fields).encode()


def test_a_fetch_may_end_within_a_batch() -> None:
    raw = a_batch(0) + a_batch(2)
    assert [batch.base_offset for batch in batches_of(raw)] == [0, 2]
    assert [batch.base_offset for batch in batches_of(raw[:-1])] == [0]
    assert batches_of(raw[:20]) == []


def test_bytes_that_are_no_batches_are_said_to_be_none() -> None:
    with pytest.raises(DamagedLog, match="offset 9"):
        batches_of(RawBatch(b"", 1, base_offset=9, length=3).encode() + bytes(100))


def test_messages_are_told_from_markers_and_from_what_was_aborted() -> None:
    def own(base: int, producer: int, attributes: int = Attribute.TRANSACTIONAL) -> bytes:
        return a_batch(base, producer_id=producer, attributes=attributes)

    marker = Attribute.TRANSACTIONAL | Attribute.CONTROL
    fetched = [
        own(0, 1),  # committed
        own(2, 2),  # aborted
        a_batch(4),  # of no transaction
        own(6, 2, marker),
        own(8, 2),  # the same producer again, committed
        own(10, 1, marker),
        own(12, 1),  # aborted
    ]
    committed = CommittedFilter([(1, 12), (2, 2)])
    held = {batch.base_offset: committed.content(batch) for batch in batches_of(b"".join(fetched))}
    assert [base for base, content in held.items() if content is BatchContent.MESSAGES] == [0, 4, 8]
    assert [base for base, content in held.items() if content is BatchContent.ABORTED] == [2, 12]


def test_of_what_was_aborted_only_what_is_signed_and_can_be_read_is_left() -> None:
    signed = RawRecord(b"k", b"v", ((b"delay-signature", b"x"),))
    for records, offsets in (
        ([plain(1), signed, plain(2), signed], [1, 3]),
        ([signed, replace(signed, length=-3), signed], [0]),
        ([replace(signed, headers=((b"delay-signature", b"x"), (b"\xff", None)))], []),
    ):
        found = list(open_aborted(PARTITION, as_stored(batch_of(records)), Scratch()).records)
        assert places(found) == offsets
        assert all(one.flaw is ABORTED for one in found)
