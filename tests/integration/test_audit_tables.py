"""The tables say of each request what an audit of everything says, wherever the runs of an export begin and
end, and no row is there twice.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import Row, SparkSession

from pipeline.audit.meaning import source
from pipeline.tables.marker import Done
from pipeline.tables.place import Place
from pipeline.tables.run import export
from pipeline.tables.schema import TABLES
from pipeline.watch.round import MARGIN_MS, WatchConfig
from tests.integration.audited import Audited
from tests.integration.test_audit_watch import AT_ONCE_MS
from tests.support.tables import Tables


@dataclass(frozen=True)
class Exported:
    """An export of histories in as many runs as they have cuts."""

    tables: Tables
    runs: Sequence[Done]


def exported(spark: SparkSession, folder: Path, of: Audited, margin_ms: int) -> Exported:
    config = WatchConfig(replace(of.config, ledger=None), margin_ms=margin_ms)
    place = Place(spark, str(folder))
    place.claim(of.config.settings.cluster, "the buffer")
    runs = [export(spark, config, place, lambda: None, cut) for cut in of.cuts]
    return Exported(Tables(folder), runs)


@pytest.mark.parametrize(
    ("histories", "margin_ms"),
    [("correct", AT_ONCE_MS), ("correct", MARGIN_MS), ("faulty", AT_ONCE_MS), ("faulty", MARGIN_MS)],
)
def test_each_request_is_a_row_with_what_an_audit_of_everything_says(
    histories: str, margin_ms: int, spark: SparkSession, tmp_path: Path, request: pytest.FixtureRequest
) -> None:
    of: Audited = request.getfixturevalue(histories)
    found = exported(spark, tmp_path, of, margin_ms)
    rows = found.tables.rows("requests")
    assert len({row["source"] for row in rows}) == len(rows)
    told = {row["source"]: shown(row) for row in of.all.requests}
    assert {row["source"]: row_shown(row) for row in rows} == told


def shown(row: Row) -> Mapping[str, Any]:
    """What a table has of what an audit says."""
    as_they_are = "kind", "id", "class", "overdue", "delivered_as", "lateness_ms"
    return {
        **{name: row[name] for name in as_they_are},
        "target": row["target_topic"],
        "due_at": time(row["due_ms"]),
        "delivered_at": time(row["delivered_at_ms"]),
    }


def row_shown(row: Mapping[str, Any]) -> Mapping[str, Any]:
    names = "kind", "id", "class", "overdue", "delivered_as", "lateness_ms", "target", "due_at", "delivered_at"
    return {name: row[name] for name in names}


def time(ms: int | None) -> datetime | None:
    return None if ms is None else datetime.fromtimestamp(ms / 1000, UTC)
