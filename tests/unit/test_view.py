"""The view and its selections (rules 1 to 4 and 9), on a real RocksDB."""

from __future__ import annotations

from pathlib import Path

import msgspec
import pytest

from delayline.recurrence import Recurrence
from delayline.wire import Request, Schedule
from store import keys
from store.operations import ReplayRequest
from store.rows import Expiry
from store.selection import Limits, Paused
from store.view import View
from tests.unit.view_records import (
    MANY,
    at,
    cancel,
    checkpoint_of,
    deliver,
    new_view,
    offsets,
    reject,
    reschedule,
    schedule,
    take,
)


@pytest.fixture
def view(tmp_path: Path) -> View:
    return new_view(tmp_path / "store")


def outcomes(view: View, now_ms: int = 5_000) -> list[tuple[int, bool]]:
    """Offset of each control answered by the next selection, and whether it was effective."""
    return [(answer.at[1], answer.effective) for answer in deliver(view, now_ms).answers]


class TestSelection:
    def test_rows_come_in_order_of_due_time_then_partition_then_offset(self, view: View) -> None:
        take(view, at(1, 0, schedule(2_000)), at(0, 0, schedule(2_000)), at(0, 1, schedule(1_500)))
        assert [key for key, _ in view.select(3_000, MANY).due] == [
            (1_500, 0, 1),
            (2_000, 0, 0),
            (2_000, 1, 0),
        ]

    def test_a_row_is_not_selected_before_its_time(self, view: View) -> None:
        take(view, at(0, 0, schedule(2_000)))
        assert (view.select(1_999, MANY).size, view.select(2_000, MANY).size) == (0, 1)

    def test_a_selected_row_is_not_selected_again_while_it_is_in_flight(self, view: View) -> None:
        take(view, at(0, 0, schedule(2_000)))
        view.select(3_000, MANY)
        assert view.select(3_000, MANY).size == 0

    def test_what_was_in_flight_is_selected_again_once_it_is_given_up(self, view: View) -> None:
        take(view, at(0, 0, schedule(2_000)))
        view.select(3_000, MANY)
        view.abandon()
        assert offsets(view.select(3_000, MANY)) == [0]

    def test_a_selection_takes_no_more_than_its_limit(self, view: View) -> None:
        take(view, *(at(0, offset, schedule(2_000)) for offset in range(5)))
        assert offsets(view.select(3_000, Limits(2, 1 << 20))) == [0, 1]

    def test_a_selection_takes_one_row_however_large(self, view: View) -> None:
        take(view, at(0, 0, schedule(2_000)), at(0, 1, schedule(2_000)))
        assert offsets(view.select(3_000, Limits(10, 1))) == [0]

    def test_delivered_up_to_is_the_time_of_the_selection_if_it_took_all(self, view: View) -> None:
        take(view, at(0, 0, schedule(2_000)))
        assert view.select(3_000, MANY).frontier.delivered_up_to_ms == 3_000

    def test_delivered_up_to_is_just_below_the_position_if_more_is_due(self, view: View) -> None:
        take(view, at(0, 0, schedule(2_000)), at(0, 1, schedule(2_000)))
        assert view.select(3_000, Limits(1, 1)).frontier.delivered_up_to_ms == 1_999

    def test_what_takes_in_is_told_whether_more_is_due_than_a_selection_takes(self, view: View) -> None:
        take(view, *(at(0, n, schedule(2_000 + n)) for n in range(3)))
        two = Limits(2, 1 << 20)
        assert [(view.select(3_000, two).size, view.due_first.is_left) for _ in range(2)] == [
            (2, True),
            (1, False),
        ]

    def test_who_leads_no_more_leaves_nothing(self, view: View) -> None:
        take(view, *(at(0, n, schedule(2_000 + n)) for n in range(2)))
        view.select(3_000, Limits(1, 1 << 20))
        view.abandon()
        assert not view.due_first.is_left

    def test_in_a_pause_of_the_cluster_nothing_is_left_though_answers_go_on(self, view: View) -> None:
        take(view, *(at(0, n, schedule(2_000 + n)) for n in range(2)), at(0, 2, cancel("unknown")))
        chosen = view.select(3_000, Limits(1, 1 << 20), paused=Paused(everything=True))
        assert (chosen.size, view.due_first.is_left) == (1, False)

    def test_what_waits_for_what_is_to_be_taken_in_keeps_nobody_from_that(self, view: View) -> None:
        take(view, at(0, 0, schedule(2_000)), at(0, 1, schedule(2_000)))
        chosen = view.select(3_000, Limits(1, 1 << 20))
        assert chosen.leaves_due(3_000)
        waiting = [msgspec.structs.replace(chosen, **{name: {0: 9}}) for name in ("waits_for", "full")]
        assert not any(one.leaves_due(3_000) for one in waiting)


