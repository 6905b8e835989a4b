"""What is for a paused target waits where it is, and is delivered in order once the pause is over."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from delayline.wire import Cancel
from store import due_index, kept, keys
from store.holds import BEFORE_ALL, MOST_HOLDS, NO_TAG, Hold, may_go_to, tag_of, with_pauses
from store.keys import RowKey
from store.lookup import Lookup
from store.operations import ReplayRequest
from store.selection import Limits, Paused
from store.view import View
from tests.unit.view_records import (
    MANY,
    WINDOW_MS,
    at,
    cancel,
    checkpoint_of,
    deliver,
    new_view,
    reject,
    reschedule,
    schedule,
    take,
)
from tests.unit.view_steps import carried

ORDERS = Paused(frozenset({"orders"}))
LATER_MS = 5_000 + WINDOW_MS


@pytest.fixture
def view(tmp_path: Path) -> Iterator[View]:
    view = new_view(tmp_path / "view")
    yield view
    view.close()


def stored(view: View) -> list[int]:
    """The offsets of the rows that are stored."""
    rows = view._kv.scan(keys.ROW, keys.end_of(keys.ROW))
    return [keys.timed(raw_key)[2] for raw_key, _ in rows]


def forgotten(view: View) -> list[str | int]:
    """The ids and sources that can be, and are."""
    expired = view.forgetting.expired(10)
    assert view.forgetting.collect(expired, {})
    return [who for _, entry, _ in expired for who in entry.whose]


def left_of(view: View, prefix: bytes) -> int:
    """How many entries there are of a kind."""
    return sum(1 for _ in view._kv.scan(prefix, keys.end_of(prefix)))


class TestSelection:
    def test_what_is_for_a_paused_target_is_passed_and_the_others_are_delivered(self, view: View) -> None:
        take(view, at(0, 0, schedule(2_000)), at(0, 1, schedule(2_001, target="bills")))
        assert carried(deliver(view, 3_000, paused=ORDERS)) == [1]
        assert view.tip.position == (2_001, 0, 1)

    def test_it_costs_nothing_while_the_pause_lasts(self, view: View) -> None:
        take(view, at(0, 0, schedule(2_000)))
        deliver(view, 3_000, paused=ORDERS)
        assert view.select(4_000, MANY, paused=ORDERS).size == 0

    def test_it_is_delivered_in_order_once_the_pause_is_over(self, view: View) -> None:
        take(view, at(0, 0, schedule(2_001)), at(1, 1, schedule(2_000)), at(0, 2, schedule(3_500)))
        deliver(view, 3_000, paused=ORDERS)
        assert carried(deliver(view, 4_000)) == [1, 0, 2]
        assert view.tip.holds == ()

    def test_what_is_rejected_is_no_target_s(self, view: View) -> None:
        take(view, at(0, 0, reject()))
        assert carried(deliver(view, 3_000, paused=ORDERS)) == [0]

    def test_what_arrives_late_in_a_pause_comes_with_the_others(self, view: View) -> None:
        take(view, at(0, 0, schedule(2_500, target="bills")))
        deliver(view, 3_000, paused=ORDERS)
        deliver(view, 3_100, paused=ORDERS)
        take(view, at(0, 1, schedule(4_000)), at(0, 2, schedule(4_500)))
        deliver(view, 5_000, paused=ORDERS)
        take(view, at(0, 3, schedule(4_200)))
        assert carried(deliver(view, 5_000, paused=ORDERS)) == []
        assert carried(deliver(view, 5_000)) == [1, 3, 2]

    def test_what_comes_before_the_pause_s_begin_is_for_the_plan_to_park(self, view: View) -> None:
        take(view, at(0, 0, schedule(2_500)))
        deliver(view, 3_000)
        take(view, at(0, 1, schedule(2_000)))
        assert carried(deliver(view, 3_000, paused=ORDERS)) == [1]

    def test_a_backlog_takes_a_part_of_each_selection(self, view: View) -> None:
        take(view, *(at(0, offset, schedule(2_000 + offset)) for offset in range(10)))
        deliver(view, 3_000, paused=ORDERS)
        take(view, *(at(0, offset, schedule(3_500, target="bills")) for offset in range(10, 20)))
        eight = Limits(8, 1 << 20)
        assert carried(deliver(view, 4_000, eight)) == [0, 1, *range(10, 16)]
        assert carried(deliver(view, 4_000, eight)) == [2, 3, 4, 5, *range(16, 20)]

    def test_a_backlog_takes_its_part_beside_what_is_late_though_that_does_not_all_fit(
        self, view: View
    ) -> None:
        take(view, *(at(0, offset, schedule(2_000 + offset)) for offset in range(4)))
        deliver(view, 3_000, paused=ORDERS)
        take(view, *(at(0, offset, schedule(1_500, target="bills")) for offset in range(4, 20)))
        eight = Limits(8, 1 << 20)
        assert carried(deliver(view, 4_000, eight)) == [*range(4, 10), 0, 1]
        assert view.tip.position == (2_003, 0, 3)
        assert carried(deliver(view, 4_000, eight)) == [*range(10, 16), 2, 3]
        assert carried(deliver(view, 4_000, eight)) == [*range(16, 20)]

    @pytest.mark.parametrize("most", [2, 3])
    def test_a_backlog_takes_a_part_of_few(self, view: View, most: int) -> None:
        take(view, *(at(0, offset, schedule(2_000 + offset)) for offset in range(2)))
        deliver(view, 3_000, paused=ORDERS)
        take(view, *(at(0, offset, schedule(3_500, target="bills")) for offset in range(2, 20)))
        assert carried(deliver(view, 4_000, Limits(most, 1 << 20))) == [0, *range(2, 1 + most)]

    def test_two_that_go_on_take_turns(self, view: View) -> None:
        both = Paused(frozenset({"orders", "bills"}))
        for offset, target in enumerate(("orders", "orders", "orders", "bills", "bills")):
            take(view, at(0, offset, schedule(2_000, target=target)))
        deliver(view, 3_000, paused=both)
        one = Limits(1, 1 << 20)
        assert {carried(deliver(view, 4_000, one))[0] for _ in range(2)} == {0, 3}

    def test_a_pause_that_comes_again_stops_the_rest_and_holds_what_is_new(self, view: View) -> None:
        take(view, at(0, 0, schedule(2_000)), at(0, 1, schedule(2_001)))
        deliver(view, 3_000, paused=ORDERS)
        assert carried(deliver(view, 3_100, Limits(1, 1 << 20))) == [0]
        take(view, at(0, 2, schedule(3_200)))
        assert carried(deliver(view, 3_300, paused=ORDERS)) == []
        assert [hold.rows for hold in view.tip.holds] == [1, 1]
        assert carried(deliver(view, 3_400)) == [1, 2]

    def test_a_replay_leaves_out_what_is_held(self, view: View) -> None:
        take(view, at(0, 0, schedule(2_000)), at(0, 1, schedule(2_001, target="bills")))
        deliver(view, 3_000, paused=ORDERS)
        request = ReplayRequest(1, 2_000, 3_000)
        chosen = view.select(3_000, MANY, request, paused=ORDERS)
        assert [key[2] for key, _ in chosen.replayed] == [1]

    def test_what_has_waited_for_very_long_is_to_be_written_back(self, view: View) -> None:
        take(view, at(0, 0, schedule(2_000)), at(0, 1, schedule(90_000)))
        day = Limits(1_000, 1 << 20, carried_ms=24_000)
        deliver(view, 91_000, day, ORDERS)
        assert carried(deliver(view, 91_000, day, ORDERS)) == [0]
        assert carried(deliver(view, 91_000, day, ORDERS)) == []


class TestAnswers:
    def test_what_is_held_can_be_cancelled(self, view: View) -> None:
        take(view, at(0, 0, schedule(2_000, "x")))
        deliver(view, 3_000, paused=ORDERS)
        take(view, at(0, 1, cancel("x")))
        chosen = deliver(view, 3_000)
        assert [answer.effective for answer in chosen.answers] == [True]
        assert carried(chosen) == []

    def test_what_was_delivered_before_the_pause_cannot(self, view: View) -> None:
        take(view, at(0, 0, schedule(2_000, "x")))
        deliver(view, 2_500)
        deliver(view, 3_000, paused=ORDERS)
        take(view, at(0, 1, cancel("x")))
        assert [answer.effective for answer in deliver(view, 3_000, paused=ORDERS).answers] == [False]

    def test_what_is_held_for_another_target_is_another(self, view: View) -> None:
        take(view, at(0, 0, schedule(2_000, "x", target="bills")))
        deliver(view, 3_000, paused=ORDERS)
        take(view, at(0, 1, cancel("x")))
        assert [answer.effective for answer in deliver(view, 3_000, paused=ORDERS).answers] == [False]

    def test_what_is_held_can_be_moved_and_is_not_delivered_where_it_was(self, view: View) -> None:
        take(view, at(0, 0, schedule(2_000, "x")))
        deliver(view, 3_000, paused=ORDERS)
        take(view, at(0, 1, reschedule("x", 9_000), 3_000))
        chosen = view.select(3_000, MANY)
        assert {one.outcome for one in chosen.resolutions.values()} == {"rescheduled"}
        assert [key[2] for key, _ in chosen.released] == [0]
        assert carried(chosen) == [1]


class TestAlike:
    """No two targets have one tag unless somebody has seen to it: of a row that is there the name decides."""

    @pytest.fixture
    def view(self, view: View, monkeypatch: pytest.MonkeyPatch) -> View:
        """One is delivered, and then the other one's is held."""
        for module in ("holds", "rows", "arrivals"):
            monkeypatch.setattr(f"store.{module}.tag_of", lambda _: 1)
        take(view, at(0, 0, schedule(2_000, "x", target="bills")))
        deliver(view, 2_500, paused=ORDERS)
        take(view, at(0, 1, schedule(2_600)))
        deliver(view, 3_000, paused=ORDERS)
        return view

    def test_a_replay_carries_what_was_delivered(self, view: View) -> None:
        chosen = view.select(3_000, MANY, ReplayRequest(1, 2_000, 3_000), paused=ORDERS)
        assert [key[2] for key, _ in chosen.replayed] == [0]

    def test_a_rehearsal_foretells_it(self, view: View) -> None:
        foretold = Lookup(view).rehearse(ReplayRequest(1, 2_000, 3_000), 3_000, WINDOW_MS)
        assert foretold.targets == {"bills": 1}

    def test_a_look_up_finds_it_done(self, view: View) -> None:
        assert Lookup(view).find(0, "x").done

    def test_it_cannot_be_moved(self, view: View) -> None:
        take(view, at(0, 2, reschedule("x", 9_000), 3_000))
        chosen = deliver(view, 3_000, paused=ORDERS)
        assert {one.outcome for one in chosen.resolutions.values()} == {"too-late"}


