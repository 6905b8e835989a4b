"""What reschedules come to, and what is awaited (rules 1 to 3), on a real RocksDB."""

from __future__ import annotations

import pytest

from delayline.wire import Cancel, Request, Reschedule
from store.arrivals import Arrival
from store.awaited import NOTHING, Awaited, Predecessor, Successor
from store.checkpoint import Vector, WriteBack
from store.selection import Limits, Selection
from store.view import View
from tests.unit.view_records import MANY, at, cancel, deliver, offsets, reschedule, schedule, take

LATER_MS = 9_000


def deferred(offset: int, root: int, attempt: int = 2) -> Arrival:
    """A reschedule of x, from below the log's end, that the service has deferred."""
    root_source = f"delay.buffer/0/{root}"
    request = Reschedule("x", LATER_MS, None, parent=root, root=root_source, attempt=attempt)
    return at(0, offset, request)


def moved(offset: int, parent: int, moved_by: int | None = None, due_ms: int = LATER_MS) -> Arrival:
    """What was written back for x."""
    return at(0, offset, schedule(due_ms, "x", parent)._replace(moved_by=moved_by))


def follows(row: int, successor: Successor) -> Awaited:
    return Awaited({0: {row: successor}})


def select(view: View, awaited: Awaited = NOTHING, limits: Limits = MANY, now_ms: int = 3_000) -> Selection:
    return view.select(now_ms, limits, write_back=WriteBack(awaited, {}))


def outcomes(selection: Selection) -> dict[int, str]:
    """By the offset of each reschedule."""
    return {key[2]: one.outcome for key, one in selection.resolutions.items()}


class TestLastWord:
    def test_of_several_reschedules_in_a_selection_the_last_is_carried_out(self, view: View) -> None:
        take(view, at(0, 0, schedule(LATER_MS, "x")), *(at(0, n, reschedule("x", 8_000)) for n in (1, 2, 3)))
        selection = select(view)
        assert outcomes(selection) == {1: "overtaken", 2: "overtaken", 3: "rescheduled"}

    def test_the_last_word_takes_the_expiry_over_that_those_before_it_have_said(self, view: View) -> None:
        take(view, at(0, 0, schedule(LATER_MS, "x")))
        said = [at(0, n, Reschedule("x", 8_000, expire)) for n, expire in ((1, 1), (2, 2), (3, None))]
        take(view, *said)
        found = {key[2]: one.expire_at_ms for key, one in select(view).resolutions.items()}
        assert found[3] == 2

    def test_reschedules_of_different_ids_are_all_carried_out(self, view: View) -> None:
        take(view, at(0, 0, schedule(LATER_MS, "x")), at(0, 1, schedule(LATER_MS, "y")))
        take(view, at(0, 2, reschedule("x", 8_000)), at(0, 3, reschedule("y", 8_000)))
        assert outcomes(select(view)) == {2: "rescheduled", 3: "rescheduled"}

    def test_one_that_was_deferred_does_not_undo_a_later_one(self, view: View) -> None:
        """Its word is that of the user's own, though it stands above what has moved the row since."""
        take(view, at(0, 0, schedule(LATER_MS, "x")), moved(5, parent=2, moved_by=2), deferred(6, root=1))
        assert outcomes(select(view)) == {6: "overtaken"}

    def test_what_follows_from_a_moved_row_has_its_word(self, view: View) -> None:
        take(view, at(0, 0, schedule(LATER_MS, "x")), moved(5, parent=2, moved_by=2))
        take(view, moved(7, parent=5, moved_by=2), deferred(8, root=1))
        assert outcomes(select(view)) == {8: "overtaken"}

    @pytest.mark.parametrize("newer", [schedule(LATER_MS, "x"), cancel("x")], ids=["schedule", "cancel"])
    def test_a_later_schedule_or_cancel_has_overtaken_it(self, view: View, newer: Request) -> None:
        take(view, at(0, 0, schedule(LATER_MS, "x")), at(0, 1, reschedule("x", 8_000)))
        take(view, at(0, 2, newer))
        assert outcomes(select(view)) == {1: "overtaken"}

    def test_an_earlier_cancel_has_not(self, view: View) -> None:
        take(view, at(0, 0, cancel("x")), at(0, 1, reschedule("x", 8_000)))
        assert outcomes(select(view)) == {1: "unknown"}


