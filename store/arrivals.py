"""What the log's records become before they are applied: pure, and outside its lock."""

from __future__ import annotations

from enum import IntEnum
from typing import Final, NamedTuple

from delayline import wire
from delayline.names import parse_source
from delayline.record import ConsumerRecord
from delayline.rejects import RejectCode
from delayline.signing import Serial
from store.holds import NO_TAG, tag_of
from store.rows import (
    Headers,
    RejectRow,
    RescheduleRow,
    ScheduledRow,
    decode_carry,
    decode_row,
    encode,
    target_of_message,
)


class Kind(IntEnum):
    """What an arrival does to the view."""

    SCHEDULE = 0
    RESCHEDULE = 1
    REJECT = 2
    CANCEL = 3
    KEEP = 4  # a schedule, unless its id is known
    SPENT = 5  # no message: its serial alone counts, since its transaction was aborted
    CARRY = 6  # a row that is older
    MARK = 7  # no message: other settings count from here on, and whoever parses knows them


class Arrival(NamedTuple):
    """One record of the log, parsed and encoded. `raw` is its row; empty for a cancel. `root`: the offset of
    the user's request that it goes back to, or that a cancel names. Of a carry, all but partition, offset,
    timestamp and serial is its row's, and `raw` the carry's value.
    """

    partition: int
    offset: int
    timestamp_ms: int
    kind: Kind
    due_ms: int
    id: str | None
    parent: int | None
    root: int | None
    raw: bytes
    serial: Serial | None = None  # of a request that the service has written back
    tag: int = NO_TAG  # of a message's target


_SCHEDULE: Final = Kind.SCHEDULE
_KEEP: Final = Kind.KEEP
# Half of what calling the class costs, which is Python code.
_new_arrival: Final = tuple.__new__


def plain_arrival(
    at: tuple[int, int, int],
    key: bytes | None,
    value: bytes | None,
    headers: Headers,
    topic: str,
    scheduled_for_ms: int,
    id_: str | None,
    target_key: tuple[bytes | None] | None,
) -> Arrival:
    """As `arrival`, of a request that `parse_plain` reads; the hot path of apply.

    `at` is the record's partition, offset and timestamp.
    """
    other_key = None if target_key is None or target_key[0] == key else target_key
    row = ScheduledRow(
        key, value, headers, id_, topic, wire.BY_KEY, other_key, scheduled_for_ms, None, None, None, 1, None
    )
    due_ms = scheduled_for_ms if scheduled_for_ms > at[2] else at[2]  # noqa: FURB136 - max() is a call
    return _new_arrival(Arrival, (*at, _SCHEDULE, due_ms, id_, None, None, encode(row), None, tag_of(topic)))


def arrival(record: ConsumerRecord, request: wire.Request) -> Arrival:
    """What `request`, parsed from `record`, does to the view."""
    if isinstance(request, wire.Schedule):
        return _schedule(record, request)
    at_ms = record.timestamp_ms
    at = (record.partition, record.offset, at_ms)
    if isinstance(request, wire.Carry):
        return _carry(at, request)
    if isinstance(request, wire.SettingsMark):
        return Arrival(*at, Kind.MARK, at_ms, None, None, None, b"")
    if isinstance(request, wire.Cancel):
        return Arrival(*at, Kind.CANCEL, at_ms, request.id, None, request.source, b"")
    headers = _headers(record)
    if isinstance(request, wire.Reschedule):
        row = RescheduleRow(
            record.key,
            record.value,
            headers,
            request.id,
            request.scheduled_for_ms,
            request.expire_at_ms,
            request.root,
            request.attempt,
        )
        return Arrival(*at, Kind.RESCHEDULE, at_ms, request.id, None, None, encode(row), request.serial)
    if request.code == RejectCode.HEADER_KEY:
        headers = []  # what cannot be written as it was is in no dead letter, wherever it was found
    reject = RejectRow(record.key, record.value, headers, request.code, request.detail)
    return Arrival(*at, Kind.REJECT, at_ms, None, None, None, encode(reject), request.serial)


def spent(record: ConsumerRecord, serial: Serial) -> Arrival:
    """What a request does to the view that the service wrote back in a transaction that was aborted. It has
    no time, and no row.
    """
    return Arrival(record.partition, record.offset, 0, Kind.SPENT, 0, None, None, None, b"", serial)


def _schedule(record: ConsumerRecord, request: wire.Schedule) -> Arrival:
    """The hot path: no field is looked up by its name where all of them are needed."""
    (
        id_, for_ms, due_ms, topic, target_key, target_partition, expire_at_ms, _,
        parent, root, attempt, nth, recurrence, keep, serial, moved_by,
    ) = request  # fmt: skip
    key = record.key
    other_key = None if target_key == key else (target_key,)
    row = ScheduledRow(
        key, record.value, _headers(record), id_, topic, target_partition, other_key, for_ms, expire_at_ms,
        parent, root, attempt, nth, recurrence, moved_by,
    )  # fmt: skip
    kind = _KEEP if keep else _SCHEDULE
    root_offset = None if root is None else parse_source(root)[2]
    tag = NO_TAG if recurrence is not None and nth is None else tag_of(topic)
    fields = (
        record.partition, record.offset, record.timestamp_ms, kind, due_ms, id_, parent, root_offset,
        encode(row), serial, tag,
    )  # fmt: skip
    return _new_arrival(Arrival, fields)


def _carry(at: tuple[int, int, int], request: wire.Carry) -> Arrival:
    due_ms, _, raw = decode_carry(request.row)
    row = decode_row(raw)
    if isinstance(row, RejectRow):
        return Arrival(*at, Kind.CARRY, due_ms, None, None, None, request.row, request.serial)
    if isinstance(row, RescheduleRow):
        return Arrival(*at, Kind.CARRY, due_ms, row.id, None, None, request.row, request.serial)
    root = None if row.root is None else parse_source(row.root)[2]
    target = target_of_message(row)
    tag = NO_TAG if target is None else tag_of(target)
    return Arrival(*at, Kind.CARRY, due_ms, row.id, row.parent, root, request.row, request.serial, tag)


def _headers(record: ConsumerRecord) -> Headers:
    headers = record.headers
    return headers if isinstance(headers, list) else list(headers or ())
