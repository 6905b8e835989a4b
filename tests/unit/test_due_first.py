"""How long intake rests beside a backlog."""

from __future__ import annotations

import threading

import pytest

from store.due_first import FRESH_S, DueFirst
from tests.support.waiting import PATIENCE_S

WORKED_S = 0.01


class Time(threading.Event):
    """A clock, and an event that lets it go on instead of waiting; `during`: for how long each time."""

    def __init__(self) -> None:
        super().__init__()
        self.now_s = 100.0
        self.during: list[float] = []

    def wait(self, timeout: float | None = None) -> bool:
        assert timeout is not None
        if not self.is_set():
            self.during.append(timeout)
            self.now_s += timeout
        return self.is_set()


@pytest.fixture
def time() -> Time:
    return Time()


@pytest.fixture
def due_first(time: Time) -> DueFirst:
    return DueFirst(lambda: time.now_s, time)


def test_intake_goes_on_at_once_where_nothing_is_left(time: Time, due_first: DueFirst) -> None:
    due_first.rest(WORKED_S)
    due_first.note(left=True)
    due_first.note(left=False)
    due_first.rest(WORKED_S)
    assert time.during == []


def test_beside_a_backlog_intake_has_a_tenth_of_the_time(time: Time, due_first: DueFirst) -> None:
    due_first.note(left=True)
    due_first.rest(WORKED_S)
    assert sum(time.during) == pytest.approx(9 * WORKED_S)


def test_a_leader_that_waits_for_the_brokers_holds_intake_up_for_a_moment(
    time: Time, due_first: DueFirst
) -> None:
    due_first.note(left=True)
    due_first.rest(1_000 * WORKED_S)
    assert sum(time.during) == pytest.approx(FRESH_S)


def test_a_rest_ends_once_nothing_is_left() -> None:
    due_first = DueFirst(lambda: 0.0)  # it never ends by the clock
    due_first.note(left=True)
    intake = threading.Thread(target=due_first.rest, args=[WORKED_S], daemon=True)
    intake.start()
    due_first.note(left=False)
    intake.join(PATIENCE_S)
    assert not intake.is_alive()
