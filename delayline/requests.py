"""Requests as plain Kafka records: what any client in any language could send (docs/wire-format.md).

Each function builds one record for the buffer topic; none does I/O. What the service would reject whatever
its settings is refused here, with the same code: sooner, and closer to the mistake.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from datetime import datetime, timedelta
from typing import NamedTuple, TypeAlias

from delayline.errors import InvalidRequestError
from delayline.headers import (
    H_AFTER,
    H_DELIVER_AT,
    H_EXPIRE_AT,
    H_ID,
    H_LEVEL,
    H_OP,
    H_TARGET_KEY,
    H_TARGET_PARTITION,
    H_TARGET_TOPIC,
    ID_MAX_BYTES,
    OP_CANCEL,
    OP_RESCHEDULE,
    PREFIX,
    Header,
)
from delayline.names import MAX_PARTITION, TOPIC_MAX_LENGTH, is_legal_topic
from delayline.partitioner import partition_for
from delayline.times import MAX_MS, duration_ms, epoch_ms, parse_duration, parse_time

Data: TypeAlias = bytes | str | None  # a str is sent as UTF-8
UserHeaders: TypeAlias = Mapping[str, Data] | Iterable[tuple[str, Data]]
Time: TypeAlias = datetime | int | str  # an aware datetime, epoch milliseconds, or RFC 3339 with an offset
Duration: TypeAlias = timedelta | int | str  # a timedelta, milliseconds, or "1h30m"


class BufferRecord(NamedTuple):
    """A request, ready to be sent to the buffer topic with the partitioner murmur2.

    A request with an id has the id as its key, so that it lands in the partition of the id; the message's own
    key then goes into `delay-target-key`.
    """

    key: bytes | None
    value: bytes | None
    headers: list[Header]

    def partition(self, partitions: int) -> int | None:
        """Where it belongs, for a client with another partitioner; None: anywhere."""
        return None if self.key is None else partition_for(self.key, partitions)


def schedule(  # noqa: PLR0913 - each argument is a header
    topic: str,
    value: Data,
    *,
    key: Data = None,
    headers: UserHeaders | None = None,
    deliver_at: Time | None = None,
    after: Duration | None = None,
    level: int | None = None,
    id: str | None = None,  # noqa: A002 - the wire format's own word
    expire_at: Time | None = None,
    partition: int | None = None,
) -> BufferRecord:
    """Deliver `value` to `topic` at a time, after a delay or by a level; with none of them at once.

    Args:
        topic: the target topic.
        value: the message; a str is sent as UTF-8.
        key: the message's key.
        headers: the message's own headers, in order; none may start with `delay-`.
        deliver_at: an aware datetime, epoch milliseconds, or RFC 3339 text with an offset.
        after: a timedelta, milliseconds, or text such as "1h30m", from when the broker has the request.
        level: the number of a delay in the cluster's table.
        id: a name for the message, by which to cancel or reschedule it, or to replace it by another.
        expire_at: as `deliver_at`; not worth delivering after this.
        partition: the partition of the target topic; by default murmur2 of the key.

    Raises:
        InvalidRequestError: what the service would reject.
    """
    own_key = _data(key)
    result: list[Header] = _user_headers(headers) if headers is not None else []
    result.append((H_TARGET_TOPIC, _topic(topic)))
    result += _time_headers(deliver_at, after, level)
    if partition is not None:
        result.append((H_TARGET_PARTITION, _partition(partition)))
    if expire_at is not None:
        result.append((H_EXPIRE_AT, _time(expire_at, "expire_at", "bad-expire-at")))
    if id is None:
        return BufferRecord(own_key, _data(value), result)
    raw_id = _id(id)
    result += ((H_ID, raw_id), (H_TARGET_KEY, own_key))
    return BufferRecord(raw_id, _data(value), result)


def cancel(id: str) -> BufferRecord:  # noqa: A002
    """Do not deliver the pending message with this id. InvalidRequestError for an id that cannot be one."""
    raw_id = _id(id)
    return BufferRecord(raw_id, None, [(H_OP, OP_CANCEL), (H_ID, raw_id)])


def reschedule(
    id: str,  # noqa: A002
    *,
    deliver_at: Time | None = None,
    after: Duration | None = None,
    level: int | None = None,
    expire_at: Time | None = None,
) -> BufferRecord:
    """Deliver the pending message with this id at another time; arguments and errors as `schedule`.

    `expire_at` replaces the message's own; without it that one stays.
    """
    times = _time_headers(deliver_at, after, level)
    if not times:
        raise TypeError("a reschedule needs deliver_at, after or level; to deliver at once, use run_now")
    return _reschedule(id, times, expire_at)


def run_now(id: str) -> BufferRecord:  # noqa: A002
    """Deliver the pending message with this id at once: a reschedule without a time."""
    return _reschedule(id, [], None)


def _reschedule(id: str, times: list[Header], expire_at: Time | None) -> BufferRecord:  # noqa: A002
    raw_id = _id(id)
    headers: list[Header] = [(H_OP, OP_RESCHEDULE), (H_ID, raw_id), *times]
    if expire_at is not None:
        headers.append((H_EXPIRE_AT, _time(expire_at, "expire_at", "bad-expire-at")))
    return BufferRecord(raw_id, None, headers)


def _data(data: Data) -> bytes | None:
    return data.encode() if isinstance(data, str) else data


def _user_headers(headers: UserHeaders) -> list[Header]:
    pairs = headers.items() if isinstance(headers, Mapping) else headers
    result = [(key, _data(value)) for key, value in pairs]
    for key, _ in result:
        if key.startswith(PREFIX):
            raise InvalidRequestError(
                "unknown-header",
                f"header {key!r}: headers in {PREFIX} are the service's; rename it, or use the argument",
            )
    return result


def _topic(topic: str) -> bytes:
    if not is_legal_topic(topic):
        raise InvalidRequestError(
            "bad-target-topic",
            f"{topic!r} is no topic name: Kafka takes 1 to {TOPIC_MAX_LENGTH} of a-z A-Z 0-9 . _ -",
        )
    return topic.encode()


def _id(id: str) -> bytes:  # noqa: A002
    try:
        raw_id = id.encode()
    except UnicodeEncodeError:
        raise InvalidRequestError(
            "bad-id", f"id {id!r} cannot be written as UTF-8: use another one"
        ) from None
    if not 0 < len(raw_id) <= ID_MAX_BYTES:
        raise InvalidRequestError("bad-id", f"the id has {len(raw_id)} bytes: use 1 to {ID_MAX_BYTES}")
    return raw_id


def _partition(partition: int) -> bytes:
    if not _is_int(partition) or not 0 <= partition <= MAX_PARTITION:
        raise InvalidRequestError(
            "bad-target-partition", f"partition is {partition!r}: use a number from 0 to {MAX_PARTITION}"
        )
    return b"%d" % partition


def _time_headers(deliver_at: Time | None, after: Duration | None, level: int | None) -> list[Header]:
    if (deliver_at is not None) + (after is not None) + (level is not None) > 1:
        raise InvalidRequestError(
            "time-conflict", "more than one of deliver_at, after, level: give one of them"
        )
    if deliver_at is not None:
        return [(H_DELIVER_AT, _time(deliver_at, "deliver_at", "bad-deliver-at"))]
    if after is not None:
        return [(H_AFTER, _duration(after))]
    if level is not None:
        return [(H_LEVEL, _level(level))]
    return []


def _time(time: Time, argument: str, code: str) -> bytes:
    try:
        if isinstance(time, datetime):
            return b"%d" % epoch_ms(time)
        if isinstance(time, str):
            return b"%d" % parse_time(time.encode())
    except ValueError as error:
        raise InvalidRequestError(code, f"{argument}: {error}") from None
    if not _is_int(time) or not 0 <= time <= MAX_MS:
        raise InvalidRequestError(
            code,
            f"{argument} is {time!r}: use an aware datetime, epoch milliseconds as int, or RFC 3339 text",
        )
    return b"%d" % time


def _duration(after: Duration) -> bytes:
    try:
        if isinstance(after, timedelta):
            return b"%dms" % duration_ms(after)
        if isinstance(after, str):
            return b"%dms" % parse_duration(after.encode())
    except ValueError as error:
        raise InvalidRequestError("bad-after", f"after: {error}") from None
    if not _is_int(after) or not 0 <= after <= MAX_MS:
        raise InvalidRequestError(
            "bad-after", f'after is {after!r}: use a timedelta, milliseconds as int, or text such as "1h30m"'
        )
    return b"%dms" % after


def _level(level: int) -> bytes:
    if not _is_int(level) or not -MAX_MS <= level <= MAX_MS:
        raise InvalidRequestError("bad-level", f"level is {level!r}: use a whole number")
    return b"%d" % level


def _is_int(value: object) -> bool:
    return isinstance(value, int) and not isinstance(value, bool)
