"""When what is pending falls due, counted in a view on a real RocksDB; and how it is drawn."""

from __future__ import annotations

from pathlib import Path

import pytest

from ops.cli.due import bars
from store import due, lookup
from store.due import Due
from store.holds import Held, held_together
from store.lookup import Lookup
from store.selection import Paused
from store.view import View
from tests.unit.view_records import at, deliver, new_view, reject, schedule, take

NOON_MS = 1_767_268_800_000
NOW_MS = NOON_MS + 30_500
MINUTE_MS, HOUR_MS, DAY_MS = 60_000, 3_600_000, 86_400_000


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return tmp_path / "store"


@pytest.fixture
def view(folder: Path) -> View:
    return new_view(folder)


def pending(view: View, *due_ms: int, first: int = 0) -> None:
    take(view, *(at(0, first + number, schedule(ms)) for number, ms in enumerate(due_ms)))


def counted(view: View, now_ms: int = NOW_MS) -> Due:
    _, _, found = Lookup(view).due(now_ms)
    return found


def test_the_next_minute_is_counted_by_seconds_from_now_on(view: View) -> None:
    end_ms = NOW_MS - 500 + MINUTE_MS
    pending(view, NOW_MS - 1, NOW_MS, NOW_MS + 499, NOW_MS + 500, end_ms - 1, end_ms)
    second = NOW_MS - 500
    assert counted(view).seconds.counts == {second: 2, second + 1_000: 1, second + 59_000: 1}


def test_the_next_hour_is_counted_by_minutes_from_now_on(view: View) -> None:
    pending(view, NOW_MS - 1, NOW_MS, NOON_MS + MINUTE_MS, NOON_MS + HOUR_MS - 1, NOON_MS + HOUR_MS)
    minutes = {NOON_MS: 1, NOON_MS + MINUTE_MS: 1, NOON_MS + 59 * MINUTE_MS: 1}
    assert counted(view).minutes.counts == minutes


def test_all_that_is_not_overdue_is_counted_by_days(view: View) -> None:
    pending(view, NOW_MS - 1, NOW_MS, NOON_MS + 13 * HOUR_MS, NOON_MS + 14 * HOUR_MS, NOON_MS + 300 * DAY_MS)
    midnight = NOON_MS - 12 * HOUR_MS
    days = {midnight: 1, midnight + DAY_MS: 2, midnight + 300 * DAY_MS: 1}
    assert counted(view).days.counts == days


def test_the_days_are_counted_anew_when_a_store_is_opened(view: View, folder: Path) -> None:
    pending(view, NOON_MS + 3 * DAY_MS, NOON_MS + 3 * DAY_MS + 1)
    before = counted(view).days
    view.flush()
    view.close()
    assert counted(new_view(folder)).days == before


def test_the_next_hour_goes_past_midnight_and_the_days_do_not_count_it_twice(view: View) -> None:
    late_ms = NOON_MS + 12 * HOUR_MS - 10 * MINUTE_MS
    pending(view, late_ms + MINUTE_MS, late_ms + 20 * MINUTE_MS)
    found = counted(view, late_ms)
    assert sorted(found.minutes.counts.values()) == [1, 1]
    assert sorted(found.days.counts.values()) == [1, 1]


def test_what_is_overdue_is_counted_whether_behind_the_position_or_late(view: View) -> None:
    pending(view, NOON_MS - 5 * MINUTE_MS)
    deliver(view, NOON_MS - 4 * MINUTE_MS)
    early = NOON_MS - 6 * MINUTE_MS
    pending(view, early, NOON_MS - 3 * MINUTE_MS, NOON_MS - 1, NOON_MS, NOW_MS - 1, NOW_MS, first=1)
    found = counted(view)
    assert (found.overdue, sum(found.days.counts.values())) == (5, 1)


def test_nothing_is_counted_of_what_is_done(view: View) -> None:
    pending(view, NOON_MS, NOW_MS, NOW_MS + 1, NOON_MS + 2 * MINUTE_MS)
    deliver(view, NOW_MS)
    found = counted(view)
    assert found.overdue == 0
    assert [sum(scale.counts.values()) for scale in (found.seconds, found.minutes, found.days)] == [1, 2, 2]