class TestLateRows:
    def test_late_rows_that_are_left_are_due(self, view: View) -> None:
        take(view, at(0, 0, schedule(2_000)))
        deliver(view, 3_000)
        take(view, *(at(0, n, schedule(1_000)) for n in range(1, 4)))
        two = Limits(2, 1 << 20)
        assert [(view.select(3_001, two).size, view.due_first.is_left) for _ in range(2)] == [
            (2, True),
            (1, False),
        ]

    def test_a_row_that_arrives_at_or_below_the_position_is_late(self, view: View) -> None:
        take(view, at(0, 0, schedule(2_000)))
        deliver(view, 3_000)
        take(view, at(0, 1, schedule(1_900)))
        selection = view.select(3_000, MANY)
        assert ([key[2] for key, _ in selection.late], selection.due) == ([1], [])

    def test_a_row_behind_a_selection_in_flight_is_late(self, view: View) -> None:
        take(view, at(0, 0, schedule(2_000)))
        view.select(3_000, MANY)
        take(view, at(0, 1, schedule(1_900)))
        assert [key[2] for key, _ in view.select(3_000, MANY).late] == [1]

    def test_late_rows_that_do_not_all_fit_hold_applied_back_and_leave_the_position(self, view: View) -> None:
        take(view, at(0, 0, schedule(2_000)))
        position = deliver(view, 3_000).frontier.position
        take(view, *(at(0, offset, schedule(1_500)) for offset in (1, 2, 3)), at(0, 4, schedule(2_500)))
        selection = view.select(3_000, Limits(2, 1 << 20))
        assert offsets(selection) == [1, 2]
        assert selection.frontier.position == position
        assert (selection.frontier.applied[0], selection.frontier.seen[0]) == (3, 5)

    def test_late_rows_go_out_in_key_order(self, view: View) -> None:
        take(view, at(0, 0, schedule(2_000)))
        deliver(view, 3_000)
        take(view, at(0, 1, schedule(1_900)), at(0, 2, schedule(1_100)))
        assert offsets(view.select(3_000, MANY)) == [2, 1]

    def test_a_late_row_in_flight_is_not_taken_twice(self, view: View) -> None:
        take(view, at(0, 0, schedule(2_000)))
        deliver(view, 3_000)
        take(view, at(0, 1, schedule(1_500)))
        view.select(3_000, MANY)
        assert view.select(3_000, MANY).size == 0


