"""What a line of an export becomes in another cluster."""

from __future__ import annotations

from itertools import islice
from typing import Any

import pytest

from delayline.headers import (
    H_CRON,
    H_DELIVER_AT,
    H_EXPIRE_AT,
    H_ID,
    H_IF_EXISTS,
    H_INTERVAL,
    H_TARGET_KEY,
    H_TARGET_PARTITION,
    H_TIMES,
    ID_MAX_BYTES,
)
from delayline.names import MAX_OFFSET, MAX_PARTITION, TOPIC_MAX_LENGTH, ClusterNames, source
from delayline.partitioner import partition_for
from delayline.record import Reject, Schedule
from delayline.requests import BufferRecord
from delayline.settings import ClusterSettings
from delayline.times import HOUR_MS, MAX_MS, MINUTE_MS
from delayline.wire import parse
from node.kafka.fetch.records import LogRecord
from ops.pending.again import Rest, steps_of
from ops.pending.imports import MOST_OPEN_S, MOST_SENT, MOST_SENT_BYTES, Load
from ops.pending.line import HeaderColumn, MessageLine, RecurrenceColumns
from tests.unit.test_pending_line import line

NOW_MS = 1_900_000_000_000 // HOUR_MS * HOUR_MS
SETTINGS = ClusterSettings(cluster="new", partitions=3)
MOVED = "moved/b/delay.buffer/1/42"


def chain(**fields: Any) -> RecurrenceColumns:
    given = {
        "cron": None,
        "interval_ms": HOUR_MS,
        "interval_factor_permille": 1_000,
        "time_zone": None,
        "times": None,
        "until_ms": None,
        "missed": "all",
        **fields,
    }
    return RecurrenceColumns(**given)


def parsed(request: BufferRecord, at_ms: int = NOW_MS + 1_000) -> Schedule:
    """As the new cluster reads it."""
    partition = partition_for(request.key or b"", SETTINGS.partitions)
    record = LogRecord(partition, 5, at_ms, request.key, request.value, request.headers)
    found = parse(record, SETTINGS, ClusterNames("new"))
    assert not isinstance(found, Reject), found
    assert isinstance(found, Schedule)
    return found


def requests_of(message: MessageLine) -> list[BufferRecord]:
    """All that is sent, now."""
    return [step.request for step in steps_of(message, NOW_MS)]


def said(request: BufferRecord) -> tuple[str | None, int, str | None]:
    """The id, the time, and how often it comes; for chains."""
    headers = dict(request.headers)
    raw_id, times, at = headers[H_ID], headers.get(H_TIMES), headers[H_DELIVER_AT]
    recurs = H_INTERVAL in headers or H_CRON in headers
    how = (times or b"ever").decode() if recurs else None
    return (raw_id or b"").decode(), int(at or b""), how


def requests(
    recurrence: RecurrenceColumns, at_ms: int, **fields: Any
) -> list[tuple[str | None, int, str | None]]:
    fields = {"occurrence": 4, **fields}
    message = line(recurrence=recurrence, scheduled_for_ms=at_ms, due_ms=at_ms, **fields)
    made = requests_of(message)
    for one in made:
        parsed(one)
    return [said(one) for one in made]


def test_a_message_is_one_request_with_all_that_it_had() -> None:
    message = line(
        id="order-1",
        target_partition=2,
        expire_at_ms=NOW_MS + 5,
        scheduled_for_ms=NOW_MS + 3,
        key=b"k",
        value=b"v",
        headers=[HeaderColumn("a", b"1"), HeaderColumn("a", None)],
    )
    (request,) = requests_of(message)
    found = parsed(request)
    assert (found.id, found.target_topic, found.target_partition, found.target_key) == (
        "order-1",
        "t",
        2,
        b"k",
    )
    assert (found.scheduled_for_ms, found.expire_at_ms, found.keep) == (NOW_MS + 3, NOW_MS + 5, True)
    assert (found.headers, request.value) == ([("a", b"1"), ("a", None)], b"v")


