"""The audit of reschedules, deferred or overtaken: clean where all is right, and every fault named."""

from __future__ import annotations

from tests.integration.audited import Audited, check_accounted, found
from tests.integration.moved_history import CLASSES, OCCURRENCES, FaultyMoved, MovedHistory


def test_each_reschedule_of_a_correct_history_is_in_the_class_of_its_answer(correct: Audited) -> None:
    _, told = correct[MovedHistory]
    check_accounted(told, CLASSES, OCCURRENCES)


def test_each_fault_of_a_reschedule_is_found_and_named_and_nothing_else(faulty: Audited) -> None:
    history, told = faulty[FaultyMoved]
    assert history.raced_deferred.request is not None
    assert found(told) == {
        ("false_outcome", history.twice_last.source),
        ("false_outcome", history.again_last.source),
        ("duplicated", history.raced.source),
        ("false_outcome", history.raced_deferred.request.source),
        ("false_outcome", history.due_last.source),
        ("lost", history.done_first.source),
        ("duplicated", history.dropped_first.source),
        ("altered", history.kept_first.source),
        ("false_outcome", history.kept_first.source),
    }
