"""The audit of what operators have had done: clean where all is right, and every fault named."""

from __future__ import annotations

from tests.integration.audited import Audited, check_accounted, found
from tests.integration.operated_history import CLASSES, OCCURRENCES, FaultyOperated, OperatedHistory


def test_replays_skips_and_pauses_are_accounted_for(correct: Audited) -> None:
    _, told = correct[OperatedHistory]
    check_accounted(told, CLASSES, OCCURRENCES)


def test_each_fault_of_an_operation_is_found_and_named_and_nothing_else(faulty: Audited) -> None:
    history, told = faulty[FaultyOperated]
    one, two, three, four, _, six = history.plain
    assert found(told) == {
        ("duplicated", one.source),  # outside the range, and carried all the same
        ("lost", two.source),  # in the range, and not carried
        ("duplicated", three.source),  # carried twice
        ("altered", four.source),
        ("duplicated", history.parked.source),  # it was parked: its later try is the message
        ("early", history.parked.source),
        ("altered", history.parked.source),
        ("false_outcome", six.source),  # skipped, and nobody had asked for that
        ("false_outcome", history.skipped.source),  # skipped, and delivered
    }
