"""Requests as plain Kafka records: what any client in any language could send (docs/wire-format.md).

Each function builds one record for the buffer topic; none does I/O. What the service would reject whatever
its settings is refused here, with the same code: sooner, and closer to the mistake.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from datetime import datetime, timedelta
from typing import Final, NamedTuple, TypeAlias, TypeVar

from delayline.errors import InvalidRequestError
from delayline.headers import (
    H_AFTER,
    H_DELIVER_AT,
    H_EXPIRE_AT,
    H_ID,
    H_IF_EXISTS,
    H_LEVEL,
    H_OP,
    H_SOURCE,
    H_TARGET_KEY,
    H_TARGET_PARTITION,
    H_TARGET_TOPIC,
    ID_MAX_BYTES,
    KEEP,
    OP_CANCEL,
    OP_RESCHEDULE,
    PREFIX,
    Header,
)
from delayline.names import MAX_PARTITION, TOPIC_MAX_LENGTH, is_legal_topic, parse_source
from delayline.partitioner import partition_for
from delayline.recurrence import (
    ALL,
    MISSED,
    MOST_TIMES,
    SAME_INTERVAL,
    SHORTEST_MS,
    Recurrence,
    parse_cron,
    parse_factor,
    parse_time_zone,
    recurrence_headers,
)
from delayline.rejects import RejectCode
from delayline.times import MAX_MS, duration_ms, epoch_ms, parse_duration, parse_time

Data: TypeAlias = bytes | str | None  # a str is sent as UTF-8
UserHeaders: TypeAlias = Mapping[str, Data] | Iterable[tuple[str, Data]]
Time: TypeAlias = datetime | int | str  # an aware datetime, epoch milliseconds, or RFC 3339 with an offset
Duration: TypeAlias = timedelta | int | str  # a timedelta, milliseconds, or "1h30m"


_CANCEL: Header = (H_OP, OP_CANCEL)
# Looked up once, as in delayline/parser.py: sound requests are made with these.
_BAD_AFTER: Final = RejectCode.BAD_AFTER
_BAD_DELIVER_AT: Final = RejectCode.BAD_DELIVER_AT
_BAD_EXPIRE_AT: Final = RejectCode.BAD_EXPIRE_AT


class BufferRecord(NamedTuple):
    """A request, ready to be sent to the buffer topic with the partitioner murmur2.

    A request with an id has the id as its key, so that it lands in the partition of the id; the message's own
    key then goes into `delay-target-key`. A cancel by source has a partition of its own.
    """

    key: bytes | None
    value: bytes | None
    headers: list[Header]

    @property
    def own_partition(self) -> int | None:
        """Of a cancel by source, the source's: it must be sent there, whatever the partitioner says."""
        if self.headers[0] != _CANCEL or self.headers[1][0] != H_SOURCE:
            return None
        return parse_source((self.headers[1][1] or b"").decode())[1]

    def partition(self, partitions: int) -> int | None:
        """Where it belongs, for a client with another partitioner; None: anywhere."""
        own = self.own_partition
        if own is not None:
            return own
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
    id: str | None = None,
    expire_at: Time | None = None,
    partition: int | None = None,
    repeat: Recurrence | None = None,
    if_exists: str = "replace",
) -> BufferRecord:
    """Deliver `value` to `topic` at a time, after a delay or by a level; with none of them at once.

    With `repeat`, again and again: the time is when that starts.

    Args:
        topic: the target topic.
        value: the message; a str is sent as UTF-8.
        key: the message's key.
        headers: the message's own headers, in order; none may start with `delay-` or have a NUL in its key.
        deliver_at: an aware datetime, epoch milliseconds, or RFC 3339 text with an offset.
        after: a timedelta, milliseconds, or text such as "1h30m", from when the broker has the request.
        level: the number of a delay in the cluster's table.
        id: a name for the message, by which to cancel or reschedule it, or to replace it by another.
        expire_at: as `deliver_at`; not worth delivering after this.
        partition: the partition of the target topic; by default murmur2 of the key.
        repeat: how it comes again, made by `every` or `cron`; with an id, or with `times` or `until`; not
            together with `expire_at`.
        if_exists: `replace` what is pending under this id, or `keep` it: then this is a duplicate, also for a
            while after the message was delivered. It makes a request safe to repeat.

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
        result.append((H_EXPIRE_AT, _time(expire_at, "expire_at", _BAD_EXPIRE_AT)))
    if repeat is not None:
        if expire_at is not None:
            raise InvalidRequestError(
                RejectCode.HEADER_NOT_ALLOWED,
                "expire_at is for one delivery: to end a recurring one, use until",
            )
        if id is None and not repeat.ends:
            raise InvalidRequestError(
                RejectCode.BAD_RECURRENCE, "the recurring message would never end: give an id, times or until"
            )
        result += recurrence_headers(repeat)
    if if_exists != "replace":
        result.append((H_IF_EXISTS, _if_exists(if_exists, id)))
    if id is None:
        return BufferRecord(own_key, _data(value), result)
    raw_id = _id(id)
    result += ((H_ID, raw_id), (H_TARGET_KEY, own_key))
    return BufferRecord(raw_id, _data(value), result)


def every(
    interval: Duration,
    *,
    factor: float | str = 1,
    times: int | None = None,
    until: Time | None = None,
    missed: str = ALL,
) -> Recurrence:
    """Again and again after an interval; the first time at the time given, or an interval from now.

    Args:
        interval: a timedelta, milliseconds, or text such as "1h30m"; a second at least.
        factor: by which the interval grows each time, 1 to 1000 with at most three decimals.
        times: deliveries in all.
        until: a time after which there are none.
        missed: what to deliver of occurrences that passed while nothing could be delivered: `all`, the
            `latest`, or none (`skip`).

    Raises:
        InvalidRequestError: what the service would reject.
    """
    interval_ms = _checked(
        _interval_ms,
        _duration(interval, "interval", RejectCode.BAD_INTERVAL),
        "interval",
        RejectCode.BAD_INTERVAL,
    )
    permille = _checked(
        parse_factor, str(factor).removesuffix(".0").encode(), "factor", RejectCode.BAD_INTERVAL_FACTOR
    )
    return Recurrence(None, interval_ms, permille, None, *_limits(times, until, missed))


def cron(
    expression: str,
    *,
    time_zone: str | None = None,
    times: int | None = None,
    until: Time | None = None,
    missed: str = ALL,
) -> Recurrence:
    """When a cron expression fires (minute hour day month weekday, or with seconds before them), as cron does
    it where clocks change; further arguments and errors as `every`.

    `time_zone` is an IANA name such as "Europe/Berlin"; by default UTC.
    """
    text = _checked(parse_cron, expression.encode(), "the cron expression", RejectCode.BAD_CRON)
    zone = None
    if time_zone is not None:
        zone = _checked(
            parse_time_zone, time_zone.encode("latin-1", "replace"), "time_zone", RejectCode.BAD_TIME_ZONE
        )
    return Recurrence(text, 0, SAME_INTERVAL, zone, *_limits(times, until, missed))


def cancel(id: str | None = None, *, source: str | None = None) -> BufferRecord:
    """Do not deliver the pending message with this id, or the one that the request at `source` asked for, and
    nothing more of it if it recurs.

    Args:
        id: the message's id.
        source: `topic/partition/offset` of the request, for a message with an id or without. The record must
            be sent to that partition (`BufferRecord.partition`).

    Raises:
        InvalidRequestError: an id that cannot be one, or a source that is none.
    """
    if (id is None) == (source is None):
        raise TypeError("a cancel needs an id or a source, and not both")
    if source is not None:
        try:
            parse_source(source)
        except ValueError as error:
            raise InvalidRequestError(RejectCode.BAD_SOURCE, str(error)) from None
        return BufferRecord(None, None, [_CANCEL, (H_SOURCE, source.encode())])
    assert id is not None, "one of the two is there"
    raw_id = _id(id)
    return BufferRecord(raw_id, None, [_CANCEL, (H_ID, raw_id)])


def reschedule(
    id: str,
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


def run_now(id: str) -> BufferRecord:
    """Deliver the pending message with this id at once: a reschedule without a time."""
    return _reschedule(id, [], None)


def _reschedule(id: str, times: list[Header], expire_at: Time | None) -> BufferRecord:
    raw_id = _id(id)
    headers: list[Header] = [(H_OP, OP_RESCHEDULE), (H_ID, raw_id), *times]
    if expire_at is not None:
        headers.append((H_EXPIRE_AT, _time(expire_at, "expire_at", _BAD_EXPIRE_AT)))
    return BufferRecord(raw_id, None, headers)


def _limits(times: int | None, until: Time | None, missed: str) -> tuple[int | None, int | None, str]:
    if times is not None and (not _is_int(times) or not 1 <= times <= MOST_TIMES):
        raise InvalidRequestError(
            RejectCode.BAD_TIMES, f"times is {times!r}: use a whole number from 1 to {MOST_TIMES}"
        )
    if missed not in MISSED:
        raise InvalidRequestError(RejectCode.BAD_MISSED, f"missed is {missed!r}: use {', '.join(MISSED)}")
    return times, None if until is None else int(_time(until, "until", RejectCode.BAD_UNTIL)), missed


def _interval_ms(text: bytes) -> int:
    interval_ms = parse_duration(text)
    if interval_ms < SHORTEST_MS:
        raise ValueError(f"the shortest one is {SHORTEST_MS} ms")
    return interval_ms


T = TypeVar("T")


def _checked(read: Callable[[bytes], T], text: bytes, argument: str, code: RejectCode) -> T:
    try:
        return read(text)
    except ValueError as error:
        raise InvalidRequestError(code, f"{argument}: {error}") from None


def _data(data: Data) -> bytes | None:
    return data.encode() if isinstance(data, str) else data


def _user_headers(headers: UserHeaders) -> list[Header]:
    pairs = headers.items() if isinstance(headers, Mapping) else headers
    result = [(key, _data(value)) for key, value in pairs]
    for key, _ in result:
        if key.startswith(PREFIX):
            raise InvalidRequestError(
                RejectCode.UNKNOWN_HEADER,
                f"header {key!r}: headers in {PREFIX} are the service's; rename it, or use the argument",
            )
        if "\0" in key:
            raise InvalidRequestError(
                RejectCode.HEADER_KEY,
                f"header {key!r} has a NUL byte, at which it would be cut: leave that out",
            )
    return result


def _topic(topic: str) -> bytes:
    if not is_legal_topic(topic):
        raise InvalidRequestError(
            RejectCode.BAD_TARGET_TOPIC,
            f"{topic!r} is no topic name: Kafka takes 1 to {TOPIC_MAX_LENGTH} of a-z A-Z 0-9 . _ -",
        )
    return topic.encode()


def _if_exists(if_exists: str, id: str | None) -> bytes:
    if if_exists != "keep":
        raise InvalidRequestError(
            RejectCode.BAD_IF_EXISTS, f"if_exists is {if_exists!r}: use replace or keep"
        )
    if id is None:
        raise InvalidRequestError(RejectCode.NO_ID, "if_exists asks whether the id is known: give an id")
    return KEEP


def _id(id: str) -> bytes:
    try:
        raw_id = id.encode()
    except UnicodeEncodeError:
        raise InvalidRequestError(
            RejectCode.BAD_ID, f"id {id!r} cannot be written as UTF-8: use another one"
        ) from None
    if not 0 < len(raw_id) <= ID_MAX_BYTES:
        raise InvalidRequestError(
            RejectCode.BAD_ID, f"the id has {len(raw_id)} bytes: use 1 to {ID_MAX_BYTES}"
        )
    return raw_id


def _partition(partition: int) -> bytes:
    if not _is_int(partition) or not 0 <= partition <= MAX_PARTITION:
        raise InvalidRequestError(
            RejectCode.BAD_TARGET_PARTITION,
            f"partition is {partition!r}: use a number from 0 to {MAX_PARTITION}",
        )
    return b"%d" % partition


def _time_headers(deliver_at: Time | None, after: Duration | None, level: int | None) -> list[Header]:
    if (deliver_at is not None) + (after is not None) + (level is not None) > 1:
        raise InvalidRequestError(
            RejectCode.TIME_CONFLICT, "more than one of deliver_at, after, level: give one of them"
        )
    if deliver_at is not None:
        return [(H_DELIVER_AT, _time(deliver_at, "deliver_at", _BAD_DELIVER_AT))]
    if after is not None:
        return [(H_AFTER, _duration(after, "after", _BAD_AFTER))]
    if level is not None:
        return [(H_LEVEL, _level(level))]
    return []


def _time(time: Time, argument: str, code: RejectCode) -> bytes:
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


def _duration(duration: Duration, argument: str, code: RejectCode) -> bytes:
    try:
        if isinstance(duration, timedelta):
            return b"%dms" % duration_ms(duration)
        if isinstance(duration, str):
            return b"%dms" % parse_duration(duration.encode())
    except ValueError as error:
        raise InvalidRequestError(code, f"{argument}: {error}") from None
    if not _is_int(duration) or not 0 <= duration <= MAX_MS:
        raise InvalidRequestError(
            code,
            f'{argument} is {duration!r}: use a timedelta, milliseconds as int, or text such as "1h30m"',
        )
    return b"%dms" % duration


def _level(level: int) -> bytes:
    if not _is_int(level) or not -MAX_MS <= level <= MAX_MS:
        raise InvalidRequestError(RejectCode.BAD_LEVEL, f"level is {level!r}: use a whole number")
    return b"%d" % level


def _is_int(value: object) -> bool:
    return isinstance(value, int) and not isinstance(value, bool)
