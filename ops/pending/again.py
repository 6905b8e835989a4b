"""The requests that a line of an export becomes in another cluster.

A message is one request, at the time asked for. A recurring one is a chain from its next delivery on; but a
user's own request for a chain delivers nothing that was past before it, has no expiry, and with cron begins
when the expression fires. So what has fallen due meanwhile, and what another request cannot say, goes as
messages of their own, as the leader would have delivered them.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final, NamedTuple

import msgspec

from delayline.headers import KEEP
from delayline.recurrence import Occurrence, first_turn, next_turn, recurrence_headers
from delayline.requests import BufferRecord
from delayline.wire import (
    BY_KEY,
    H_DELIVER_AT,
    H_EXPIRE_AT,
    H_ID,
    H_IF_EXISTS,
    H_TARGET_KEY,
    H_TARGET_PARTITION,
    H_TARGET_TOPIC,
    Header,
    Recurrence,
)
from ops.pending.line import MessageLine, RecurrenceColumns

AHEAD_MS: Final = 60_000
"""What falls due so soon goes as a message of its own: the request for a chain may get there too late for it,
and clocks may differ by as much.
"""


def id_of(line: MessageLine) -> str:
    """The id of the message in its new cluster: its own, or one that names where it comes from."""
    return line.id if line.id is not None else moved_id(line)


def moved_id(line: MessageLine) -> str:
    """Names the buffer by its id, too: two clusters of one name have equal sources. All copies of a cluster
    say the same.
    """
    return f"moved/{line.buffer_id}/{line.source}"


class Rest(msgspec.Struct, frozen=True, kw_only=True):
    """What is left of a recurring line once some of it is sent: its deliveries from the one at `at_ms` on,
    with the interval from that to the next one. `times`: how many they are.
    """

    at_ms: int
    interval_ms: int
    times: int | None


def left_of(line: MessageLine, rest: Rest) -> MessageLine:
    """A line of what is left of one."""
    assert line.recurrence is not None, "what has a rest is recurring"
    left = msgspec.structs.replace(line.recurrence, interval_ms=rest.interval_ms, times=rest.times)
    return msgspec.structs.replace(
        line, due_ms=rest.at_ms, scheduled_for_ms=rest.at_ms, expire_at_ms=None, recurrence=left
    )


class Step(NamedTuple):
    """One request of a line. `rest`: what is left behind it; None: nothing."""

    request: BufferRecord
    rest: Rest | None = None


def steps_of(line: MessageLine, now_ms: int, rest: Rest | None = None) -> Iterator[Step]:
    """What to send: one request, or of a chain that has fallen behind some more. `rest`: it is gone on with
    from there, by whoever knows that all before is sent.

    Who goes on later, by another time, does what a leader does that was down in between. It knows the same:
    the delivery that comes next, and how many are left. `all` goes on with the next one; `latest` and `skip`
    pass what has been missed by now. No delivery comes twice, for each is later than the one before.

    Raises UnknownTimeZoneError.
    """
    if line.recurrence is None:
        yield Step(_message(line, id_of(line), line.scheduled_for_ms, line.expire_at_ms))
    else:
        yield from _chain(line, line.recurrence, now_ms, rest)


def _chain(line: MessageLine, columns: RecurrenceColumns, now_ms: int, rest: Rest | None) -> Iterator[Step]:
    recurrence = _recurrence(columns)
    if line.occurrence is None:  # of cron: the first one is still to be found
        yield Step(_chain_from(line, line.scheduled_for_ms, recurrence))
        return
    # As the first one of a chain that begins anew: `times` counts those that are left.
    current = Occurrence(1, line.scheduled_for_ms, recurrence)
    expire_at_ms, is_first = line.expire_at_ms, True
    if rest is not None:
        left = recurrence._replace(interval_ms=rest.interval_ms, times=rest.times)
        current, expire_at_ms, is_first = Occurrence(1, rest.at_ms, left), None, False
    while not _starts_a_chain(current, expire_at_ms, now_ms):
        deliver_as_ms, following = next_turn(current, now_ms)
        if following is not None:
            current = _from_one(following)
        if deliver_as_ms is not None:
            # One that is the last is the message itself; the others are known by when they are due.
            is_all = is_first and following is None
            id_ = id_of(line) if is_all else f"{moved_id(line)}/{deliver_as_ms}"
            request = _message(line, id_, deliver_as_ms, expire_at_ms)
            yield Step(request, None if following is None else _rest(current))
            expire_at_ms, is_first = None, False
        if following is None:
            return
    yield Step(_chain_from(line, current.at_ms, current.recurrence))


def _rest(current: Occurrence) -> Rest:
    recurrence = current.recurrence
    return Rest(at_ms=current.at_ms, interval_ms=recurrence.interval_ms, times=recurrence.times)


def _starts_a_chain(current: Occurrence, expire_at_ms: int | None, now_ms: int) -> bool:
    """Whether a user's request can say what follows from here on."""
    recurrence = current.recurrence
    if expire_at_ms is not None or current.at_ms <= now_ms + AHEAD_MS:
        return False
    if recurrence.until_ms is not None and current.at_ms > recurrence.until_ms:
        return False
    if recurrence.cron is None:
        return True
    first = first_turn(recurrence, current.at_ms).following
    return first is not None and first.at_ms == current.at_ms


def _from_one(following: Occurrence) -> Occurrence:
    """Counted from one again, so that `times` is what is left of them."""
    times, done = following.recurrence.times, following.number - 1
    left = None if times is None else times - done
    return Occurrence(1, following.at_ms, following.recurrence._replace(times=left))


def _recurrence(columns: RecurrenceColumns) -> Recurrence:
    return Recurrence(
        columns.cron,
        columns.interval_ms,
        columns.interval_factor_permille,
        columns.time_zone,
        columns.times,
        columns.until_ms,
        columns.missed,
    )


def _chain_from(line: MessageLine, at_ms: int, recurrence: Recurrence) -> BufferRecord:
    return _request(line, id_of(line), [(H_DELIVER_AT, b"%d" % at_ms), *recurrence_headers(recurrence)])


def _message(line: MessageLine, id_: str, at_ms: int, expire_at_ms: int | None) -> BufferRecord:
    own: list[Header] = [(H_DELIVER_AT, b"%d" % at_ms)]
    if expire_at_ms is not None:
        own.append((H_EXPIRE_AT, b"%d" % expire_at_ms))
    return _request(line, id_, own)


def _request(line: MessageLine, id_: str, own: list[Header]) -> BufferRecord:
    headers: list[Header] = [(one.key, one.value) for one in line.headers]
    raw_id = id_.encode()
    headers += [(H_TARGET_TOPIC, line.target_topic.encode()), *own]
    if line.target_partition not in {None, BY_KEY}:
        headers.append((H_TARGET_PARTITION, b"%d" % line.target_partition))
    headers += [(H_IF_EXISTS, KEEP), (H_ID, raw_id), (H_TARGET_KEY, line.key)]
    return BufferRecord(raw_id, line.value, headers)
