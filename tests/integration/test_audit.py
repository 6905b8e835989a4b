"""The audit of a history written by hand: clean where all is right; every planted fault found and named."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from delayline.settings import ClusterSettings
from ops.audit import AuditConfig, LedgerWriter, Report, audit, spark_session
from tests.integration.histories import Writer
from tests.integration.sample_history import CLASSES, SampleHistory
from tests.stacks import Stack

Audited = Callable[[SampleHistory], Report]


@pytest.fixture(scope="session")
def spark() -> Iterator[SparkSession]:
    session = spark_session()
    yield session
    session.stop()


@pytest.fixture
def settings(cluster_name: str) -> ClusterSettings:
    return ClusterSettings(cluster=cluster_name, partitions=2)


@pytest.fixture
def history(settings: ClusterSettings) -> SampleHistory:
    return SampleHistory(settings)


@pytest.fixture
def audited(stack: Stack, spark: SparkSession, settings: ClusterSettings, tmp_path: Path) -> Audited:
    """Writes a history, with a ledger, and audits it when all of it is due."""
    ledger = tmp_path / "ledger.jsonl"

    def run(history: SampleHistory) -> Report:
        with LedgerWriter(ledger) as lines:
            Writer(stack.bootstrap, settings, lines).write(history.steps)
        found = audit(spark, AuditConfig(stack.bootstrap, settings, ledger=ledger, now_ms=history.end_ms))
        found.close()
        return found.report

    return run


def kinds(report: Report) -> list[str]:
    return [violation.kind for violation in report.violations]


def test_every_request_of_a_correct_history_is_in_its_class(history: SampleHistory, audited: Audited) -> None:
    report = audited(history)
    assert report.violations == ()
    assert {name: count for name, count in report.classes.items() if count} == CLASSES
