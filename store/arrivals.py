"""What the log's records become before they are taken into the view: pure, and outside its lock."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from enum import IntEnum
from typing import NamedTuple, Protocol

from delayline import wire
from delayline.names import parse_source
from store.records import Headers, RejectRow, RescheduleRow, ScheduledRow, encode


class Kind(IntEnum):
    """What an arrival does to the view."""

    SCHEDULE = 0
    RESCHEDULE = 1
    REJECT = 2
    CANCEL = 3


class Record(Protocol):
    """A record of the buffer topic."""

    @property
    def partition(self) -> int: ...
    @property
    def offset(self) -> int: ...
    @property
    def timestamp_ms(self) -> int: ...
    @property
    def key(self) -> bytes | None: ...
    @property
    def value(self) -> bytes | None: ...
    @property
    def headers(self) -> Sequence[tuple[str, bytes | None]] | None: ...


class Arrival(NamedTuple):
    """One record of the log, parsed and encoded. `raw` is its row; empty for a cancel."""

    partition: int
    offset: int
    timestamp_ms: int
    kind: Kind
    due_ms: int
    id: str | None
    parent: int | None
    root: int | None
    raw: bytes


Parse = Callable[[Record], wire.Schedule | wire.Reschedule | wire.Cancel | wire.Reject]


def prepare(records: Iterable[Record], parse: Parse) -> list[Arrival]:
    """Parses and encodes records, in order. Never raises: what cannot be accepted becomes a reject."""
    return [arrival(record, parse(record)) for record in records]


def arrival(record: Record, request: wire.Schedule | wire.Reschedule | wire.Cancel | wire.Reject) -> Arrival:
    """What `request`, parsed from `record`, does to the view."""
    if isinstance(request, wire.Schedule):
        return _schedule(record, request)
    at = record.timestamp_ms
    place = (record.partition, record.offset, at)
    if isinstance(request, wire.Cancel):
        return Arrival(*place, Kind.CANCEL, at, request.id, None, None, b"")
    headers = _headers(record)
    if isinstance(request, wire.Reschedule):
        row = RescheduleRow(
            record.key, record.value, headers, request.id, request.scheduled_for_ms, request.expire_at_ms
        )
        return Arrival(*place, Kind.RESCHEDULE, at, request.id, None, None, encode(row))
    reject = RejectRow(record.key, record.value, headers, request.code, request.detail)
    return Arrival(*place, Kind.REJECT, at, None, None, None, encode(reject))


def _schedule(record: Record, request: wire.Schedule) -> Arrival:
    row = ScheduledRow(
        record.key,
        record.value,
        _headers(record),
        request.id,
        request.target_topic,
        request.target_partition,
        None if request.target_key == record.key else (request.target_key,),
        request.scheduled_for_ms,
        request.expire_at_ms,
        request.parent,
        request.root,
        request.attempt,
        request.occurrence,
    )
    return Arrival(
        record.partition,
        record.offset,
        record.timestamp_ms,
        Kind.SCHEDULE,
        request.due_ms,
        request.id,
        request.parent,
        parse_source(request.root)[2] if request.root is not None else None,
        encode(row),
    )


def _headers(record: Record) -> Headers:
    return list(record.headers) if record.headers else []
