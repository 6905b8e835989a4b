"""What is due and not delivered, on a real RocksDB."""

from __future__ import annotations

from pathlib import Path

import pytest

from store import overdue
from store.overdue import Overdue, counted, scans
from store.selection import Paused
from store.view import View
from tests.unit.view_records import MANY, at, checkpoint_of, deliver, new_view, schedule, take

DUES_MS = (2_000, 2_500, 3_000, 50_000, 70_000, 130_000, 200_000)


@pytest.fixture
def view(tmp_path: Path) -> View:
    return new_view(tmp_path / "store")


def found(view: View, now_ms: int) -> Overdue:
    return counted(view.snapshot(lambda kv, frontier, _: scans(kv, frontier, now_ms)), now_ms)


@pytest.mark.parametrize(
    ("now_ms", "expected"),
    [
        (1_000, Overdue(0, 0)),
        (2_400, Overdue(0, 0)),
        (2_700, Overdue(1, 200)),
        (59_999, Overdue(3, 57_499)),
        (61_000, Overdue(3, 58_500)),
        (130_500, Overdue(5, 128_000)),
        (500_000, Overdue(6, 497_500)),
    ],
)
def test_what_is_due_behind_the_position_is_overdue_in_whatever_minute(
    view: View, now_ms: int, expected: Overdue
) -> None:
    take(view, *(at(0, offset, schedule(due_ms)) for offset, due_ms in enumerate(DUES_MS)))
    deliver(view, 2_400)
    assert found(view, now_ms) == expected


def test_what_waits_for_the_end_of_a_pause_is_not_overdue(view: View) -> None:
    take(view, *(at(0, offset, schedule(due_ms)) for offset, due_ms in enumerate(DUES_MS)))
    deliver(view, 2_000)
    deliver(view, 3_000, paused=Paused(frozenset({"orders"})))
    assert found(view, 61_000) == Overdue(1, 11_000)


def test_before_anything_is_delivered_all_that_is_due_is_overdue(view: View) -> None:
    take(view, *(at(0, offset, schedule(due_ms)) for offset, due_ms in enumerate(DUES_MS)))
    assert found(view, 131_000) == Overdue(6, 129_000)


def test_what_is_in_flight_is_overdue_until_its_commit_is_known(view: View) -> None:
    take(view, at(0, 0, schedule(5_000)))
    deliver(view, 5_000)
    take(view, at(0, 1, schedule(1_500)), at(0, 2, schedule(5_050)))
    chosen = view.select(5_100, MANY)
    assert found(view, 5_100) == Overdue(2, 3_600)
    view.committed(chosen, checkpoint_of(chosen))
    assert found(view, 5_100) == Overdue(0, 0)


def test_no_more_of_a_minute_is_walked_than_so_much(view: View, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(overdue, "MOST_WALKED", 2)
    take(view, *(at(0, offset, schedule(60_000 + offset)) for offset in range(5)))
    assert found(view, 70_000).rows == 2
    assert found(view, 120_000).rows == 5