class TestMoved:
    def test_a_reschedule_wins_over_its_row_in_the_same_selection(self, view: View) -> None:
        take(view, at(0, 0, schedule(2_000, "x")), at(0, 1, reschedule("x", LATER_MS)))
        selection = select(view)
        assert (outcomes(selection), selection.moved) == ({1: "rescheduled"}, {(2_000, 0, 0)})
        assert selection.to_carry == ([], [selection.due[0]])

    def test_a_row_that_is_awaited_as_moved_is_passed_over(self, view: View) -> None:
        take(view, at(0, 0, schedule(2_000, "x")), at(0, 1, schedule(2_500)))
        selection = select(view, follows(0, Successor(9, 5)))
        assert (offsets(selection), selection.moved) == ([0, 1], {(2_000, 0, 0)})

    def test_a_row_that_is_awaited_as_followed_is_not_moved(self, view: View) -> None:
        take(view, at(0, 0, schedule(2_000, "x")))
        assert select(view, follows(0, Successor(9))).moved == frozenset()

    def test_what_was_refused_moves_nothing(self, view: View) -> None:
        take(view, at(0, 0, schedule(2_000, "x")), at(0, 1, reschedule("x", LATER_MS)))
        selection = view.select(3_000, MANY, poison={(1_000, 0, 1)})
        assert (selection.resolutions, selection.moved) == ({}, frozenset())

    def test_what_a_refused_one_has_overtaken_is_not_carried_out_instead(self, view: View) -> None:
        """It would be refused as well, one after the other."""
        take(view, at(0, 0, schedule(2_000, "x")), *(at(0, n, reschedule("x", LATER_MS)) for n in (1, 2)))
        selection = view.select(3_000, MANY, poison={(1_000, 0, 2)})
        assert (outcomes(selection), selection.moved) == ({1: "overtaken"}, frozenset())

    def test_the_bytes_of_what_is_moved_count(self, view: View) -> None:
        rows = [at(0, n, schedule(LATER_MS, f"x{n}")) for n in range(2)]
        take(view, *rows, *(at(0, 2 + n, reschedule(f"x{n}", 8_000)) for n in range(2)))
        limits = MANY._replace(bytes=2 * len(rows[0].raw))
        assert outcomes(select(view, limits=limits)) == {2: "rescheduled"}

    def test_but_once_for_an_id(self, view: View) -> None:
        row = at(0, 0, schedule(LATER_MS, "x"))
        moves = [at(0, n, reschedule("x", 8_000)) for n in (1, 2, 3)]
        take(view, row, *moves)
        limits = MANY._replace(bytes=len(row.raw) + sum(len(one.raw) for one in moves))
        assert outcomes(select(view, limits=limits))[3] == "rescheduled"


class TestPutOff:
    def test_one_whose_row_is_awaited_as_moved_by_an_earlier_one(self, view: View) -> None:
        take(view, at(0, 0, schedule(LATER_MS, "x")), at(0, 3, reschedule("x", 8_000)))
        assert outcomes(select(view, follows(0, Successor(9, 1)))) == {3: "deferred"}

    def test_but_not_by_a_later_one(self, view: View) -> None:
        take(view, at(0, 0, schedule(LATER_MS, "x")), deferred(5, root=1))
        assert outcomes(select(view, follows(0, Successor(9, 2)))) == {5: "overtaken"}

    @pytest.mark.parametrize(
        ("attempt", "outcome"),
        [(1, "deferred"), (2, "deferred"), (3, "too-late")],
        ids=["first", "again", "third"],
    )
    def test_one_whose_row_is_followed_twice_at_most(self, view: View, attempt: int, outcome: str) -> None:
        take(view, at(0, 0, schedule(2_000, "x")))
        deliver(view, 2_500)
        take(view, deferred(5, root=3, attempt=attempt))
        assert outcomes(select(view, follows(0, Successor(9)))) == {5: outcome}

    def test_one_whose_row_is_done_while_something_is_not_listed(self, view: View) -> None:
        take(view, at(0, 0, schedule(2_000, "x")))
        deliver(view, 2_500)
        take(view, at(0, 5, reschedule("x", LATER_MS)))
        assert outcomes(select(view, Awaited(unlisted={0: 7}))) == {5: "deferred"}

    def test_but_not_once_that_is_applied(self, view: View) -> None:
        take(view, at(0, 0, schedule(2_000, "x")))
        deliver(view, 2_500)
        take(view, at(0, 6, reschedule("x", LATER_MS)))
        assert outcomes(select(view, Awaited(unlisted={0: 7}))) == {6: "too-late"}

    def test_one_for_which_there_is_no_room_where_what_was_moved_is_hidden(self, view: View) -> None:
        take(view, *(at(0, n, schedule(LATER_MS, f"x{n}")) for n in range(3)))
        take(view, *(at(0, 3 + n, reschedule(f"x{n}", 8_000)) for n in range(3)))
        hidden = WriteBack(NOTHING, {}, frozenset({0}))
        found = outcomes(view.select(3_000, MANY._replace(awaited=2), write_back=hidden))
        assert sorted(found.values()) == ["deferred", "rescheduled", "rescheduled"]

    def test_a_selection_ends_before_one_for_which_it_leaves_no_room(self, view: View) -> None:
        take(view, *(at(0, n, schedule(LATER_MS, f"x{n}")) for n in range(2)))
        take(view, *(at(0, 2 + n, reschedule(f"x{n}", 8_000)) for n in range(2)))
        selection = select(view, limits=MANY._replace(awaited=1))
        assert (outcomes(selection), selection.cut_short) == ({2: "rescheduled"}, False)

    def test_it_waits_for_room_where_what_was_moved_can_be_read_soon(self, view: View) -> None:
        take(view, at(0, 0, schedule(LATER_MS, "y")), at(0, 3, reschedule("y", 8_000)))
        full = Awaited({0: {1: Successor(8, 2), 2: Successor(7, 2)}})
        selection = select(view, full, MANY._replace(awaited=2))
        assert (selection.size, selection.cut_short, selection.full) == (0, True, {0: 8})

    def test_what_is_seen_leaves_room(self, view: View) -> None:
        take(view, at(0, 0, schedule(LATER_MS, "y")), at(0, 8, reschedule("y", 8_000)))
        full = Awaited({0: {1: Successor(3, 2), 2: Successor(4, 2)}})
        assert outcomes(select(view, full, MANY._replace(awaited=1))) == {8: "rescheduled"}

    def test_one_whose_row_follows_from_what_stands_above_it(self, view: View) -> None:
        """What it wrote back would be dropped."""
        take(view, at(0, 0, schedule(2_000, "x")), at(0, 1, reschedule("x", LATER_MS)), moved(7, parent=5))
        assert outcomes(select(view)) == {1: "deferred"}


