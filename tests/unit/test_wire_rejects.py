"""Every way to get a request wrong has its code, and none makes the parser raise."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from delayline import wire
from delayline.settings import ClusterSettings
from delayline.wire import REJECT_CODES, Header, Reject, parse
from tests.unit.wire_records import NAMES, SETTINGS, BufferedRecord, parse_headers

TARGET: Header = ("delay-target-topic", b"orders")
ID: Header = ("delay-id", b"a")
CANCEL: Header = ("delay-op", b"cancel")
RESCHEDULE: Header = ("delay-op", b"reschedule")
WRITTEN_BACK: list[Header] = [TARGET, ("delay-parent", b"42"), ("delay-root", b"delay.buffer/0/7")]

# What is no number, whatever the header.
NO_NUMBERS = [
    b"",
    b" ",
    b"\t1",
    b"1 ",
    b"+1",
    b"1_0",
    b"0x1",
    b"1.0",
    b"1e3",
    b"1e400",
    b"NaN",
    b"inf",
    b"null",
    b"\x00",
    b"\xff\xfe",
    b"9223372036854775808",
    b"18446744073709551616",
    b"1" * 5_000,
    "١٢٣".encode(),
    "\uff11\uff12\uff13".encode(),
    "²".encode(),
]


def code(*headers: Header, settings: ClusterSettings = SETTINGS) -> str:
    parsed = parse_headers(*headers, settings=settings)
    assert isinstance(parsed, Reject), parsed
    assert parsed.code in REJECT_CODES
    assert "\n" not in parsed.detail
    assert 0 < len(parsed.detail) < 400
    return parsed.code


@pytest.mark.parametrize("raw", [*NO_NUMBERS, b"-1", b"2026-02-30T00:00:00Z", b"2026-01-01T00:00:00"])
def test_a_bad_deliver_at(raw: bytes) -> None:
    assert code(TARGET, ("delay-deliver-at", raw)) == "bad-deliver-at"


@pytest.mark.parametrize("raw", [*NO_NUMBERS, b"-1", b"2026-02-30T00:00:00Z", b"2026-01-01T00:00:00"])
def test_a_bad_expiry(raw: bytes) -> None:
    assert code(TARGET, ("delay-expire-at", raw)) == "bad-expire-at"


@pytest.mark.parametrize("raw", [*NO_NUMBERS, b"1", b"-1s", b"1 s", b"P1Y", b"30m1h"])
def test_a_bad_duration(raw: bytes) -> None:
    assert code(TARGET, ("delay-after", raw)) == "bad-after"


@pytest.mark.parametrize("raw", [*NO_NUMBERS, b"-", b"--1", b"- 1", b"-+1", b"-9223372036854775808"])
def test_a_bad_level(raw: bytes) -> None:
    assert code(TARGET, ("delay-level", raw)) == "bad-level"


@pytest.mark.parametrize("raw", [*NO_NUMBERS, b"-1", b"2147483648"])
def test_a_bad_target_partition(raw: bytes) -> None:
    assert code(TARGET, ("delay-target-partition", raw)) == "bad-target-partition"


@pytest.mark.parametrize(
    "raw",
    [b"", b" ", b".", b"..", b"a b", b"a/b", b"a\n", b"a\x00", b"x" * 250, b"x" * 300, b"\xff", "é".encode()],
)
def test_a_bad_target_topic(raw: bytes) -> None:
    assert code(("delay-target-topic", raw)) == "bad-target-topic"


@pytest.mark.parametrize(
    "raw",
    [b"delay.buffer", b"delay.checkpoint", b"delay.outcomes", b"delay.dead-letter", b"__consumer_offsets"],
)
def test_a_forbidden_target(raw: bytes) -> None:
    assert code(("delay-target-topic", raw)) == "target-forbidden"


@pytest.mark.parametrize(
    "headers", [[], [("own", b"1")], [("delay-after", b"1s")], [("delay-op", b"schedule")]]
)
def test_a_schedule_without_a_target(headers: list[Header]) -> None:
    assert code(*headers) == "no-target"


def test_a_record_without_headers_has_no_target() -> None:
    parsed = parse(BufferedRecord(None), SETTINGS, NAMES)
    assert isinstance(parsed, Reject)
    assert parsed.code == "no-target"


@pytest.mark.parametrize(
    "times",
    [
        [("delay-deliver-at", b"1"), ("delay-after", b"1s")],
        [("delay-after", b"1s"), ("delay-level", b"1")],
        [("delay-level", b"1"), ("delay-deliver-at", b"1")],
        [("delay-level", b"1"), ("delay-deliver-at", b"1"), ("delay-after", b"1s")],
        [("delay-level", b"junk"), ("delay-deliver-at", b"junk")],
    ],
)
@pytest.mark.parametrize("request_headers", [[TARGET], [RESCHEDULE, ID]])
def test_more_than_one_time(times: list[Header], request_headers: list[Header]) -> None:
    assert code(*request_headers, *times) == "time-conflict"


@pytest.mark.parametrize(
    "time",
    [
        ("delay-after", b"31622400001ms"),
        ("delay-after", b"9223372036854775807ms"),
        ("delay-deliver-at", b"1798848000001"),
        ("delay-deliver-at", b"9223372036854775807"),
        ("delay-deliver-at", b"9999-12-31T23:59:59Z"),
    ],
)
@pytest.mark.parametrize("request_headers", [[TARGET], [RESCHEDULE, ID]])
def test_a_delay_over_the_clusters_longest(time: Header, request_headers: list[Header]) -> None:
    assert code(*request_headers, time) == "delay-too-long"


@pytest.mark.parametrize("raw", [b"", b"i" * 1025, b"\xff", b"\xed\xa0\x80"])
@pytest.mark.parametrize("request_headers", [[TARGET], [RESCHEDULE], [CANCEL]])
def test_a_bad_id(raw: bytes, request_headers: list[Header]) -> None:
    assert code(*request_headers, ("delay-id", raw)) == "bad-id"


@pytest.mark.parametrize("operation", [CANCEL, RESCHEDULE])
def test_a_control_request_without_an_id(operation: Header) -> None:
    assert code(operation) == "no-id"


@pytest.mark.parametrize("request_headers", [[TARGET], [RESCHEDULE], [CANCEL]])
def test_an_id_in_another_partition_than_its_own(request_headers: list[Header]) -> None:
    settings = ClusterSettings(partitions=1_000)
    assert code(*request_headers, ID, settings=settings) == "wrong-partition"


@pytest.mark.parametrize("raw", [b"", b"SCHEDULE", b"schedule ", b"delete", b"\xff", b"x" * 5_000])
def test_a_bad_operation(raw: bytes) -> None:
    assert code(TARGET, ID, ("delay-op", raw)) == "bad-op"


RECURRENCE = ["cron", "interval", "time-zone", "times", "until", "interval-factor", "missed"]


@pytest.mark.parametrize("name", ["", "x", "ID", "id ", "error", "é", "x" * 5_000, *RECURRENCE])
@pytest.mark.parametrize("value", [b"1", None])
def test_a_header_that_the_service_does_not_know(name: str, value: bytes | None) -> None:
    assert code(TARGET, ("delay-" + name, value)) == "unknown-header"


KNOWN = [
    "op",
    "target-topic",
    "target-partition",
    "deliver-at",
    "after",
    "level",
    "id",
    "expire-at",
    "parent",
]


@pytest.mark.parametrize("name", [*KNOWN, "target-key"])
def test_a_header_that_is_there_twice(name: str) -> None:
    header = ("delay-" + name, b"1")
    assert code(header, header) == "duplicate-header"


def test_a_null_target_key_twice_is_still_twice() -> None:
    assert code(TARGET, ("delay-target-key", None), ("delay-target-key", None)) == "duplicate-header"


@pytest.mark.parametrize("name", KNOWN)
def test_a_header_with_a_null_value(name: str) -> None:
    assert code(("delay-" + name, None)) == "null-header"


@pytest.mark.parametrize("name", ["target-topic", "target-key", "target-partition", "parent"])
@pytest.mark.parametrize("operation", [CANCEL, RESCHEDULE])
def test_a_header_that_does_not_go_with_the_operation(name: str, operation: Header) -> None:
    assert code(operation, ID, ("delay-" + name, b"1")) == "header-not-allowed"


@pytest.mark.parametrize("name", ["deliver-at", "after", "level", "expire-at"])
def test_a_cancel_takes_no_time(name: str) -> None:
    assert code(CANCEL, ID, ("delay-" + name, b"1")) == "header-not-allowed"


@pytest.mark.parametrize("raw", [*NO_NUMBERS, b"-1", b"100", b"101"])
def test_a_parent_that_is_not_before_its_request(raw: bytes) -> None:
    assert code(TARGET, ("delay-parent", raw), ("delay-root", b"delay.buffer/0/7")) == "bad-parent"


@pytest.mark.parametrize(
    "raw", [b"", b"7", b"other/0/7", b"delay.buffer/1/7", b"delay.buffer/0/43", b"delay.buffer/0/+7", b"\xff"]
)
def test_a_root_that_is_not_a_request_up_to_the_parent(raw: bytes) -> None:
    assert code(TARGET, ("delay-parent", b"42"), ("delay-root", raw)) == "bad-parent"


def test_a_parent_without_a_root() -> None:
    assert code(TARGET, ("delay-parent", b"42")) == "bad-parent"


@pytest.mark.parametrize("raw", [*NO_NUMBERS, b"0", b"-1"])
@pytest.mark.parametrize("name", ["delay-attempt", "delay-occurrence"])
def test_a_bad_count_on_a_request_written_back(name: str, raw: bytes) -> None:
    assert code(*WRITTEN_BACK, (name, raw)) == "bad-parent"


@pytest.mark.parametrize(("value", "expected"), [(b"1", "duplicate-header"), (None, "duplicate-header")])
def test_a_count_twice_on_a_request_written_back(value: bytes | None, expected: str) -> None:
    assert code(*WRITTEN_BACK, ("delay-attempt", b"1"), ("delay-attempt", value)) == expected


def test_a_null_count_on_a_request_written_back() -> None:
    assert code(("delay-attempt", None), *WRITTEN_BACK) == "null-header"


def test_a_forged_parent_does_not_lift_the_longest_delay() -> None:
    assert code(*WRITTEN_BACK, ("delay-after", b"9223372036854775807ms")) == "delay-too-long"


# Near misses find more than pure noise: real names with real and mangled values, and anything at all.
_NAMES = st.sampled_from(sorted(value for name, value in vars(wire).items() if name.startswith("H_")))
_VALUES = st.sampled_from(
    [
        b"1",
        b"orders",
        b"schedule",
        b"cancel",
        b"reschedule",
        b"1767225601000",
        b"90s",
        b"PT1H",
        b"delay.buffer/0/7",
    ]
)
_KEYS = (
    _NAMES | st.text() | _NAMES.flatmap(lambda name: st.sampled_from([name + " ", name[:-1], name.upper()]))
)
_HEADERS = st.lists(st.tuples(_KEYS, st.none() | _VALUES | st.binary()), max_size=8)


@given(
    headers=_HEADERS,
    key=st.none() | st.binary(),
    offset=st.integers(0, 2**63 - 1),
    timestamp_ms=st.integers(0, 2**50),
    partitions=st.integers(1, 8),
)
def test_the_parser_never_raises(
    headers: list[Header], key: bytes | None, offset: int, timestamp_ms: int, partitions: int
) -> None:
    record = BufferedRecord(headers, 0, offset, timestamp_ms, key)
    parsed = parse(record, ClusterSettings(partitions=partitions), NAMES)
    assert not isinstance(parsed, Reject) or parsed.code in REJECT_CODES


@given(headers=_HEADERS)
def test_a_parsed_request_holds_every_header_of_the_users_own(headers: list[Header]) -> None:
    parsed = parse_headers(TARGET, *headers)
    if isinstance(parsed, wire.Schedule):
        assert parsed.headers == [header for header in headers if not header[0].startswith("delay-")]
