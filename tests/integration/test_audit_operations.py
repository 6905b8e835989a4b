"""The audit of what operators have had done: clean where all is right, and every fault named."""

from __future__ import annotations

from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from delayline.settings import ClusterSettings
from ops.audit import AuditConfig, LedgerWriter, Report, audit
from tests.integration.histories import Writer
from tests.integration.operated_history import CLASSES, OCCURRENCES, OperatedHistory
from tests.stacks import Stack


@pytest.fixture
def settings(cluster_name: str) -> ClusterSettings:
    return ClusterSettings(cluster=cluster_name, partitions=2)


@pytest.fixture
def history(settings: ClusterSettings) -> OperatedHistory:
    return OperatedHistory(settings)


def audited(
    history: OperatedHistory, settings: ClusterSettings, stack: Stack, spark: SparkSession, folder: Path
) -> Report:
    ledger = folder / "ledger.jsonl"
    with LedgerWriter(ledger) as lines:
        Writer(stack.bootstrap, settings, lines).write(history.steps)
    config = AuditConfig(stack.bootstrap, settings, ledger=ledger, now_ms=history.end_ms)
    return audit(spark, config).report


def test_replays_skips_and_pauses_are_accounted_for(
    history: OperatedHistory, settings: ClusterSettings, stack: Stack, spark: SparkSession, tmp_path: Path
) -> None:
    report = audited(history, settings, stack, spark, tmp_path)
    assert report.violations == ()
    assert {name: count for name, count in report.classes.items() if count} == CLASSES
    assert report.occurrences == OCCURRENCES
    assert report.ledger == report.requests == sum(CLASSES.values())


def test_each_fault_of_an_operation_is_found_and_named_and_nothing_else(
    history: OperatedHistory, settings: ClusterSettings, stack: Stack, spark: SparkSession, tmp_path: Path
) -> None:
    history.plant_faults()
    report = audited(history, settings, stack, spark, tmp_path)
    one, two, three, four, _, six = history.plain
    assert sorted((found.kind, found.source) for found in report.violations) == sorted(
        [
            ("duplicated", one.source),  # outside the range, and carried all the same
            ("lost", two.source),  # in the range, and not carried
            ("duplicated", three.source),  # carried twice
            ("altered", four.source),
            ("duplicated", history.put_off.source),  # it was put off: its later try is the message
            ("early", history.put_off.source),
            ("altered", history.put_off.source),
            ("false_outcome", six.source),  # skipped, and nobody had asked for that
            ("false_outcome", history.skipped.source),  # skipped, and delivered
        ]
    )