def test_what_has_no_id_gets_one_that_names_its_source() -> None:
    (request,) = requests_of(line())
    headers = dict(request.headers)
    assert (request.key, headers[H_ID], headers[H_IF_EXISTS]) == (MOVED.encode(), MOVED.encode(), b"keep")
    assert headers[H_TARGET_KEY] is None
    assert H_TARGET_PARTITION not in headers


def test_the_longest_names_make_an_id_that_is_taken() -> None:
    buffer_id = "S1hL7bQ2R4uZ0xk3n9vTgA"
    longest = source("b" * TOPIC_MAX_LENGTH, MAX_PARTITION, MAX_OFFSET)
    fields = {"buffer_id": buffer_id, "source": longest, "scheduled_for_ms": MAX_MS, "due_ms": MAX_MS}
    message = line(**fields, occurrence=1, expire_at_ms=MAX_MS, recurrence=chain())
    assert max(len(said(one)[0] or "") for one in requests_of(message)) <= ID_MAX_BYTES


def test_a_chain_goes_on_from_its_next_delivery_with_those_that_are_left() -> None:
    at_ms = NOW_MS + 10 * HOUR_MS
    assert requests(chain(times=3), at_ms, id="c") == [("c", at_ms, "3")]
    assert requests(chain(until_ms=at_ms + HOUR_MS), at_ms) == [(MOVED, at_ms, "ever")]


def test_what_has_fallen_due_of_a_chain_goes_as_messages_and_the_rest_as_a_chain() -> None:
    at_ms = NOW_MS - 2 * HOUR_MS
    assert requests(chain(times=5), at_ms, id="c") == [
        *((f"{MOVED}/{at_ms + n * HOUR_MS}", at_ms + n * HOUR_MS, None) for n in range(3)),
        ("c", at_ms + 3 * HOUR_MS, "2"),
    ]


def test_what_was_missed_is_delivered_once_with_latest_and_not_at_all_with_skip() -> None:
    at_ms = NOW_MS - 2 * HOUR_MS - 1
    last, following = NOW_MS - 1, NOW_MS - 1 + HOUR_MS
    for missed in ("latest", "skip"):
        assert requests(chain(times=5, missed=missed), at_ms, id="c") == [
            (f"{MOVED}/{last}", last, None),
            ("c", following, "4"),
        ]


def test_a_delivery_within_a_minute_goes_by_itself_for_the_chain_may_come_too_late() -> None:
    soon = NOW_MS + MINUTE_MS - 1
    assert requests(chain(), soon, id="c") == [
        (f"{MOVED}/{soon}", soon, None),
        ("c", soon + HOUR_MS, "ever"),
    ]


@pytest.mark.parametrize(
    "recurrence",
    [chain(times=1), chain(until_ms=NOW_MS + 1), chain(cron="0 4 * * *", interval_ms=0, times=1)],
)
def test_the_last_delivery_is_a_message_with_its_own_id(recurrence: RecurrenceColumns) -> None:
    at_ms = NOW_MS - 1
    assert requests(recurrence, at_ms, id="c") == [("c", at_ms, None)]


def test_a_delivery_that_was_moved_behind_until_is_the_last_one() -> None:
    at_ms = NOW_MS + 5 * HOUR_MS
    assert requests(chain(until_ms=NOW_MS + HOUR_MS), at_ms, id="c") == [("c", at_ms, None)]


def test_of_cron_a_delivery_that_was_moved_goes_by_itself() -> None:
    daily = chain(cron="0 4 * * *", interval_ms=0)
    day_ms = NOW_MS // (24 * HOUR_MS) * 24 * HOUR_MS
    fires = day_ms + 28 * HOUR_MS
    assert requests(daily, fires + 5, id="c") == [
        (f"{MOVED}/{fires + 5}", fires + 5, None),
        ("c", fires + 24 * HOUR_MS, "ever"),
    ]
    assert requests(daily, fires, id="c") == [("c", fires, "ever")]
    assert requests(daily, day_ms, id="c", occurrence=None) == [("c", day_ms, "ever")]


