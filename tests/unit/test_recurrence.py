"""When a recurring message comes next, and what becomes of occurrences that were missed."""

from __future__ import annotations

from datetime import UTC, datetime
from zoneinfo import ZoneInfo

import pytest
from hypothesis import given
from hypothesis import strategies as st

from delayline import cron, every
from delayline.errors import InvalidRequestError
from delayline.recurrence import (
    ALL,
    LARGEST_FACTOR,
    MISSED,
    SAME_INTERVAL,
    Occurrence,
    Recurrence,
    Turn,
    UnknownTimeZoneError,
    _cron_flaw,
    first_of_interval,
    first_turn,
    next_turn,
    parse_cron,
    parse_factor,
    render_factor,
)
from delayline.requests import schedule
from delayline.wire import Schedule
from tests.unit.wire_records import TIMESTAMP_MS, parse_headers

BERLIN = ZoneInfo("Europe/Berlin")
HOUR_MS = 3_600_000


def ms(year: int, month: int, day: int, hour: int = 0, minute: int = 0, zone: ZoneInfo | None = None) -> int:
    return int(datetime(year, month, day, hour, minute, tzinfo=zone or UTC).timestamp()) * 1000


def times(recurrence: Recurrence, start_ms: int, count: int) -> list[str]:
    """The first occurrences, by Berlin's clocks."""
    found: list[str] = []
    occurrence = first_turn(recurrence, start_ms).following
    while occurrence is not None and len(found) < count:
        found.append(f"{datetime.fromtimestamp(occurrence.at_ms / 1000, BERLIN):%d. %H:%M %z}")
        occurrence = next_turn(occurrence, 0).following
    return found


def turn(recurrence: Recurrence, number: int, at_ms: int, now_ms: int) -> Turn:
    return next_turn(Occurrence(number, at_ms, recurrence), now_ms)


class TestClocksThatChange:
    """2026 in Berlin: forward on 29 March at 2:00, back on 25 October at 3:00."""

    def test_what_falls_into_the_hour_left_out_fires_right_after_it(self) -> None:
        nightly = cron("30 2 * * *", time_zone="Europe/Berlin")
        assert times(nightly, ms(2026, 3, 28, zone=BERLIN), 3) == [
            "28. 02:30 +0100",
            "29. 03:00 +0200",
            "30. 02:30 +0200",
        ]

    def test_what_falls_into_the_hour_that_comes_twice_fires_once(self) -> None:
        nightly = cron("30 2 * * *", time_zone="Europe/Berlin")
        assert times(nightly, ms(2026, 10, 24, zone=BERLIN), 3) == [
            "24. 02:30 +0200",
            "25. 02:30 +0200",
            "26. 02:30 +0100",
        ]

    def test_what_fires_every_hour_fires_in_each_hour_that_there_is(self) -> None:
        hourly = cron("0 * * * *", time_zone="Europe/Berlin")
        assert times(hourly, ms(2026, 3, 29, 1, zone=BERLIN), 2) == ["29. 01:00 +0100", "29. 03:00 +0200"]
        assert times(hourly, ms(2026, 10, 25, 2, zone=BERLIN), 3) == [
            "25. 02:00 +0200",
            "25. 02:00 +0100",
            "25. 03:00 +0100",
        ]

    def test_what_is_asked_for_in_the_hour_that_comes_again_is_not_in_the_one_before(self) -> None:
        start_ms = int(datetime(2026, 10, 25, 2, 10, tzinfo=BERLIN, fold=1).timestamp()) * 1000
        nightly = cron("30 2 * * *", time_zone="Europe/Berlin")
        assert times(nightly, start_ms, 1) == ["26. 02:30 +0100"]

    @pytest.mark.parametrize("seconds", ["0", "00"])
    def test_a_field_of_seconds_that_says_nothing_changes_nothing(self, seconds: str) -> None:
        nightly = cron(f"{seconds} 30 2 * * *", time_zone="Europe/Berlin")
        assert times(nightly, ms(2026, 3, 29, zone=BERLIN), 1) == ["29. 03:00 +0200"]
        assert times(nightly, ms(2026, 10, 25, zone=BERLIN), 2) == ["25. 02:30 +0200", "26. 02:30 +0100"]

    @pytest.mark.parametrize("expression", ["*/30 2 * * *", "0,30 */2 * * *", "30 0,30 2 * * *"])
    def test_a_star_or_seconds_in_front_go_by_what_clocks_show(self, expression: str) -> None:
        by_clocks = cron(expression, time_zone="Europe/Berlin")
        (after,) = times(by_clocks, ms(2026, 3, 29, 1, zone=BERLIN), 1)
        assert after.startswith(("29. 04:00", "30. 02:00"))
        doubled = times(by_clocks, ms(2026, 10, 25, 2, zone=BERLIN), 4)
        assert [text.rpartition(" ")[0] for text in doubled] == ["25. 02:00", "25. 02:30"] * 2

    def test_without_a_time_zone_the_day_is_that_of_utc(self) -> None:
        assert times(cron("0 0 * * *"), ms(2026, 7, 1, 12), 1) == ["02. 02:00 +0200"]


