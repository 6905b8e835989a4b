"""Histories written to a real Kafka, and audited."""

from __future__ import annotations

from pathlib import Path

from pyspark.sql import SparkSession

from delayline.requests import BufferRecord
from ops.audit import Audit, AuditConfig, LedgerWriter, audit
from tests.integration.histories import History, Step, Writer
from tests.support.keys import KEYRING


class Audited:
    """Writes a history, with a ledger, and audits it when all of it is due."""

    def __init__(self, bootstrap: str, spark: SparkSession, folder: Path) -> None:
        self._bootstrap = bootstrap
        self._spark = spark
        self._ledger = folder / "ledger.jsonl"
        self.acknowledged_too: dict[str, BufferRecord] = {}

    def __call__(self, history: History, *more: Step) -> Audit:
        with LedgerWriter(self._ledger) as ledger:
            Writer(self._bootstrap, history.settings, ledger).write([*history.steps, *more])
            for source, record in self.acknowledged_too.items():
                ledger.add(source, record)
        return self.audit(history)

    def audit(self, history: History) -> Audit:
        return audit(self._spark, self.config(history))

    def config(self, history: History) -> AuditConfig:
        return AuditConfig(
            self._bootstrap, history.settings, KEYRING, ledger=self._ledger, now_ms=history.end_ms
        )
