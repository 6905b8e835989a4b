"""Looking into the view: one id, pages of what is pending, totals; on a real RocksDB."""

from __future__ import annotations

import itertools
import time
from pathlib import Path
from types import SimpleNamespace

import pytest

from delayline.wire import Schedule
from store import lookup
from store.arrivals import arrival
from store.keys import RowKey
from store.lookup import Lookup, Query, RowPage, Total, ViewClosed
from store.selection import Limits, Paused
from store.view import View
from tests.unit.view_records import at, cancel, deliver, new_view, reject, reschedule, schedule, take
from tests.unit.wire_records import BufferedRecord

MINUTE_MS = 60_000
ALL = Query()


@pytest.fixture
def view(tmp_path: Path) -> View:
    return new_view(tmp_path / "store")


def listed(view: View, query: Query = ALL, after: RowKey | None = None, limit: int = 100) -> list[RowKey]:
    return [key for key, _ in Lookup(view).page(query, after, limit).rows]


def total(view: View, query: Query = ALL) -> Total | None:
    return Lookup(view).page(query, None, 1).total


def walked(view: View, query: Query, limit: int) -> list[RowKey]:
    """RowPage after page to the end."""
    found: list[RowKey] = []
    page: RowPage | None = None
    while page is None or page.last is not None:
        page = Lookup(view).page(query, None if page is None else page.last, limit)
        found += [key for key, _ in page.rows]
    return found


class TestFind:
    def test_a_pending_id_has_its_row(self, view: View) -> None:
        take(view, at(0, 0, schedule(2_000, "x")))
        known = Lookup(view).find(0, "x")
        assert (known.key, known.row is not None, known.cancelled_by) == ((2_000, 0, 0), True, None)

    def test_a_cancelled_id_has_the_offset_of_its_cancel(self, view: View) -> None:
        take(view, at(0, 0, schedule(2_000, "x")), at(0, 1, cancel("x")))
        known = Lookup(view).find(0, "x")
        assert (known.key, known.cancelled_by) == (None, 1)

    def test_an_id_that_was_scheduled_again_after_its_cancel_is_the_new_one(self, view: View) -> None:
        take(view, at(0, 0, cancel("x")), at(0, 1, schedule(2_000, "x")))
        assert Lookup(view).find(0, "x").key == (2_000, 0, 1)

    def test_a_delivered_id_is_known_when_its_row_has_gone(self, view: View) -> None:
        take(view, at(0, 0, schedule(2_000, "x")), at(0, 1, schedule(99_000)))
        deliver(view, 9_000)
        view.prune()
        known = Lookup(view).find(0, "x")
        assert (known.done, known.row) == (True, None)

    def test_an_id_is_unknown_once_it_has_been_forgotten(self, view: View) -> None:
        take(view, at(0, 0, schedule(2_000, "x")), at(0, 1, schedule(99_000), timestamp_ms=2_000))
        deliver(view, 9_000)
        view.prune()
        assert view.forgetting.collect(view.forgetting.expired(10), {0: 2})
        assert Lookup(view).find(0, "x").key is None

    def test_what_a_message_contains_is_not_told(self, view: View) -> None:
        record = BufferedRecord([("own", b"header")], timestamp_ms=1_000)
        take(view, arrival(record, schedule(2_000, "x")))
        (_, row), *_ = Lookup(view).page(ALL, None, 1).rows
        assert (row.key, row.value, row.headers) == (None, None, [])

    def test_nothing_is_known_of_an_unknown_id(self, view: View) -> None:
        known = Lookup(view).find(0, "x")
        assert (known.key, known.row, known.cancelled_by) == (None, None, None)


