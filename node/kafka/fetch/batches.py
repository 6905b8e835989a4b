"""From the bytes of a fetch to records: batches of record format v2, whatever anybody has sent in them.

A broker checks that a batch's records follow one another by its own reading of them, and no more. So a
reader takes nothing for granted but where a batch begins and ends, and its own first offset, which the broker
writes. Two decoders read the records. The library's is fast, and reads what ordinary clients send. Ours reads
whatever that one does not, record by record, and bounds what it makes of each. Which of them reads a batch
is a function of its bytes alone, so all nodes come to the same records, also when they are built anew.

Both read as Kafka's own clients do: any length below zero is a null. The format:
https://kafka.apache.org/documentation/#recordbatch
"""

from __future__ import annotations

from collections.abc import Iterator
from enum import Enum
from struct import Struct
from typing import Final, NamedTuple

from aiokafka.record._crecords import DefaultRecordBatch

from delayline.headers import H_SIGNATURE
from delayline.rejects import RejectCode
from delayline.times import MAX_MS
from delayline.wire import KEY_NOT_UTF8, Header, Reject
from node.kafka.fetch.compression import NONE, Scratch, UnpackError
from node.kafka.fetch.records import (
    ABORTED,
    LARGEST_RECORD_BYTES,
    MOST_BATCH_HEADERS,
    MOST_HEADERS,
    MOST_RECORDS,
    SERVICE_BYTES,
    SERVICE_HEADERS,
    LogRecord,
    says_it_is_the_services,
)

_head = Struct(">qiibIhiqqqhii")
HEAD_BYTES: Final = _head.size
_FRAME_BYTES: Final = 12  # the first offset and the length, which counts what is behind it
_FORMAT: Final = 2
_CODECS: Final = 0x07
_LOG_APPEND_TIME: Final = 0x08
_TRANSACTIONAL: Final = 0x10
_CONTROL: Final = 0x20
_INT_BYTES: Final = 5
_LONG_BYTES: Final = 10
FAST_BYTES: Final = 1_100_000
"""The library's decoder makes an object of each header before anybody can count them."""


REJECTED_BATCH: Final = r"offsets (\d+) to (\d+) are a batch "
"""How the detail begins of what stands for a whole batch: where its records are."""


class DamagedLog(ValueError):
    """What a broker has sent is no sequence of batches."""


class RecordBatch(NamedTuple):
    """A batch's head, and its bytes with the head."""

    base_offset: int
    leader_epoch: int
    format: int
    attributes: int
    last_delta: int
    newest_ms: int
    producer: int
    first_ms: int  # by the client, and what its records add to
    record_count: int  # as it says
    raw: memoryview

    @property
    def next_offset(self) -> int:
        """Where the batch behind it may begin."""
        return self.base_offset + self.last_delta + 1

    @property
    def is_control(self) -> bool:
        """Whether it is a transaction's marker, which only brokers write."""
        return bool(self.attributes & _CONTROL)

    @property
    def producer_of_transaction(self) -> int | None:
        """The id of the producer whose transaction it is in."""
        return self.producer if self.attributes & _TRANSACTIONAL else None


def batches_of(fetched: bytes | memoryview) -> list[RecordBatch]:
    """The batches that are there as a whole; a fetch may end within one. Raises `DamagedLog`."""
    raw = memoryview(fetched)
    found, at, end = [], 0, len(fetched)
    while at + HEAD_BYTES <= end:
        base, length, epoch, format_, _, attributes, last, first, newest, producer, _, _, count = (
            _head.unpack_from(raw, at)
        )
        if length < HEAD_BYTES - _FRAME_BYTES or last < 0:
            raise DamagedLog(f"at offset {base} there is a batch of {length} bytes and {last + 1} offsets")
        behind = at + _FRAME_BYTES + length
        if behind > end:
            break
        whole = raw[at:behind]
        found.append(
            RecordBatch(base, epoch, format_, attributes, last, newest, producer, first, count, whole)
        )
        at = behind
    return found


