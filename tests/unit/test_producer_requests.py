"""Requests as records: what the producer sends, and what it refuses to send."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from delayline import requests
from delayline.errors import InvalidRequestError
from delayline.partitioner import partition_for
from delayline.requests import BufferRecord
from delayline.settings import ClusterSettings
from delayline.wire import BY_KEY, REJECT_CODES, Cancel, Request, Reschedule, Schedule, parse
from tests.unit.wire_records import NAMES, TIMESTAMP_MS, BufferedRecord

SETTINGS = ClusterSettings(partitions=4)


def parsed(request: BufferRecord) -> Request:
    """What the service reads, if the request is sent with the partitioner murmur2."""
    partition = request.partition(SETTINGS.partitions) or 0
    return parse(BufferedRecord(request.headers, partition, key=request.key), SETTINGS, NAMES)


def scheduled(**arguments: Any) -> Schedule:
    request = parsed(requests.schedule("orders", b"v", **arguments))
    assert isinstance(request, Schedule), request
    return request


def test_a_message_without_an_id_is_sent_under_its_own_key() -> None:
    assert requests.schedule("orders", b"v", key=b"k") == (b"k", b"v", [("delay-target-topic", b"orders")])


@pytest.mark.parametrize("key", [b"k", b"", None])
def test_a_message_with_an_id_is_sent_under_the_id_and_keeps_its_key(key: bytes | None) -> None:
    request = requests.schedule("orders", b"v", key=key, id="order-42")
    read = parsed(request)
    assert isinstance(read, Schedule)
    assert (request.key, read.id, read.target_key) == (b"order-42", "order-42", key)


@given(st.text(min_size=1, max_size=256))
def test_every_request_of_an_id_is_in_its_partition(id_: str) -> None:
    partition = partition_for(id_.encode(), 4)
    made = [requests.schedule("t", b"v", id=id_), requests.cancel(id_), requests.run_now(id_)]
    assert [request.partition(4) for request in made] == [partition] * 3


def test_a_null_key_belongs_to_no_partition() -> None:
    assert requests.schedule("orders", b"v").partition(4) is None


@pytest.mark.parametrize(
    ("deliver_at", "ms"),
    [
        (1_767_225_601_000, 1_767_225_601_000),
        (datetime(2026, 1, 1, 0, 0, 1, tzinfo=UTC), 1_767_225_601_000),
        (datetime(2026, 1, 1, 0, 0, 1, 1, tzinfo=UTC), 1_767_225_601_001),
        ("2026-01-01T01:00:01+01:00", 1_767_225_601_000),
    ],
)
def test_a_time_is_a_datetime_milliseconds_or_text(deliver_at: datetime | int | str, ms: int) -> None:
    assert scheduled(deliver_at=deliver_at).scheduled_for_ms == ms
    assert scheduled(expire_at=deliver_at).expire_at_ms == ms


@pytest.mark.parametrize(
    "after", [timedelta(seconds=90), timedelta(microseconds=89_999_001), 90_000, "90s", "PT1M30S"]
)
def test_a_delay_is_a_timedelta_milliseconds_or_text(after: timedelta | int | str) -> None:
    assert scheduled(after=after).due_ms == TIMESTAMP_MS + 90_000


@pytest.mark.parametrize(("level", "delay_ms"), [(-1, 0), (0, 0), (1, 1_000), (99, 7_200_000)])
def test_a_level_is_a_whole_number(level: int, delay_ms: int) -> None:
    assert scheduled(level=level).due_ms == TIMESTAMP_MS + delay_ms


def test_no_time_means_at_once() -> None:
    assert scheduled().due_ms == TIMESTAMP_MS


def test_the_partition_of_the_target_is_by_key_unless_given() -> None:
    assert (scheduled().target_partition, scheduled(partition=3).target_partition) == (BY_KEY, 3)


@pytest.mark.parametrize(
    "headers", [{"a": "1", "b": None}, [("a", b"1"), ("b", None)], iter([("a", "1"), ("b", None)])]
)
def test_own_headers_are_a_mapping_or_pairs(headers: Any) -> None:
    assert scheduled(headers=headers).headers == [("a", b"1"), ("b", None)]


def test_text_is_sent_as_utf_8() -> None:
    request = requests.schedule("orders", "wért", key="ké")
    assert (request.key, request.value) == ("ké".encode(), "wért".encode())


def test_a_null_value_is_sent_as_null() -> None:
    assert requests.schedule("orders", None).value is None


def test_a_cancel() -> None:
    assert parsed(requests.cancel("a")) == Cancel("a")


def test_a_cancel_by_source_names_its_partition() -> None:
    request = requests.cancel(source="delay.buffer/7/42")
    assert (request.headers, request.partition(12)) == (
        [("delay-op", b"cancel"), ("delay-source", b"delay.buffer/7/42")],
        7,
    )


def test_other_requests_leave_that_to_the_partitioner() -> None:
    assert (requests.cancel("a").own_partition, requests.schedule("t", None).own_partition) == (None, None)


def test_a_cancel_by_what_is_no_source_is_refused() -> None:
    with pytest.raises(InvalidRequestError, match="is no source"):
        requests.cancel(source="delay.buffer/7")


@pytest.mark.parametrize("arguments", [{}, {"id": "a", "source": "delay.buffer/0/1"}])
def test_a_cancel_names_one_of_the_two(arguments: dict[str, str]) -> None:
    with pytest.raises(TypeError, match="an id or a source"):
        requests.cancel(**arguments)


@pytest.mark.parametrize("times", [0, 1_000_001])
def test_deliveries_are_counted_to_a_million(times: int) -> None:
    with pytest.raises(InvalidRequestError, match="use a whole number from 1"):
        requests.every("1s", times=times)


def test_a_reschedule() -> None:
    request = requests.reschedule("a", after="1m", expire_at=7)
    assert parsed(request) == Reschedule("a", TIMESTAMP_MS + 60_000, 7)


def test_run_now() -> None:
    assert parsed(requests.run_now("a")) == Reschedule("a", TIMESTAMP_MS, None)


def test_a_reschedule_without_a_time_is_a_mistake() -> None:
    with pytest.raises(TypeError, match="use run_now"):
        requests.reschedule("a", expire_at=1)


NAIVE = datetime(2026, 1, 1)  # noqa: DTZ001 - the point


@pytest.mark.parametrize(
    ("arguments", "code", "message"),
    [
        ({"deliver_at": NAIVE}, "bad-deliver-at", "has no time zone"),
        ({"expire_at": NAIVE}, "bad-expire-at", "has no time zone"),
        ({"deliver_at": -1}, "bad-deliver-at", "epoch milliseconds"),
        ({"deliver_at": 2**63}, "bad-deliver-at", "epoch milliseconds"),
        ({"deliver_at": 1.5}, "bad-deliver-at", "epoch milliseconds"),
        ({"deliver_at": True}, "bad-deliver-at", "epoch milliseconds"),
        ({"deliver_at": "2026-01-01T00:00:00"}, "bad-deliver-at", "with an offset"),
        ({"after": timedelta(-1)}, "bad-after", "negative"),
        ({"after": -1}, "bad-after", "milliseconds as int"),
        ({"after": 0.5}, "bad-after", "milliseconds as int"),
        ({"after": "soon"}, "bad-after", "1h30m"),
        ({"level": 1.0}, "bad-level", "whole number"),
        ({"level": 2**63}, "bad-level", "whole number"),
        ({"after": 1, "level": 1}, "time-conflict", "give one of them"),
        ({"deliver_at": 0, "after": 0}, "time-conflict", "give one of them"),
        ({"id": ""}, "bad-id", "0 bytes"),
        ({"id": "é" * 513}, "bad-id", "1026 bytes"),
        ({"id": "\ud800"}, "bad-id", "UTF-8"),
        ({"partition": -1}, "bad-target-partition", "from 0"),
        ({"partition": 2**31}, "bad-target-partition", "from 0"),
        ({"headers": {"delay-id": "a"}}, "unknown-header", "use the argument"),
        ({"headers": [("ok", b""), ("delay-", None)]}, "unknown-header", "use the argument"),
        ({"headers": [("ok", b""), ("own\0", None)]}, "header-key", "NUL byte"),
    ],
)
def test_what_the_service_would_reject_is_refused(arguments: dict[str, Any], code: str, message: str) -> None:
    with pytest.raises(InvalidRequestError, match=message) as refused:
        requests.schedule("orders", b"v", **arguments)
    assert refused.value.code == code
    assert code in REJECT_CODES


_MOST_MS = TIMESTAMP_MS + SETTINGS.max_delay_ms
_IDS = st.text(min_size=1, max_size=256)
_DATA = st.none() | st.binary()


@given(
    key=_DATA,
    headers=st.lists(
        st.tuples(st.text().filter(lambda name: not name.startswith("delay-") and "\0" not in name), _DATA)
    ),
    deliver_at=st.none() | st.integers(0, _MOST_MS),
    id_=st.none() | _IDS,
    expire_at=st.none() | st.integers(0, 2**63 - 1),
    partition=st.none() | st.integers(0, 2**31 - 1),
)
def test_the_service_reads_of_a_schedule_what_was_asked_for(
    key: bytes | None,
    headers: list[tuple[str, bytes | None]],
    deliver_at: int | None,
    id_: str | None,
    expire_at: int | None,
    partition: int | None,
) -> None:
    asked_ms = TIMESTAMP_MS if deliver_at is None else deliver_at
    assert scheduled(
        key=key, headers=headers, deliver_at=deliver_at, id=id_, expire_at=expire_at, partition=partition
    ) == Schedule(
        id=id_,
        scheduled_for_ms=asked_ms,
        due_ms=max(asked_ms, TIMESTAMP_MS),
        target_topic="orders",
        target_key=key,
        target_partition=BY_KEY if partition is None else partition,
        expire_at_ms=expire_at,
        headers=headers,
        parent=None,
        root=None,
        attempt=1,
        occurrence=None,
    )


@given(id_=_IDS, after=st.integers(0, SETTINGS.max_delay_ms), expire_at=st.none() | st.integers(0, 2**63 - 1))
def test_the_service_reads_of_a_control_what_was_asked_for(
    id_: str, after: int, expire_at: int | None
) -> None:
    moved = requests.reschedule(id_, after=after, expire_at=expire_at)
    assert parsed(moved) == Reschedule(id_, TIMESTAMP_MS + after, expire_at)
    assert parsed(requests.cancel(id_)) == Cancel(id_)


@pytest.mark.parametrize("topic", ["", "a b", "..", "x" * 250])
def test_a_topic_that_cannot_be_is_refused(topic: str) -> None:
    with pytest.raises(InvalidRequestError, match="no topic name"):
        requests.schedule(topic, b"v")
