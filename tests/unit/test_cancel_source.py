"""Cancels by source: what they remove, what they are answered, and how long that is known (rules 2 to 4)."""

from __future__ import annotations

from pathlib import Path

import pytest

from delayline.wire import Cancel, Request, Schedule
from store import keys
from store.answers import Answer
from store.checkpoint import NO_WRITE_BACK, WriteBack
from store.kv import KeyValue
from store.rows import Expiry
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


def of(source: int) -> Cancel:
    return Cancel(None, source)


def back(due_ms: int, parent: int, root: int = 0, id_: str | None = None) -> Schedule:
    return schedule(due_ms, id_, parent)._replace(root=f"delay.buffer/0/{root}")


def answers(view: View, now_ms: int = 5_000, *, known: bool = True) -> list[tuple[int, str]]:
    """Offset and meaning of each answer of the next selection."""
    write_back = NO_WRITE_BACK if known else WriteBack()
    return [(one.at[1], meaning(one)) for one in view.select(now_ms, MANY, write_back=write_back).answers]


def meaning(answer: Answer) -> str:
    if answer.effective:
        return "cancelled"
    return "unknown" if answer.pending.removed is None else "too-late"


class TestWithoutAnId:
    def test_a_message_that_waits_is_cancelled(self, view: View) -> None:
        take(view, at(0, 0, schedule(9_000)))
        take(view, at(0, 1, of(0)))
        assert (answers(view), view.pending()) == ([(1, "cancelled")], 0)

    def test_so_is_one_of_the_same_batch(self, view: View) -> None:
        take(view, at(0, 0, schedule(9_000)), at(0, 1, of(0)))
        assert (answers(view), view.pending()) == ([(1, "cancelled")], 0)

    def test_one_that_is_delivered_is_too_late(self, view: View) -> None:
        take(view, at(0, 0, schedule(2_000)))
        deliver(view, 3_000)
        take(view, at(0, 1, of(0)))
        assert answers(view) == [(1, "too-late")]

    def test_one_that_is_in_flight_is_too_late(self, view: View) -> None:
        take(view, at(0, 0, schedule(2_000)))
        view.select(3_000, MANY)
        take(view, at(0, 1, of(0)))
        assert answers(view) == [(1, "too-late")]

    def test_the_second_cancel_is_unknown(self, view: View) -> None:
        take(view, at(0, 0, schedule(9_000)), at(0, 1, of(0)), at(0, 2, of(0)))
        take(view, at(0, 3, of(0)))
        assert answers(view) == [(1, "cancelled"), (2, "unknown"), (3, "unknown")]

    def test_the_last_that_was_written_back_is_meant(self, view: View) -> None:
        take(view, at(0, 0, schedule(2_000)), at(0, 1, schedule(9_999)))
        deliver(view, 3_000)
        take(view, at(0, 2, back(4_000, 0)), at(0, 3, of(0)))
        assert (offsets(view.select(20_000, MANY)), view.pending()) == ([1], 0)

    def test_a_chain_that_was_cancelled_is_not_found_by_its_first_row(self, view: View) -> None:
        take(view, at(0, 0, schedule(2_000)))
        deliver(view, 3_000)
        take(view, at(0, 1, back(9_000, 0)), at(0, 2, of(0)), at(0, 3, of(0)))
        assert answers(view) == [(2, "cancelled"), (3, "unknown")]

    def test_what_is_written_back_too_late_is_dropped_and_makes_the_cancel_applied(self, view: View) -> None:
        take(view, at(0, 0, schedule(2_000)))
        deliver(view, 3_000)
        take(view, at(0, 1, of(0)))
        take(view, at(0, 2, back(4_000, 0)))
        assert (answers(view), view.pending()) == ([(1, "cancelled")], 0)

    def test_the_answer_waits_for_what_was_written_back(self, view: View) -> None:
        take(view, at(0, 0, schedule(2_000)), at(0, 1, schedule(2_500)))
        view.select(2_000, MANY)
        take(view, at(0, 2, of(0)))
        chosen = view.select(3_000, MANY, write_back=WriteBack())
        assert (chosen.size, chosen.cut_short, chosen.frontier.seen[0]) == (0, True, 2)
        assert answers(view, known=True) == [(2, "too-late")]

    def test_the_answer_does_not_wait_where_the_row_was_still_to_come(self, view: View) -> None:
        take(view, at(0, 0, schedule(9_000)), at(0, 1, of(0)))
        assert answers(view, known=False) == [(1, "cancelled")]

    def test_answers_before_one_that_waits_are_given(self, view: View) -> None:
        take(view, at(0, 0, schedule(2_000)))
        view.select(3_000, MANY)
        take(view, at(0, 1, cancel("x")), at(0, 2, of(0)), at(0, 3, cancel("y")))
        assert answers(view, known=False) == [(1, "unknown")]

    @pytest.mark.parametrize("other", [reject(), reschedule("x", 9_000), cancel("x")])
    def test_what_is_no_schedule_has_no_message(self, view: View, other: Request) -> None:
        take(view, at(0, 0, other), at(0, 1, of(0)))
        assert answers(view)[-1] == (1, "unknown")

    def test_what_was_written_back_is_no_source(self, view: View) -> None:
        take(view, at(0, 0, schedule(2_000)))
        deliver(view, 3_000)
        take(view, at(0, 1, back(9_000, 0)), at(0, 2, of(1)))
        assert (answers(view), view.pending()) == ([(2, "unknown")], 1)

    def test_one_that_was_pruned_is_unknown(self, view: View) -> None:
        take(view, at(0, 0, schedule(2_000)), at(0, 1, schedule(99_000), timestamp_ms=2_000))
        deliver(view, 9_000)
        view.prune()
        take(view, at(0, 2, of(0)))
        assert answers(view, 9_000) == [(2, "unknown")]