class BatchContent(Enum):
    """What the records of a batch are."""

    MESSAGES = "messages"
    ABORTED = "aborted"
    MARKERS = "markers"


class CommittedFilter:
    """Tells of one fetch's batches which hold messages: no markers, and not what was aborted."""

    def __init__(self, aborted: list[tuple[int, int]]) -> None:
        """`aborted`: of each aborted transaction that the fetch may have something of, its producer's id and
        its first offset.
        """
        self._to_come = sorted(aborted, key=lambda one: one[1], reverse=True)
        self._aborted: set[int] = set()

    def content(self, batch: RecordBatch) -> BatchContent:
        """What a batch's records are; asked of all batches in order."""
        while self._to_come and self._to_come[-1][1] < batch.next_offset:
            self._aborted.add(self._to_come.pop()[0])
        if batch.is_control:
            self._aborted.discard(batch.producer)  # its marker ends the transaction
            return BatchContent.MARKERS
        return (
            BatchContent.ABORTED if batch.producer_of_transaction in self._aborted else BatchContent.MESSAGES
        )


class Opened(NamedTuple):
    """A batch's records in order, each with an offset of its own that is in the batch.

    `size_bytes`: what they have together. Where that is much, they are made one at a time, and have to be
    done before the scratch is used for the next batch.
    """

    records: Iterator[LogRecord]
    size_bytes: int

    @property
    def is_small(self) -> bool:
        """Whether it costs little to have them all."""
        return self.size_bytes <= FAST_BYTES


def open_batch(partition: int, batch: RecordBatch, scratch: Scratch) -> Opened:
    """Reads a batch of messages, whatever it holds."""
    flaw = _flaw_of_head(batch)
    if flaw is not None:
        return Opened(iter([_unread(partition, batch, 0, flaw)]), 0)
    try:
        raw = _unpacked(batch, scratch)
    except UnpackError as error:
        flaw = f"{_span(batch)} are a batch of which none is read: {error}"
        return Opened(iter([_unread(partition, batch, 0, flaw)]), 0)
    if len(raw) <= FAST_BYTES:
        found = _fast(partition, batch, raw)
        if found is not None:
            return Opened(iter(found), len(raw))
    return Opened(_carefully(partition, batch, raw[HEAD_BYTES:]), len(raw))


def open_aborted(partition: int, batch: RecordBatch, scratch: Scratch) -> Opened:
    """Reads a batch that was aborted: of its records, those that can be read and bear a signature."""
    opened = open_batch(partition, batch, scratch)
    return opened._replace(records=(one._replace(flaw=ABORTED) for one in opened.records if _is_signed(one)))


def _is_signed(record: LogRecord) -> bool:
    return record.flaw is None and any(key == H_SIGNATURE for key, _ in record.headers)


def _flaw_of_head(batch: RecordBatch) -> str | None:
    if batch.format != _FORMAT:
        return f"{_span(batch)} are a batch of record format {batch.format}, not {_FORMAT}"
    if not 0 <= batch.record_count <= batch.last_delta + 1:
        return f"{_span(batch)} are a batch that says it has {batch.record_count} records"
    if batch.record_count > MOST_RECORDS:
        return (
            f"{_span(batch)} are a batch of {batch.record_count} records, of which none is read: send"
            f" {MOST_RECORDS} at most in one batch"
        )
    return None


def _span(batch: RecordBatch) -> str:
    return f"offsets {batch.base_offset} to {batch.next_offset - 1}"


def _unpacked(batch: RecordBatch, scratch: Scratch) -> memoryview:
    """The batch without compression. Raises `UnpackError`."""
    codec = batch.attributes & _CODECS
    if codec == NONE:
        return batch.raw
    fields = list(_head.unpack_from(batch.raw))
    fields[5] = batch.attributes & ~_CODECS
    return scratch.unpack(codec, _head.pack(*fields), batch.raw[HEAD_BYTES:])


