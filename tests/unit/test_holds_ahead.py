"""Pauses and clocks that were ahead: what is held, and what is done, once a position was rewound."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from delayline.times import MINUTE_MS
from store import keys
from store.holds import Hold, with_pauses
from store.keys import RowKey
from store.operations import ReplayRequest
from store.overrun import Overrun
from store.selection import NOTHING_PAUSED, Limits, Paused
from store.view import View
from tests.unit.view_records import MANY, at, cancel, checkpoint_of, deliver, new_view, schedule, take
from tests.unit.view_steps import carried, rewind

ORDERS = Paused(frozenset({"orders"}))
NOW_MS = 10 * MINUTE_MS
SOON_MS = NOW_MS + MINUTE_MS
HALF_HOUR_MS = NOW_MS + 30 * MINUTE_MS
AHEAD_MS = NOW_MS + 60 * MINUTE_MS
LATER_MS = AHEAD_MS + 60 * MINUTE_MS


@pytest.fixture
def view(tmp_path: Path) -> Iterator[View]:
    view = new_view(tmp_path / "view")
    yield view
    view.close()


def ahead(view: View, paused: Paused = NOTHING_PAUSED) -> None:
    """By a clock that was ahead it comes to what is due in half an hour; then the position is rewound."""
    take(view, at(0, 0, schedule(HALF_HOUR_MS, "x")), at(0, 1, schedule(AHEAD_MS - 1, target="bills")))
    deliver(view, AHEAD_MS, paused=paused)
    rewind(view, NOW_MS)


class TestPausedAfterIt:
    def test_what_falls_due_is_held_and_not_carried(self, view: View) -> None:
        ahead(view)
        take(view, at(0, 2, schedule(SOON_MS)))
        assert carried(deliver(view, SOON_MS, paused=ORDERS)) == []

    def test_it_comes_once_the_pause_is_over(self, view: View) -> None:
        ahead(view)
        take(view, at(0, 2, schedule(SOON_MS)))
        deliver(view, SOON_MS, paused=ORDERS)
        assert carried(deliver(view, SOON_MS + 1)) == [2]

    @pytest.mark.parametrize("resumed_ms", [SOON_MS, LATER_MS])
    def test_what_was_done_by_then_stays_done(self, view: View, resumed_ms: int) -> None:
        ahead(view)
        take(view, at(0, 2, schedule(HALF_HOUR_MS + 1)))
        deliver(view, SOON_MS, paused=ORDERS)
        deliver(view, resumed_ms, paused=ORDERS)
        assert [carried(deliver(view, LATER_MS)) for _ in range(2)] == [[2], []]

    def test_it_stays_done_where_the_position_has_come_as_far_and_steps_back_again(self, view: View) -> None:
        ahead(view)
        take(view, at(0, 2, schedule(HALF_HOUR_MS + 1)), at(0, 3, schedule(LATER_MS, target="bills")))
        deliver(view, SOON_MS, paused=ORDERS)
        deliver(view, LATER_MS, paused=ORDERS)
        rewind(view, SOON_MS)
        assert carried(deliver(view, LATER_MS)) == [2]

    def test_an_overrun_is_kept_for_as_long_as_a_hold_rests_on_it(self, view: View) -> None:
        ahead(view)
        take(view, at(0, 2, schedule(LATER_MS)))
        kept = len(deliver(view, LATER_MS, paused=ORDERS).frontier.overruns)
        assert (kept, deliver(view, LATER_MS + 1).frontier.overruns) == (1, ())

    def test_a_cancel_of_what_was_done_is_too_late(self, view: View) -> None:
        ahead(view)
        deliver(view, SOON_MS, paused=ORDERS)
        take(view, at(0, 2, cancel("x")))
        assert [answer.effective for answer in deliver(view, SOON_MS, paused=ORDERS).answers] == [False]

    def test_a_replay_carries_what_was_done(self, view: View) -> None:
        take(view, at(0, 0, schedule(AHEAD_MS)))
        deliver(view, AHEAD_MS)
        rewind(view, NOW_MS)
        take(view, at(0, 1, schedule(AHEAD_MS + 1)))
        deliver(view, AHEAD_MS + 1, paused=ORDERS)
        chosen = view.select(AHEAD_MS + 2, MANY, ReplayRequest(1, AHEAD_MS, AHEAD_MS + 2), paused=ORDERS)
        assert [key[2] for key, _ in chosen.replayed] == [0]


class TestPausedBeforeIt:
    def test_what_was_passed_is_held_and_comes_in_its_time(self, view: View) -> None:
        ahead(view, ORDERS)
        assert carried(deliver(view, HALF_HOUR_MS - 1)) == []
        assert carried(deliver(view, HALF_HOUR_MS)) == [0]

    def test_it_is_waited_for_once_the_pause_is_over(self, view: View) -> None:
        ahead(view, ORDERS)
        deliver(view, SOON_MS)
        assert view.wake_at() == HALF_HOUR_MS

    def test_one_that_finds_nothing_of_its_own_does_not_keep_another_one_back(self, view: View) -> None:
        take(view, at(0, 0, schedule(AHEAD_MS)), at(0, 1, schedule(AHEAD_MS, target="bills")))
        deliver(view, AHEAD_MS, paused=Paused(frozenset({"orders", "bills"})))
        rewind(view, NOW_MS)
        take(view, at(0, 2, schedule(SOON_MS)))
        little = Limits(1_000, 4)
        assert [carried(deliver(view, SOON_MS, little)) for _ in range(2)] == [[], [2]]

    def test_what_falls_due_before_it_is_held_too(self, view: View) -> None:
        deliver(view, NOW_MS - 1)
        take(view, at(0, 0, schedule(AHEAD_MS - 1, target="bills")))
        deliver(view, AHEAD_MS)
        take(view, at(0, 1, schedule(AHEAD_MS + 1)))
        deliver(view, AHEAD_MS + 2, paused=ORDERS)
        rewind(view, NOW_MS)
        take(view, at(0, 2, schedule(SOON_MS)))
        assert carried(deliver(view, SOON_MS, paused=ORDERS)) == []
        assert carried(deliver(view, SOON_MS + 1)) == [2]
        assert carried(deliver(view, LATER_MS)) == [1]

    def test_what_falls_due_where_a_cursor_was_by_that_clock_is_held(self, view: View) -> None:
        day = Limits(1_000, 1 << 20, carried_ms=MINUTE_MS)
        take(view, at(0, 0, schedule(HALF_HOUR_MS)), at(0, 1, schedule(AHEAD_MS, target="bills")))
        deliver(view, AHEAD_MS, day, ORDERS)
        assert carried(deliver(view, AHEAD_MS, day, ORDERS)) == [0]
        rewind(view, NOW_MS)
        take(view, at(0, 2, schedule(SOON_MS)))
        assert carried(deliver(view, SOON_MS, day, ORDERS)) == []
        assert carried(deliver(view, SOON_MS + 1)) == [2]


class TestHolds:
    def test_what_a_hold_that_has_ended_covers_no_other_one_does(self) -> None:
        ended = Hold("a", (1, 0, 0), (1, 0, 0), (9, 0, 0))
        assert with_pauses((ended,), frozenset({"a"}), (5, 0, 0), (), 5)[1:] == (
            Hold("a", (9, 0, 0), (9, 0, 0)),
        )

    @pytest.mark.parametrize(("number", "last"), [(1, (5, 0, 0)), (2, (9, 0, 0))])
    def test_it_ends_behind_what_overruns_have_passed_since(self, number: int, last: RowKey) -> None:
        hold = Hold("a", (1, 0, 0), (1, 0, 0), since=1)
        (ended,) = with_pauses((hold,), frozenset(), (5, 0, 0), (Overrun((9, 0, 0), {0: 9}, 9, number),), 5)
        assert ended.last == last

    def test_what_lies_before_a_cursor_that_was_ahead_is_a_hold_of_its_own(self) -> None:
        hold = Hold("a", (1, 0, 0), (8, 0, 0))
        begun = with_pauses((hold,), frozenset({"a"}), (5, 0, 0), (Overrun((9, 0, 0), {0: 9}, 9, 3),), 5)
        assert begun == (Hold("a", (5, 0, 0), (5, 0, 0), (8, 0, 0), since=3), hold)


def test_what_was_done_before_a_hold_is_pruned_and_its_id_forgotten(view: View) -> None:
    ahead(view)
    deliver(view, NOW_MS + 1, paused=ORDERS)
    take(view, at(0, 2, schedule(LATER_MS, target="bills"), timestamp_ms=LATER_MS))
    deliver(view, LATER_MS + 2_000, paused=ORDERS)
    view.prune()
    assert view.forgetting.collect(view.forgetting.expired(100), {0: 3})
    left = [list(view._kv.scan(space, keys.end_of(space))) for space in (keys.HELD, keys.INDEX)]
    assert left == [[], []]


def test_what_was_parked_before_a_hold_is_carried_by_no_replay(view: View) -> None:
    parked_ms = AHEAD_MS - 500
    take(view, at(0, 0, schedule(parked_ms)), at(0, 1, schedule(AHEAD_MS - 1, target="bills")))
    deliver(view, AHEAD_MS)
    take(view, at(0, 2, schedule(AHEAD_MS + 1, parent=0)._replace(scheduled_for_ms=parked_ms)))
    rewind(view, NOW_MS)
    deliver(view, NOW_MS + 1, paused=ORDERS)
    take(view, at(0, 3, schedule(AHEAD_MS + 2, target="bills")))
    deliver(view, AHEAD_MS + 3, paused=ORDERS)
    stands_still = Paused(ORDERS.targets, replay=True)
    asked = ReplayRequest(1, parked_ms, parked_ms + 1)
    chosen = view.select(AHEAD_MS + 4, MANY, asked, paused=stands_still)
    view.committed(chosen, checkpoint_of(chosen))
    take(view, at(0, 4, schedule(LATER_MS, target="bills"), timestamp_ms=LATER_MS))
    deliver(view, LATER_MS + 2_000, paused=stands_still)
    view.prune()
    resumed = deliver(view, LATER_MS + 2_001)
    assert [key[2] for key, _ in (*resumed.replayed, *resumed.released)] == [2]