class TestTheFirst:
    def test_a_start_at_which_it_fires_is_the_first(self) -> None:
        start_ms = ms(2026, 1, 1, 9)
        assert first_turn(cron("0 9 * * *"), start_ms).following == (1, start_ms, cron("0 9 * * *"))

    def test_a_start_a_moment_later_is_the_next_day(self) -> None:
        following = first_turn(cron("0 9 * * *"), ms(2026, 1, 1, 9) + 1).following
        assert following is not None
        assert following.at_ms == ms(2026, 1, 2, 9)

    def test_none_by_the_end_is_none(self) -> None:
        ends = cron("0 9 * * *", until=ms(2026, 1, 1, 8))
        assert first_turn(ends, ms(2026, 1, 1)) == Turn(None, None)

    def test_a_time_zone_that_is_unknown_is_said(self) -> None:
        with pytest.raises(UnknownTimeZoneError, match="Europe/Nowhere is no time zone"):
            first_turn(cron("0 9 * * *", time_zone="Europe/Nowhere"), 0)


class TestTheNext:
    def test_it_comes_an_interval_after_the_time_and_not_after_the_delivery(self) -> None:
        hourly = every("1h")
        assert turn(hourly, 1, 1_000, 1_900) == Turn(1_000, Occurrence(2, 1_000 + HOUR_MS, hourly))

    def test_an_interval_grows_by_its_factor_rounded_up(self) -> None:
        growing = every(1_001, factor=1.5)
        _, second = turn(growing, 1, 0, 0)
        assert second is not None
        assert (second.at_ms, second.recurrence.interval_ms) == (1_001, 1_502)
        _, third = next_turn(second, 0)
        assert third is not None
        assert (third.number, third.at_ms) == (3, 1_001 + 1_502)

    @pytest.mark.parametrize("interval_s", [2, 3, 10])
    def test_ddmqs_exponential_loop_is_an_interval_with_its_seconds_as_the_factor(
        self, interval_s: int
    ) -> None:
        """There the n-th interval is interval ** n seconds."""
        current = Occurrence(1, 0, every(interval_s * 1_000, factor=interval_s))
        times_ms = []
        for _ in range(4):
            following = next_turn(current, 0).following
            assert following is not None
            times_ms.append(following.at_ms - current.at_ms)
            current = following
        assert times_ms == [interval_s**power * 1_000 for power in (1, 2, 3, 4)]

    def test_the_last_of_so_many_is_followed_by_none(self) -> None:
        thrice = every("1s", times=3)
        assert turn(thrice, 2, 0, 0).following is not None
        assert turn(thrice, 3, 0, 0) == Turn(0, None)

    def test_there_is_none_after_the_end_and_one_at_it(self) -> None:
        assert turn(every("1s", until=1_000), 1, 0, 0).following is not None
        assert turn(every("1s", until=999), 1, 0, 0).following is None


