"""Carrying at one view (docs/design.md, rule 12): what is carried, how far the log is needed, and what a
carry restores where its row is not. The rule itself is exercised by the simulation.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import msgspec
import pytest

from delayline.outcome_kinds import OutcomeKind
from delayline.record import Carry, Request
from delayline.settings import ClusterSettings
from delayline.settings_versions import SettingsVersions
from delayline.signing import Serial
from delayline.times import DAY_MS
from delayline.wire import Cancel
from store import keys
from store.arrivals import Kind
from store.awaited import Awaited, Successor
from store.carrying import MOST_WALKED
from store.checkpoint import Reached, WriteBack
from store.keys import RowKey
from store.kv import Batch
from store.rocks import RocksStore
from store.rows import NewerCarry, decode_offset, decode_vector, encode_carry
from store.selection import Limits, Paused, Selection
from store.view import View
from tests.unit.view_records import (
    MANY,
    WINDOW_MS,
    at,
    cancel,
    checkpoint_of,
    deliver,
    offsets,
    reject,
    reschedule,
    schedule,
    take,
)

ALL = {0: 1_000}  # all of the log is old
NOW_MS = 2_000
LATER_MS = 50_000
NOTHING_SENT = WriteBack(written_back={0: 0})


SETTINGS = SettingsVersions.of(ClusterSettings(dedup_window_ms=0, retention_ms=DAY_MS))


def open_view(folder: Path) -> View:
    return View(RocksStore(folder), [0], WINDOW_MS, SETTINGS)


@pytest.fixture
def view(tmp_path: Path) -> Iterator[View]:
    made = open_view(tmp_path / "view")
    yield made
    made.close()


@pytest.fixture
def other(tmp_path: Path) -> Iterator[View]:
    """An empty one, which begins in the midst of the log."""
    made = open_view(tmp_path / "other")
    yield made
    made.close()


def select(
    view: View, write_back: WriteBack = NOTHING_SENT, now_ms: int = NOW_MS, limits: Limits = MANY
) -> Selection:
    """Selects and commits."""
    chosen = view.select(now_ms, limits, write_back=write_back, old=ALL)
    view.committed(chosen, checkpoint_of(chosen))
    return chosen


def settled(view: View, write_back: WriteBack = NOTHING_SENT) -> Selection:
    """What is delivered by one selection leaves the replay window with its commit; how far the log is needed
    then is found by the next one, and counts from the one after that.
    """
    rest_ms = MANY.carry_rest_ms
    return [select(view, write_back, NOW_MS + n * rest_ms) for n in range(3)][-1]


def carries(chosen: Selection) -> list[int]:
    return [key[2] for key, _ in chosen.carries]


def carry(chosen: Selection, serial: Serial) -> Carry:
    """The record of the first row that a selection carries."""
    (due_ms, _, offset), raw = chosen.carries[0]
    return Carry(encode_carry(due_ms, offset, raw), serial)


def waiting(view: View) -> list[int]:
    return offsets(view.select(LATER_MS * 2, MANY))


def test_what_waits_is_carried_once_in_the_order_of_the_log(view: View) -> None:
    take(view, at(0, 0, schedule(LATER_MS)), at(0, 1, schedule(LATER_MS - 1, "b")), at(0, 2, schedule(1_500)))
    assert carries(select(view)) == [0, 1]
    assert carries(select(view)) == []


def test_what_is_younger_is_not_carried(view: View) -> None:
    take(view, at(0, 0, schedule(LATER_MS)), at(0, 1, schedule(LATER_MS)))
    chosen = view.select(NOW_MS, MANY, write_back=NOTHING_SENT, old={0: 1})
    assert carries(chosen) == [0]


def test_without_the_age_of_the_log_nothing_is_carried(view: View) -> None:
    take(view, at(0, 0, schedule(LATER_MS)))
    chosen = view.select(NOW_MS, MANY, write_back=NOTHING_SENT)
    assert (carries(chosen), chosen.frontier.carried) == ([], {})


def test_a_quarter_of_a_transaction_is_carried_at_most_and_then_none_for_a_while(view: View) -> None:
    take(view, *(at(0, offset, schedule(LATER_MS)) for offset in range(5)))
    few, times_ms = Limits(8, 1 << 20), (NOW_MS, NOW_MS + 249, NOW_MS + 250, NOW_MS + 500)
    found = [carries(select(view, now_ms=now_ms, limits=few)) for now_ms in times_ms]
    assert found == [[0, 1], [], [2, 3], [4]]


def test_what_is_awaited_as_moved_is_not_carried(view: View) -> None:
    take(view, at(0, 0, schedule(LATER_MS, "a")), at(0, 1, schedule(LATER_MS, "b")))
    moved = Awaited({0: {0: Successor(7, moved_by=3)}})
    assert carries(select(view, WriteBack(moved, {0: 8}))) == [1]


def test_nothing_moves_while_all_stands_still_but_what_waits_is_carried(view: View) -> None:
    take(view, at(0, 0, schedule(LATER_MS)), at(0, 1, schedule(1_500)))
    chosen = view.select(NOW_MS, MANY, write_back=NOTHING_SENT, old=ALL, paused=Paused(everything=True))
    assert (carries(chosen), offsets(chosen), chosen.frontier.position) == ([0, 1], [], None)


def test_the_log_is_needed_from_the_first_row_that_waits(view: View) -> None:
    take(view, at(0, 0, schedule(500)), at(0, 1, schedule(LATER_MS)), at(0, 2, schedule(LATER_MS)))
    assert settled(view).frontier.carried == {0: 1}


@pytest.mark.parametrize("request_", [reject(), reschedule("a", LATER_MS)])
def test_what_is_due_at_once_holds_it_while_all_stands_still(view: View, request_: object) -> None:
    take(view, at(0, 0, schedule(500)))
    settled(view)
    take(view, at(0, 1, request_), at(0, 2, schedule(500)))  # type: ignore[arg-type]
    later_ms, older = NOW_MS + 40 * MANY.carry_rest_ms, {0: 2_000}
    chosen = view.select(later_ms, MANY, write_back=NOTHING_SENT, old=older, paused=Paused(everything=True))
    assert (chosen.frontier.carried, carries(chosen)) == ({0: 1}, [1, 2])


def test_a_carry_counts_once_it_is_applied(view: View) -> None:
    take(view, at(0, 0, schedule(LATER_MS)), at(0, 1, schedule(500)))
    chosen = select(view)
    assert settled(view).frontier.carried == {0: 0}
    take(view, at(0, 2, carry(chosen, (2, 2))))
    assert settled(view, WriteBack(written_back={0: 3})).frontier.carried == {0: 2}


def test_how_far_counts_only_once_what_had_been_written_back_is_applied(view: View) -> None:
    take(view, at(0, 0, schedule(500)))
    assert settled(view).frontier.carried == {0: 1}
    take(view, at(0, 1, schedule(500)))
    unread = WriteBack(written_back={0: 6})
    assert settled(view, unread).frontier.carried == {0: 1}
    take(view, at(0, 5, schedule(500, "a", parent=0)._replace(serial=(2, 5))))
    assert settled(view, unread).frontier.carried == {0: 6}


def test_carried_never_moves_back(view: View) -> None:
    take(view, at(0, 0, schedule(500)))
    assert settled(view).frontier.carried == {0: 1}
    take(view, at(0, 1, schedule(LATER_MS, "a", parent=0)._replace(serial=(0, 1))))
    assert settled(view).frontier.carried == {0: 1}


def paused(view: View, now_ms: int, read: int) -> Selection:
    """Selects in a pause of the cluster, and commits. `read`: so much was written back, and is applied."""
    chosen = view.select(
        now_ms,
        MANY,
        write_back=WriteBack(written_back={0: read}),
        old={0: read},
        paused=Paused(everything=True),
    )
    view.committed(chosen, checkpoint_of(chosen))
    return chosen


def test_in_a_pause_what_a_replay_may_reach_is_carried_so_that_it_holds_the_log_no_more(view: View) -> None:
    take(view, at(0, 0, schedule(1_900)), at(0, 1, schedule(LATER_MS)))
    select(view)
    began_ms = NOW_MS + DAY_MS
    chosen = paused(view, began_ms, 2)
    assert (carries(chosen), chosen.frontier.carried) == ([0, 1], {0: 0})
    rows = enumerate(chosen.carries)
    records = [Carry(encode_carry(key[0], key[2], raw), (2, 2 + n)) for n, (key, raw) in rows]
    take(view, *(at(0, 2 + n, record) for n, record in enumerate(records)))
    for n in (1, 2):
        chosen = paused(view, began_ms + n * MANY.carry_rest_ms, 4)
    assert chosen.frontier.carried == {0: 2}


def test_what_was_parked_holds_nothing_once_what_was_written_back_for_it_is_there(view: View) -> None:
    take(view, at(0, 0, schedule(1_900)))
    select(view)
    later = schedule(LATER_MS, parent=0)._replace(scheduled_for_ms=1_900, serial=(1, 1))
    take(view, at(0, 1, later))
    for n in range(3):
        chosen = paused(view, NOW_MS + DAY_MS + n * MANY.carry_rest_ms, 2)
    assert chosen.frontier.carried == {0: 1}


def test_nothing_that_is_done_is_carried_before_all_that_was_written_back_is_applied(view: View) -> None:
    take(view, at(0, 0, schedule(1_900)), at(0, 1, schedule(LATER_MS)))
    deliver(view, NOW_MS)
    unread = WriteBack(written_back={0: 7})
    chosen = view.select(NOW_MS + DAY_MS, MANY, write_back=unread, old=ALL, paused=Paused(everything=True))
    assert carries(chosen) == [1]


def test_what_has_grown_old_is_walked_from_where_the_last_round_ended(view: View) -> None:
    take(view, *(at(0, n, schedule(LATER_MS)) for n in range(4)))
    walked = [
        view.select(NOW_MS + n * MANY.carry_rest_ms, MANY, write_back=NOTHING_SENT, old={0: old})
        for n, old in enumerate((2, 3, 4))
    ]
    assert [carries(chosen) for chosen in walked] == [[0, 1], [2], [3]]


def test_who_begins_knows_the_newest_timestamp_of_what_it_has_not_read(view: View, other: View) -> None:
    ahead_ms = NOW_MS + 10 * WINDOW_MS
    take(view, at(0, 0, schedule(500, "a")), at(0, 1, cancel("nobody"), ahead_ms), at(0, 2, schedule(500)))
    begins = settled(view).frontier
    assert (begins.carried, begins.newest_ms) == ({0: 3}, {0: ahead_ms})
    other.begin_at(begins.carried, begins.seen, begins.newest_ms)
    take(other, at(0, 3, cancel("nobody")))
    assert newest_ms(other) == {0: ahead_ms}


def newest_ms(view: View) -> dict[int, int]:
    return view.snapshot(lambda kv, *_: decode_vector(kv.get(keys.NEWEST) or b""))


def test_a_view_that_begins_behind_a_row_has_it_from_its_carry(view: View, other: View) -> None:
    take(view, at(0, 0, schedule(LATER_MS)), at(0, 1, schedule(500)))
    record = at(0, 2, carry(select(view), (2, 2)))
    other.begin_at({0: 2}, {0: 2}, {})
    take(other, record)
    assert waiting(other) == [0]


def test_a_view_that_has_the_row_has_it_once(view: View) -> None:
    take(view, at(0, 0, schedule(LATER_MS)), at(0, 1, schedule(500)))
    record = carry(select(view), (2, 2))
    take(view, at(0, 2, record))
    take(view, at(0, 3, record._replace(serial=(2, 3))))
    assert waiting(view) == [0]


@pytest.mark.parametrize("later", [cancel("a"), schedule(LATER_MS, "a")], ids=["cancelled", "replaced"])
def test_a_reschedule_that_was_overtaken_is_so_for_who_begins_behind_that(
    view: View, other: View, later: Request
) -> None:
    take(view, at(0, 0, reschedule("a", LATER_MS)), at(0, 1, later))
    chosen = paused(view, NOW_MS, 2)
    other.begin_at({0: 2}, {0: 2}, {})
    for one in (view, other):
        take(one, at(0, 2, carry(chosen, (2, 2))))
    assert [outcomes(one) for one in (view, other)] == [[OutcomeKind.OVERTAKEN]] * 2


def outcomes(view: View) -> list[OutcomeKind]:
    return [one.outcome for one in view.select(NOW_MS, MANY, write_back=NOTHING_SENT).resolutions.values()]


@pytest.mark.parametrize(
    ("id_", "control"), [("a", cancel("a")), (None, Cancel(None, 0)), ("a", Cancel(None, 0))]
)
def test_a_carry_of_what_was_cancelled_is_dropped(
    view: View, other: View, id_: str | None, control: Cancel
) -> None:
    take(view, at(0, 0, schedule(LATER_MS, id_)), at(0, 1, schedule(500)))
    record = carry(select(view), (2, 3))
    other.begin_at({0: 2}, {0: 2}, {})
    for one in (view, other):
        take(one, at(0, 2, control), at(0, 3, record))
    assert [waiting(one) for one in (view, other)] == [[], []]


def test_what_was_written_back_of_a_source_that_was_cancelled_is_dropped_though_nobody_knew_its_id(
    view: View, other: View
) -> None:
    take(view, at(0, 0, schedule(LATER_MS, "a")))
    other.begin_at({0: 2}, {0: 2}, {})
    record = at(0, 3, schedule(LATER_MS, "a", parent=0)._replace(serial=(2, 3)))
    for one in (view, other):
        take(one, at(0, 2, Cancel(None, 0)), record)
    chosen = [one.select(LATER_MS * 2, MANY) for one in (view, other)]
    assert [offsets(each) for each in chosen] == [[], []]
    assert [[one.effective for one in each.answers] for each in chosen] == [[True], [True]]


@pytest.mark.parametrize("ended", [cancel("a"), schedule(LATER_MS * 3, "a")], ids=["cancelled", "replaced"])
def test_a_cancel_by_source_of_what_its_id_has_ended_before_ends_nothing(view: View, ended: Request) -> None:
    take(view, at(0, 0, schedule(LATER_MS, "a")), at(0, 1, ended))
    select(view)
    take(view, at(0, 2, Cancel(None, 0)))
    take(view, at(0, 3, schedule(LATER_MS, "a", parent=0)._replace(serial=(1, 3))))
    [answer] = select(view, now_ms=NOW_MS + 1).answers
    assert (answer.at, answer.effective) == ((0, 2), False)


def test_so_it_does_though_others_of_the_id_have_come_and_gone_behind_it(view: View) -> None:
    take(view, at(0, 0, schedule(LATER_MS, "a")), at(0, 1, cancel("a")))
    select(view)
    take(view, at(0, 2, Cancel(None, 0)), at(0, 3, schedule(LATER_MS * 3, "a")), at(0, 4, cancel("a")))
    take(view, at(0, 5, schedule(LATER_MS, "a", parent=0)._replace(serial=(1, 5))))
    answers = {one.at: one.effective for one in select(view, now_ms=NOW_MS + 1).answers}
    assert answers[0, 2] is False


def test_so_it_does_for_who_begins_behind_the_source(view: View, other: View) -> None:
    """Between the cancel by source and what follows the id was scheduled and cancelled once more."""
    other.begin_at({0: 2}, {0: 2}, {})
    take(view, at(0, 0, schedule(LATER_MS, "a")), at(0, 1, schedule(500)))
    for one in (view, other):
        take(one, at(0, 2, schedule(LATER_MS, "a", parent=0)._replace(serial=(2, 2))), at(0, 3, cancel("a")))
        select(one)
        take(one, at(0, 4, Cancel(None, 0)), at(0, 5, schedule(LATER_MS, "a")), at(0, 6, cancel("a")))
        take(one, at(0, 7, schedule(LATER_MS, "a", parent=2)._replace(serial=(3, 7))))
    answers = [
        {
            answer.at: answer.effective
            for answer in one.select(NOW_MS + 1, MANY, write_back=NOTHING_SENT).answers
        }
        for one in (view, other)
    ]
    assert [each[0, 4] for each in answers] == [False, False]


def test_a_carry_of_what_was_replaced_is_dropped(view: View, other: View) -> None:
    take(view, at(0, 0, schedule(LATER_MS, "a")), at(0, 1, schedule(500)))
    record = carry(select(view), (2, 3))
    other.begin_at({0: 2}, {0: 2}, {})
    for one in (view, other):
        take(one, at(0, 2, schedule(LATER_MS, "a")), at(0, 3, record))
    assert [waiting(one) for one in (view, other)] == [[2], [2]]


@pytest.mark.parametrize(
    ("id_", "control"), [("a", cancel("a")), (None, Cancel(None, 0)), ("a", Cancel(None, 0))]
)
def test_what_was_restored_is_found_by_its_id_and_by_its_source(
    view: View, other: View, id_: str | None, control: Cancel
) -> None:
    take(view, at(0, 0, schedule(LATER_MS, id_)), at(0, 1, schedule(500)))
    record = at(0, 2, carry(select(view), (2, 2)))
    other.begin_at({0: 2}, {0: 2}, {})
    take(other, record, at(0, 3, control))
    assert waiting(other) == []


@pytest.mark.parametrize(
    "awaited",
    [
        Awaited({0: {0: Successor(5, None)}}),
        Awaited({0: {0: Successor(5, 3)}}),
        Awaited(unlisted={0: 6}),
    ],
    ids=["follows", "moved", "not listed"],
)
def test_who_begins_tells_what_has_ended_a_message_that_is_done_and_followed(
    view: View, other: View, awaited: Awaited
) -> None:
    """The later one of the message is on its way when its id is scheduled anew."""
    take(view, at(0, 0, schedule(LATER_MS, "a")), at(0, 1, schedule(500)))
    record = at(0, 2, carry(select(view), (2, 2)))
    take(view, record)
    chosen = select(view, now_ms=LATER_MS * 2)
    done = msgspec.structs.replace(checkpoint_of(chosen), awaited=awaited, written_back={0: 6}, number=1)
    other.begin_at({0: 2}, {0: 3}, {0: LATER_MS * 2})
    view.align(done)
    other.align(done)
    take(other, record)
    for one in (view, other):
        take(one, at(0, 3, schedule(LATER_MS * 3, "a")), at(0, 4, cancel("a")))
        take(one, at(0, 5, schedule(LATER_MS * 3, "a", parent=0)._replace(serial=(3, 5))))
    answers = [
        {
            answer.at: answer.effective
            for answer in one.select(LATER_MS * 2, MANY, write_back=done.write_back).answers
        }
        for one in (view, other)
    ]
    assert answers == [{(0, 3): True, (0, 4): True}] * 2


def test_what_has_an_as_of_from_before_the_begin_is_nothing(other: View) -> None:
    other.begin_at({0: 5}, {0: 9}, {})
    take(
        other,
        at(0, 5, schedule(LATER_MS, parent=1)._replace(serial=(4, 5))),
        at(0, 6, schedule(LATER_MS, parent=1)._replace(serial=(5, 6))),
    )
    assert waiting(other) == [6]


def test_of_the_requests_to_keep_those_that_were_answered_are_decided_by_their_outcomes(other: View) -> None:
    other.begin_at({0: 5}, {0: 8}, {})
    assert other.lacks_duplicates() == {0: 8}
    other.know_duplicates({(0, 6)})
    kept = schedule(LATER_MS, "a")._replace(keep=True)
    take(other, *(at(0, offset, kept._replace(id=id_)) for offset, id_ in ((5, "a"), (6, "b"), (7, "c"))))
    take(other, at(0, 8, kept), at(0, 9, kept._replace(id="b")))
    assert waiting(other) == [5, 7, 9]
    assert other.lacks_duplicates() is None


def test_a_begin_outlives_the_process(tmp_path: Path) -> None:
    before = open_view(tmp_path / "store")
    before.begin_at({0: 5}, {0: 8}, {})
    before.flush()
    before.close()
    after = open_view(tmp_path / "store")
    assert (after.reached().applied, after.lacks_duplicates()) == ({0: 5}, {0: 8})
    after.close()


def test_markers_at_the_begin_are_none_of_what_is_applied(other: View) -> None:
    other.begin_at({0: 7}, {0: 5}, {})
    assert other.reached() == Reached(applied={0: 5}, read={0: 7})


def test_what_stands_below_carried_leaves_the_queue(view: View) -> None:
    take(view, at(0, 0, reject(), 500), at(0, 1, schedule(500)))
    assert settled(view).frontier.carried == {0: 2}
    view.prune()
    assert view.snapshot(lambda kv, *_: [key for key, _ in kv.scan(b"g", b"h")]) == []


def test_a_carry_of_a_newer_format_is_not_read(view: View) -> None:
    key: RowKey = (LATER_MS, 0, 0)
    with pytest.raises(NewerCarry, match="format 2; this version reads 1"):
        at(0, 1, Carry(b"\x02" + encode_carry(key[0], key[2], b"")[1:], (0, 0)))


def test_a_selection_says_whether_there_is_more_to_look_at_for_what_is_to_be_carried(view: View) -> None:
    last = 6 * MOST_WALKED
    for n in range(0, last, 2):
        take(view, at(0, n, schedule(LATER_MS)), at(0, n + 1, Cancel(None, n)))
    take(view, at(0, last, schedule(LATER_MS)))
    chosen = [
        view.select(NOW_MS + n * MANY.carry_rest_ms, MANY, write_back=NOTHING_SENT, old={0: last + 1})
        for n in range(4)
    ]
    walks, found = [one.walks for one in chosen], [carries(one) for one in chosen]
    assert walks == sorted(walks, reverse=True)
    assert walks[0]
    assert found[walks.index(False)] == [last]


class Counting(RocksStore):
    """Counts the batches that are written, and the rows that are read alone."""

    writes = 0
    rows = 0

    def get(self, key: bytes) -> bytes | None:
        self.rows += key.startswith(keys.ROW)
        return super().get(key)

    def write(self, batch: Batch) -> None:
        self.writes += 1
        super().write(batch)


def test_copies_of_carries_part_no_batch(tmp_path: Path) -> None:
    store = Counting(tmp_path / "view")
    view = View(store, [0], WINDOW_MS, SETTINGS)
    take(view, at(0, 0, schedule(LATER_MS)))
    copied = carry(select(view), (1, 1))
    take(view, at(0, 1, copied))
    before = store.writes
    take(view, *(at(0, n, copied if n % 2 else schedule(LATER_MS)) for n in range(2, 20)))
    assert (store.writes - before, waiting(view)) == (1, [0, *range(2, 20, 2)])
    view.close()


def test_whether_rows_are_needed_is_looked_at_once_a_rest_however_often_is_selected(tmp_path: Path) -> None:
    store, rest_ms = Counting(tmp_path / "view"), MANY.carry_rest_ms
    view = View(store, [0], WINDOW_MS, SETTINGS)
    take(view, at(0, 0, schedule(LATER_MS)))
    found = [rows_read(view, store, NOW_MS + n * rest_ms // 5) for n in range(11)]
    assert [rows > 0 for rows in found] == [n % 5 == 0 for n in range(11)]
    view.close()


def rows_read(view: View, store: Counting, now_ms: int) -> int:
    before = store.rows
    select(view, now_ms=now_ms)
    return store.rows - before


def test_what_is_a_copy_among_carries_is_the_same_in_one_batch_as_one_by_one(view: View, other: View) -> None:
    below = at(0, 0, schedule(LATER_MS)), at(0, 1, schedule(500))
    for one in (view, other):
        take(one, *below)
    first = carry(select(view), (2, 2))
    log = [
        at(0, 2, first),
        at(0, 3, first, 9_000),  # a copy, which has the newest timestamp
        at(0, 4, schedule(LATER_MS)),
        at(0, 5, first._replace(serial=(4, 9)))._replace(kind=Kind.SPENT, raw=b"", timestamp_ms=0),
        at(0, 6, first._replace(serial=(4, 7))),  # below what is spent
        at(0, 7, schedule(LATER_MS, parent=1)._replace(serial=(5, 10))),
        at(0, 8, first._replace(serial=(5, 10))),
        at(0, 9, first._replace(serial=(5, 11))),
        at(0, 10, first._replace(serial=(5, 11))),
    ]
    take(view, *log)
    for arrival in log:
        take(other, arrival)
    assert kept(view) == kept(other)
    assert decode_offset(kept(view)[keys.since(0, 0)]) == 5
    assert view.reached().applied == {0: 11}


def kept(view: View) -> dict[bytes, bytes]:
    """All that is stored, but for the checkpoint."""
    others = (keys.ALIGNED, keys.READ)
    return view.snapshot(lambda kv, *_: {k: v for k, v in kv.scan(b"", b"\xff") if k not in others})


@pytest.mark.parametrize("cancelled_at", [3, 5])
def test_a_replay_reaches_what_a_chain_without_an_id_has_done_though_a_cancel_has_ended_that(
    view: View, other: View, cancelled_at: int
) -> None:
    take(view, at(0, 0, schedule(1_900)))
    select(view)
    take(view, at(0, 1, schedule(LATER_MS, parent=0)._replace(serial=(1, 1))))
    log = {2: at(0, 2, schedule(LATER_MS)), cancelled_at: at(0, cancelled_at, Cancel(None, 0))}
    take(view, *(one for offset, one in log.items() if offset < 4))
    began_ms = NOW_MS + DAY_MS
    chosen = paused(view, began_ms, 2)
    log[4] = at(0, 4, carry(chosen, (4, 4)))
    take(view, *(log[offset] for offset in sorted(log) if offset > 3))
    for n in (1, 2):
        begins = paused(view, began_ms + n * MANY.carry_rest_ms, 2)
    assert begins.frontier.carried == {0: 2}
    other.begin_at(begins.frontier.carried, begins.frontier.seen, begins.frontier.newest_ms)
    other.align(checkpoint_of(begins))
    take(other, *(log[offset] for offset in sorted(log)))
    assert [rows(one) for one in (view, other)] == [[0, 2]] * 2


def rows(view: View) -> list[int]:
    return view.snapshot(
        lambda kv, *_: sorted(keys.timed(key)[2] for key, _ in kv.scan(keys.ROW, keys.end_of(keys.ROW)))
    )
