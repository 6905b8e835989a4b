"""A forecast made of counts: stretches, queue, disks, and what is said of them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from delayline.times import DAY_MS
from pipeline.forecast import Asked, Counts, Forecast, Horizon, Room, forecast, words
from pipeline.forecast.backlog import backlog
from pipeline.forecast.counts import Waiting
from pipeline.forecast.disk import full_hour, log_growth
from pipeline.forecast.horizon import DAY_MINUTES, HOUR_MS, WEEK_MS, Shifts, shifts
from pipeline.forecast.page import forecast_page
from pipeline.forecast.report import CSV_COLUMNS, as_dict, csv_rows
from pipeline.page import render

NOON_MS = 1_767_268_800_000
DAY = Horizon(NOON_MS, DAY_MINUTES)
HOUR = NOON_MS // HOUR_MS


def counts(**changes: Any) -> Counts:
    found: dict[str, Any] = {
        "shifts": None,
        "since_ms": NOON_MS - DAY_MS,
        "waiting": Waiting(0, 0, 0, 0),
        "busiest": None,
        **{name: {} for name in ("plain", "chains", "bursts", "samples", "fresh", "known", "arrivals")},
    }
    return Counts(**{**found, **changes})


def made(asked: Asked | None = None, **changes: Any) -> Forecast:
    return forecast("delay", counts(**changes), DAY, asked or Asked())


class TestStretches:
    @pytest.mark.parametrize(
        ("history_days", "days", "found"),
        [
            (0.5, 1, None),
            (1.9, 1, None),
            (2, 1, Shifts(DAY_MS, 2)),
            (7, 3, Shifts(DAY_MS, 7)),
            (7, 7, None),
            (13.9, 3, Shifts(DAY_MS, 13)),
            (14, 3, Shifts(WEEK_MS, 2)),
            (14, 8, Shifts(DAY_MS, 13)),
            (400, 14, Shifts(WEEK_MS, 8)),
        ],
    )
    def test_weeks_if_two_are_there_else_days(
        self, history_days: float, days: int, found: Shifts | None
    ) -> None:
        horizon = Horizon(NOON_MS, days * DAY_MINUTES)
        assert shifts(horizon, NOON_MS - round(history_days * DAY_MS)) == found

    def test_without_history_there_are_none(self) -> None:
        assert shifts(DAY, None) is None

    def test_a_stretch_that_is_not_past_is_covered_in_part(self) -> None:
        assert Shifts(DAY_MS, 3).covered(1, 3 * DAY_MINUTES) == DAY_MINUTES
        assert Shifts(DAY_MS, 3).covered(3, 3 * DAY_MINUTES) == 3 * DAY_MINUTES


class TestKnown:
    def test_what_waits_is_told_exactly_where_nothing_else_is_known(self) -> None:
        found = made(plain={(0, "a"): 3, (5, None): 2}, chains={(5, "b"): 4})
        assert {minute: count for minute, count in enumerate(found.known) if count} == {0: 3, 5: 6}
        assert list(found.minutes.expected) == [float(count) for count in found.known]
        assert found.minutes.low == found.minutes.high == found.minutes.expected

    def test_what_is_usually_cancelled_is_taken_off_but_not_at_the_upper_edge_and_chains_go_on(self) -> None:
        back = Shifts(DAY_MS, 2)
        known = {(1, 0): (100, 90), (2, 0): (100, 80)}
        found = made(shifts=back, plain={(1, "a"): 1_000}, chains={(1, "a"): 10}, known=known)
        assert found.minutes.expected[1] == pytest.approx(860)
        assert [found.minutes.low[1], found.minutes.high[1]] == pytest.approx([810, 1_010])

    def test_targets_sum_to_what_is_expected(self) -> None:
        samples = {1: {3: 60}, 2: {3: 100}}
        found = made(
            shifts=Shifts(DAY_MS, 2),
            plain={(1, "a"): 1_000, (1, None): 5},
            samples=samples,
            fresh={(0, "a"): 120, (0, "b"): 40},
        )
        assert sum(found.targets.values()) == pytest.approx(sum(found.minutes.expected))
        assert found.targets[0, "b"] == pytest.approx(20)

    def test_the_busiest_minutes_come_first_with_their_targets(self) -> None:
        found = made(plain={(1, "a"): 5, (2, "b"): 9, (100, "c"): 20, (101, None): 1})
        peaks = [(peak.hour, peak.minute, list(peak.targets)) for peak in found.peaks]
        assert peaks == [(1, 100, [("c", 20.0), (None, 1.0)]), (0, 2, [("b", 9.0), ("a", 5.0)])]


class TestQueue:
    def test_what_is_above_the_capacity_waits_until_there_is_less(self) -> None:
        found = backlog([1_200, 0, 0], [0, 0, 0], 10, 0)
        assert (list(found.left), list(found.late_s)) == ([600, 0, 0], [60, 59, 0])

    def test_a_burst_within_what_a_minute_takes_is_late_all_the_same(self) -> None:
        assert backlog([300], [300], 10, 0).late_s == [29.0]

    def test_what_is_overdue_goes_first(self) -> None:
        assert backlog([10], [0], 10, 1_200).left == [610]

    @given(
        st.lists(st.integers(0, 10_000), min_size=1, max_size=50),
        st.floats(0.1, 1_000),
        st.integers(0, 10_000),
    )
    def test_nothing_is_lost_and_more_can_be_done_with_more(
        self, due: list[int], per_s: float, overdue: int
    ) -> None:
        slow, fast = (backlog(due, due, rate, overdue) for rate in (per_s, 2 * per_s))
        assert all(one >= other for one, other in zip(slow.late_s, fast.late_s, strict=True))
        assert slow.left[-1] <= overdue + sum(due)
        assert slow.left[-1] >= overdue + sum(due) - 60 * per_s * len(due) - 1e-6


class TestCapacity:
    def test_the_most_that_was_seen_counts_where_none_is_given(self) -> None:
        seen = made(busiest=500).capacity
        given_ = made(Asked(per_s=7), busiest=500).capacity
        assert seen is not None
        assert given_ is not None
        assert (seen.per_s, seen.given, given_.per_s, given_.given) == (50.0, False, 7, True)

    def test_minutes_above_it_are_named_and_how_late_it_gets(self) -> None:
        found = made(Asked(per_s=10), plain={(30, "a"): 1_800})
        assert found.over == [30]
        text, fits = words.verdict(found)
        late = "messages are late by up to 2.0 min, at 2026-01-01 12:30"
        assert text == f"1 minute may be above 10 messages a second: {late}"
        assert not fits

    def test_a_burst_within_a_minute_is_told(self) -> None:
        found = made(Asked(per_s=10), plain={(30, "a"): 300}, bursts={30: 300})
        text, fits = words.verdict(found)
        late = "messages are late by up to 29.0 s, at 2026-01-01 12:30, at 10 messages a second"
        assert (text, fits) == (f"It fits, but in bursts {late}", False)

    def test_of_what_fits_that_is_said(self) -> None:
        text = "It fits: never above 10 messages a second, which the lanes can"
        assert words.verdict(made(Asked(per_s=10), plain={(30, "a"): 300})) == (text, True)

    def test_nothing_is_said_of_lanes_of_which_nothing_is_known(self) -> None:
        assert made().late is None
        assert words.verdict(made())[0].startswith("Nothing is known of what the lanes can do")


class TestDisks:
    ARRIVALS: Mapping[int, tuple[int, int, int]] = {HOUR - hour: (10, 1_000, 10) for hour in range(1, 25)}

    def log(self, free: int, retention_ms: int | None, used: int | None = 24_000) -> Any:
        room = Room("log", "broker 1", free, used)
        [disk] = made(Asked(rooms=[room], retention_ms=retention_ms), arrivals=self.ARRIVALS).disks
        return disk

    def test_a_log_that_keeps_all_grows_by_what_comes(self) -> None:
        disk = self.log(5_500, None)
        assert disk.added_bytes[0] == pytest.approx(1_000)
        assert disk.full_at_ms == NOON_MS + 6 * HOUR_MS

    def test_what_is_larger_on_the_disk_grows_faster(self) -> None:
        assert self.log(5_500, None, 48_000).full_at_ms == NOON_MS + 3 * HOUR_MS

    def test_a_log_whose_retention_takes_what_comes_is_never_full(self) -> None:
        assert self.log(5_500, 10 * HOUR_MS).full_at_ms is None

    def test_the_view_grows_with_what_waits(self) -> None:
        room = Room("view", "node a", 10**9)
        found = made(
            Asked(rooms=[room]),
            arrivals={HOUR - 1: (2_400, 240_000, 2_400)},
            waiting=Waiting(0, 0, 10, 1_000),
            plain={(0, "a"): 50},
        )
        assert found.disks[0].added_bytes[0] == pytest.approx((100 - 50) * 220)

    @given(st.lists(st.integers(0, 100), min_size=1, max_size=30), st.integers(0, 10))
    def test_no_log_shrinks_below_what_it_had(self, written: list[int], retention: int) -> None:
        kept = [7.0] * 10
        assert all(more >= -sum(kept) - 1e-9 for more in log_growth(written, kept, retention))

    def test_a_disk_is_full_when_there_is_no_room_any_more(self) -> None:
        assert full_hour([1, 2, 3], 2) == 1
        assert full_hour([1, 2, 3], 4) is None


class TestShown:
    def full(self, target: str = "orders") -> Forecast:
        return made(
            Asked(per_s=1, rooms=[Room("log", "broker 1", 10, 1_000), Room("view", "node a", 10**12)]),
            shifts=Shifts(DAY_MS, 2),
            plain={(1, target): 100},
            samples={1: {3: 60}, 2: {3: 100}},
            fresh={(0, target): 160},
            known={(1, 0): (100, 90)},
            arrivals={HOUR - 1: (10, 1_000, 10)},
            waiting=Waiting(1, 2, 103, 10_000),
        )

    def test_the_csv_has_each_minute_each_hour_and_each_hours_targets(self) -> None:
        rows = list(csv_rows(self.full()))
        assert [sum(row["scale"] == scale for row in rows) for scale in ("minute", "hour", "target")] == [
            DAY_MINUTES, 24, 1,
        ]  # fmt: skip
        assert {name for row in rows for name in row} == set(CSV_COLUMNS)

    def test_the_json_sums_what_it_has(self) -> None:
        data = as_dict(self.full())
        assert (data["basis"], data["overdue"], data["held"], data["pending"]) == ("days", 1, 2, 103)
        assert sum(hour["expected"] for hour in data["hours"]) == pytest.approx(data["expected"], abs=1)

    def test_a_target_is_shown_on_the_page_and_never_obeyed(self) -> None:
        html = render(forecast_page(self.full("<script>alert(1)</script>")))
        assert "<script>alert" not in html

    def test_a_page_of_nothing_can_be_made(self) -> None:
        assert "The log is empty" in render(forecast_page(made(since_ms=None)))
