"""Every way to get a request wrong has its code, and none makes the parser raise."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from delayline import parser, wire
from delayline.settings import ClusterSettings
from delayline.signing import Keyring
from delayline.wire import (
    REJECT_CODES,
    Cancel,
    Header,
    Reject,
    Reschedule,
    Schedule,
    delivery_headers,
    parse,
    parse_plain,
    user_headers,
)
from store.arrivals import arrival, plain_arrival
from store.rows import decode_row
from tests.bad_input.page import parsed
from tests.bad_input.row import Answered, Rejected, Row
from tests.bad_input.table import TABLE
from tests.unit.wire_records import NAMES, TIMESTAMP_MS, BufferedRecord, parse_headers

TARGET: Header = ("delay-target-topic", b"orders")
LONGEST_DETAIL = 400


def is_one_line(detail: str) -> bool:
    return detail.isprintable() and 0 < len(detail) < LONGEST_DETAIL


@pytest.mark.parametrize("row", TABLE, ids=lambda row: row.name)
def test_a_request_is_taken_or_rejected_as_the_table_says(row: Row) -> None:
    found = parsed(row)
    if not isinstance(row.fate, Rejected):
        answered = isinstance(found, (Cancel, Reschedule)) or (isinstance(found, Schedule) and found.keep)
        assert not isinstance(found, Reject)
        assert answered or not isinstance(row.fate, Answered)
        return
    assert isinstance(found, Reject)
    assert found.code == row.fate.code
    assert is_one_line(found.detail)


def test_every_code_is_in_the_table() -> None:
    no_input = {"target-unavailable"}  # is what the brokers are in, whatever is asked for
    assert {getattr(row.fate, "code", None) for row in TABLE} - {None} == REJECT_CODES.keys() - no_input


def test_every_row_has_a_name_of_its_own() -> None:
    assert len({row.name for row in TABLE}) == len(TABLE)


def test_a_record_without_headers_has_no_target() -> None:
    found = parse(BufferedRecord(None), ClusterSettings(partitions=1), NAMES)
    assert isinstance(found, Reject)
    assert found.code == "no-target"


# Near misses find more than pure noise: real names with real and mangled values, and anything at all.
_NAMES = st.sampled_from(sorted(value for name, value in vars(wire).items() if name.startswith("H_")))
_SOUND = st.sampled_from(
    [
        b"1",
        b"-1",
        b"orders",
        b"schedule",
        b"cancel",
        b"reschedule",
        b"1767225601000",
        b"2026-01-01T00:00:01.5+01:00",
        b"9223372036854775807",
        b"1h30m",
        b"90.5s",
        b"PT1H0.5S",
        b"P2W",
        b"delay.buffer/0/7",
    ]
)


@st.composite
def _mangled(draw: st.DrawFn) -> bytes:
    """A sound value with a piece taken out, or something put in."""
    value = draw(_SOUND)
    start, end = sorted(draw(st.tuples(st.integers(0, len(value)), st.integers(0, len(value)))))
    return value[:start] + draw(st.binary(max_size=3) | st.text(max_size=2).map(_utf8)) + value[end:]


def _utf8(text: str) -> bytes:
    return text.encode(errors="surrogatepass")


_VALUES = st.none() | _SOUND | _mangled() | st.binary()
_ANY_TEXT = st.text(st.characters())  # surrogates, too: a header's key may be anything that the client gives
_IDS = st.none() | st.binary(max_size=9) | st.sampled_from([b"order-1", b"i" * 1024, b"i" * 1025])
_KEYS = (
    _NAMES
    | _ANY_TEXT
    | _NAMES.flatmap(lambda name: st.sampled_from([name + " ", name[:-1], name.upper(), name + "\n"]))
    | _ANY_TEXT.map(lambda text: "delay-" + text)
)
_HEADERS = st.lists(st.tuples(_KEYS, _VALUES), max_size=8)
_TARGETED = _HEADERS.map(lambda headers: [TARGET, *headers])
_OWN = st.lists(
    st.tuples(
        _ANY_TEXT.filter(lambda key: not key.startswith("delay-") and "\0" not in key),
        st.none() | st.binary(),
    ),
    max_size=6,
)


@st.composite
def _settings(draw: st.DrawFn) -> ClusterSettings:
    partitions = draw(st.integers(1, 8) | st.just(2**31 - 1))
    max_delay_ms = draw(st.integers(1, 1_000 * 366 * 86_400_000))
    return ClusterSettings(
        partitions=partitions,
        lanes=draw(st.integers(1, partitions)),
        levels_ms=tuple(draw(st.lists(st.integers(0, max_delay_ms), min_size=1, max_size=3))),
        max_delay_ms=max_delay_ms,
        targets=tuple(draw(st.lists(st.text(min_size=1, max_size=5) | st.just("orders"), max_size=2))),
    )


@given(
    headers=st.none() | _HEADERS | _TARGETED,
    key=st.none() | st.binary(),
    partition=st.integers(0, 8),
    offset=st.integers(0, 2**63 - 1),
    timestamp_ms=st.integers(-1, 2**63 - 1),
    settings=_settings(),
)
def test_the_parser_never_raises_and_says_in_one_line_what_is_wrong(
    headers: list[Header] | None,
    key: bytes | None,
    partition: int,
    offset: int,
    timestamp_ms: int,
    settings: ClusterSettings,
) -> None:
    found = parse(BufferedRecord(headers, partition, offset, timestamp_ms, key), settings, NAMES)
    if isinstance(found, Reject):
        assert found.code in REJECT_CODES
        assert is_one_line(found.detail), found.detail


_KEYS = st.sampled_from([b"key", b"another", b"", None])


@st.composite
def _nearly_plain(draw: st.DrawFn) -> list[Header]:
    """A target and a time, sound or not, perhaps an id, a key or another thing, among headers of the user's
    own.
    """
    target = draw(st.sampled_from([b"orders", b"delay.buffer", b"bad topic", b"x" * 250, None]))
    time = draw(st.sampled_from(["delay-deliver-at", "delay-after", "delay-level"])), draw(_VALUES)
    id_, key = st.tuples(st.just("delay-id"), _IDS), st.tuples(st.just("delay-target-key"), _KEYS)
    more = draw(st.lists(st.tuples(_NAMES, _VALUES) | id_ | key, max_size=2))
    return draw(st.permutations([("delay-target-topic", target), time, *more, *draw(_OWN)]))


@given(
    headers=_nearly_plain() | _HEADERS | _TARGETED,
    timestamp_ms=st.integers(-1, 2**63 - 1),
    partition=st.integers(0, 2),
    settings=_settings(),
)
def test_the_shorter_road_says_what_the_parser_says_or_nothing(
    headers: list[Header], timestamp_ms: int, partition: int, settings: ClusterSettings
) -> None:
    plain = parse_plain(headers, partition, timestamp_ms, settings, NAMES)
    if plain is not None:
        record = BufferedRecord(headers, partition=partition, timestamp_ms=timestamp_ms)
        found = parse(record, settings, NAMES)
        assert isinstance(found, Schedule)
        assert plain[:3] == (found.target_topic, found.scheduled_for_ms, found.id)
        in_short = plain_arrival((partition, 100, timestamp_ms), b"key", b"value", headers, *plain)
        assert in_short == arrival(record, found)


@pytest.mark.parametrize(
    "headers",
    [
        [TARGET, ("delay-deliver-at", b"1767225601000")],
        [("trace", b"x"), ("delay-after", b"90s"), ("trace", None), TARGET],
        [("delay-id", b"order-1"), TARGET, ("delay-after", b"90s")],
        [TARGET, ("delay-after", b"90s"), ("delay-id", b"order-1"), ("delay-target-key", None)],
    ],
)
def test_a_target_and_a_time_among_own_headers_take_the_shorter_road(headers: list[Header]) -> None:
    assert parse_plain(headers, 0, TIMESTAMP_MS, ClusterSettings(partitions=1), NAMES) is not None


@pytest.mark.parametrize("count", [1, 64, 65, 100_000])
@pytest.mark.parametrize("key", ["", "k", "k" * 250])
def test_header_keys_are_remembered_only_where_they_take_little_room(key: str, count: int) -> None:
    """Neither many short keys nor long ones are kept; nor are more shapes than there is room for."""
    parser._plain_indexes.clear()
    headers: list[Header] = [(key, b"")] * count
    parse_plain([TARGET, ("delay-after", b"90s"), *headers], 0, TIMESTAMP_MS, ClusterSettings(), NAMES)
    assert len(parser._plain_indexes) == (len(key) * count < 200 and count < 64)
    for number in range(3_000):
        parse_plain([TARGET, (f"k{number}", b"")], 0, TIMESTAMP_MS, ClusterSettings(), NAMES)
    assert len(parser._plain_indexes) <= 1_024


@pytest.mark.parametrize(
    "headers",
    [
        [TARGET, ("delay-after", b"90s"), ("own\0", b"x")],
        [("\0", b"x"), TARGET, ("delay-after", b"90s"), ("delay-id", b"a")],
        [("delay-unknown", b"x"), ("own\0more", b"x")],
        [("delay-op\0", b"cancel"), TARGET],
        [("delay-op", b"cancel"), ("delay-id", b"a"), ("own\0", None)],
        [("own\0", None)],
    ],
)
def test_a_header_key_with_a_nul_byte_is_rejected_whatever_else_is_there(headers: list[Header]) -> None:
    for _ in range(2):  # a shape that is known answers as one that is not
        assert parse_plain(headers, 0, TIMESTAMP_MS, ClusterSettings(), NAMES) is None
    found = parse_headers(*headers)
    assert isinstance(found, Reject)
    assert found.code == "header-key"
    assert is_one_line(found.detail)
    row = decode_row(arrival(BufferedRecord(headers), found).raw)
    assert row.headers == []  # nor would its dead letter have them as they were


@given(headers=_TARGETED)
def test_a_parsed_request_holds_every_header_of_the_users_own(headers: list[Header]) -> None:
    found = parse_headers(*headers)
    if isinstance(found, Schedule):
        assert found.headers == [header for header in headers if not header[0].startswith("delay-")]
        assert found.headers == user_headers(headers)


@given(
    own=_OWN,
    id=st.none() | st.text(min_size=1),
    attempt=st.integers(1, 2**31 - 1),
    occurrence=st.none() | st.integers(1, 2**63 - 1),
)
def test_a_delivery_begins_with_the_users_headers_and_says_the_rest_once(
    own: list[Header],
    id: str | None,
    attempt: int,
    occurrence: int | None,
) -> None:
    written = delivery_headers(
        own,
        id=id,
        source=b"delay.buffer/0/1",
        scheduled_for_ms=TIMESTAMP_MS,
        attempt=attempt,
        occurrence=occurrence,
    )
    service = [key for key, _ in written[len(own) :]]
    assert written[: len(own)] == own
    assert all(key.startswith("delay-") for key in service)
    assert len(set(service)) == len(service)


@given(own=_OWN)
def test_what_was_delivered_and_is_sent_again_has_the_same_headers(own: list[Header]) -> None:
    delivered = delivery_headers(own, id=None, source=b"delay.buffer/0/1", scheduled_for_ms=1)
    found = parse_headers(TARGET, *delivered)
    assert isinstance(found, Schedule)
    assert found.headers == own


def test_what_is_older_than_the_keys_means_what_it_meant_then() -> None:
    older = Keyring(requests_from={0: 10})
    requests: list[list[Header]] = [
        [TARGET, ("delay-after", b"90s"), ("own\0more", b"x")],
        [TARGET, ("delay-interval", b"1h"), ("delay-times", b"2000000")],
        [("delay-op", b"cancel"), ("delay-id", b"a"), ("delay-source", b"anything")],
    ]
    for headers in requests:
        record = BufferedRecord(headers, 0, 9, TIMESTAMP_MS)
        assert not isinstance(parse(record, ClusterSettings(partitions=1), NAMES, older), Reject)
        newer = record._replace(offset=10)
        assert isinstance(parse(newer, ClusterSettings(partitions=1), NAMES, older), Reject)