class TestWithAnId:
    def test_it_is_a_cancel_of_the_id(self, view: View) -> None:
        take(view, at(0, 0, schedule(9_000, "x")))
        take(view, at(0, 1, of(0)), at(0, 2, cancel("x")))
        (first, second) = view.select(5_000, MANY).answers
        assert (meaning(first), first.pending.id, meaning(second)) == ("cancelled", "x", "unknown")

    def test_of_a_moved_one_too(self, view: View) -> None:
        take(view, at(0, 0, schedule(9_000, "x")), at(0, 1, reschedule("x", 8_000)))
        deliver(view, 3_000)
        take(view, at(0, 2, back(8_000, 1, 0, "x")))
        take(view, at(0, 3, of(0)))
        assert (answers(view), view.pending()) == ([(3, "cancelled")], 0)

    def test_one_that_was_replaced_is_unknown_and_the_other_stays(self, view: View) -> None:
        take(view, at(0, 0, schedule(9_000, "x")), at(0, 1, schedule(9_500, "x")), at(0, 2, of(0)))
        assert (answers(view), view.pending()) == ([(1, "cancelled"), (2, "unknown")], 1)

    def test_it_makes_the_id_unknown_to_one_that_asks(self, view: View) -> None:
        take(view, at(0, 0, schedule(9_000, "x")), at(0, 1, of(0)))
        take(view, at(0, 2, schedule(9_000, "x")._replace(keep=True)))
        assert view.pending() == 1

    def test_a_duplicate_has_no_message(self, view: View) -> None:
        kept = schedule(9_000, "x")._replace(keep=True)
        take(view, at(0, 0, schedule(9_000, "x")), at(0, 1, kept), at(0, 2, of(1)))
        assert view.pending() == 1


class TestForgetting:
    def test_places_go_with_their_rows(self, view: View) -> None:
        take(view, at(0, 0, schedule(2_000)), at(1, 0, schedule(5_000)))
        take(view, at(0, 1, schedule(99_000)))
        deliver(view, 9_000)
        view.prune()
        assert places_of(view) == [(0, 1), (1, 0)]  # pruning ends at the position, which is the second row

    def test_not_before_the_ids_that_they_lead_to(self, view: View) -> None:
        take(view, at(0, 0, schedule(2_000, "x")))
        take(view, at(0, 1, schedule(5_000), timestamp_ms=2_000))
        deliver(view, 9_000)
        view.prune()
        before, expired = places_of(view), view.forgetting.expired(10)
        view.apply([], {0: 5})
        view.forgetting.collect(expired, {0: 5})
        view.prune()
        assert (before, places_of(view)) == ([(0, 0), (0, 1)], [(0, 1)])

    def test_a_source_s_entry_goes_once_its_last_row_has(self, view: View) -> None:
        take(view, at(0, 0, schedule(2_000)))
        deliver(view, 3_000)
        take(view, at(0, 1, back(4_000, 0)), at(0, 2, schedule(99_000), timestamp_ms=4_000))
        deliver(view, 9_000)
        view.prune()
        expired = view.forgetting.expired(10)
        view.apply([], {0: 3})
        assert (expired, view.forgetting.collect(expired, {0: 3})) == (
            [((4_000, 0, 1), Expiry([4_000], [1], [0]), True)],
            True,
        )
        assert found(view, keys.SOURCE) == []

    def test_not_while_its_first_row_is_there(self, view: View) -> None:
        take(view, at(0, 0, schedule(5_000)))
        deliver(view, 5_000)
        take(view, at(0, 1, back(4_000, 0)), at(0, 2, schedule(99_000), timestamp_ms=4_000))
        deliver(view, 5_500)
        view.prune()
        assert [entry.whose for _, entry, _ in view.forgetting.expired(10)] == [[]]

    def test_a_node_that_has_forgotten_the_source_drops_what_follows_all_the_same(self, view: View) -> None:
        take(view, at(0, 0, schedule(2_000)))
        deliver(view, 9_000)
        view.prune()
        take(view, at(0, 1, of(0)))
        take(view, at(0, 2, back(9_500, 0)))
        assert (answers(view, 9_000), view.pending()) == ([(1, "cancelled")], 0)


def test_a_follower_finds_what_the_leader_has_written_back(view: View, tmp_path: Path) -> None:
    follower = new_view(tmp_path / "follower")
    take(view, at(0, 0, schedule(2_000)))
    told = checkpoint_of(deliver(view, 3_000))
    take(follower, at(0, 0, schedule(2_000)), at(0, 1, back(9_000, 0)), at(0, 2, of(0)))
    follower.align(told)
    assert answers(follower) == [(2, "cancelled")]


def found(view: View, prefix: bytes) -> list[tuple[int, int]]:
    def take_all(kv: KeyValue, *_: object) -> list[tuple[int, int]]:
        return [keys.record_id(key) for key, _ in kv.scan(prefix, keys.end_of(prefix))]

    return view.snapshot(take_all)


def places_of(view: View) -> list[tuple[int, int]]:
    return found(view, keys.DUE_INDEX)
