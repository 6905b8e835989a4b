"""The audit of recurring messages and of duplicates: clean where all is right, and every fault named."""

from __future__ import annotations

from tests.integration.audited import Audited, check_accounted, found
from tests.integration.histories import Request, Row
from tests.integration.recurring_history import CLASSES, OCCURRENCES, FaultyRecurring, RecurringHistory


def place(row: Row) -> str:
    request = row if isinstance(row, Request) else row.request
    assert request is not None
    return request.source


def test_each_occurrence_and_each_duplicate_of_a_correct_history_is_accounted_for(correct: Audited) -> None:
    _, told = correct[RecurringHistory]
    check_accounted(told, CLASSES, OCCURRENCES)


def test_each_fault_of_a_chain_or_a_duplicate_is_found_and_named_and_nothing_else(faulty: Audited) -> None:
    history, told = faulty[FaultyRecurring]
    assert found(told) == {
        ("lost", place(history.every_2)),
        ("duplicated", place(history.cron_1)),
        ("duplicated", place(history.parked_again)),
        ("wrong_occurrence", place(history.dead)),
        ("false_outcome", place(history.cancelled_2)),
        ("false_outcome", place(history.raced_2)),
        ("altered", place(history.latest_2)),
        ("duplicated", place(history.duplicate)),
        ("false_outcome", place(history.fresh)),
    }