class TestMissed:
    """Every second from 0; it is 3.5 s."""

    def test_all_are_delivered_one_after_the_other(self) -> None:
        assert turn(every("1s"), 1, 0, 3_500) == Turn(0, Occurrence(2, 1_000, every("1s")))

    def test_the_latest_is_delivered_for_all_and_counts_once(self) -> None:
        latest = every("1s", missed="latest")
        assert turn(latest, 7, 0, 3_500) == Turn(3_000, Occurrence(8, 4_000, latest))

    def test_none_that_was_missed_is_delivered_and_none_is_counted(self) -> None:
        skip = every("1s", missed="skip", times=7)
        assert turn(skip, 7, 0, 3_500) == Turn(None, Occurrence(7, 3_000, skip))
        assert turn(skip, 7, 3_000, 3_500) == Turn(3_000, None)

    def test_the_last_by_the_end_is_not_missed(self) -> None:
        skip = every("1s", missed="skip", until=2_000)
        assert turn(skip, 1, 0, 3_500) == Turn(None, Occurrence(1, 2_000, skip))
        assert turn(skip, 1, 2_000, 3_500) == Turn(2_000, None)

    def test_one_that_nothing_has_overtaken_is_late_and_not_missed(self) -> None:
        for missed in ("latest", "skip"):
            assert turn(every("1s", missed=missed), 1, 0, 999).deliver_as_ms == 0

    def test_no_later_one_than_the_end_counts(self) -> None:
        latest = every("1s", missed="latest", until=2_000)
        assert turn(latest, 1, 0, 3_500) == Turn(2_000, None)

    def test_a_growing_interval_grows_past_what_was_missed(self) -> None:
        skip = every("1s", factor=2, missed="skip")  # at 0, 1, 3, 7 s
        _, following = turn(skip, 1, 0, 3_500)
        assert following == Occurrence(1, 3_000, skip._replace(interval_ms=4_000))

    def test_a_cron_expression_goes_on_from_now(self) -> None:
        nightly = cron("30 2 * * *", time_zone="Europe/Berlin", missed="latest")
        at_ms, following = turn(nightly, 1, ms(2026, 1, 1, 2, 30, BERLIN), ms(2026, 6, 1, 12, zone=BERLIN))
        assert at_ms == ms(2026, 6, 1, 2, 30, BERLIN)
        assert following == Occurrence(2, ms(2026, 6, 2, 2, 30, BERLIN), nightly)


def clock_changes_ms(zone: str) -> list[int]:
    """When its clocks change in 2026, to half an hour."""
    known = ZoneInfo(zone)
    first_s = ms(2026, 1, 1) // 1000
    times_s = range(first_s, first_s + 365 * 86_400, 1_800)
    offsets = [datetime.fromtimestamp(time_s, known).utcoffset() for time_s in times_s]
    return [times_s[n] * 1000 for n in range(1, len(times_s)) if offsets[n] != offsets[n - 1]]


ZONES = ("Europe/Berlin", "America/Havana", "Africa/Cairo", "Australia/Lord_Howe", "Africa/Casablanca")
CHANGES = [(zone, change_ms) for zone in ZONES for change_ms in clock_changes_ms(zone)]
EXPRESSIONS = (
    "15,45 2 * * *", "30 2 * * *", "30 0 * * *", "0 0 * * *", "5,25,45 0-23 * * *", "15 */2 * * *",
    "* * * * *", "*/10 0 * * *", "*/20 * 25-30 * *", "0 15 2 * * *", "30 15 2 * * *", "0 */7 * * * *",
    "*/30 * 0-3 * * *", "0 0 29 2 *", "59 23 L * *",
)  # fmt: skip