class TestAnswers:
    def test_what_is_done_in_the_transaction_that_is_being_sent_is_not_followed_any_more(
        self, view: View
    ) -> None:
        """The checkpoint before that one lists what it has seen since."""
        take(view, at(0, 0, schedule(2_000)))
        deliver(view, 2_500)
        back = schedule(2_600, parent=0)
        take(view, at(0, 2, back))
        view.select(3_000, MANY)
        take(view, at(0, 3, Cancel(None, 0)))
        before = WriteBack(Awaited(unnamed={0: {0: 2}}), None)
        assert [one.effective for one in view.select(3_000, MANY, write_back=before).answers] == []
        before = WriteBack(Awaited(unnamed={0: {0: 2}}), {})
        assert [one.effective for one in view.select(3_000, MANY, write_back=before).answers] == [False]

    def test_a_cancel_of_what_is_followed_is_applied(self, view: View) -> None:
        take(view, at(0, 0, schedule(2_000, "x")))
        deliver(view, 2_500)
        take(view, at(0, 3, cancel("x")))
        assert [one.effective for one in select(view, follows(0, Successor(9))).answers] == [True]

    def test_the_answer_waits_where_what_follows_may_be_unlisted(self, view: View) -> None:
        take(view, at(0, 0, schedule(2_000, "x")))
        deliver(view, 2_500)
        take(view, at(0, 3, cancel("x")), at(0, 4, schedule(2_600)))
        selection = select(view, Awaited(unlisted={0: 9}))
        assert (selection.size, selection.cut_short, selection.waits_for) == (0, True, {0: 9})
        assert [one.effective for one in select(view, Awaited(unlisted={0: 5})).answers] == [False]


def following(row: int, moved_by: int | None = None, *, has_id: bool = True) -> Predecessor:
    return Predecessor(0, row, has_id, moved_by)


def test_what_is_seen_is_not_awaited_any_more() -> None:
    written = [(following(1), 10), (following(2, 5), 11), (following(3, has_id=False), 12)]
    awaited = NOTHING.with_written(written, 9)
    assert awaited.beyond({0: 11}) == Awaited({0: {2: Successor(11, 5)}}, {0: {3: 12}})
    assert awaited.beyond({0: 13}) == NOTHING


@pytest.mark.parametrize("has_id", [True, False], ids=["with an id", "without"])
def test_what_followed_and_finds_no_room_is_not_listed(*, has_id: bool) -> None:
    awaited = NOTHING.with_written([(following(n, has_id=has_id), 10 + n) for n in range(3)], 2)
    assert (len(awaited.successors.get(0, {})) + len(awaited.unnamed.get(0, {})), awaited.unlisted) == (
        2,
        {0: 13},
    )
    assert awaited.may_hide(0, {0: 12})
    assert not awaited.may_hide(0, {0: 13})


def test_what_was_moved_is_listed_however_much_followed() -> None:
    seen: Vector = {0: 0}
    awaited = NOTHING.with_written([(following(1), 10), (following(2), 11), (following(3, 4), 12)], 1)
    assert (awaited.moved, awaited.moved_offsets(0, seen)) == (frozenset({(0, 3)}), [12])