def test_a_clock_behind_the_position_counts_from_the_position_on(view: View) -> None:
    pending(view, NOW_MS + HOUR_MS, NOW_MS + HOUR_MS + 1)
    deliver(view, NOW_MS + HOUR_MS)
    found = counted(view)
    assert (found.overdue, sum(found.days.counts.values())) == (0, 1)


def test_messages_are_counted_by_target_and_nothing_else_is(view: View) -> None:
    take(view, at(0, 0, schedule(NOW_MS)), at(0, 1, schedule(NOW_MS + DAY_MS)), at(1, 0, reject()))
    assert (counted(view).targets, counted(view).targets_at_least) == ({"orders": 2}, False)


def test_what_waits_for_the_end_of_a_pause_is_counted_by_target_and_is_not_overdue(view: View) -> None:
    pending(view, NOON_MS, NOON_MS + 2, NOON_MS + 3, NOW_MS + 1)
    deliver(view, NOON_MS)
    deliver(view, NOW_MS, paused=Paused(frozenset({"orders"})))
    found = counted(view)
    assert found.held == {"orders": Held(2, NOON_MS)}
    assert (found.overdue, sum(found.days.counts.values())) == (0, 1)


def test_what_waits_in_several_lanes_is_added_up() -> None:
    lanes = [{"a": Held(2, 50)}, {"a": Held(3, 40), "b": Held(1, 60)}]
    assert held_together(lanes) == {"a": Held(5, 40), "b": Held(1, 60)}


@pytest.fixture
def hasty(monkeypatch: pytest.MonkeyPatch) -> None:
    """Walks end with their first entries."""
    monkeypatch.setattr(due, "WALK_S", 0.0)
    monkeypatch.setattr(lookup, "SLICE_S", 0.0)


def test_no_more_targets_are_counted_than_there_is_room_for(
    view: View, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(due, "MOST_TARGETS", 1)
    pending(view, NOW_MS, NOW_MS + 1)
    assert (counted(view).targets, counted(view).targets_at_least) == ({"orders": 2}, False)
    monkeypatch.setattr(due, "MOST_TARGETS", 0)
    assert (counted(view).targets, counted(view).targets_at_least) == ({}, True)


def test_a_walk_that_takes_too_long_says_at_least(view: View, hasty: None) -> None:
    pending(view, *(NOW_MS + number for number in range(500)))
    found = counted(view)
    assert (found.seconds.at_least, found.targets_at_least) == (True, True)
    assert sum(found.seconds.counts.values()) < 500


def test_minutes_and_days_are_counted_even_where_the_seconds_are_too_many(view: View, hasty: None) -> None:
    pending(view, NOW_MS - 1, NOW_MS, *(NOW_MS + number for number in range(500)))
    deliver(view, NOW_MS - 1)
    view.pending()
    found = counted(view)
    assert (found.minutes.at_least, found.days.at_least) == (False, False)
    assert sum(found.minutes.counts.values()) == sum(found.days.counts.values()) == 501


def test_pending_is_the_sum_of_what_is_overdue_and_of_the_days(view: View) -> None:
    pending(view, NOW_MS - MINUTE_MS, NOW_MS, NOW_MS + HOUR_MS, NOW_MS + DAY_MS, NOW_MS + 40 * DAY_MS)
    found = counted(view)
    assert view.pending() == found.overdue + sum(found.days.counts.values()) == 5


@pytest.mark.parametrize(
    ("counts", "lines"),
    [
        ([0, 0], ["", ""]),
        ([1, 16], [" █", "▁█"]),
        ([8, 4, 0, 8], ["█  █", "██ █"]),
        ([1000, 1], ["█", "█▁"]),
    ],
    ids=["nothing", "little", "half", "what is not nothing shows"],
)
def test_the_largest_count_fills_its_column(counts: list[int], lines: list[str]) -> None:
    assert bars(counts, height=2) == lines
