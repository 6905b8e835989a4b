"""The wire format (docs/wire-format.md): plain Kafka headers, so that any client in any language can use it.

`parse` reads a request. The functions here write headers: of a delivered record, of a request that the
service writes back, of a dead letter. Nothing in it does I/O or looks at a clock.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from operator import methodcaller
from typing import Final

from confluent_kafka import Message

from delayline.headers import (
    H_AFTER,
    H_AS_OF,
    H_ATTEMPT,
    H_CRON,
    H_DELIVER_AT,
    H_ERROR,
    H_ERROR_DETAIL,
    H_EXPIRE_AT,
    H_ID,
    H_IF_EXISTS,
    H_INTERVAL,
    H_INTERVAL_FACTOR,
    H_LEVEL,
    H_MISSED,
    H_MOVED_BY,
    H_OCCURRENCE,
    H_OP,
    H_PARENT,
    H_ROOT,
    H_SCHEDULED_FOR,
    H_SETTINGS,
    H_SETTINGS_AT,
    H_SIGNATURE,
    H_SOURCE,
    H_TARGET_KEY,
    H_TARGET_PARTITION,
    H_TARGET_TOPIC,
    H_TIME_ZONE,
    H_TIMES,
    H_UNTIL,
    OP_CANCEL,
    OP_CARRY,
    OP_RESCHEDULE,
    OP_SCHEDULE,
    OP_SETTINGS,
    PREFIX,
    Header,
)
from delayline.parser import ON_REQUESTS, parse, parse_plain, spent_serial, weighed_mark
from delayline.record import (
    BY_KEY,
    Cancel,
    Carry,
    ConsumerRecord,
    Reject,
    Request,
    Reschedule,
    Schedule,
    SettingsMark,
    SettingsPlace,
)
from delayline.recurrence import Recurrence, recurrence_headers
from delayline.rejects import REJECT_CODES, RejectCode
from delayline.signing import Keyring, Serial

# The wire format in one place: what the service's other packages import.
__all__ = [
    "BY_KEY",
    "H_AFTER",
    "H_AS_OF",
    "H_ATTEMPT",
    "H_CRON",
    "H_DELIVER_AT",
    "H_ERROR",
    "H_ERROR_DETAIL",
    "H_EXPIRE_AT",
    "H_ID",
    "H_IF_EXISTS",
    "H_INTERVAL",
    "H_INTERVAL_FACTOR",
    "H_LEVEL",
    "H_MISSED",
    "H_MOVED_BY",
    "H_OCCURRENCE",
    "H_OP",
    "H_PARENT",
    "H_ROOT",
    "H_SCHEDULED_FOR",
    "H_SETTINGS",
    "H_SETTINGS_AT",
    "H_SIGNATURE",
    "H_SOURCE",
    "H_TARGET_KEY",
    "H_TARGET_PARTITION",
    "H_TARGET_TOPIC",
    "H_TIMES",
    "H_TIME_ZONE",
    "H_UNTIL",
    "KEY_NOT_UTF8",
    "OP_CANCEL",
    "OP_CARRY",
    "OP_RESCHEDULE",
    "OP_SCHEDULE",
    "OP_SETTINGS",
    "PREFIX",
    "REJECT_CODES",
    "Cancel",
    "Carry",
    "ConsumerRecord",
    "Header",
    "Recurrence",
    "Reject",
    "Request",
    "Reschedule",
    "Schedule",
    "SettingsMark",
    "SettingsPlace",
    "carry_headers",
    "dead_letter_headers",
    "deferred_headers",
    "delivery_headers",
    "parse",
    "parse_plain",
    "read_headers",
    "rewrite_headers",
    "settings_mark_headers",
    "signed_headers",
    "spent_serial",
    "user_headers",
    "weighed_mark",
]


# For a key that is not UTF-8, Message.headers() returns a broken list (NULL for the key), an exception set.
# Called directly in a hot loop, Python's specialized opcode overlooks the exception; it comes out of a later
# statement, or the NULL is touched and the process dies. Called through C, the result is always checked.
_headers_of: Callable[[Message], list[Header] | None] = methodcaller("headers")


KEY_NOT_UTF8: Final = Reject(
    RejectCode.HEADER_KEY, "a header key is not UTF-8: use UTF-8, best ASCII, in every header key"
)


def read_headers(message: Message) -> list[Header] | Reject | None:
    """The headers of a consumed message, or, if they cannot be read, the reject that it is.

    The one safe way to the headers of a message that anybody may have sent: call `message.headers()` neither
    before nor after.
    """
    try:
        return _headers_of(message)
    except (SystemError, UnicodeDecodeError):
        return KEY_NOT_UTF8


def user_headers(headers: Sequence[Header]) -> list[Header]:
    """The user's own headers of a request that was accepted, in order."""
    return [header for header in headers if header[0] not in ON_REQUESTS]


