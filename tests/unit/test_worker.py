"""Workers: which of a node's threads are missed, and where the errors go that end them."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator

import pytest

from node.worker import Bell, Roster, Worker


def _nothing() -> None:
    """Ends at once."""


class OneTask(Worker):
    """Does one thing, and ends."""

    def __init__(self, work: Callable[[], object] = _nothing, bell: Bell | None = None) -> None:
        super().__init__("worker", bell=bell)
        self.closed = threading.Event()
        self._work = work

    def _run(self) -> None:
        self._work()

    def _close(self) -> None:
        self.closed.set()


class Patient(Worker):
    """Waits until it is asked to stop."""

    def __init__(self) -> None:
        super().__init__("worker")

    def _run(self) -> None:
        while not self.wait(60):
            pass


@pytest.fixture
def patient() -> Iterator[Patient]:
    patient = Patient()
    yield patient
    patient.stop()
    patient.join()


@pytest.fixture
def unhandled(monkeypatch: pytest.MonkeyPatch) -> list[BaseException | None]:
    found: list[BaseException | None] = []
    monkeypatch.setattr(threading, "excepthook", lambda args: found.append(args.exc_value))
    return found


def boom() -> None:
    raise ValueError("boom")


def run(worker: Worker, roster: Roster) -> None:
    worker.start(roster)
    worker.join()


def test_a_worker_that_ends_unasked_is_missed() -> None:
    roster = Roster()
    run(OneTask(), roster)
    assert roster.dead() == ["worker"]


def test_it_is_missed_though_a_thread_of_its_name_runs(patient: Patient) -> None:
    roster = Roster()
    patient.start(roster)
    run(OneTask(), roster)
    assert roster.dead() == ["worker"]


def test_a_worker_that_runs_is_not_missed(patient: Patient) -> None:
    roster = Roster()
    patient.start(roster)
    assert roster.dead() == []


def test_a_worker_that_was_asked_to_stop_is_not_missed() -> None:
    roster, patient = Roster(), Patient()
    patient.start(roster)
    patient.stop()
    patient.join()
    assert roster.dead() == []


def test_a_thread_that_has_died_is_told_of_though_it_may_end() -> None:
    roster, thread = Roster(), threading.Thread(name="lane")
    roster.start(thread)
    roster.died("lane")
    roster.release(thread)
    assert roster.dead() == ["lane"]


def test_a_worker_whose_error_is_mended_is_not_missed() -> None:
    mended: list[str] = []

    def mend(error: Exception) -> bool:
        mended.append(str(error))
        return True

    roster = Roster(mend)
    run(OneTask(boom), roster)
    assert (mended, roster.dead()) == (["boom"], [])


def test_an_error_that_nobody_mends_is_a_threads_last_word(
    unhandled: list[BaseException | None],
) -> None:
    roster = Roster(lambda _: False)
    run(OneTask(boom), roster)
    assert ([str(error) for error in unhandled], roster.dead()) == (["boom"], ["worker"])


def test_an_error_is_heard_of_before_what_the_worker_holds_is_closed() -> None:
    worker, closed = OneTask(boom), list[bool]()

    def mend(_: Exception) -> bool:
        closed.append(worker.closed.is_set())
        return True

    run(worker, Roster(mend))
    assert (closed, worker.closed.is_set()) == ([False], True)


def test_what_a_worker_holds_that_never_began_is_closed_all_the_same() -> None:
    worker = OneTask()
    worker.stop()
    worker.join()
    assert worker.closed.is_set()


def test_a_worker_that_waits_for_its_bell_is_woken_to_end() -> None:
    bell = Bell()
    worker = OneTask(bell.wait, bell)
    worker.start(Roster())
    worker.stop()
    worker.join()
    assert worker.closed.is_set()
