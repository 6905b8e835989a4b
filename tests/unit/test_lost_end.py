"""An earlier checkpoint, to which a view aligns since the checkpoint topic has lost its end (rule 6), on a
real RocksDB.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any, Final

import pytest

from delayline.times import MINUTE_MS
from store import keys
from store.checkpoint import Checkpoint
from store.pending import DAY_MINUTES
from store.prefetch import Prefetched, prefetch
from store.selection import Paused
from store.view import View
from tests.unit.view_records import (
    MANY,
    at,
    cancel,
    checkpoint_of,
    deliver,
    new_view,
    offsets,
    schedule,
    take,
)
from tests.unit.view_steps import rewind

DAY_MS: Final = DAY_MINUTES * MINUTE_MS
BEGIN_MS: Final = 10 * DAY_MS
NOON_MS: Final = BEGIN_MS + DAY_MS // 2
ORDERS = Paused(frozenset({"orders"}))


@pytest.fixture
def view(tmp_path: Path) -> View:
    return new_view(tmp_path / "store")


def checkpoint(view: View, now_ms: int) -> Checkpoint:
    """What a delivery leads to."""
    return checkpoint_of(deliver(view, now_ms))


def stored(view: View) -> list[int]:
    """The offsets of all rows."""
    rows = view.snapshot(lambda kv, *_: kv.scan(keys.ROW, keys.end_of(keys.ROW)))
    return [keys.timed(raw_key)[2] for raw_key, _ in rows]


def test_what_was_pruned_since_is_not_pending(view: View) -> None:
    before = checkpoint(view, BEGIN_MS)
    take(view, at(0, 0, schedule(BEGIN_MS + 1)), at(0, 1, schedule(NOON_MS)))
    deliver(view, BEGIN_MS + 5_000)
    view.prune()
    view.align(before)
    assert (view.pending(), stored(view)) == (1, [1])


def test_nor_is_it_after_a_day(view: View) -> None:
    before = checkpoint(view, BEGIN_MS - DAY_MS)
    take(view, at(0, 0, schedule(BEGIN_MS + 1)), at(0, 1, schedule(NOON_MS)))
    deliver(view, NOON_MS)
    view.prune()
    view.align(before)
    assert (view.pending(), stored(view)) == (1, [1])


def test_nor_is_what_a_clock_that_was_ahead_by_a_day_has_pruned(view: View) -> None:
    take(view, at(0, 0, schedule(BEGIN_MS + 1)), at(0, 1, schedule(NOON_MS)))
    deliver(view, NOON_MS)
    view.prune()
    rewind(view, BEGIN_MS - DAY_MS)
    assert (view.pending(), stored(view)) == (0, [1])


@pytest.mark.parametrize("restarts", [False, True])
def test_a_cancel_of_what_was_pruned_since_takes_nothing_from_the_count(
    tmp_path: Path, *, restarts: bool
) -> None:
    view = new_view(tmp_path)
    before = checkpoint(view, BEGIN_MS)
    take(view, at(0, 0, schedule(BEGIN_MS + 1, "x")), at(0, 1, schedule(BEGIN_MS + 2)))
    deliver(view, BEGIN_MS + 1_002)
    view.prune()
    view.align(before)
    if restarts:
        view.close()
        view = new_view(tmp_path)
    take(view, at(0, 2, cancel("x")))
    assert (view.pending(), stored(view)) == (1, [1])
    view.close()


def test_one_of_what_has_come_since_does(view: View) -> None:
    before = checkpoint(view, BEGIN_MS)
    take(view, at(0, 0, schedule(NOON_MS)))
    deliver(view, NOON_MS + 5_000)
    view.prune()
    view.align(before)
    for begin in (1, 4):
        take(view, at(0, begin, schedule(BEGIN_MS + 1, "x")), at(0, begin + 1, schedule(BEGIN_MS + 1)))
        take(view, at(0, begin + 2, cancel("x")))
    take(view, at(0, 7, schedule(BEGIN_MS + 1, "y")), at(0, 8, cancel("y")))
    assert (view.pending(), stored(view)) == (2, [2, 5])


def test_what_comes_then_is_pruned_in_its_time(view: View) -> None:
    before = checkpoint(view, BEGIN_MS)
    take(view, at(0, 0, schedule(NOON_MS)))
    deliver(view, NOON_MS + 5_000)
    view.prune()
    view.align(before)
    take(view, at(0, 1, schedule(BEGIN_MS + 1)))
    deliver(view, NOON_MS + 5_000)
    view.prune()
    assert stored(view) == []


def test_what_a_clock_that_was_ahead_had_done_is_pending_again_where_nobody_knows(view: View) -> None:
    take(view, at(0, 0, schedule(BEGIN_MS - 1)), at(0, 1, schedule(NOON_MS)))
    before = checkpoint(view, BEGIN_MS)
    deliver(view, NOON_MS)
    rewind(view, BEGIN_MS - MINUTE_MS)
    view.align(before)
    assert (view.pending(), offsets(view.select(NOON_MS, MANY))) == (1, [1])


def test_what_was_held_when_it_was_pruned_past_is_kept_where_it_is_not_done(view: View) -> None:
    take(view, at(0, 0, schedule(BEGIN_MS)), at(0, 1, schedule(NOON_MS)))
    before = checkpoint(view, BEGIN_MS)
    for now_ms in (NOON_MS, NOON_MS + 5_000):
        deliver(view, now_ms, paused=ORDERS)
    view.prune()
    view.align(before)
    view.prune()
    assert offsets(deliver(view, NOON_MS)) == [1]


def test_a_count_that_ingest_has_read_before_is_read_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    view = new_view(tmp_path / "store")
    take(view, at(0, 0, schedule(NOON_MS)))
    deliver(view, NOON_MS)
    view.close()
    again = new_view(tmp_path / "store")

    def known_then_back(*arguments: Any) -> Prefetched:
        monkeypatch.undo()
        known = prefetch(*arguments)
        rewind(again, BEGIN_MS)
        return known

    monkeypatch.setattr("store.view.prefetch", known_then_back)
    take(again, at(0, 1, schedule(NOON_MS + 1)))
    assert again.pending() == 1
    again.close()
