"""The audit without end comes to the verdicts of the audit, wherever its rounds begin and end."""

from __future__ import annotations

from pathlib import Path

from pyspark.sql import SparkSession

from tests.integration.audited import Audited
from tests.integration.watched import check_rounds


def test_rounds_come_to_what_an_audit_of_everything_finds(
    faulty: Audited, spark: SparkSession, tmp_path: Path
) -> None:
    check_rounds(faulty, spark, tmp_path, faulty.cuts)
