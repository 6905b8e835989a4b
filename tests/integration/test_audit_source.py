"""The audit of cancels by source: clean where all is right, and every fault named."""

from __future__ import annotations

import pytest

from delayline.settings import ClusterSettings
from tests.integration.audited import Audited, check_accounted, found
from tests.integration.histories import Next
from tests.integration.source_history import CLASSES, OCCURRENCES, SourceHistory


@pytest.fixture
def history(cluster_name: str) -> SourceHistory:
    return SourceHistory(ClusterSettings(cluster=cluster_name, partitions=2))


def place(row: Next) -> str:
    assert row.request is not None
    return row.request.source


def test_what_was_cancelled_by_its_source_is_accounted_for(history: SourceHistory, audited: Audited) -> None:
    check_accounted(audited(history).report, CLASSES, OCCURRENCES)


def test_each_fault_of_a_cancel_by_source_is_found_and_named_and_nothing_else(
    history: SourceHistory, audited: Audited
) -> None:
    history.plant_faults()
    report = audited(history).report
    assert found(report) == {
        ("false_outcome", history.cancel_again.source),
        ("false_outcome", history.cancel_old.source),
        ("duplicated", history.old.source),  # it was replaced, and then cancelled
        ("false_outcome", history.cancel_late.source),
        ("false_outcome", place(history.chain_2)),
        ("false_outcome", place(history.raced_2)),
    }
