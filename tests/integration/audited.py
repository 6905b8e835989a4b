"""Histories written to a real Kafka, and audited."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from confluent_kafka import Producer
from pyspark.sql import SparkSession

from delayline.names import ClusterNames
from delayline.requests import BufferRecord
from pipeline.audit import Audit, AuditConfig, AuditReport, LedgerWriter, audit
from tests.integration.histories import History, Step, Writer
from tests.support.keys import KEYRING
from tests.support.tail import read_all
from tests.support.waiting import PATIENCE_S


class Audited:
    """Writes a history, with a ledger, and audits it when all of it is due."""

    def __init__(self, bootstrap: str, spark: SparkSession, folder: Path) -> None:
        self._bootstrap = bootstrap
        self._spark = spark
        self._ledger = folder / "ledger.jsonl"
        self.acknowledged_too: dict[str, BufferRecord] = {}
        self.rejected_checkpoints: list[bytes] = []

    def __call__(self, history: History, *more: Step) -> Audit:
        with LedgerWriter(self._ledger) as ledger:
            Writer(self._bootstrap, history.settings, ledger).write([*history.steps, *more])
            for source, record in self.acknowledged_too.items():
                ledger.add(source, record)
        if self.rejected_checkpoints:
            self._write_strangely(ClusterNames(history.settings.cluster).checkpoint)
        return self.audit(history)

    def _write_strangely(self, topic: str) -> None:
        """A copy of each checkpoint, of the aborted ones too, and records that nobody has signed."""
        stranger = Producer({"bootstrap.servers": self._bootstrap})
        for got in read_all(self._bootstrap, topic, and_aborted=True):
            headers: Any = got.headers
            stranger.produce(topic, got.value, got.key, got.partition, headers=headers)
        for raw in self.rejected_checkpoints:
            stranger.produce(topic, raw, b"0", 0)
        assert stranger.flush(PATIENCE_S) == 0

    def audit(self, history: History) -> Audit:
        return audit(self._spark, self.config(history))

    def config(self, history: History) -> AuditConfig:
        return AuditConfig(
            self._bootstrap, history.settings, KEYRING, ledger=self._ledger, now_ms=history.end_ms
        )


def found(report: AuditReport) -> set[tuple[str, str]]:
    """Each violation's kind and source; none is there twice."""
    assert len(report.violations) == len(set(report.violations))
    return {(violation.kind, violation.source) for violation in report.violations}


def check_accounted(
    report: AuditReport, classes: Mapping[str, int], occurrences: Mapping[str, int] | None = None
) -> None:
    """Nothing is wrong, and every request is in its class, and every occurrence at its end."""
    assert report.violations == ()
    assert {name: count for name, count in report.classes.items() if count} == classes
    assert report.occurrences == (occurrences or {})
    assert report.ledger == report.requests == sum(classes.values())
