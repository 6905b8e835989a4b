"""`delay-if-exists: keep`: what a view takes for a duplicate (docs/wire-format.md), on a real RocksDB."""

from __future__ import annotations

from pathlib import Path

import pytest

from delayline.settings import ClusterSettings
from delayline.settings_versions import SettingsVersions
from delayline.wire import Schedule
from store.arrivals import Arrival
from store.rocks import RocksStore
from store.rows import Expiry
from store.view import View
from tests.unit.view_records import MANY, at, cancel, deliver, offsets, schedule, take

REPLAY_WINDOW_MS = 0
DEDUP_WINDOW_MS = 1_000
SETTINGS = SettingsVersions.of(ClusterSettings(dedup_window_ms=DEDUP_WINDOW_MS))


@pytest.fixture
def view(tmp_path: Path) -> View:
    return opened(tmp_path)


def opened(folder: Path) -> View:
    return View(RocksStore(folder), [0, 1], REPLAY_WINDOW_MS, SETTINGS)


def keep(offset: int, due_ms: int, at_ms: int = 1_000) -> Arrival:
    """A schedule of the id x, unless it is known."""
    asked: Schedule = schedule(due_ms, "x")._replace(keep=True)
    return at(0, offset, asked, at_ms)


def duplicates(view: View) -> list[int]:
    """The offsets of those that the next selection answers so."""
    return [one.at[1] for one in view.select(0, MANY).answers if one.pending.op == "keep"]


def test_the_first_of_an_id_is_a_schedule_like_any_other(view: View) -> None:
    take(view, keep(0, 2_000))
    assert offsets(view.select(3_000, MANY)) == [0]


def test_the_second_changes_nothing_and_is_answered(view: View) -> None:
    take(view, keep(0, 2_000), keep(1, 2_500))
    selection = view.select(3_000, MANY)
    assert offsets(selection) == [0]
    assert [(one.at[1], one.pending.op) for one in selection.answers] == [(1, "keep")]


def test_an_id_that_was_delivered_is_still_known_for_the_window(view: View) -> None:
    take(view, keep(0, 2_000))
    deliver(view, 2_000)
    view.prune()
    take(view, keep(1, 9_000, at_ms=2_999))
    assert duplicates(view) == [1]
    take(view, keep(2, 9_000, at_ms=3_000))
    assert offsets(view.select(9_000, MANY)) == [2]


def test_the_time_is_the_newest_in_the_partition_and_not_the_record_s_own(view: View) -> None:
    take(view, keep(0, 2_000), at(0, 1, schedule(9_000), 3_000), keep(2, 5_000, at_ms=2_500))
    assert duplicates(view) == []


def test_what_other_partitions_have_seen_counts_for_nothing(view: View) -> None:
    take(view, keep(0, 2_000), at(1, 0, schedule(9_000), 5_000), keep(1, 5_000, at_ms=2_500))
    assert duplicates(view) == [1]


def test_a_cancel_makes_an_id_unknown(view: View) -> None:
    take(view, keep(0, 2_000), at(0, 1, cancel("x")), keep(2, 2_500))
    assert offsets(view.select(3_000, MANY)) == [2]


def test_a_duplicate_does_not_make_an_id_known_for_longer(view: View) -> None:
    take(view, keep(0, 2_000), keep(1, 9_000), keep(2, 9_000, at_ms=3_000))
    assert offsets(view.select(9_000, MANY)) == [2]


def test_the_newest_time_outlives_the_process(view: View, tmp_path: Path) -> None:
    take(view, keep(0, 2_000), at(0, 1, schedule(9_000), 3_000))
    view.flush()
    view.close()
    again = opened(tmp_path)
    take(again, keep(2, 5_000, at_ms=2_500))
    assert duplicates(again) == []


def test_an_id_is_kept_as_long_as_it_is_known(view: View) -> None:
    take(view, keep(0, 2_000))
    deliver(view, 60_000)
    view.prune()
    take(view, at(0, 1, schedule(90_000), 2_999))
    assert view.forgetting.expired(10) == []
    take(view, at(0, 2, schedule(90_000), 3_000))
    deliver(view, 60_000)
    assert view.forgetting.expired(10) == [((2_000, 0, 0), Expiry([2_000], [0], ["x"]), True)]


def test_a_written_back_request_overtakes_no_duplicate(view: View) -> None:
    """The duplicate stands between the parent and what was written back: it is as if it were not there."""
    take(view, keep(0, 2_000), keep(1, 9_000), at(0, 2, schedule(5_000, "x", parent=0)))
    assert offsets(view.select(9_000, MANY)) == [2]


def test_a_duplicate_is_not_what_ends_a_chain(view: View) -> None:
    """The cancel behind it is, though the occurrence that it found was delivered: the next one is dropped."""
    take(view, keep(0, 2_000))
    deliver(view, 2_000)
    take(view, keep(1, 9_000), at(0, 2, cancel("x")), at(0, 3, schedule(5_000, "x", parent=0)))
    answers = view.select(9_000, MANY).answers
    assert [(one.pending.op, one.effective) for one in answers] == [("keep", False), ("cancel", True)]
