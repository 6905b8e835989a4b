"""A line of an export: one message that waits, with all that another cluster needs to deliver it.

docs/pending.md has the columns. The content does not depend on the cluster that it comes from: its key is the
delivered message's key, its headers are the user's own, its times are epoch milliseconds.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final, NamedTuple, TypeAlias

import msgspec

from delayline.headers import PREFIX
from delayline.names import source
from delayline.parser import NUL
from delayline.recurrence import LARGEST_FACTOR, MISSED, SAME_INTERVAL, SHORTEST_MS, parse_cron
from delayline.times import MAX_MS
from delayline.wire import BY_KEY, Header, Recurrence, Schedule, user_headers
from ops.pending.formats import newer, newer_than
from store.rows import ScheduledRow

FORMAT: Final = 1


class NoExport(ValueError):
    """The file is none of an export; one line says why."""


class LineError(ValueError):
    """What stands there is no line of an export; one line says why."""


class NewerFormat(LineError):
    """A newer version has written it."""


class HeaderColumn(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A header of the user's own."""

    key: str
    value: bytes | None


class RecurrenceColumns(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """How the message comes again. `interval_ms`: from this delivery to the next one; 0 beside `cron`.
    `times`: deliveries that are left, this one among them.
    """

    cron: str | None
    interval_ms: int
    interval_factor_permille: int
    time_zone: str | None
    times: int | None
    until_ms: int | None
    missed: str


class MessageLine(
    msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, tag_field="op", tag="schedule"
):
    """A message that waits. `place` rises from line to line of one export, and is that message's for ever."""

    format: int = FORMAT
    export: str
    place: int
    cluster: str
    buffer_id: str  # of the topic that the source is in: clusters of one name have others
    source: str  # of the user's own request
    id: str | None
    target_topic: str
    target_partition: int | None
    due_ms: int
    scheduled_for_ms: int
    expire_at_ms: int | None
    attempt: int
    occurrence: int | None
    recurrence: RecurrenceColumns | None
    key: bytes | None
    value: bytes | None
    headers: list[HeaderColumn]


class EndLine(
    msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, tag_field="op", tag="end"
):
    """The last line: how many messages are before it. A file without it is cut."""

    format: int = FORMAT
    export: str
    messages: int


Line: TypeAlias = MessageLine | EndLine


encode_line = msgspec.json.Encoder().encode
_decoder = msgspec.json.Decoder(Line)


def decode_line(raw: bytes) -> Line:
    """Reads a line; `LineError` if it is none, `NewerFormat` if a newer version has written it."""
    newer = newer_than(raw, FORMAT)
    if newer is not None:
        raise NewerFormat(newer)
    try:
        line: Line = _decoder.decode(raw)
    except (msgspec.MsgspecError, UnicodeError, RecursionError) as error:
        raise LineError(f"it is no line of an export: {error}") from None
    return _sound(line) if isinstance(line, MessageLine) else line


def line_of(row: Mapping[str, Any]) -> MessageLine:
    """The same of a line whose columns are read: bytes are bytes."""
    number = row.get("format")
    too_new = newer(number, FORMAT) if isinstance(number, int) else None
    if too_new is not None:
        raise NewerFormat(too_new)
    try:
        line = msgspec.convert(row, MessageLine, builtin_types=(bytes,))
    except msgspec.MsgspecError as error:
        raise LineError(f"it is no line of an export: {error}") from None
    return _sound(line)


def _sound(line: MessageLine) -> MessageLine:
    flaw = _flaw(line)
    if flaw is not None:
        raise LineError(flaw)
    return line


def _flaw(line: MessageLine) -> str | None:
    """What no export has written: it would be sent as something else than it says, or not at all."""
    for header in line.headers:
        if header.key.startswith(PREFIX) or NUL in header.key:
            return f"header {header.key[:80]!r} is none of a user's own"
    if not 0 <= line.scheduled_for_ms <= MAX_MS:
        return f"scheduled_for_ms is {line.scheduled_for_ms}: write epoch milliseconds"
    return None if line.recurrence is None else _recurrence_flaw(line.recurrence)


def _recurrence_flaw(columns: RecurrenceColumns) -> str | None:
    cron, interval_ms = columns.cron, columns.interval_ms
    if cron is None and interval_ms < SHORTEST_MS:
        return f"interval_ms is {interval_ms}: without cron it is {SHORTEST_MS} or more"
    factor = columns.interval_factor_permille
    if not SAME_INTERVAL <= factor <= LARGEST_FACTOR:
        return f"interval_factor_permille is {factor}: write {SAME_INTERVAL} to {LARGEST_FACTOR}"
    if columns.times is not None and columns.times < 1:
        return f"times is {columns.times}: write 1 or more"
    if columns.missed not in MISSED:
        return f"missed is {columns.missed[:80]!r}: write {', '.join(MISSED)}"
    return None if cron is None else _cron_flaw(cron)


def _cron_flaw(cron: str) -> str | None:
    try:
        parse_cron(cron.encode())
    except ValueError as error:
        return f"cron is {cron[:80]!r}: {error}"
    return None


class Found(NamedTuple):
    """A row of the buffer. `row`: the record that it was made from; `root`: the offset of the user's own
    request, in the same partition; `parent`: the offset of what it follows from, if the service has written
    it back.
    """

    row: tuple[int, int]
    root: int
    parent: int | None
    message: MessageLine


class Buffer(NamedTuple):
    """Where rows are: the topic with its id, and the cluster."""

    topic: str
    id: str
    cluster: str


def found_schedule(buffer: Buffer, at: tuple[int, int], schedule: Schedule) -> Found:
    """The row that a request in the buffer makes."""
    key, headers = schedule.target_key, schedule.headers
    message = _message(buffer, at, schedule, due_ms=schedule.due_ms, key=key, headers=headers)
    return Found(at, _offset(message.source), schedule.parent, message)


def found_row(buffer: Buffer, at: tuple[int, int], due_ms: int, row: ScheduledRow) -> Found:
    """The row that a carry brings."""
    key = row.key if row.target_key is None else row.target_key[0]
    headers = user_headers(row.headers)
    message = _message(buffer, at, row, due_ms=due_ms, key=key, headers=headers, value=row.value)
    return Found(at, _offset(message.source), row.parent, message)


def _message(
    buffer: Buffer,
    at: tuple[int, int],
    asked: Schedule | ScheduledRow,
    *,
    due_ms: int,
    key: bytes | None,
    headers: list[Header],
    value: bytes | None = None,
) -> MessageLine:
    partition = asked.target_partition
    return MessageLine(
        export="",
        place=0,
        cluster=buffer.cluster,
        buffer_id=buffer.id,
        source=asked.root or source(buffer.topic, *at),
        id=asked.id,
        target_topic=asked.target_topic,
        target_partition=None if partition == BY_KEY else partition,
        due_ms=due_ms,
        scheduled_for_ms=asked.scheduled_for_ms,
        expire_at_ms=asked.expire_at_ms,
        attempt=asked.attempt,
        occurrence=asked.occurrence,
        recurrence=_recurrence(asked.recurrence, asked.occurrence),
        key=key,
        value=value,
        headers=[HeaderColumn(name, content) for name, content in headers],
    )


def _offset(name: str) -> int:
    return int(name.rpartition("/")[2])


def _recurrence(recurrence: Recurrence | None, occurrence: int | None) -> RecurrenceColumns | None:
    if recurrence is None:
        return None
    times = recurrence.times
    left = times if times is None or occurrence is None else max(1, times - occurrence + 1)
    return RecurrenceColumns(
        recurrence.cron,
        recurrence.interval_ms,
        recurrence.factor_permille,
        recurrence.time_zone,
        left,
        recurrence.until_ms,
        recurrence.missed,
    )
