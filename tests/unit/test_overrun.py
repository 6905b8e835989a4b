"""A rewind: what a view makes of a checkpoint whose position is below its own, on a real RocksDB."""

from __future__ import annotations

from pathlib import Path

import pytest

from delayline.times import MINUTE_MS
from store import keys
from store.checkpoint import Frontier
from store.lookup import Lookup, Query
from store.operations import ReplayRequest
from store.overdue import counted, scans
from store.overrun import Overrun, left_of, with_one
from store.selection import Limits
from store.view import View
from tests.unit.view_records import MANY, at, deliver, new_view, offsets, schedule, take
from tests.unit.view_steps import rewind

NOW_MS = 10 * MINUTE_MS
AHEAD_MS = 60 * MINUTE_MS


@pytest.fixture
def view(tmp_path: Path) -> View:
    """By a clock that was ahead it has delivered what was due in half an hour, and what was due by now."""
    view = new_view(tmp_path / "store")
    take(view, at(0, 0, schedule(NOW_MS - 1)), *(at(0, 1 + n, schedule(half_hour(n))) for n in range(3)))
    deliver(view, AHEAD_MS)
    return view


def half_hour(number: int) -> int:
    return NOW_MS + 30 * MINUTE_MS + number


def overdue_in(view: View, now_ms: int) -> int:
    return counted(view.snapshot(lambda kv, frontier, _: scans(kv, frontier, now_ms)), now_ms).rows


def test_it_changes_no_row_s_being_done(view: View) -> None:
    before = view.tip
    after = before.rewound(NOW_MS)
    rows = [(due_ms, 0, offset) for due_ms in (0, NOW_MS, half_hour(0), AHEAD_MS) for offset in (0, 3, 4, 9)]
    assert [after.passed(row) for row in rows] == [before.passed(row) for row in rows]


def test_what_arrives_due_behind_the_position_waits_for_its_time(view: View) -> None:
    rewind(view, NOW_MS)
    take(view, at(0, 4, schedule(NOW_MS + MINUTE_MS)))
    assert offsets(deliver(view, NOW_MS + MINUTE_MS - 1)) == []
    assert offsets(deliver(view, NOW_MS + MINUTE_MS)) == [4]


def test_what_had_come_late_is_late_no_more_if_it_is_not_due(view: View) -> None:
    take(view, at(0, 4, schedule(NOW_MS + MINUTE_MS)), at(0, 5, schedule(NOW_MS - 1)))
    rewind(view, NOW_MS)
    assert offsets(deliver(view, NOW_MS)) == [5]
    assert offsets(deliver(view, NOW_MS + MINUTE_MS)) == [4]


def test_what_was_done_is_passed_over(view: View) -> None:
    rewind(view, NOW_MS)
    take(view, at(0, 4, schedule(half_hour(1))))
    assert offsets(deliver(view, AHEAD_MS + MINUTE_MS)) == [4]


def test_so_many_rows_are_passed_in_one_selection(view: View) -> None:
    rewind(view, NOW_MS)
    selection = deliver(view, AHEAD_MS, Limits(1_000, 1 << 20, passed=2))
    assert (selection.frontier.position, selection.size) == ((half_hour(1), 0, 2), 1)


def test_fewer_leave_the_position_where_it_is(view: View) -> None:
    """Else what arrives below it would be late, and not be so any more once the selection is given up."""
    rewind(view, NOW_MS)
    selection = view.select(half_hour(1), MANY)
    assert (selection.frontier.position, selection.size) == ((NOW_MS, 0, 0), 0)


def test_an_overrun_goes_once_the_position_and_delivered_up_to_have_reached_it(view: View) -> None:
    rewind(view, NOW_MS)
    take(view, at(0, 4, schedule(AHEAD_MS)), at(0, 5, schedule(AHEAD_MS + 1)))
    kept = len(deliver(view, AHEAD_MS - 1).frontier.overruns)
    assert (kept, deliver(view, AHEAD_MS).frontier.overruns) == (1, ())


def test_what_was_done_is_not_pending(view: View) -> None:
    rewind(view, NOW_MS)
    take(view, at(0, 4, schedule(half_hour(0))), at(0, 5, schedule(NOW_MS + 1)))
    assert view.pending() == 2
    deliver(view, NOW_MS + 1)
    assert (view.pending(), overdue_in(view, AHEAD_MS)) == (1, 1)