class TestControls:
    def test_a_later_cancel_does_not_take_the_place_of_one_that_was_answered(self, view: View) -> None:
        """Two cancels overtake a written-back request; a node that learns of the first one's answer before it
        reads that request must answer the second as the leader would that has read it first.
        """
        take(view, at(0, 0, schedule(9_000, "x")), at(0, 1, reschedule("x", 8_000)))
        for arrivals in ((), (at(0, 2, cancel("x")),)):
            take(view, *arrivals)
            told = checkpoint_of(view.select(2_000, MANY))
            view.abandon()
            view.align(told)
        take(view, at(0, 3, cancel("x")), at(0, 4, schedule(8_000, "x", parent=1)))
        assert [(a.at[1], a.effective) for a in view.select(2_000, MANY).answers] == [(3, False)]

    def test_a_cancel_before_the_selection_removes_the_row(self, view: View) -> None:
        take(view, at(0, 0, schedule(2_000, "x")), at(0, 1, cancel("x")))
        selection = view.select(3_000, MANY)
        assert (offsets(selection), [a.effective for a in selection.answers]) == ([], [True])

    def test_a_cancel_of_a_delivered_row_is_too_late(self, view: View) -> None:
        take(view, at(0, 0, schedule(2_000, "x")))
        deliver(view, 3_000)
        take(view, at(0, 1, cancel("x")))
        assert outcomes(view) == [(1, False)]

    def test_a_cancel_of_a_row_in_flight_is_too_late(self, view: View) -> None:
        take(view, at(0, 0, schedule(2_000, "x")))
        view.select(3_000, MANY)
        take(view, at(0, 1, cancel("x")))
        assert [a.effective for a in view.select(3_000, MANY).answers] == [False]

    def test_a_cancel_of_a_row_whose_transaction_was_given_up_applies(self, view: View) -> None:
        take(view, at(0, 0, schedule(2_000, "x")))
        view.select(3_000, MANY)
        take(view, at(0, 1, cancel("x")))
        view.abandon()
        assert outcomes(view) == [(1, True)]

    def test_a_cancel_of_nothing_says_so(self, view: View) -> None:
        take(view, at(0, 0, cancel("x")))
        (answer,) = view.select(3_000, MANY).answers
        assert answer.pending.removed is None

    def test_a_schedule_replaces_a_pending_one_of_its_id(self, view: View) -> None:
        take(view, at(0, 0, schedule(2_000, "x")), at(0, 1, schedule(2_500, "x")))
        selection = view.select(3_000, MANY)
        assert (offsets(selection), [a.effective for a in selection.answers]) == ([1], [True])

    def test_answers_beyond_the_limit_make_a_transaction_of_their_own(self, view: View) -> None:
        take(view, at(0, 0, schedule(2_000)), *(at(0, o, cancel(f"x{o}")) for o in range(1, 5)))
        selection = view.select(3_000, Limits(3, 1 << 20))
        assert (offsets(selection), len(selection.answers)) == ([], 3)
        assert (selection.frontier.seen[0], selection.frontier.applied[0]) == (4, 0)
        assert offsets(view.select(3_000, Limits(3, 1 << 20))) == [0]

    def test_ids_in_other_partitions_are_other_ids(self, view: View) -> None:
        take(view, at(0, 0, schedule(2_000, "x")), at(1, 0, cancel("x")))
        assert offsets(view.select(3_000, MANY)) == [0]

    def test_a_reject_leaves_the_row_of_its_id_alone(self, view: View) -> None:
        take(view, at(0, 0, schedule(2_000, "x")), at(0, 1, reject()))
        assert offsets(view.select(3_000, MANY)) == [1, 0]


class TestReschedules:
    def test_a_reschedule_of_a_pending_row_moves_it(self, view: View) -> None:
        take(view, at(0, 0, schedule(9_000, "x")), at(0, 1, reschedule("x", 8_000)))
        (resolution,) = view.select(3_000, MANY).resolutions.values()
        assert resolution.outcome == "rescheduled"

    def test_a_reschedule_of_what_is_delivered_is_too_late(self, view: View) -> None:
        take(view, at(0, 0, schedule(2_000, "x")))
        view.select(3_000, MANY)
        take(view, at(0, 1, reschedule("x", 8_000)))
        (resolution,) = view.select(3_000, MANY).resolutions.values()
        assert resolution.outcome == "too-late"

    def test_the_written_back_request_takes_the_old_row_s_place_and_needs_no_answer(self, view: View) -> None:
        take(view, at(0, 0, schedule(9_000, "x")), at(0, 1, reschedule("x", 2_500)))
        deliver(view, 2_000)
        take(view, at(0, 2, schedule(2_500, "x", parent=1)))
        selection = view.select(10_000, MANY)
        assert (offsets(selection), selection.answers) == ([2], [])

    @pytest.mark.parametrize("newer", [schedule(9_500, "x"), cancel("x")], ids=["schedule", "cancel"])
    def test_a_written_back_request_gives_way_to_what_came_after_its_parent(
        self, view: View, newer: Request
    ) -> None:
        take(view, at(0, 0, schedule(9_000, "x")), at(0, 1, reschedule("x", 2_500)), at(0, 2, newer))
        take(view, at(0, 3, schedule(2_500, "x", parent=1)))
        assert 3 not in offsets(view.select(10_000, MANY))


