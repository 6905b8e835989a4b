"""How large a request may be: what is accepted can be written again, and so can what was written back."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from delayline.headers import H_ID, H_TARGET_KEY
from delayline.names import MAX_OFFSET, source
from delayline.rejects import RejectCode
from delayline.settings import (
    FIRST_MEANING,
    MOST_REQUEST_BYTES,
    OVERHEAD_BYTES,
    ClusterSettings,
)
from delayline.sizes import Kept, kept_of, may_be_too_large, request_bytes, weighed
from delayline.times import MAX_MS
from delayline.wire import (
    H_AFTER,
    H_TARGET_TOPIC,
    Cancel,
    Header,
    Reject,
    Reschedule,
    Schedule,
    carry_headers,
    parse,
    rewrite_headers,
    signed_headers,
)
from node.core.ports import Outgoing
from node.core.sizes import batch_bytes
from node.kafka.fetch.records import LARGEST_RECORD_BYTES, LogRecord
from store.arrivals import arrival
from store.rows import encode_carry
from tests.support.keys import KEYRING
from tests.unit.wire_records import NAMES, SETTINGS

BUFFER = NAMES.buffer
SERIAL = (MAX_OFFSET, MAX_OFFSET)
OFFSET = MAX_OFFSET

keys = st.none() | st.binary(max_size=400)
own_headers = st.lists(
    st.tuples(st.text("abc\u00e9", max_size=60), st.none() | st.binary(max_size=300)), max_size=40
)
target_keys: st.SearchStrategy[list[Header]] = st.lists(st.tuples(st.just(H_TARGET_KEY), keys), max_size=1)


def record(key: bytes | None, value: bytes | None, headers: list[Header]) -> LogRecord:
    asked: list[Header] = [(H_TARGET_TOPIC, b"t" * 249), (H_AFTER, b"3600000ms")]
    return LogRecord(0, OFFSET, 1_000, key, value, [*headers, *asked])


def schedule_of(one: LogRecord) -> Schedule:
    request = parse(one, SETTINGS, NAMES)
    assert isinstance(request, Schedule)
    return request


def size_of(one: LogRecord) -> int:
    return request_bytes(len(one.key or b""), len(one.value or b""), one.headers)


def carried_bytes(one: LogRecord, asked: Schedule | Reject) -> int:
    value = encode_carry(MAX_MS, OFFSET, arrival(one, asked).raw)
    return in_buffer(None, value, signed_headers(carry_headers(), KEYRING, SERIAL, 0, None, value))


def in_buffer(key: bytes | None, value: bytes | None, headers: list[Header]) -> int:
    return batch_bytes(Outgoing(BUFFER, 0, key, value, headers, MAX_MS, None))


@given(keys, st.none() | st.binary(max_size=2_000), own_headers, target_keys)
@example(b"k" * 400, b"v", [("a", b"")] * 2_000, [])
@example(b"k" * 400, None, [("a" * 60, b"v" * 70_000)], [(H_TARGET_KEY, b"t" * 400)])
def test_what_is_written_again_has_no_more_than_the_overhead_beside_the_request(
    key: bytes | None, value: bytes | None, own: list[Header], target_key: list[Header]
) -> None:
    asked = record(key, value, [*own, *target_key])
    schedule, most_bytes = schedule_of(asked), size_of(asked) + OVERHEAD_BYTES
    back = schedule._replace(parent=OFFSET - 1, root=source(BUFFER, 0, OFFSET - 2), moved_by=OFFSET - 2)
    headers = signed_headers(rewrite_headers(back), KEYRING, SERIAL, 0, key, value)

    assert carried_bytes(asked, schedule) <= most_bytes
    assert in_buffer(key, value, headers) <= most_bytes
    assert carried_bytes(LogRecord(0, OFFSET, 1_000, key, value, headers), back) <= most_bytes


@given(keys, st.none() | st.binary(max_size=2_000), own_headers, target_keys)
def test_the_short_look_passes_over_nothing_that_is_too_large(
    key: bytes | None, value: bytes | None, own: list[Header], target_key: list[Header]
) -> None:
    asked = record(key, value, [*own, *target_key])
    schedule = schedule_of(asked)
    row_bytes = len(arrival(asked, schedule).raw)
    settings = replace(SETTINGS, max_request_bytes=size_of(asked) - 1)

    assert isinstance(weighed(schedule, key, len(value or b""), asked.headers, settings), Reject)
    assert may_be_too_large(row_bytes, len(asked.headers), settings)


@pytest.mark.parametrize("too_many", [0, 1])
def test_a_request_may_have_as_much_as_the_settings_say_and_no_byte_more(too_many: int) -> None:
    asked = record(b"key", b"v" * 100, [(H_ID, b"id"), ("own", None)])
    names = "delay-id" + "own" + "delay-target-topic" + "delay-after"
    size_bytes = 2 * 3 + 100 + len(names) + 4 * 11 + 2 * (2 + 249 + 9)
    settings = replace(SETTINGS, max_request_bytes=size_bytes - too_many)
    request = weighed(schedule_of(asked), b"key", 100, asked.headers, settings)

    if too_many:
        detail = f"the request has {size_bytes} bytes, unpacked: the cluster takes {size_bytes - 1}"
        assert request == Reject(RejectCode.REQUEST_TOO_LARGE, detail)
    else:
        assert isinstance(request, Schedule)


def test_only_a_users_own_request_for_a_delivery_is_weighed() -> None:
    tight = replace(SETTINGS, max_request_bytes=1)
    asked = record(b"key", b"v", [])
    own = schedule_of(asked)
    back = own._replace(parent=1, root=source(BUFFER, 0, 0))

    assert isinstance(weighed(own, b"key", 1, asked.headers, tight), Reject)
    assert weighed(back, b"key", 1, asked.headers, tight) is back
    reschedule = Reschedule("id", 1, None)
    assert isinstance(weighed(reschedule, b"key", 1, asked.headers, tight), Reject)
    deferred = reschedule._replace(parent=1, root=source(BUFFER, 0, 0))
    assert weighed(deferred, b"key", 1, asked.headers, tight) is deferred
    cancel = Cancel("id", None)
    assert weighed(cancel, b"key", 1, asked.headers, tight) is cancel
    first = ClusterSettings(meaning=FIRST_MEANING)
    assert weighed(own, b"key", 10**9, asked.headers, first) is own


@given(keys, st.none() | st.binary(max_size=9_000), own_headers, st.integers(1, 5_000))
def test_what_is_kept_of_a_reject_can_be_written_again_and_no_less_is(
    key: bytes | None, value: bytes | None, own: list[Header], most_bytes: int
) -> None:
    settings = replace(SETTINGS, max_request_bytes=most_bytes)
    reject = Reject(RejectCode.BAD_INTERVAL_FACTOR, "d" * 400)

    def carried(key: bytes | None, value: bytes | None, headers: list[Header]) -> int:
        return carried_bytes(LogRecord(0, OFFSET, 1_000, key, value, headers), reject)

    all_of_it, without = carried(key, value, own), carried(key, None, own)
    least, room = most_bytes + OVERHEAD_BYTES - 2 * 1024, most_bytes + OVERHEAD_BYTES
    match kept_of(len(key or b""), len(value or b""), own, settings):
        case Kept.ALL:
            assert all_of_it <= room
        case Kept.ALL_BUT_VALUE:
            assert without <= room
            assert all_of_it > least
        case Kept.NOTHING:
            assert without > least


def test_no_cluster_takes_a_request_that_is_not_read() -> None:
    assert MOST_REQUEST_BYTES == LARGEST_RECORD_BYTES
    with pytest.raises(ValueError, match="max_request_bytes is 0: it must be 1 to 16711680"):
        ClusterSettings(max_request_bytes=0)