def test_what_was_done_is_not_listed(view: View) -> None:
    rewind(view, NOW_MS)
    take(view, at(0, 4, schedule(half_hour(0))))
    page = Lookup(view).page(Query(), None, 10)
    assert ([key[2] for key, _ in page.rows], page.total and page.total.count) == ([4], 1)


def test_what_was_done_falls_due_no_more(view: View) -> None:
    rewind(view, NOW_MS)
    take(view, at(0, 4, schedule(half_hour(0))))
    _, _, due = Lookup(view).due(NOW_MS)
    assert (sum(due.days.counts.values()), due.targets) == (1, {"orders": 1})


def test_a_store_that_reads_the_log_again_counts_none_of_it(tmp_path: Path, view: View) -> None:
    checkpoint = rewind(view, NOW_MS)
    anew = new_view(tmp_path / "anew")
    anew.align(checkpoint)
    take(anew, *(at(0, 1 + n, schedule(half_hour(n))) for n in range(3)), at(0, 4, schedule(half_hour(0))))
    assert (anew.pending(), offsets(deliver(anew, AHEAD_MS))) == (1, [4])


def test_a_follower_that_knew_none_of_it_counts_anew(tmp_path: Path, view: View) -> None:
    checkpoint = rewind(view, NOW_MS)
    behind = new_view(tmp_path / "behind")
    take(behind, *(at(0, 1 + n, schedule(half_hour(n))) for n in range(3)), at(0, 4, schedule(half_hour(0))))
    behind.align(checkpoint)
    assert (behind.pending(), offsets(deliver(behind, AHEAD_MS))) == (1, [4])


def test_pruning_begins_at_the_position_again(view: View) -> None:
    view.prune()
    rewind(view, NOW_MS)
    take(view, at(0, 4, schedule(NOW_MS + 1)))
    deliver(view, AHEAD_MS)
    take(view, at(0, 5, schedule(AHEAD_MS + 1)))
    deliver(view, AHEAD_MS + MINUTE_MS)
    view.prune()
    rows = view.snapshot(lambda kv, *_: kv.scan(keys.ROW, keys.end_of(keys.ROW)))
    assert list(rows) == []


def test_what_was_pruned_by_a_clock_that_was_ahead_is_not_replayed(view: View) -> None:
    view.prune()
    rewind(view, NOW_MS)
    chosen = view.select(NOW_MS, MANY, ReplayRequest(1, NOW_MS - 500, NOW_MS))
    assert chosen.frontier.operation.refused is not None


def test_an_overrun_that_reaches_no_further_than_a_later_one_is_dropped() -> None:
    later = Overrun((20, 0, 0), {0: 2}, 30)
    overruns = with_one(
        (Overrun((20, 0, 0), {0: 1}, 40), Overrun((10, 0, 0), {0: 1}, 10)), later, frozenset()
    )
    assert overruns == (Overrun((20, 0, 0), {0: 2}, 40),)


def test_what_two_overruns_have_done_stays_done() -> None:
    first = Frontier((100, 0, 5), {0: 5}, {}, {}, 100).rewound(10)
    moved = Frontier((50, 0, 7), {0: 8}, {}, {}, 50, overruns=first.overruns).rewound(20)
    done = {key: moved.passed(key) for key in ((90, 0, 4), (90, 0, 6), (40, 0, 6), (60, 0, 6))}
    assert done == {(90, 0, 4): True, (90, 0, 6): False, (40, 0, 6): True, (60, 0, 6): False}


def test_what_the_position_has_reached_is_left_out() -> None:
    overrun = Overrun((20, 0, 0), {0: 1}, 30)
    reached = [left_of((overrun,), (20, 0, 0), up_to_ms, frozenset()) for up_to_ms in (30, 29)]
    assert reached == [(), (overrun,)]


def test_a_partition_whose_newest_timestamp_is_above_a_limit_is_named(view: View) -> None:
    take(view, at(1, 0, schedule(NOW_MS), AHEAD_MS))
    assert view.ahead_of(NOW_MS) == {1: AHEAD_MS}