class TestAlignment:
    def test_a_follower_counts_what_the_leader_delivered_as_done(self, view: View, tmp_path: Path) -> None:
        follower = new_view(tmp_path / "follower")
        for each in (view, follower):
            take(each, at(0, 0, schedule(2_000)))
        follower.align(checkpoint_of(deliver(view, 3_000)))
        assert follower.select(3_000, MANY).size == 0

    def test_what_the_leader_had_not_applied_is_late_for_the_follower(
        self, view: View, tmp_path: Path
    ) -> None:
        follower = new_view(tmp_path / "follower")
        take(view, at(0, 0, schedule(2_000)))
        take(follower, at(0, 0, schedule(2_000)), at(0, 1, schedule(1_500)))
        follower.align(checkpoint_of(deliver(view, 3_000)))
        assert offsets(follower.select(3_000, MANY)) == [1]

    def test_a_late_entry_taken_by_the_leader_goes_from_the_follower(
        self, view: View, tmp_path: Path
    ) -> None:
        follower = new_view(tmp_path / "follower")
        for each in (view, follower):
            take(each, at(0, 0, schedule(2_000)))
        follower.align(checkpoint_of(deliver(view, 3_000)))
        for each in (view, follower):
            take(each, at(0, 1, schedule(1_500)))
        follower.align(checkpoint_of(deliver(view, 3_100)))
        assert follower.select(3_200, MANY).size == 0

    def test_records_read_again_that_the_checkpoint_covers_are_done(self, view: View, tmp_path: Path) -> None:
        rebuilt = new_view(tmp_path / "rebuilt")
        take(view, at(0, 0, schedule(2_000)))
        rebuilt.align(checkpoint_of(deliver(view, 3_000)))
        take(rebuilt, at(0, 0, schedule(2_000)))
        assert rebuilt.select(3_000, MANY).size == 0

    def test_records_below_applied_are_not_taken_again(self, view: View) -> None:
        take(view, at(0, 0, schedule(2_000)))
        take(view, at(0, 0, schedule(2_000)))
        assert view.pending() == 1


class TestPruning:
    def test_a_delivered_row_goes_when_it_has_left_the_replay_window(self, view: View) -> None:
        take(view, at(0, 0, schedule(2_000, "x")), at(0, 1, schedule(99_000), timestamp_ms=2_000))
        deliver(view, 2_500)
        view.prune()
        assert view.forgetting.expired(10) == []
        deliver(view, 3_500)
        view.prune()
        assert view.forgetting.expired(10) == [((2_000, 0, 0), Expiry([2_000], [0], ["x"]), True)]

    def test_an_id_outlives_its_row_until_the_log_s_end_is_read(self, view: View) -> None:
        take(view, at(0, 0, schedule(2_000, "x")), at(0, 1, schedule(99_000), timestamp_ms=2_000))
        deliver(view, 9_000)
        view.prune()
        expired = view.forgetting.expired(10)
        assert not view.forgetting.collect(expired, {0: 5})
        view.apply([], {0: 5})
        assert view.forgetting.collect(expired, {0: 5})
        take(view, at(0, 5, cancel("x")))
        (answer,) = view.select(9_000, MANY).answers
        assert answer.pending.removed is None

    def test_an_id_that_was_scheduled_again_stays(self, view: View) -> None:
        take(view, at(0, 0, schedule(2_000, "x")))
        deliver(view, 9_000)
        take(view, at(0, 1, schedule(99_000, "x"), timestamp_ms=9_000))
        deliver(view, 9_100)
        view.prune()
        assert view.forgetting.collect(view.forgetting.expired(10), {0: 2})
        take(view, at(0, 2, cancel("x")))
        assert outcomes(view) == [(2, True)]

    def test_pruning_ends_below_the_smallest_late_row(self, view: View) -> None:
        take(view, at(0, 0, schedule(5_000)))
        deliver(view, 9_000)
        take(view, at(0, 1, schedule(1_500)))
        view.prune()
        assert offsets(view.select(9_000, MANY)) == [1]


class TestPending:
    def test_pending_counts_what_waits_in_this_minute_later_and_late(self, view: View) -> None:
        take(view, at(0, 0, schedule(2_000)), at(0, 1, schedule(3_000)), at(0, 2, schedule(200_000)))
        deliver(view, 2_500)
        take(view, at(0, 3, schedule(1_500)))
        assert view.pending() == 3

    def test_a_cancelled_row_is_not_pending(self, view: View) -> None:
        take(view, at(0, 0, schedule(200_000, "x")), at(0, 1, cancel("x")))
        assert view.pending() == 0


def test_a_reopened_store_is_where_it_was(tmp_path: Path) -> None:
    view = new_view(tmp_path)
    take(view, at(0, 0, schedule(2_000)), at(0, 1, schedule(4_000)))
    deliver(view, 3_000)
    view.flush()
    view.close()
    assert offsets(new_view(tmp_path).select(5_000, MANY)) == [1]


