"""What follows from a recurring message that waits: as the service goes on from each."""

from __future__ import annotations

from collections import Counter

import pytest
from hypothesis import given
from hypothesis import strategies as st

from delayline.recurrence import ALL, SAME_INTERVAL, Occurrence, Recurrence, next_turn
from pipeline.forecast import chains
from pipeline.forecast.chains import MOST_STEPS, evenly, later

NOON_MS = 1_767_268_800_000
MINUTE_MS, HOUR_MS, DAY_MS = 60_000, 3_600_000, 86_400_000
NOON = NOON_MS // MINUTE_MS


def recurrence(
    every_ms: int = 0,
    cron: str | None = None,
    factor: int = SAME_INTERVAL,
    times: int | None = None,
    until_ms: int | None = None,
    zone: str | None = None,
) -> Recurrence:
    return Recurrence(cron, every_ms, factor, zone, times, until_ms, ALL)


def follow(waiting: Occurrence, now_ms: int, end_ms: int) -> dict[int, int]:
    return later(waiting, waiting.at_ms, waiting.recurrence, now_ms, end_ms)


def one_by_one(first: Occurrence, now_ms: int, end_ms: int) -> dict[int, int]:
    counts: Counter[int] = Counter()
    turn: Occurrence | None = first
    while turn is not None and turn.at_ms < end_ms:
        counts[max(turn.at_ms, now_ms) // MINUTE_MS] += 1
        turn = next_turn(turn, turn.at_ms).following
    return dict(counts)


@given(
    st.integers(1_000, 10 * MINUTE_MS),
    st.integers(0, HOUR_MS),
    st.integers(1, 50),
    st.none() | st.integers(1, 200),
    st.none() | st.integers(0, 3 * HOUR_MS),
)
def test_equal_intervals_are_counted_as_if_each_was_looked_at(
    every_ms: int, begin_ms: int, number: int, times: int | None, until_ms: int | None
) -> None:
    until = None if until_ms is None else NOON_MS + until_ms
    first = Occurrence(number, NOON_MS + begin_ms, recurrence(every_ms, times=times, until_ms=until))
    if (times is not None and number > times) or (until is not None and first.at_ms > until):
        return  # there is no such occurrence
    end_ms = NOON_MS + HOUR_MS
    assert evenly(first, NOON_MS, end_ms) == one_by_one(first, NOON_MS, end_ms)


def test_the_occurrence_that_waits_is_not_among_what_follows() -> None:
    waiting = Occurrence(1, NOON_MS + MINUTE_MS, recurrence(HOUR_MS))
    assert follow(waiting, NOON_MS, NOON_MS + 3 * HOUR_MS) == {NOON + 61: 1, NOON + 121: 1}


def test_a_chain_ends_with_its_times() -> None:
    waiting = Occurrence(2, NOON_MS, recurrence(MINUTE_MS, times=4))
    assert follow(waiting, NOON_MS, NOON_MS + HOUR_MS) == {NOON + 1: 1, NOON + 2: 1}


def test_a_growing_interval_grows() -> None:
    waiting = Occurrence(1, NOON_MS, recurrence(MINUTE_MS, factor=2_000))
    assert follow(waiting, NOON_MS, NOON_MS + 10 * MINUTE_MS) == {NOON + 1: 1, NOON + 3: 1, NOON + 7: 1}


def test_a_cron_expression_fires_by_the_clocks_of_its_zone() -> None:
    waiting = Occurrence(1, NOON_MS, recurrence(cron="0 9 * * *", zone="Europe/Berlin"))
    days = follow(waiting, NOON_MS, NOON_MS + 2 * DAY_MS)
    assert days == {NOON + 20 * 60: 1, NOON + 44 * 60: 1}


def test_a_request_that_only_finds_its_first_occurrence_is_followed_by_it() -> None:
    found = later(None, NOON_MS + 1, recurrence(cron="30 * * * *"), NOON_MS, NOON_MS + 2 * HOUR_MS)
    assert found == {NOON + 30: 1, NOON + 90: 1}


def test_of_a_time_zone_that_is_not_known_nothing_is_said() -> None:
    waiting = Occurrence(1, NOON_MS, recurrence(cron="0 9 * * *", zone="Mars/Olympus"))
    assert follow(waiting, NOON_MS, NOON_MS + 2 * DAY_MS) == {}


def test_a_chain_is_followed_for_so_many_steps(monkeypatch: pytest.MonkeyPatch) -> None:
    assert MOST_STEPS >= 14 * 24 * 60, (
        "a chain that fires each minute is told to the end of the longest horizon"
    )
    monkeypatch.setattr(chains, "MOST_STEPS", 5)
    waiting = Occurrence(1, NOON_MS, recurrence(cron="* * * * *"))
    assert sum(follow(waiting, NOON_MS, NOON_MS + HOUR_MS).values()) == 5
