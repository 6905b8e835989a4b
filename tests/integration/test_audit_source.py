"""The audit of cancels by source: clean where all is right, and every fault named."""

from __future__ import annotations

from tests.integration.audited import Audited, check_accounted, found
from tests.integration.histories import Next
from tests.integration.source_history import CLASSES, OCCURRENCES, FaultySource, SourceHistory


def place(row: Next) -> str:
    assert row.request is not None
    return row.request.source


def test_what_was_cancelled_by_its_source_is_accounted_for(correct: Audited) -> None:
    _, told = correct[SourceHistory]
    check_accounted(told, CLASSES, OCCURRENCES)


def test_each_fault_of_a_cancel_by_source_is_found_and_named_and_nothing_else(faulty: Audited) -> None:
    history, told = faulty[FaultySource]
    assert found(told) == {
        ("false_outcome", history.cancel_again.source),
        ("false_outcome", history.cancel_old.source),
        ("duplicated", history.old.source),  # it was replaced, and then cancelled
        ("false_outcome", history.cancel_late.source),
        ("false_outcome", place(history.chain_2)),
        ("false_outcome", place(history.raced_2)),
    }