def parked(until_ms: int, parent: int) -> Schedule:
    """What is written back for a message that was due at 4,500."""
    return schedule(4_500, parent=parent)._replace(due_ms=until_ms)


class TestReplay:
    """Which of the done rows a replay carries."""

    def replayed(self, view: View) -> list[int]:
        chosen = view.select(5_000, MANY, ReplayRequest(1, 4_000, 5_000))
        return [key[2] for key, _ in chosen.replayed]

    def test_of_a_message_that_was_parked_again_and_again_the_last_try_alone(self, view: View) -> None:
        take(view, at(0, 0, schedule(4_500)), at(0, 1, schedule(4_500)))
        take(view, at(0, 2, parked(4_600, parent=0)), at(0, 3, parked(4_700, parent=2)))
        deliver(view, 5_000)
        assert self.replayed(view) == [1, 3]

    def test_of_a_message_that_recurs_each_occurrence_also_one_that_was_missed(self, view: View) -> None:
        hourly = Recurrence(None, 100, 1_000, None, None, None, "all")
        first = schedule(4_500)._replace(recurrence=hourly, occurrence=1)
        second = schedule(4_600, parent=0)._replace(recurrence=hourly, occurrence=1)
        again = second._replace(due_ms=4_700, parent=1, attempt=2)
        take(view, at(0, 0, first), at(0, 1, second), at(0, 2, again))
        deliver(view, 5_000)
        assert self.replayed(view) == [0, 2]

    def test_what_was_parked_and_pruned_leaves_nothing_behind(self, view: View) -> None:
        take(view, at(0, 0, schedule(2_000)), at(0, 1, parked(2_500, parent=0)), at(0, 2, schedule(9_000)))
        deliver(view, 9_000)
        view.prune()
        assert view.snapshot(lambda kv, *_: list(kv.scan(b"p", b"q"))) == []


class TestAddedPartitions:
    """Some that came to the buffer later, of which not every node has heard."""

    def test_a_row_of_one_that_the_last_checkpoint_lacks_is_late(self, tmp_path: Path) -> None:
        leader, follower = new_view(tmp_path / "m", 1), new_view(tmp_path / "f", 2)
        take(leader, at(0, 0, schedule(2_000)))
        take(follower, at(0, 0, schedule(2_000)), at(1, 7, schedule(1_500)))
        follower.align(checkpoint_of(deliver(leader, 3_000)))
        assert offsets(deliver(follower, 3_000)) == [7]

    def test_a_row_that_comes_from_one_behind_the_position_is_late(self, tmp_path: Path) -> None:
        leader, follower = new_view(tmp_path / "m", 1), new_view(tmp_path / "f", 2)
        take(leader, at(0, 0, schedule(2_000)))
        take(follower, at(0, 0, schedule(2_000)))
        follower.align(checkpoint_of(deliver(leader, 3_000)))
        take(follower, at(1, 7, schedule(1_500)))
        assert offsets(deliver(follower, 3_000)) == [7]

    def test_one_that_a_store_has_read_is_its_own_whatever_it_is_told(self, tmp_path: Path) -> None:
        view = new_view(tmp_path / "store", 2)
        take(view, at(0, 0, schedule(2_000)), at(1, 7, schedule(2_000)))
        view.flush()
        view.close()
        assert new_view(tmp_path / "store", 1).reached().applied == {0: 1, 1: 8}


def test_a_batch_is_taken_in_though_something_is_removed_all_the_time(
    view: View, monkeypatch: pytest.MonkeyPatch
) -> None:
    get_many = view._kv.get_many

    def slowly(raw_keys: list[bytes]) -> list[bytes | None]:
        if not view.guard.removing.locked():
            view.guard.removals += 1  # as if a step of pruning had found the time
        return get_many(raw_keys)

    monkeypatch.setattr(view._kv, "get_many", slowly)
    take(view, at(0, 0, schedule(2_000, "x")))
    assert view.pending() == 1


def test_a_view_that_is_to_stop_ends_its_pruning_early(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("store.pruning.MOST_HELD_WALKED", 1)
    view = new_view(tmp_path / "stops")
    take(view, *(at(0, offset, schedule(2_000 + offset)) for offset in range(4)))
    deliver(view, 90_000, paused=Paused(frozenset({"orders"})))
    view.guard.stopping.set()
    view.prune()
    assert len(list(view._kv.scan(keys.HELD, keys.end_of(keys.HELD)))) == 1
    view.close()
