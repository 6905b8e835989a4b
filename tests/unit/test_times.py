"""Times and durations in headers: what they mean, and that nothing is guessed."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta, timezone

import pytest
from hypothesis import given
from hypothesis import strategies as st

from delayline.times import (
    MAX_MS,
    duration_ms,
    epoch_ms,
    parse_duration,
    parse_number,
    parse_time,
    render_duration,
    render_time,
)

NEW_YEAR_2026_MS = 1_767_225_600_000
DAY_MS = 86_400_000
YEAR_9999_MS = 253_402_300_799_999


@pytest.mark.parametrize(
    ("text", "ms"),
    [
        (b"0", 0),
        (b"1767225600000", NEW_YEAR_2026_MS),
        (b"0001767225600000", NEW_YEAR_2026_MS),
        (b"9223372036854775807", MAX_MS),
        (b"2026-01-01T00:00:00Z", NEW_YEAR_2026_MS),
        (b"2026-01-01t00:00:00z", NEW_YEAR_2026_MS),
        (b"2026-01-01T02:00:00+02:00", NEW_YEAR_2026_MS),
        (b"2025-12-31T18:30:00-05:30", NEW_YEAR_2026_MS),
        (b"2026-01-01T00:00:00-00:00", NEW_YEAR_2026_MS),
        (b"2026-01-01T00:00:00.5Z", NEW_YEAR_2026_MS + 500),
        (b"2026-01-01T00:00:00.001Z", NEW_YEAR_2026_MS + 1),
        (b"2024-02-29T00:00:00Z", 1_709_164_800_000),
        (b"1970-01-01T00:00:00Z", 0),
        (b"9999-12-31T23:59:59.999Z", YEAR_9999_MS),
        (b"9999-12-31T23:59:59.9999-23:59", YEAR_9999_MS + 1 + (23 * 60 + 59) * 60_000),
    ],
)
def test_a_time_is_epoch_milliseconds_or_rfc_3339(text: bytes, ms: int) -> None:
    assert parse_time(text) == ms


@pytest.mark.parametrize("fraction", [b"0000001", b"0009", b"000999999999999999999999"])
def test_a_time_finer_than_a_millisecond_rounds_up(fraction: bytes) -> None:
    assert parse_time(b"2026-01-01T00:00:00." + fraction + b"Z") == NEW_YEAR_2026_MS + 1


@pytest.mark.parametrize(
    "text",
    [
        b"",
        b" ",
        b" 1767225600000",
        b"1767225600000 ",
        b"1767225600000\n",
        b"+1767225600000",
        b"-1",
        b"1_767_225_600_000",
        b"1767225600000.0",
        b"1e400",
        b"NaN",
        b"Infinity",
        b"0x19b7",
        b"9223372036854775808",
        b"18446744073709551616",
        b"9" * 10_000,
        "١٢٣".encode(),
        "\uff11\uff12\uff13".encode(),
        b"\xff\xfe",
        b"now",
        b"2026-01-01",
        b"2026-01-01T00:00:00",
        b"2026-01-01T00:00Z",
        b"2026-01-01 00:00:00Z",
        b"2026-01-01T00:00:00 Z",
        b"2026-01-01T00:00:00.Z",
        b"2026-01-01T00:00:00,5Z",
        b"2026-01-01T00:00:00+0200",
        b"2026-01-01T00:00:00+24:00",
        b"2026-01-01T00:00:00+02:60",
        b"2026-01-01T24:00:00Z",
        b"2026-01-01T23:60:00Z",
        b"2016-12-31T23:59:60Z",
        b"2026-02-30T00:00:00Z",
        b"2026-13-01T00:00:00Z",
        b"2025-02-29T00:00:00Z",
        b"0000-01-01T00:00:00Z",
        b"1969-12-31T23:59:59Z",
        b"1970-01-01T00:00:00+00:01",
        b"12026-01-01T00:00:00Z",
        "\uff12\uff10\uff12\uff16-01-01T00:00:00Z".encode(),
    ],
)
def test_anything_else_is_no_time(text: bytes) -> None:
    with pytest.raises(ValueError):
        parse_time(text)


@pytest.mark.parametrize(
    ("text", "ms"),
    [
        (b"0s", 0),
        (b"1500ms", 1_500),
        (b"90s", 90_000),
        (b"1h30m", 5_400_000),
        (b"2d", 2 * DAY_MS),
        (b"1d2h3m4s5ms", DAY_MS + 2 * 3_600_000 + 3 * 60_000 + 4_005),
        (b"1.5h", 5_400_000),
        (b"1m0.0001s", 60_001),
        (b"0.1ms", 1),
        (b"PT30M", 1_800_000),
        (b"PT0S", 0),
        (b"P2D", 2 * DAY_MS),
        (b"P1W", 7 * DAY_MS),
        (b"P1DT2H3M4.5S", DAY_MS + 2 * 3_600_000 + 3 * 60_000 + 4_500),
        (b"PT0,5S", 500),
        (b"PT1.5H", 5_400_000),
        (b"9223372036854775807ms", MAX_MS),
    ],
)
def test_a_duration_is_short_form_or_iso_8601(text: bytes, ms: int) -> None:
    assert parse_duration(text) == ms


@pytest.mark.parametrize(
    "text",
    [
        b"",
        b" ",
        b"90",
        b"s",
        b"-1s",
        b"+1s",
        b"1 s",
        b" 1s",
        b"1s ",
        b"1_0s",
        b"1e3s",
        b"NaNs",
        b".5s",
        b"1.s",
        b"1,5s",
        b"1S",
        b"1w",
        b"1us",
        b"30m1h",
        b"1h1h",
        b"1.5h30m",
        b"9223372036854775808ms",
        b"9999999999999999999d",
        b"1" * 100 + b"s",
        "٣s".encode(),
        b"\xffs",
        b"P",
        b"PT",
        b"P1DT",
        b"P1Y",
        b"P1M",
        b"P1W2D",
        b"PT-5M",
        b"-PT5M",
        b"pt5m",
        b"PT5",
        b"PT1.5H30M",
        b"P1D30M",
    ],
)
def test_anything_else_is_no_duration(text: bytes) -> None:
    with pytest.raises(ValueError):
        parse_duration(text)


@pytest.mark.parametrize("text", [b"", b"-0", b"+1", b"1 ", b"11", b"1" * 20, b"0_1", "\uff11".encode()])
def test_a_number_has_plain_digits_and_a_bound(text: bytes) -> None:
    with pytest.raises(ValueError):
        parse_number(text, 10)


@given(st.integers(0, YEAR_9999_MS))
def test_a_rendered_time_parses_to_itself(ms: int) -> None:
    assert parse_time(render_time(ms).encode()) == ms


def test_a_time_after_year_9999_has_no_rendering() -> None:
    with pytest.raises(ValueError, match="year 9999"):
        render_time(YEAR_9999_MS + 1)


@given(st.integers(0, MAX_MS))
def test_a_rendered_duration_parses_to_itself(ms: int) -> None:
    assert parse_duration(render_duration(ms).encode()) == ms


@given(st.datetimes(datetime(1970, 1, 2), timezones=st.timezones()))  # noqa: DTZ001 - hypothesis adds zones
def test_a_datetime_and_its_rfc_3339_text_are_the_same_time(moment: datetime) -> None:
    utc = moment.astimezone(UTC)
    assert epoch_ms(moment) == parse_time(utc.isoformat().encode())


@given(st.timedeltas(timedelta(0)))
def test_a_timedelta_rounds_up_to_milliseconds(duration: timedelta) -> None:
    assert 0 <= duration_ms(duration) * 1_000 - duration // timedelta(microseconds=1) < 1_000


def test_a_naive_datetime_names_no_moment() -> None:
    with pytest.raises(ValueError, match="has no time zone"):
        epoch_ms(datetime(2026, 1, 1))  # noqa: DTZ001 - the point


def test_a_datetime_before_1970_is_refused() -> None:
    with pytest.raises(ValueError, match="before 1970"):
        epoch_ms(datetime(1970, 1, 1, tzinfo=timezone(timedelta(hours=1))))


def test_a_negative_timedelta_is_refused() -> None:
    with pytest.raises(ValueError, match="negative"):
        duration_ms(timedelta(microseconds=-1001))