@given(
    st.sampled_from(CHANGES),
    st.sampled_from(EXPRESSIONS),
    st.sampled_from(MISSED),
    st.integers(-3 * HOUR_MS, 3 * HOUR_MS),
    st.integers(0, 10 * HOUR_MS) | st.integers(0, 800 * 24 * HOUR_MS),
)
def test_a_chain_goes_forward_through_clocks_that_change(
    change: tuple[str, int], expression: str, missed: str, start_ms: int, late_ms: int
) -> None:
    zone, change_ms = change
    start_ms += change_ms
    recurrence = cron(expression, time_zone=zone, missed=missed)
    first = first_turn(recurrence, start_ms).following
    assert first is not None
    assert first.at_ms >= start_ms
    now_ms = first.at_ms + late_ms
    deliver_as_ms, following = next_turn(first, now_ms)
    assert following is not None
    assert following.at_ms > first.at_ms
    if deliver_as_ms is None and missed == ALL:
        assert now_ms - late_ms < following.at_ms < now_ms
        assert next_turn(following, now_ms).deliver_as_ms == following.at_ms
    elif deliver_as_ms is None:
        assert following.at_ms <= now_ms < next_turn(following, now_ms).following.at_ms  # type: ignore[union-attr]
    elif missed == ALL:
        assert deliver_as_ms == first.at_ms
    else:
        assert first.at_ms <= deliver_as_ms <= now_ms < following.at_ms


@given(st.sampled_from(EXPRESSIONS), st.integers(0, 20 * HOUR_MS), st.integers(0, 200))
def test_the_latest_is_the_one_that_is_reached_by_all(expression: str, start_ms: int, steps: int) -> None:
    latest = cron(expression, time_zone="Europe/Berlin", missed="latest")
    first = first_turn(latest, ms(2026, 10, 24, 12) + start_ms).following
    assert first is not None
    one = first
    for _ in range(min(steps, 5) if expression == "0 0 29 2 *" else steps):
        following = next_turn(one, 0).following
        assert following is not None
        one = following
    assert next_turn(first, one.at_ms).deliver_as_ms == one.at_ms


@pytest.mark.parametrize(
    ("recurrence", "first_ms", "missed_ms"),
    [
        (every("1s"), 0, 10_000 * 1_000),
        (every("1h"), 0, 10_000 * HOUR_MS),
        (cron("* * * * * *"), 0, 10_000 * 1_000),
        (cron("* * * * *"), 0, 10_000 * 60_000),
        (cron("0 * * * *"), 0, 10_000 * HOUR_MS),
        (cron("0 9 * * *"), 9 * HOUR_MS, 10_000 * 24 * HOUR_MS),
        (cron("*/20 9 * * *"), 9 * HOUR_MS, 10_000 * 8 * HOUR_MS),
    ],
)
def test_all_goes_so_far_back_and_no_further(recurrence: Recurrence, first_ms: int, missed_ms: int) -> None:
    next_ms = next_turn(Occurrence(1, first_ms, recurrence), 0).following
    assert next_ms is not None
    now_ms = next_ms.at_ms + missed_ms
    assert turn(recurrence, 1, first_ms, now_ms - 1).deliver_as_ms == first_ms
    assert turn(recurrence, 1, first_ms, now_ms) == Turn(None, next_ms._replace(number=1))


def test_a_chain_that_was_moved_to_1970_goes_on_from_there_in_one_step() -> None:
    now_ms = ms(2026, 11, 22)
    following = turn(every("1s"), 7, 0, now_ms).following
    assert following is not None
    assert (following.number, following.at_ms) == (7, now_ms - 10_000 * 1_000)


def test_the_last_one_by_its_end_is_delivered_however_long_ago_that_was() -> None:
    ended = every("1s", until=5_000)
    following = turn(ended, 1, 1_000, ms(2026, 11, 22)).following
    assert following is not None
    assert turn(ended, 1, following.at_ms, ms(2026, 11, 22)) == Turn(5_000, None)


