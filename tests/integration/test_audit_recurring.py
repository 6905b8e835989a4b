"""The audit of recurring messages and of duplicates: clean where all is right, and every fault named."""

from __future__ import annotations

import pytest

from delayline.settings import ClusterSettings
from tests.integration.audited import Audited, check_accounted, found
from tests.integration.histories import Request, Row
from tests.integration.recurring_history import CLASSES, OCCURRENCES, RecurringHistory


@pytest.fixture
def settings(cluster_name: str) -> ClusterSettings:
    return ClusterSettings(cluster=cluster_name, partitions=2, max_delay_ms=2 * 3_600_000)


@pytest.fixture
def history(settings: ClusterSettings) -> RecurringHistory:
    return RecurringHistory(settings)


def place(row: Row) -> str:
    request = row if isinstance(row, Request) else row.request
    assert request is not None
    return request.source


def test_each_occurrence_and_each_duplicate_of_a_correct_history_is_accounted_for(
    history: RecurringHistory, audited: Audited
) -> None:
    check_accounted(audited(history).report, CLASSES, OCCURRENCES)


def test_each_fault_of_a_chain_or_a_duplicate_is_found_and_named_and_nothing_else(
    history: RecurringHistory, audited: Audited
) -> None:
    history.plant_faults()
    report = audited(history).report
    assert found(report) == {
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
