"""The audit of reschedules, deferred or overtaken: clean where all is right, and every fault named."""

from __future__ import annotations

import pytest

from delayline.settings import ClusterSettings
from tests.integration.audited import Audited, check_accounted, found
from tests.integration.moved_history import CLASSES, OCCURRENCES, MovedHistory


@pytest.fixture
def history(cluster_name: str) -> MovedHistory:
    return MovedHistory(ClusterSettings(cluster=cluster_name, partitions=1))


def test_each_reschedule_of_a_correct_history_is_in_the_class_of_its_answer(
    history: MovedHistory, audited: Audited
) -> None:
    check_accounted(audited(history).report, CLASSES, OCCURRENCES)


def test_each_fault_of_a_reschedule_is_found_and_named_and_nothing_else(
    history: MovedHistory, audited: Audited
) -> None:
    history.plant_faults()
    report = audited(history).report
    assert history.raced_deferred.request is not None
    assert found(report) == {
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