def delivery_headers(
    own_headers: list[Header],
    id: str | None,
    source: bytes,
    scheduled_for_ms: int,
    attempt: int = 1,
    occurrence: int | None = None,
) -> list[Header]:
    """The headers of a delivered record: the user's own in order, then what the service says of it.

    `source` is the user's own request, `topic/partition/offset`.
    """
    named = own_headers if id is None else [*own_headers, (H_ID, id.encode())]
    tried = _FIRST_ATTEMPT if attempt == 1 else (H_ATTEMPT, b"%d" % attempt)
    headers = [*named, (H_SOURCE, source), (H_SCHEDULED_FOR, b"%d" % scheduled_for_ms), tried]
    if occurrence is not None:
        headers.append((H_OCCURRENCE, b"%d" % occurrence))
    return headers


_FIRST_ATTEMPT: Final = (H_ATTEMPT, b"1")


def rewrite_headers(schedule: Schedule) -> list[Header]:
    """The headers of a request that the service writes back; its parent and root must be set.

    Everything is explicit, so that `parse` of a record with these headers, in the parent's partition, gives
    `schedule` again, with due at max(due, the new record's timestamp).
    """
    if schedule.parent is None or schedule.root is None:
        raise ValueError("a request that is written back needs a parent and a root: set both")
    headers = [
        *schedule.headers,
        (H_TARGET_TOPIC, schedule.target_topic.encode()),
        (H_TARGET_KEY, schedule.target_key),
        (H_DELIVER_AT, b"%d" % schedule.due_ms),
        (H_PARENT, b"%d" % schedule.parent),
        (H_ROOT, schedule.root.encode()),
        (H_ATTEMPT, b"%d" % schedule.attempt),
    ]
    if schedule.scheduled_for_ms != schedule.due_ms:
        headers.append((H_SCHEDULED_FOR, b"%d" % schedule.scheduled_for_ms))
    if schedule.target_partition != BY_KEY:
        headers.append((H_TARGET_PARTITION, b"%d" % schedule.target_partition))
    if schedule.id is not None:
        headers.append((H_ID, schedule.id.encode()))
    if schedule.expire_at_ms is not None:
        headers.append((H_EXPIRE_AT, b"%d" % schedule.expire_at_ms))
    if schedule.occurrence is not None:
        headers.append((H_OCCURRENCE, b"%d" % schedule.occurrence))
    if schedule.moved_by is not None:
        headers.append((H_MOVED_BY, b"%d" % schedule.moved_by))
    if schedule.recurrence is not None:
        headers += recurrence_headers(schedule.recurrence)
    return headers


def deferred_headers(reschedule: Reschedule) -> list[Header]:
    """The same, of a reschedule that is deferred."""
    if reschedule.parent is None or reschedule.root is None:
        raise ValueError("a request that is written back needs a parent and a root: set both")
    headers: list[Header] = [
        (H_OP, OP_RESCHEDULE),
        (H_ID, reschedule.id.encode()),
        (H_DELIVER_AT, b"%d" % reschedule.scheduled_for_ms),
        (H_PARENT, b"%d" % reschedule.parent),
        (H_ROOT, reschedule.root.encode()),
        (H_ATTEMPT, b"%d" % reschedule.attempt),
    ]
    if reschedule.expire_at_ms is not None:
        headers.append((H_EXPIRE_AT, b"%d" % reschedule.expire_at_ms))
    return headers


def settings_mark_headers(mark: SettingsMark, partition: int, keyring: Keyring) -> list[Header]:
    """Of the mark from which on a version of the settings counts in a partition; it has no key and no
    value.
    """
    at = b"%b/%d/%d" % (mark.at.topic_id.encode(), mark.at.epoch, mark.at.offset)
    headers: list[Header] = [
        (H_OP, OP_SETTINGS),
        (H_SETTINGS, b"%d" % mark.number),
        (H_SETTINGS_AT, at),
    ]
    signature = keyring.sign_request(partition, None, None, headers)
    return [*headers, (H_SIGNATURE, signature)]


def carry_headers() -> list[Header]:
    """The headers of a carry, but for its serial and its signature: the rest of it is its value."""
    return [(H_OP, OP_CARRY)]


def signed_headers(
    headers: list[Header],
    keyring: Keyring,
    serial: Serial,
    partition: int,
    key: bytes | None,
    value: bytes | None,
) -> list[Header]:
    """The headers of a request that is written back, with its serial, signed: see docs/wire-format.md."""
    numbered = [*headers, (H_AS_OF, b"%d.%d" % serial)]
    return [*numbered, (H_SIGNATURE, keyring.sign_request(partition, key, value, numbered))]


def dead_letter_headers(
    original_headers: Sequence[Header] | None, *, source: str, code: str, detail: str
) -> list[Header]:
    """The headers of a dead letter: the request's own as they were, then its source and what was wrong.

    A request may itself have carried headers of these names: the last of each is the service's.
    """
    return [
        *(original_headers or ()),
        (H_SOURCE, source.encode()),
        (H_ERROR, code.encode()),
        (H_ERROR_DETAIL, detail.encode("utf-8", "backslashreplace")),
    ]
