"""A history with faults, audited: what the tests of its page, and those who look at it, have before them."""

from __future__ import annotations

from pathlib import Path

from pyspark.sql import SparkSession

from delayline.settings import ClusterSettings
from ops.audit import Audit, AuditConfig, LedgerWriter, audit
from tests.integration.histories import Writer
from tests.integration.sample_history import SampleHistory

HOSTILE_ID = "<script>window.obeyed = true</script>"
AFTER_ALL_S = 9.2e15
"""So late that no calendar has it, and microseconds of it are more than 64 bits hold."""


class Planted:
    """Writes the history to a new cluster's topics, and audits it."""

    def __init__(self, bootstrap: str, cluster: str, spark: SparkSession, folder: Path) -> None:
        settings = ClusterSettings(cluster=cluster, partitions=2)
        self.history = SampleHistory(settings)
        back = self.history.plant_faults()
        self.hostile = self.history.schedule("never delivered", 8.0, id=HOSTILE_ID, expire_at=AFTER_ALL_S)
        ledger = folder / "ledger.jsonl"
        with LedgerWriter(ledger) as lines:
            Writer(bootstrap, settings, lines).write([*self.history.steps, back, self.hostile])
        self.config = AuditConfig(bootstrap, settings, ledger=ledger, now_ms=self.history.end_ms)
        self.found: Audit = audit(spark, self.config)
