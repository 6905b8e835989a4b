"""For how long a leader waits for what it cannot read yet."""

from __future__ import annotations

import msgspec
import pytest

from node.core.unread import HIDDEN_MS, Unread
from store.checkpoint import nothing
from store.selection import Selection
from store.view import View
from tests.unit.core_ports import FakeClock
from tests.unit.view_records import at, schedule, take

NOW_MS = 1_000_000
HEARTBEAT_MS = NOW_MS + 1_000
DONE = Selection([], [], [], {}, nothing([0, 1]))
FULL = msgspec.structs.replace(DONE, cut_short=True, full={0: 1})


@pytest.fixture
def time() -> FakeClock:
    return FakeClock(NOW_MS)


@pytest.fixture
def unread(view: View, time: FakeClock) -> Unread:
    return Unread(view, time)


def until_ms(unread: Unread) -> int | None:
    return unread.until_due(HEARTBEAT_MS).until_ms


def test_what_is_due_next_is_waited_for(unread: Unread, view: View) -> None:
    take(view, at(0, 0, schedule(NOW_MS + 50)))
    unread.note_selected(DONE)
    assert until_ms(unread) == NOW_MS + 50


def test_but_for_no_longer_than_to_the_heartbeat(unread: Unread, view: View) -> None:
    take(view, at(0, 0, schedule(HEARTBEAT_MS + 50)))
    unread.note_selected(DONE)
    assert until_ms(unread) == HEARTBEAT_MS


def test_what_is_due_is_not_waited_for_while_it_waits_itself_for_what_is_unread(
    unread: Unread, view: View
) -> None:
    take(view, at(1, 0, schedule(NOW_MS - 50)))
    unread.note_selected(msgspec.structs.replace(DONE, cut_short=True, waits_for={0: 1}))
    assert until_ms(unread) == HEARTBEAT_MS


def test_what_was_read_meanwhile_is_not_waited_for(unread: Unread, view: View) -> None:
    unread.note_selected(FULL)
    take(view, at(0, 0, schedule(NOW_MS + 50)))
    assert until_ms(unread) == NOW_MS


@pytest.mark.parametrize("waited_ms", [0, HIDDEN_MS - 1])
def test_a_full_list_waits_for_the_reader_a_moment(unread: Unread, time: FakeClock, waited_ms: int) -> None:
    unread.note_selected(FULL)
    time.steady += waited_ms
    assert (until_ms(unread), unread.hidden()) == (NOW_MS + HIDDEN_MS - waited_ms, frozenset())


def test_what_is_not_read_by_then_is_hidden(unread: Unread, time: FakeClock) -> None:
    unread.note_selected(FULL)
    time.steady += HIDDEN_MS
    assert (until_ms(unread), unread.hidden()) == (HEARTBEAT_MS, frozenset({0}))


def test_the_moment_begins_with_the_first_selection_that_waits(unread: Unread, time: FakeClock) -> None:
    for _ in range(2):
        unread.note_selected(FULL)
        time.steady += HIDDEN_MS // 2
    assert unread.hidden() == {0}


def test_what_has_been_read_is_hidden_no_more(unread: Unread, time: FakeClock, view: View) -> None:
    unread.note_selected(FULL)
    time.steady += HIDDEN_MS
    take(view, at(0, 0, schedule(NOW_MS + 50)))
    assert unread.hidden() == frozenset()


def test_after_a_failure_it_is_waited_for_anew(unread: Unread, time: FakeClock) -> None:
    unread.note_selected(FULL)
    time.steady += HIDDEN_MS
    unread.forget()
    assert unread.hidden() == frozenset()
