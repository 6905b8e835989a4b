"""The request that a dead letter becomes when it is sent again."""

from __future__ import annotations

from typing import Final

from delayline.headers import H_IF_EXISTS, H_INTERVAL_FACTOR, H_MISSED, H_TIME_ZONE, H_TIMES, H_UNTIL
from delayline.names import MAX_OFFSET, source
from delayline.rejects import DELIVERY_CODES, RejectCode
from delayline.requests import BufferRecord
from delayline.times import parse_number, parse_time
from delayline.wire import (
    H_AFTER,
    H_AS_OF,
    H_ATTEMPT,
    H_CRON,
    H_DELIVER_AT,
    H_EXPIRE_AT,
    H_ID,
    H_INTERVAL,
    H_LEVEL,
    H_MOVED_BY,
    H_OCCURRENCE,
    H_PARENT,
    H_ROOT,
    H_SCHEDULED_FOR,
    H_SIGNATURE,
    H_SOURCE,
    H_TARGET_KEY,
    Header,
)
from ops.dead_letter.letter import Letter

# What the service says of a request, and what says nothing of a new one. An id is still known after its dead
# letter: with `delay-if-exists: keep` the new request would be a duplicate of the one that failed.
_SERVICES: Final = frozenset(
    (
        *(H_SOURCE, H_PARENT, H_ROOT, H_ATTEMPT, H_OCCURRENCE, H_SCHEDULED_FOR, H_IF_EXISTS),
        *(H_AS_OF, H_MOVED_BY, H_SIGNATURE),
    )
)
_TIME: Final = frozenset((H_DELIVER_AT, H_AFTER, H_LEVEL))
_RECURRENCE: Final = frozenset(
    (H_CRON, H_TIME_ZONE, H_INTERVAL, H_INTERVAL_FACTOR, H_TIMES, H_UNTIL, H_MISSED)
)
_ENDS_ITS_CHAIN: Final = frozenset((RejectCode.BAD_TIME_ZONE, RejectCode.NO_OCCURRENCE))


def is_of_living_chain(letter: Letter) -> bool:
    """Whether it is one delivery of a recurring message that goes on without it.

    Where the brokers refused the record itself, the chain has ended; the letter does not tell.
    """
    recurs = letter.has(H_INTERVAL) or letter.has(H_CRON)
    return recurs and letter.code in DELIVERY_CODES - _ENDS_ITS_CHAIN


def has_passed(letter: Letter, now_ms: int) -> bool:
    """Whether the request's `delay-expire-at` is over."""
    raw = letter.first(H_EXPIRE_AT)
    try:
        return raw is not None and parse_time(raw) <= now_ms
    except ValueError:
        return False


def request_again(letter: Letter, topic: str, now_ms: int, *, keep_time: bool) -> BufferRecord:
    """The request of a letter in `topic` once more: due at once, or with `keep_time` as it was.

    A delivery of a chain that goes on is one message of its own: with the id it would take the place of the
    chain's next delivery. A reschedule keeps its time, which is all that it says. `delay-source` names the
    letter: the service does not look at it, and `ops.dead_letter.since` finds it there.
    """
    left_out = set(_SERVICES)
    if letter.is_schedule and not keep_time:
        left_out |= _TIME
    if is_of_living_chain(letter):
        left_out |= _RECURRENCE | {H_ID}
    if has_passed(letter, now_ms):
        left_out.add(H_EXPIRE_AT)
    headers = [_counted_down(letter, header) for header in letter.headers if header[0] not in left_out]
    headers.append((H_SOURCE, source(topic, *letter.record_id).encode()))
    return _in_its_partition(letter, headers)


def _in_its_partition(letter: Letter, headers: list[Header]) -> BufferRecord:
    """With the id as the record's key, if there is one; the message's own key is then a header."""
    raw_id = next((value for key, value in headers if key == H_ID), None)
    if raw_id is None:
        return BufferRecord(letter.key, letter.value, headers)
    if letter.is_schedule and not letter.has(H_TARGET_KEY):
        headers.append((H_TARGET_KEY, letter.key))
    return BufferRecord(raw_id, letter.value, headers)


def _counted_down(letter: Letter, header: Header) -> Header:
    """`delay-times` counts from the first delivery of a chain: of one that begins again, what is left."""
    name, raw = header
    done = letter.first(H_OCCURRENCE) if letter.has(H_PARENT) else None
    if name != H_TIMES or raw is None or done is None:
        return header
    try:
        left = parse_number(raw, MAX_OFFSET) - parse_number(done, MAX_OFFSET) + 1
    except ValueError:
        return header
    return name, b"%d" % max(1, left)
