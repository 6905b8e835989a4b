"""What the service has written back, as the view takes it in: copies of it, and what it ends."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path

import pytest

from delayline.rejects import RejectCode
from delayline.signing import Serial
from delayline.wire import Reject, Request, Schedule
from store.arrivals import Arrival, spent
from store.rocks import RocksStore
from store.selection import Limits
from store.view import View
from tests.unit.view_records import (
    MANY,
    SETTINGS,
    WINDOW_MS,
    at,
    cancel,
    deliver,
    new_view,
    offsets,
    reschedule,
    schedule,
    take,
)
from tests.unit.wire_records import BufferedRecord

ROOT = "delay.buffer/0/0"


@pytest.fixture
def view(tmp_path: Path) -> Iterator[View]:
    made = new_view(tmp_path / "store")
    yield made
    made.close()


def signed(due_ms: int, serial: Serial, id_: str | None = None, parent: int = 0) -> Schedule:
    return schedule(due_ms, id_, parent)._replace(serial=serial)


def taken(view: View, now_ms: int = 9_000) -> list[int]:
    """The offsets of the rows that are selected next, by which it shows what was a copy: that has none."""
    return offsets(deliver(view, now_ms))


@pytest.mark.parametrize(
    "serial", [(1, 5), (1, 4), (0, 9)], ids=["the same", "a lower count", "an older one"]
)
def test_a_serial_that_is_not_above_the_last_one_is_that_of_a_copy(view: View, serial: Serial) -> None:
    take(view, at(0, 2, signed(2_000, (1, 5))))
    take(view, at(0, 3, signed(2_000, serial)))
    assert (view.pending(), taken(view)) == (1, [2])


@pytest.mark.parametrize("serial", [(1, 6), (2, 0), (2, 9)])
def test_a_higher_serial_is_the_services_own(view: View, serial: Serial) -> None:
    take(view, at(0, 2, signed(2_000, (1, 5))), at(0, 3, signed(2_000, serial)))
    assert taken(view) == [2, 3]


def test_each_partition_has_serials_of_its_own(view: View) -> None:
    take(view, at(0, 2, signed(2_000, (9, 9))), at(1, 2, signed(2_000, (1, 1))))
    assert [key for key, _ in deliver(view, 9_000).due] == [(2_000, 0, 2), (2_000, 1, 2)]


@pytest.mark.parametrize("kind", ["a schedule", "a reschedule", "a reject"])
def test_a_copy_leaves_no_row_and_has_been_applied(view: View, kind: str) -> None:
    take(view, at(0, 0, schedule(8_000, "a")), at(0, 1, signed(8_000, (1, 1), "a")))
    request: dict[str, Request] = {
        "a schedule": signed(1_500, (1, 1), "a"),
        "a reschedule": reschedule("a", 1_500)._replace(parent=0, root=ROOT, serial=(1, 1)),
        "a reject": Reject(RejectCode.DELAY_TOO_LONG, "too long", (1, 1)),
    }
    take(view, at(0, 2, request[kind], timestamp_ms=1_500))
    assert (view.pending(), view.reached().applied[0], view.newest_ms()) == (1, 3, 1_500)
    assert offsets(view.select(7_999, MANY)) == []
    assert offsets(view.select(8_000, MANY)) == [1]


def test_a_copy_takes_no_ones_place(view: View) -> None:
    take(view, at(0, 0, schedule(8_000, "a")), at(0, 1, signed(8_000, (1, 1), "a")))
    # Its parent alone would let it: no schedule has an origin above that.
    take(view, at(0, 2, schedule(7_000, "a")), at(0, 3, signed(8_000, (1, 1), "a", parent=2)))
    assert taken(view) == [2]


def test_a_copy_of_what_was_cancelled_brings_nothing_back(view: View) -> None:
    take(view, at(0, 0, schedule(8_000, "a")), at(0, 1, signed(8_000, (1, 1), "a")))
    # Its parent alone would let it: no tombstone is above that.
    take(view, at(0, 2, cancel("a")), at(0, 3, signed(8_000, (1, 1), "a", parent=2)))
    assert (view.pending(), taken(view)) == (0, [])


def test_a_copy_that_arrives_below_the_position_is_not_late(view: View) -> None:
    take(view, at(0, 0, schedule(2_000)), at(0, 1, signed(2_000, (1, 1))))
    deliver(view, 5_000)
    take(view, at(0, 2, signed(3_000, (1, 1)), timestamp_ms=3_000))
    assert (view.pending(), taken(view)) == (0, [])


def test_a_copy_ends_no_control(view: View) -> None:
    take(view, at(0, 0, schedule(2_000, "a")), at(0, 1, signed(2_000, (1, 1), "a")))
    deliver(view, 2_000)
    take(view, at(0, 2, cancel("a")), at(0, 3, signed(2_000, (1, 1), "a")))
    assert [answer.effective for answer in view.select(5_000, MANY).answers] == [False]


def taken_after_a_restart(folder: Path, before: Callable[[View], object], *then: Arrival) -> list[int]:
    """What a view selects of what comes before it is closed and opened again, and after."""
    view = new_view(folder)
    before(view)
    view.flush()
    view.close()
    with closing(new_view(folder)) as reopened:
        take(reopened, *then)
        return taken(reopened)


def test_the_last_serial_outlives_the_process(tmp_path: Path) -> None:
    original, copy = at(0, 2, signed(2_000, (1, 5))), at(0, 3, signed(2_000, (1, 5)))
    assert taken_after_a_restart(tmp_path, lambda view: take(view, original), copy) == [2]


def test_a_reject_that_the_service_has_written_makes_a_later_copy_one(view: View) -> None:
    take(view, at(0, 2, Reject(RejectCode.DELAY_TOO_LONG, "too long", (1, 5))))
    take(view, at(0, 3, signed(2_000, (1, 5))))
    assert taken(view) == [2]


def aborted(offset: int, serial: Serial) -> Arrival:
    return spent(BufferedRecord([], partition=0, offset=offset), serial)


def test_what_was_aborted_has_spent_its_serial_and_left_nothing_else(view: View) -> None:
    take(view, at(0, 2, schedule(2_000)), aborted(3, (1, 5)))
    assert (view.reached().applied[0], view.newest_ms(), view.pending()) == (3, 1_000, 1)
    take(view, at(0, 4, signed(2_000, (1, 5))), at(0, 5, signed(2_000, (1, 6))))
    assert taken(view) == [2, 5]


def test_in_a_batch_a_serial_is_spent_from_its_place_on(view: View) -> None:
    take(view, at(0, 2, signed(2_000, (1, 4))), aborted(3, (1, 5)), at(0, 4, signed(2_000, (1, 5))))
    assert taken(view) == [2]


def test_a_serial_that_was_spent_by_what_was_aborted_outlives_the_process(tmp_path: Path) -> None:
    copy, next_one = at(0, 3, signed(2_000, (1, 5))), at(0, 4, signed(2_000, (1, 6)))
    then = copy, next_one
    assert taken_after_a_restart(tmp_path, lambda view: take(view, aborted(2, (1, 5))), *then) == [4]


def test_for_a_view_that_begins_behind_retention_an_as_of_from_before_is_that_of_a_copy(view: View) -> None:
    view.start_at(0, 10, 10, (10, -1))
    take(view, at(0, 10, signed(2_000, (9, 99))), at(0, 11, signed(2_000, (10, 0))))
    assert taken(view) == [11]


def test_where_a_view_began_behind_retention_outlives_the_process(tmp_path: Path) -> None:
    older, newer = at(0, 10, signed(2_000, (9, 99))), at(0, 11, signed(2_000, (10, 0)))
    begin = taken_after_a_restart(tmp_path, lambda view: view.start_at(0, 10, 10, (10, -1)), older, newer)
    assert begin == [11]


def test_as_of_is_where_the_reader_stands_though_late_rows_hold_the_frontier_back(view: View) -> None:
    take(view, at(0, 0, schedule(5_000)))
    deliver(view, 5_000)
    take(view, at(0, 1, schedule(1_000)), at(0, 2, schedule(1_000)))
    chosen = view.select(5_000, Limits(1, 1 << 20))
    assert (chosen.frontier.read[0], chosen.as_of[0]) == (2, 3)


def test_the_readers_place_never_moves_back(view: View) -> None:
    view.apply([at(0, 0, schedule(5_000))], {0: 7})
    view.apply([], {0: 3})
    assert view.select(5_000, MANY).as_of[0] == 7


class _Counting(RocksStore):
    """Counts what is read in scans."""

    scanned = 0

    def scan(self, begin: bytes, end: bytes) -> Iterator[tuple[bytes, bytes]]:
        for entry in super().scan(begin, end):
            self.scanned += 1
            yield entry


def test_a_dropped_request_looks_at_one_control_however_many_wait(tmp_path: Path) -> None:
    store = _Counting(tmp_path / "store")
    view = View(store, [0, 1], WINDOW_MS, SETTINGS)
    take(view, at(0, 0, schedule(2_000, "a")))
    take(view, *(at(0, 1 + number, cancel(f"other {number}")) for number in range(1_000)))
    take(view, *(at(0, 1_001 + number, cancel("a")) for number in range(1_000)))
    store.scanned = 0
    take(view, at(0, 2_001, signed(2_000, (1, 1), "a", parent=0)))
    assert store.scanned <= 1
    answers = {answer.at[1]: answer.effective for answer in view.select(1, Limits(5_000, 1 << 20)).answers}
    assert [offset for offset, effective in answers.items() if effective] == [1_001]
    view.close()