def test_an_expiry_of_one_delivery_goes_with_that_alone() -> None:
    at_ms = NOW_MS + 10 * HOUR_MS
    message = line(
        recurrence=chain(), scheduled_for_ms=at_ms, due_ms=at_ms, occurrence=1, expire_at_ms=at_ms + 1
    )
    first, rest = requests_of(message)
    assert dict(first.headers)[H_EXPIRE_AT] == b"%d" % (at_ms + 1)
    assert said(rest) == (MOVED, at_ms + HOUR_MS, "ever")
    parsed(rest)


def in_parts(message: MessageLine, *parts: tuple[int, int]) -> list[tuple[str | None, int, str | None]]:
    """What is sent by runs that each come to their end after so many requests, at these times."""
    sent: list[tuple[str | None, int, str | None]] = []
    rest: Rest | None = None
    for count, at_ms in parts:
        for request, left in islice(steps_of(message, at_ms, rest), count):
            sent.append(said(request))
            rest = left
    assert rest is None
    return sent


@pytest.mark.parametrize("factor", [1_000, 1_100])
@pytest.mark.parametrize("times", [None, 6, 60])
@pytest.mark.parametrize("cut", [1, 2, 4])
def test_a_line_that_is_gone_on_with_at_the_same_time_is_sent_as_it_would_have_been_at_once(
    cut: int, times: int | None, factor: int
) -> None:
    columns = chain(times=times, interval_factor_permille=factor)
    message = line(id="c", recurrence=columns, scheduled_for_ms=NOW_MS - 20 * HOUR_MS, occurrence=1)
    at_once = [said(one) for one in requests_of(message)]
    assert in_parts(message, (cut, NOW_MS), (1, NOW_MS), (100, NOW_MS)) == at_once


def test_what_falls_due_before_it_is_gone_on_with_goes_as_messages_too_and_each_once() -> None:
    message = line(
        id="c", recurrence=chain(times=30), scheduled_for_ms=NOW_MS - 5 * HOUR_MS - 1, occurrence=1
    )
    later_ms = NOW_MS + 10 * HOUR_MS
    *alone, rest = in_parts(message, (3, NOW_MS), (100, later_ms))
    first_ms = NOW_MS - 5 * HOUR_MS - 1
    assert [at_ms for _, at_ms, _ in alone] == [first_ms + n * HOUR_MS for n in range(16)]
    assert rest == ("c", first_ms + 16 * HOUR_MS, "14")


@pytest.mark.parametrize("missed", ["latest", "skip"])
def test_of_what_is_missed_again_before_it_is_gone_on_with_the_latest_goes_and_all_are_counted(
    missed: str,
) -> None:
    first_ms = NOW_MS - 5 * HOUR_MS
    columns = chain(times=30, missed=missed)
    message = line(id="c", recurrence=columns, scheduled_for_ms=first_ms - 1, occurrence=1)
    assert in_parts(message, (1, NOW_MS), (100, NOW_MS + 10 * HOUR_MS)) == [
        (f"{MOVED}/{NOW_MS - 1}", NOW_MS - 1, None),
        (f"{MOVED}/{NOW_MS + 10 * HOUR_MS - 1}", NOW_MS + 10 * HOUR_MS - 1, None),
        ("c", NOW_MS + 11 * HOUR_MS - 1, "28"),
    ]


def test_a_transaction_is_bounded_in_count_bytes_and_time() -> None:
    def load(count: int, size_bytes: int, open_s: float) -> Load:
        times = iter([0.0, open_s])
        made = Load(lambda: next(times))
        for _ in range(count):
            made.add(size_bytes)
        return made

    assert not load(MOST_SENT - 1, 1, MOST_OPEN_S - 1).is_full
    assert load(MOST_SENT, 1, 0).is_full
    assert load(1, MOST_SENT_BYTES, 0).is_full
    assert load(1, 1, MOST_OPEN_S).is_full
