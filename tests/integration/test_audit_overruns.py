"""The audit of a lane whose clocks were ahead: what it delivered then stays settled, and a loss is a loss."""

from __future__ import annotations

from tests.integration.audited import Audited, check_accounted
from tests.integration.overrun_history import CLASSES, FaultyOverrun, HeldOverrun, OverrunHistory


def test_what_comes_in_its_time_after_a_step_back_is_accounted_for(correct: Audited) -> None:
    _, told = correct[OverrunHistory]
    check_accounted(told, CLASSES)


def test_what_was_done_before_a_pause_is_none_of_its_holds(correct: Audited) -> None:
    _, told = correct[HeldOverrun]
    check_accounted(told, CLASSES)


def test_what_is_lost_and_a_position_that_goes_back_without_a_step_are_found(faulty: Audited) -> None:
    history, told = faulty[FaultyOverrun]
    assert {one.kind for one in told.violations} == {"checkpoint_moved_back", "lost"}
    assert [one.source for one in told.violations if one.kind == "lost"] == [history.next.source]
