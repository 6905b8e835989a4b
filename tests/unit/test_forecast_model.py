"""What is still to come, from samples: what is kept, whatever the samples are, and what a band says."""

from __future__ import annotations

from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pipeline.forecast.horizon import DAY_MINUTES, HOUR_MS, Horizon
from pipeline.forecast.model import Sample, by_hour, expectation, foretold

NOON_MS = 1_767_268_800_000
HALF_PAST = Horizon(NOON_MS + HOUR_MS // 2, 150)  # hours of 30, 60 and 60 minutes

counts = st.dictionaries(st.integers(0, HALF_PAST.minutes - 1), st.integers(0, 5_000), max_size=60)
samples = st.lists(
    st.builds(Sample, counts, st.just(HALF_PAST.minutes), st.just((1.0,))), min_size=2, max_size=6
)


def whole(count: dict[int, int], *levels: float) -> Sample:
    return Sample(count, HALF_PAST.minutes, levels)


@given(samples)
def test_a_bands_edges_lie_on_both_sides_of_what_is_expected(given_: list[Sample]) -> None:
    found = foretold(given_, HALF_PAST)
    for band in (found.minutes, found.hours):
        for low, expected, high in zip(band.low, band.expected, band.high, strict=True):
            assert 0 <= low <= expected <= high


@given(samples)
def test_the_minutes_of_an_hour_sum_to_the_hour(given_: list[Sample]) -> None:
    found = foretold(given_, HALF_PAST)
    assert by_hour(found.minutes.expected, HALF_PAST) == pytest.approx(list(found.hours.expected))


@given(counts, st.integers(2, 6))
def test_samples_that_are_all_alike_are_expected_again_hour_by_hour(
    count: dict[int, int], times: int
) -> None:
    expected = expectation([whole(count)] * times, HALF_PAST)
    came = [float(count.get(minute, 0)) for minute in range(HALF_PAST.minutes)]
    assert by_hour(expected, HALF_PAST) == pytest.approx(by_hour(came, HALF_PAST))


@given(samples, st.floats(0.5, 3))
def test_what_is_expected_follows_the_level(given_: list[Sample], level: float) -> None:
    raised = [Sample(one.counts, one.covered, (level,)) for one in given_]
    plain = by_hour(expectation(given_, HALF_PAST), HALF_PAST)
    assert by_hour(expectation(raised, HALF_PAST), HALF_PAST) == pytest.approx([level * one for one in plain])


def test_one_burst_among_three_samples_moves_the_hour_to_none_of_it() -> None:
    usual = dict.fromkeys(range(30), 10)
    burst = {**usual, 7: 100_000}
    expected = expectation([whole(usual), whole(burst), whole(usual)], HALF_PAST)
    assert sum(expected[:30]) == pytest.approx(300)
    assert expected[7] < 150


def test_a_minute_that_stands_out_in_every_sample_stands_out() -> None:
    spiked = {**dict.fromkeys(range(150), 1), 30: 500}
    expected = expectation([whole(spiked)] * 4, HALF_PAST)
    assert expected[30] > 400
    assert max(expected[:30]) < 10


def test_without_samples_nothing_is_expected() -> None:
    found = foretold([], HALF_PAST)
    assert (len(found.minutes.expected), len(found.hours.expected)) == (150, 3)
    assert not any((*found.minutes.high, *found.hours.high))


def test_minutes_that_a_sample_does_not_cover_are_the_others_alone() -> None:
    short = Sample(dict.fromkeys(range(90), 100), 90, (1.0,))
    full = whole(dict.fromkeys(range(150), 10))
    expected = by_hour(expectation([short, full, full], HALF_PAST), HALF_PAST)
    assert expected == pytest.approx([300, 600, 600])
    assert by_hour(expectation([short, full], HALF_PAST), HALF_PAST) == pytest.approx([1650, 3300, 600])


def test_each_day_has_a_level_of_its_own() -> None:
    horizon = Horizon(NOON_MS, 2 * DAY_MINUTES)
    even = Sample(dict.fromkeys(range(horizon.minutes), 1), horizon.minutes, (1.0, 2.0))
    hours = by_hour(expectation([even, even], horizon), horizon)
    assert hours == pytest.approx([60.0] * 24 + [120.0] * 24)


@pytest.mark.parametrize("rate", [4.0, 20.0, 60.0])
def test_eight_of_ten_lie_within_the_band_where_samples_are_like_what_comes(rate: float) -> None:
    random = Random(4)
    horizon = Horizon(NOON_MS, DAY_MINUTES)

    def day() -> dict[int, int]:
        return {
            minute: int(random.gammavariate(4, rate / 4) + random.random()) for minute in range(DAY_MINUTES)
        }

    band = foretold([Sample(day(), DAY_MINUTES) for _ in range(5)], horizon).minutes
    came = day()
    within = sum(band.low[m] <= came[m] <= band.high[m] for m in range(DAY_MINUTES))
    assert 0.73 < within / DAY_MINUTES < 0.9