def test_a_growing_interval_that_began_in_the_past_is_counted_so_far_and_no_further() -> None:
    growing = every("1s", factor=1.001)
    assert first_of_interval(growing, 0, 1_000_000) is not None
    with pytest.raises(ValueError, match="more than 1000 growing intervals in the past"):
        first_of_interval(growing, 0, 3_000_000)


@pytest.mark.parametrize("factor", [1, 2])
@pytest.mark.parametrize("asked_ms", [1_000, 2_000])
def test_an_occurrence_at_the_time_it_was_asked_for_is_the_first(asked_ms: int, factor: int) -> None:
    asked_for = first_of_interval(every("1s", factor=factor), 1_000, asked_ms)
    assert asked_for is not None
    assert (asked_for.number, asked_for.at_ms) == (1, asked_ms)


def test_one_that_was_past_when_it_was_asked_for_is_not_the_first() -> None:
    assert first_of_interval(every("1s"), 1_000, 1_001) == Occurrence(1, 2_000, every("1s"))
    assert first_of_interval(every("1s", until=1_999), 1_000, 1_001) is None


@pytest.mark.parametrize("expression", [b"0 0 * 2 MON#6", b"0 0 */31 * MON#5", b"9 9 * * *"])
def test_what_an_expression_comes_to_is_found_out_once(expression: bytes) -> None:
    answers = set()
    before = _cron_flaw.cache_info().hits
    for _ in range(3):
        try:
            answers.add(parse_cron(expression))
        except ValueError as error:
            answers.add(str(error))
    assert len(answers) == 1
    assert _cron_flaw.cache_info().hits >= before + 2


@given(st.integers(SAME_INTERVAL, LARGEST_FACTOR))
def test_a_factor_is_read_as_it_was_written(permille: int) -> None:
    assert parse_factor(render_factor(permille).encode()) == permille


@pytest.mark.parametrize("repeat", [every("1s"), cron("0 9 * * *")], ids=["every", "cron"])
def test_what_nothing_could_stop_is_refused(repeat: Recurrence) -> None:
    with pytest.raises(InvalidRequestError, match="give an id, times or until") as refused:
        schedule("orders", "v", repeat=repeat)
    assert refused.value.code == "bad-recurrence"


@pytest.mark.parametrize(
    ("id_", "repeat"),
    [("a", every("1s")), (None, every("1s", times=1)), (None, cron("0 9 * * *", until=TIMESTAMP_MS))],
    ids=["an id", "times", "until"],
)
def test_what_can_be_stopped_is_not_refused(id_: str | None, repeat: Recurrence) -> None:
    record = schedule("orders", "v", id=id_, deliver_at=TIMESTAMP_MS, repeat=repeat)
    assert isinstance(parse_headers(*record.headers), Schedule)


@pytest.mark.parametrize(
    ("build", "code"),
    [
        (lambda: every("0.5s"), "bad-interval"),
        (lambda: every("soon"), "bad-interval"),
        (lambda: every(True), "bad-interval"),
        (lambda: every("1s", factor=0.5), "bad-interval-factor"),
        (lambda: every("1s", factor="1e3"), "bad-interval-factor"),
        (lambda: every("1s", times=0), "bad-times"),
        (lambda: every("1s", until="tomorrow"), "bad-until"),
        (lambda: every("1s", missed="none"), "bad-missed"),
        (lambda: cron("61 * * * *"), "bad-cron"),
        (lambda: cron("0 0 30 2 *"), "bad-cron"),
        (lambda: cron("\uff11 * * * *"), "bad-cron"),
        (lambda: cron("0 9 * * *", time_zone="../etc"), "bad-time-zone"),
    ],
)
def test_what_the_service_would_reject_is_refused_with_its_code(build: object, code: str) -> None:
    assert callable(build)
    with pytest.raises(InvalidRequestError) as refused:
        build()
    assert refused.value.code == code