def _fast(partition: int, batch: RecordBatch, raw: memoryview) -> list[LogRecord] | None:
    """The records as the library's decoder reads them; None if it does not, or not as the head says."""
    try:
        found = list(DefaultRecordBatch(raw))
    except Exception:  # it has no list of what it raises
        return None
    if not _in_order(batch, [one.offset for one in found]):
        return None
    if len(raw) > MOST_HEADERS and any(len(one.headers) > MOST_HEADERS for one in found):
        return None  # and never more than `MOST_BATCH_HEADERS`, since the batch is small
    new, kind = tuple.__new__, LogRecord  # a third of what calling the class costs
    if batch.attributes & _LOG_APPEND_TIME:
        at_ms = _timestamp_ms(batch, 0)
        return [
            new(kind, (partition, one.offset, at_ms, one.key, one.value, one.headers, None)) for one in found
        ]
    return [
        LogRecord(partition, one.offset, _timestamp_ms(batch, one.timestamp), one.key, one.value, one.headers)
        for one in found
    ]


def _in_order(batch: RecordBatch, offsets: list[int]) -> bool:
    """Whether records have offsets of their own in the batch: all of these, but where compaction has taken
    records out.
    """
    base, behind = batch.base_offset, batch.next_offset
    if batch.record_count == behind - base:
        return offsets == list(range(base, behind))
    return offsets == sorted(set(offsets)) and (not offsets or base <= offsets[0] <= offsets[-1] < behind)


def _timestamp_ms(batch: RecordBatch, own_ms: int) -> int:
    """The broker's time where it writes one; else the client's, as far as it is one."""
    asked_ms = batch.newest_ms if batch.attributes & _LOG_APPEND_TIME else own_ms
    return asked_ms if 0 <= asked_ms <= MAX_MS else min(max(asked_ms, 0), MAX_MS)


def _unread(partition: int, batch: RecordBatch, index: int, why: str) -> LogRecord:
    return LogRecord(
        partition,
        batch.base_offset + index,
        _timestamp_ms(batch, batch.newest_ms),
        None,
        None,
        [],
        Reject(RejectCode.UNDECODABLE, why),
    )


class _UnreadableError(ValueError):
    """A record's bytes are none."""


def _carefully(partition: int, batch: RecordBatch, raw: memoryview) -> Iterator[LogRecord]:
    """The records by our own decoder: one at a time, each within its own bytes."""
    at, previous, headers_left = 0, -1, MOST_BATCH_HEADERS
    is_dense = batch.record_count == batch.last_delta + 1
    for index in range(batch.record_count):
        try:
            length, begin = _int(raw, at)
            if not 0 <= length <= len(raw) - begin:
                raise _UnreadableError(f"a record of {length} bytes where {len(raw) - begin} are left")
        except _UnreadableError as error:
            for rest in range(max(index, previous + 1), batch.record_count if is_dense else index + 1):
                yield _unread(partition, batch, rest, f"it cannot be told from its neighbours: {error}")
            return
        at = begin + length
        record, delta = _record(partition, batch, index, raw[begin:at], min(MOST_HEADERS, headers_left))
        headers_left -= len(record.headers)
        if is_dense and delta != index:
            record = _unread(partition, batch, index, f"it says that it is number {delta}, and is {index}")
            delta = index
        elif not previous < delta <= batch.last_delta:
            return  # of a compacted batch, which only a broker makes: there is no offset for what is left
        previous = delta
        yield record


