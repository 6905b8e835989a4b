"""The audit of recurring messages and of duplicates: clean where all is right, and every fault named."""

from __future__ import annotations

from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from delayline.settings import ClusterSettings
from ops.audit import Audit, AuditConfig, LedgerWriter, audit
from tests.integration.histories import Request, Row, Writer
from tests.integration.recurring_history import CLASSES, OCCURRENCES, RecurringHistory
from tests.stacks import Stack


@pytest.fixture
def settings(cluster_name: str) -> ClusterSettings:
    return ClusterSettings(cluster=cluster_name, partitions=2, max_delay_ms=2 * 3_600_000)


@pytest.fixture
def history(settings: ClusterSettings) -> RecurringHistory:
    return RecurringHistory(settings)


def audited(
    history: RecurringHistory, settings: ClusterSettings, stack: Stack, spark: SparkSession, folder: Path
) -> Audit:
    ledger = folder / "ledger.jsonl"
    with LedgerWriter(ledger) as lines:
        Writer(stack.bootstrap, settings, lines).write(history.steps)
    config = AuditConfig(stack.bootstrap, settings, ledger=ledger, now_ms=history.end_ms)
    return audit(spark, config)


def place(row: Row) -> str:
    request = row if isinstance(row, Request) else row.request
    assert request is not None
    return request.source


def test_each_occurrence_and_each_duplicate_of_a_correct_history_is_accounted_for(
    history: RecurringHistory, settings: ClusterSettings, stack: Stack, spark: SparkSession, tmp_path: Path
) -> None:
    report = audited(history, settings, stack, spark, tmp_path).report
    assert report.violations == ()
    assert {name: count for name, count in report.classes.items() if count} == CLASSES
    assert report.occurrences == OCCURRENCES
    assert report.ledger == report.requests == sum(CLASSES.values())


def test_each_fault_of_a_chain_or_a_duplicate_is_found_and_named_and_nothing_else(
    history: RecurringHistory, settings: ClusterSettings, stack: Stack, spark: SparkSession, tmp_path: Path
) -> None:
    history.plant_faults()
    report = audited(history, settings, stack, spark, tmp_path).report
    assert {(one.kind, one.source) for one in report.violations} == {
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