class TestPages:
    def test_pending_rows_come_in_key_order_without_those_done(self, view: View) -> None:
        take(view, at(1, 0, schedule(5_000)), at(0, 0, schedule(2_000)), at(0, 1, schedule(5_000)))
        deliver(view, 3_000)
        assert listed(view) == [(5_000, 0, 1), (5_000, 1, 0)]

    def test_what_is_in_flight_is_pending_still(self, view: View) -> None:
        take(view, at(0, 0, schedule(2_000)))
        view.select(3_000, Limits(10, 1 << 20))
        take(view, at(0, 1, schedule(1_500)))
        assert listed(view) == [(1_500, 0, 1), (2_000, 0, 0)]

    def test_late_rows_are_pending_and_come_first(self, view: View) -> None:
        take(view, at(0, 0, schedule(2_000)), at(0, 1, schedule(9_000)))
        deliver(view, 3_000)
        take(view, at(0, 2, schedule(1_900)), at(0, 3, schedule(1_800)))
        assert listed(view) == [(1_800, 0, 3), (1_900, 0, 2), (9_000, 0, 1)]

    @pytest.mark.parametrize("query", [ALL, Query(target="orders"), Query(id_prefix="x")])
    def test_pages_meet_each_row_once(self, view: View, query: Query) -> None:
        take(
            view, at(0, 0, schedule(2_000, "x0")), *(at(0, o, schedule(9_000, f"x{o}")) for o in range(1, 9))
        )
        deliver(view, 3_000)
        take(view, *(at(1, offset, schedule(1_010 - offset, f"x{offset}")) for offset in range(9)))
        found = walked(view, query, 3)
        assert found == sorted(found)
        assert len(found) == len(set(found)) == 17

    @pytest.mark.parametrize("count", [2, 3])
    def test_the_last_page_says_that_it_is_the_last(self, view: View, count: int) -> None:
        take(view, *(at(0, offset, schedule(2_000)) for offset in range(count)))
        assert (Lookup(view).page(ALL, None, 2).last is None) == (count == 2)

    def test_rows_are_chosen_by_time_target_and_id(self, view: View) -> None:
        elsewhere = schedule(2_000, "b1")._replace(target_topic="payments")
        take(view, at(0, 0, schedule(2_000, "a1")), at(0, 1, elsewhere), at(0, 2, schedule(3_000, "b2")))
        assert listed(view, Query(begin_ms=2_000, end_ms=3_000)) == [(2_000, 0, 0), (2_000, 0, 1)]
        assert listed(view, Query(target="payments")) == [(2_000, 0, 1)]
        assert listed(view, Query(id_prefix="b")) == [(2_000, 0, 1), (3_000, 0, 2)]
        assert listed(view, Query(id_prefix="b", target="orders", begin_ms=2_500)) == [(3_000, 0, 2)]

    def test_a_prefix_may_be_any_text(self, view: View) -> None:
        take(view, at(0, 0, schedule(2_000, "ä/\U0010ffff")), at(1, 0, schedule(2_000, "ö")))
        assert listed(view, Query(id_prefix="ä/\U0010ffff")) == [(2_000, 0, 0)]

    def test_requests_that_are_no_messages_wait_as_well(self, view: View) -> None:
        take(view, at(0, 0, reject()), at(0, 1, reschedule("x", 9_000)))
        assert [type(row).__name__ for _, row in Lookup(view).page(ALL, None, 9).rows] == [
            "RejectRow",
            "RescheduleRow",
        ]
        assert listed(view, Query(target="orders")) == []

    @pytest.mark.parametrize("query", [Query(target="orders"), Query(id_prefix="y")])
    def test_a_long_walk_ends_with_a_short_page_that_goes_on(
        self, view: View, query: Query, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr(lookup, "MOST_WALKED", 10)
        other = schedule(2_000)._replace(target_topic="payments")
        take(view, *(at(0, offset, other) for offset in range(25)))
        take(view, *(at(0, 25 + offset, schedule(3_000, f"y{offset}")) for offset in range(12)))
        first = Lookup(view).page(query, None, 5)
        assert (first.rows, first.last, first.total) == ([], (2_000, 0, 9), Total(0, at_least=True))
        assert len(walked(view, query, 5)) == 12

    def test_while_a_walk_rests_messages_are_taken_and_delivered(
        self, view: View, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        take(view, *(at(0, offset, schedule(9_000)) for offset in range(200)))
        arriving = itertools.count(200)

        def rest(_: float) -> None:
            take(view, at(0, next(arriving), schedule(500)), at(1, 0, schedule(9_500)))
            assert deliver(view, 2_000).size == 1

        monkeypatch.setattr(lookup, "time", SimpleNamespace(sleep=rest, monotonic=time.monotonic))
        monkeypatch.setattr(lookup, "SLICE_S", -1.0)
        assert len(listed(view, Query(target="orders"), limit=1_000)) == 200
        assert next(arriving) > 201

    def test_a_closed_lookup_answers_no_more(self, view: View) -> None:
        closed = Lookup(view)
        closed.close()
        with pytest.raises(ViewClosed):
            closed.page(ALL, None, 1)


PAUSED = Paused(frozenset({"orders"}))


def to(target: str, due_ms: int, id_: str | None = None) -> Schedule:
    return schedule(due_ms, id_)._replace(target_topic=target)


def held(view: View) -> None:
    """`orders` is paused at 1,100; of what is due by 3,000 the other half has been delivered."""
    take(view, at(0, 0, schedule(1_050)))
    deliver(view, 1_100)
    for number in range(8):
        target = "orders" if number % 2 else "payments"
        take(view, at(0, 1 + number, to(target, 1_200 + 100 * number, f"x{number}")))
    take(view, at(0, 9, schedule(9_000, "x9")))
    deliver(view, 3_000, paused=PAUSED)


HELD = [(1_300, 0, 2), (1_500, 0, 4), (1_700, 0, 6), (1_900, 0, 8)]


class TestHeld:
    @pytest.mark.parametrize("query", [ALL, Query(target="orders"), Query(id_prefix="x")])
    def test_what_waits_for_a_paused_target_is_pending(self, view: View, query: Query) -> None:
        held(view)
        assert listed(view, query) == [*HELD, (9_000, 0, 9)]

    @pytest.mark.parametrize("query", [ALL, Query(target="orders"), Query(id_prefix="x")])
    def test_held_and_late_ones_come_in_one_key_order(self, view: View, query: Query) -> None:
        held(view)
        late = [to("payments", 1_250 + 100 * number, f"x1{number}") for number in range(8)]
        late += [schedule(1_450, "x2")]
        take(view, *(at(1, offset, one._replace(target_topic="orders")) for offset, one in enumerate(late)))
        found = walked(view, query, 2)
        assert found == sorted([*HELD, (9_000, 0, 9), *((one.due_ms, 1, o) for o, one in enumerate(late))])

    @pytest.mark.parametrize("query", [ALL, Query(target="orders"), Query(id_prefix="x")])
    def test_the_total_counts_them(self, view: View, query: Query) -> None:
        held(view)
        assert total(view, query) == Total(5, at_least=False)

    def test_what_is_released_is_pending_no_more(self, view: View) -> None:
        held(view)
        deliver(view, 3_100, Limits(2, 1 << 20))
        assert listed(view) == [*HELD[2:], (9_000, 0, 9)]

    def test_a_late_one_is_met_once_as_it_is_held(self, view: View) -> None:
        held(view)
        take(view, at(0, 10, schedule(1_600)))
        before = listed(view)
        deliver(view, 3_100, paused=PAUSED)
        assert listed(view) == before == sorted([*HELD, (1_600, 0, 10), (9_000, 0, 9)])

    @pytest.mark.parametrize("end_ms", [1_500, 1_600, 9_000, 9_001])
    def test_a_range_of_time_has_those_that_are_due_in_it(self, view: View, end_ms: int) -> None:
        held(view)
        expected = [key for key in [*HELD, (9_000, 0, 9)] if 1_400 <= key[0] < end_ms]
        assert listed(view, Query(begin_ms=1_400, end_ms=end_ms)) == expected

    def test_a_long_walk_among_what_is_delivered_ends_with_a_short_page(
        self, view: View, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        held(view)
        take(view, at(1, 0, schedule(1_250)), at(1, 1, schedule(1_850)))
        monkeypatch.setattr(lookup, "MOST_WALKED", 3)
        first = Lookup(view).page(ALL, None, 5)
        assert [key for key, _ in first.rows] == [(1_250, 1, 0), (1_300, 0, 2)]
        assert walked(view, ALL, 5) == sorted([*HELD, (1_250, 1, 0), (1_850, 1, 1), (9_000, 0, 9)])

    def test_an_id_that_is_held_is_not_done(self, view: View) -> None:
        held(view)
        assert [Lookup(view).find(0, f"x{number}").done for number in range(3)] == [True, False, True]

    def test_a_source_that_is_held_is_not_done(self, view: View) -> None:
        take(view, at(0, 0, schedule(1_050)))
        deliver(view, 1_100)
        take(view, at(0, 1, schedule(1_200)), at(0, 2, to("payments", 1_200)))
        deliver(view, 3_000, paused=PAUSED)
        assert [Lookup(view).find_source(0, source).done for source in range(3)] == [True, False, True]


class TestTotals:
    def test_a_total_is_exact_wherever_the_position_is(self, view: View) -> None:
        take(view, *(at(0, offset, schedule(1_000 * offset)) for offset in range(200)))
        for now_ms in (0, 59_000, 60_000, 61_500, 130_000):
            deliver(view, now_ms)
            assert total(view) == Total(199 - now_ms // 1_000, at_least=False)

    @pytest.mark.parametrize(
        ("begin_ms", "end_ms"),
        [
            (0, 5_000),
            (60_000, 120_000),
            (59_500, 60_500),
            (61_000, 62_000),
            (1_000, 199_500),
            (120_000, 9_000_000),
            (150_000, 100_000),
        ],
    )
    def test_the_total_of_a_time_range_is_what_is_listed(
        self, view: View, begin_ms: int, end_ms: int
    ) -> None:
        take(view, *(at(0, offset, schedule(500 * offset)) for offset in range(400)))
        deliver(view, 30_000)
        take(view, at(1, 0, schedule(2_000)), at(1, 1, schedule(61_000)))
        query = Query(begin_ms=begin_ms, end_ms=end_ms)
        assert total(view, query) == Total(len(listed(view, query, limit=1_000)), at_least=False)

    def test_a_total_of_some_target_or_ids_counts_those(self, view: View) -> None:
        take(view, *(at(0, offset, schedule(2_000, f"x{offset}")) for offset in range(12)))
        assert total(view, Query(target="orders")) == Total(12, at_least=False)
        assert total(view, Query(id_prefix="x1")) == Total(3, at_least=False)

    def test_the_rows_of_a_long_minute_are_counted_to_a_bound(
        self, view: View, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        take(view, *(at(0, offset, schedule(2_000)) for offset in range(30)), at(1, 0, schedule(MINUTE_MS)))
        deliver(view, 2_000, Limits(1, 1 << 20))
        monkeypatch.setattr(lookup, "MOST_WALKED", 10)
        assert total(view) == Total(11, at_least=True)