def _record(
    partition: int, batch: RecordBatch, index: int, raw: memoryview, most_headers: int
) -> tuple[LogRecord, int]:
    """A record, and its own word for where it is in the batch."""
    try:
        body = _Body(raw)
        body.skip(1)  # attributes, of which there are none yet
        delta_ms, delta = body.int64(), body.int32()
    except _UnreadableError as error:
        return _unread(partition, batch, index, f"it cannot be read: {error}"), index
    at = partition, batch.base_offset + delta, _timestamp_ms(batch, batch.first_ms + delta_ms)
    if len(raw) > LARGEST_RECORD_BYTES + SERVICE_BYTES:
        return LogRecord(*at, None, None, [], _too_large(len(raw))), delta
    key: bytes | None = None
    value: bytes | None = None
    headers: list[Header] = []
    flaw: Reject | None = None
    try:
        key, value = body.field(), body.field()
        headers = body.headers(most_headers + SERVICE_HEADERS)
        if not says_it_is_the_services(headers):
            if len(raw) > LARGEST_RECORD_BYTES:
                return LogRecord(*at, None, None, [], _too_large(len(raw))), delta
            if len(headers) > most_headers:
                headers, flaw = [], _too_many_headers(len(headers), most_headers)
    except UnicodeDecodeError:
        flaw = KEY_NOT_UTF8
    except _TooManyHeadersError as error:
        flaw = _too_many_headers(error.count, most_headers)
    except _UnreadableError as error:
        flaw = Reject(RejectCode.UNDECODABLE, f"it cannot be read: {error}")
    return LogRecord(*at, key, value, headers, flaw), delta


class _TooManyHeadersError(Exception):
    def __init__(self, count: int) -> None:
        super().__init__(count)
        self.count = count


def _too_large(size_bytes: int) -> Reject:
    why = f"it has {size_bytes} bytes: a request may have {LARGEST_RECORD_BYTES} at most"
    return Reject(RejectCode.UNDECODABLE, why)


def _too_many_headers(count: int, most: int) -> Reject:
    room = f"a request may have {MOST_HEADERS} at most, and a batch {MOST_BATCH_HEADERS}"
    return Reject(RejectCode.UNDECODABLE, f"it has {count} headers, where {most} can be read: {room}")


class _Body:
    """Reads a record's fields one after the other."""

    def __init__(self, raw: memoryview) -> None:
        self._raw = raw
        self._at = 0

    def skip(self, size_bytes: int) -> None:
        if self._at + size_bytes > len(self._raw):
            raise _UnreadableError("it ends too early")
        self._at += size_bytes

    def int32(self) -> int:
        number, self._at = _int(self._raw, self._at)
        return number

    def int64(self) -> int:
        number, self._at = _number(self._raw, self._at, _LONG_BYTES, 64)
        return number

    def field(self) -> bytes | None:
        """Bytes with their length before them; a length below zero is a null."""
        length = self.int32()
        if length < 0:
            return None
        begin = self._at
        self.skip(length)
        return bytes(self._raw[begin : self._at])

    def headers(self, most: int) -> list[Header]:
        """All that is left: the headers, with their number before them."""
        count = self.int32()
        if count < 0:
            raise _UnreadableError(f"it has {count} headers")
        if count > most:
            raise _TooManyHeadersError(count)
        headers = [self._header() for _ in range(count)]
        if self._at < len(self._raw):
            raise _UnreadableError(f"{len(self._raw) - self._at} bytes of it are behind its headers")
        return headers

    def _header(self) -> Header:
        key = self.field()
        if key is None:
            raise _UnreadableError("a header has no key")
        return key.decode(), self.field()


def _int(raw: memoryview, at: int) -> tuple[int, int]:
    return _number(raw, at, _INT_BYTES, 32)


def _number(raw: memoryview, at: int, most_bytes: int, bits: int) -> tuple[int, int]:
    """A number of the format (zigzag, seven bits to a byte) and where the next field begins. What has no room
    in its bits is left out, as brokers do.
    """
    value = 0
    for index, byte in enumerate(raw[at : at + most_bytes]):
        value |= (byte & 0x7F) << (7 * index)
        if byte < 0x80:
            value &= (1 << bits) - 1
            return (value >> 1) ^ -(value & 1), at + index + 1
    raise _UnreadableError("a number has no end")