class TestStore:
    def test_what_is_held_outlives_the_replay_window(self, view: View) -> None:
        take(view, at(0, 0, schedule(2_000)), at(0, 1, schedule(2_001, target="bills")))
        deliver(view, LATER_MS, paused=ORDERS)
        view.prune()
        assert stored(view) == [0]

    def test_more_rows_than_are_looked_at_at_once_are_pruned(
        self, view: View, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr("store.pruning.MOST_HELD_WALKED", 2)
        targets = ["orders", *["bills"] * 6, "orders"]
        take(view, *(at(0, n, schedule(2_000 + n, target=one)) for n, one in enumerate(targets)))
        deliver(view, LATER_MS, paused=ORDERS)
        view.prune()
        assert stored(view) == [0, 7]

    def test_its_id_is_known_as_long_and_keeps_no_other_one(self, view: View) -> None:
        behind = at(0, 3, schedule(99_000), timestamp_ms=5_000)
        take(view, at(0, 0, schedule(2_000, "x")), at(0, 1, schedule(2_000, "y", target="bills")))
        take(view, at(0, 2, schedule(2_001, "z", target="bills")), behind)
        deliver(view, LATER_MS, paused=ORDERS)
        view.prune()
        assert forgotten(view) == ["y", "z"]
        assert [ids for ids in "xyz" if view._kv.get(keys.index(0, ids)) is not None] == ["x"]
        assert view.forgetting.expired(10) == []

    def test_its_id_is_forgotten_once_it_has_gone(self, view: View) -> None:
        take(view, at(0, 0, schedule(2_000, "x")), at(0, 1, schedule(2_000, "y", target="bills")))
        deliver(view, LATER_MS, paused=ORDERS)
        view.prune()
        assert forgotten(view) == []
        take(view, at(0, 2, schedule(99_000), timestamp_ms=5_000))
        view.prune()
        assert forgotten(view) == ["y"]
        deliver(view, LATER_MS)
        take(view, at(0, 3, schedule(20_000, target="bills"), timestamp_ms=20_000))
        deliver(view, 20_000)
        view.prune()
        assert forgotten(view) == ["x"]
        view.prune()
        assert [left_of(view, prefix) for prefix in (keys.EXPIRY, keys.KEPT, keys.HELD)] == [0, 0, 0]

    def test_it_is_found_by_its_source_as_long(self, view: View) -> None:
        take(view, at(0, 0, schedule(2_000, "x")), at(0, 1, schedule(2_000, "y", target="bills")))
        take(view, at(0, 2, schedule(2_001)), at(0, 3, schedule(2_001, target="bills")))
        take(view, at(0, 4, schedule(99_000), timestamp_ms=5_000))
        deliver(view, LATER_MS, paused=ORDERS)
        view.prune()
        forgotten(view)
        view.prune()
        take(view, at(0, 5, Cancel(None, 0)), at(0, 6, Cancel(None, 2)))
        assert stored(view) == [4]

    def test_places_go_though_one_behind_which_they_stand_has_to_stay(self, view: View) -> None:
        take(view, at(1, 0, schedule(2_000)))
        for offset, target in enumerate(("orders", "bills", "bills", "bills")):
            take(view, at(0, offset, schedule(2_000 + offset, target=target)))
        deliver(view, LATER_MS, paused=ORDERS)
        view.prune()
        assert [due_index.find(view._kv, 0, offset) is None for offset in range(3)] == [False, True, True]

    @pytest.mark.parametrize("named", [False, True])
    def test_a_place_goes_once_what_it_leads_to_has_gone(self, view: View, *, named: bool) -> None:
        take(view, at(0, 0, schedule(2_000, "x" if named else None)))
        deliver(view, LATER_MS, paused=ORDERS)
        view.prune()
        deliver(view, LATER_MS)
        take(view, at(0, 1, schedule(20_000), timestamp_ms=20_000))
        deliver(view, 20_000)
        view.prune()
        assert (due_index.find(view._kv, 0, 0) is not None) == named
        forgotten(view)
        take(view, at(0, 2, schedule(60_000), timestamp_ms=60_000))
        deliver(view, 60_000)
        view.prune()
        assert due_index.find(view._kv, 0, 0) is None

    def test_what_is_cancelled_leaves_nothing(self, view: View) -> None:
        take(view, at(0, 0, schedule(2_000, "x")))
        deliver(view, LATER_MS, paused=ORDERS)
        view.prune()
        take(view, at(0, 1, cancel("x"), timestamp_ms=3_000))
        deliver(view, LATER_MS)
        view.prune()
        forgotten(view)
        assert [left_of(view, prefix) for prefix in (keys.EXPIRY, keys.KEPT, keys.HELD)] == [0, 0, 0]

    def test_its_cursor_walks_over_nothing_but_what_is_its_own(self, view: View) -> None:
        targets = ["orders", *["bills"] * 6, "orders"]
        take(view, *(at(0, n, schedule(2_000 + n, target=one)) for n, one in enumerate(targets)))
        deliver(view, LATER_MS, paused=ORDERS)
        view.prune()
        take(view, at(0, 8, schedule(LATER_MS, target="bills")))
        walked = kept.of_target(view._kv, "orders", BEFORE_ALL, (LATER_MS, 9, 9))
        assert [key[2] for key, _ in walked] == [0, 7, 8]

    @pytest.mark.parametrize("target", [None, "orders"])
    def test_a_replay_that_waits_beside_a_hold_keeps_its_own_rows_alone(
        self, view: View, target: str | None
    ) -> None:
        for offset, to in enumerate(("orders", "bills", "orders", "bills", "bills")):
            take(view, at(0, offset, schedule(2_000 + offset, target=to)))
        deliver(view, 2_500)
        replays = Paused(ORDERS.targets, replay=True)
        request = ReplayRequest(1, 2_000, 2_003, target)
        chosen = view.select(2_600, MANY, request, paused=replays)
        view.committed(chosen, checkpoint_of(chosen))
        take(view, at(0, 5, schedule(LATER_MS, target="bills")))
        deliver(view, LATER_MS, paused=replays)
        view.prune()
        own = [0, 1, 2] if target is None else [0, 2]
        assert stored(view) == [*own, 5]
        assert [key[2] for key, _ in deliver(view, LATER_MS).replayed] == own
        view.prune()
        assert stored(view) == [5]

    def test_what_was_parked_is_no_replay_s_and_goes(self, view: View) -> None:
        take(view, at(0, 0, schedule(2_000)), at(0, 1, schedule(2_001)))
        deliver(view, 2_100)
        take(view, at(0, 2, schedule(2_200, parent=0)._replace(scheduled_for_ms=2_000)))
        deliver(view, 2_300)
        replays = Paused(ORDERS.targets, replay=True)
        chosen = view.select(2_600, MANY, ReplayRequest(1, 2_000, 2_100), paused=replays)
        view.committed(chosen, checkpoint_of(chosen))
        take(view, at(0, 3, schedule(LATER_MS, target="bills")))
        deliver(view, LATER_MS, paused=replays)
        view.prune()
        assert left_of(view, keys.PARK_MARK) == 0
        assert [key[2] for key, _ in deliver(view, LATER_MS).replayed] == [1]

    def test_more_than_is_released_at_once_goes_in_steps(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr("store.pruning.MOST_HELD_WALKED", 2)
        leads, follower = new_view(tmp_path / "leads"), new_view(tmp_path / "follows")
        for one in (leads, follower):
            take(one, *(at(0, offset, schedule(2_000 + offset)) for offset in range(5)))
        follower.align(checkpoint_of(deliver(leads, LATER_MS, paused=ORDERS)))
        follower.prune()
        follower.align(checkpoint_of(deliver(leads, LATER_MS)))
        left = [len(stored(follower))]
        begin: bytes | None = keys.HELD
        while begin is not None:
            begin = follower._pruning._drop_released(begin)
            left.append(len(stored(follower)))
        assert left == [5, 3, 1, 0]
        for one in (leads, follower):
            one.close()

    @pytest.mark.parametrize("follows", [False, True])
    def test_what_is_released_goes_once_it_has_left_the_window(
        self, tmp_path: Path, *, follows: bool
    ) -> None:
        leads, follower = new_view(tmp_path / "leads"), new_view(tmp_path / "follows")
        seen = follower if follows else leads
        for one in (leads, follower):
            take(one, at(0, 0, schedule(2_000)), at(0, 1, schedule(LATER_MS)))
        follower.align(checkpoint_of(deliver(leads, LATER_MS, paused=ORDERS)))
        seen.prune()
        follower.align(checkpoint_of(deliver(leads, LATER_MS)))
        seen.prune()
        assert stored(seen) == [1]
        for one in (leads, follower):
            one.close()

    @pytest.mark.parametrize("has_pruned", [False, True])
    def test_a_node_that_begins_anew_keeps_what_is_held(
        self, view: View, tmp_path: Path, *, has_pruned: bool
    ) -> None:
        rebuilt = new_view(tmp_path / "rebuilt")
        arrivals = at(0, 0, schedule(2_000)), at(0, 1, schedule(2_001, target="bills"))
        take(view, *arrivals)
        rebuilt.align(checkpoint_of(deliver(view, LATER_MS, paused=ORDERS)))
        if has_pruned:
            take(rebuilt, at(1, 0, schedule(99_000)))
            rebuilt.prune()
        take(rebuilt, *arrivals)
        assert carried(rebuilt.select(LATER_MS, MANY)) == [0]
        rebuilt.close()

    def test_what_is_held_is_pending(self, view: View) -> None:
        take(view, at(0, 0, schedule(2_000)), at(0, 1, schedule(90_000)))
        deliver(view, 3_000, paused=ORDERS)
        assert view.pending() == 2


class TestHolds:
    def test_a_pause_that_has_held_nothing_leaves_nothing(self) -> None:
        begun = with_pauses((), frozenset({"orders"}), (5, 0, 0), (), 5)
        assert with_pauses(begun, frozenset(), (5, 0, 0), (), 5) == ()

    def test_a_hold_begins_where_the_position_is(self) -> None:
        assert with_pauses((), frozenset({"a"}), None, (), 5) == (Hold("a", BEFORE_ALL, BEFORE_ALL),)
        (hold,) = with_pauses((), frozenset({"a"}), (5, 0, 0), (), 5)
        assert [hold.covers(key) for key in ((5, 0, 0), (5, 0, 1))] == [False, True]

    def test_they_are_bounded(self) -> None:
        begun = with_pauses((), frozenset(f"t{n}" for n in range(2 * MOST_HOLDS)), None, (), 5)
        assert len(begun) == MOST_HOLDS
        more = frozenset({*(one.target for one in begun), "more"})
        assert with_pauses(begun, more, None, (), 5) == begun

    @pytest.mark.parametrize(
        ("paused", "last", "wanted"),
        [
            (False, (40, 0, 0), (40, 0, 0)),  # to its end
            (True, None, keys.last_due_by(52)),  # what has waited for 48
            (True, (40, 0, 0), (40, 0, 0)),
        ],
    )
    def test_how_far_a_cursor_goes(self, *, paused: bool, last: RowKey | None, wanted: RowKey) -> None:
        targets = frozenset({"a"}) if paused else frozenset[str]()
        assert may_go_to(Hold("a", BEFORE_ALL, (1, 0, 0), last), targets, 100, 48) == wanted

    def test_a_cursor_stays_while_nothing_has_waited_for_long(self) -> None:
        assert may_go_to(Hold("a", BEFORE_ALL, (51, 0, 0)), frozenset({"a"}), 100, 48) is None

    def test_a_cursor_does_not_go_to_what_is_not_due(self) -> None:
        hold = Hold("a", BEFORE_ALL, (51, 0, 0), (200, 0, 0))
        assert may_go_to(hold, frozenset(), 100, 48) == keys.last_due_by(100)
        assert may_go_to(hold, frozenset(), 50, 48) is None

    def test_tags_tell_targets_apart_and_none_is_that_of_what_has_no_target(self) -> None:
        tags = {tag_of(f"target-{number}") for number in range(1_000)}
        assert len(tags) == 1_000
        assert NO_TAG not in tags
        assert max(tags) < 1 << 63
