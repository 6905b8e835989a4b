"""The tables say of everything what an audit of everything says, wherever the runs of an export begin and
end, and no row is there twice.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from typing import Any

import pytest
from pyspark.sql import Column, Row, SparkSession

from pipeline.tables import rows as made
from pipeline.tables.marker import Done
from pipeline.tables.place import Place
from pipeline.tables.run import export
from pipeline.tables.schema import CLOSED, OPEN, TABLES
from pipeline.watch.round import MARGIN_MS, WatchConfig
from tests.integration.audited import Audited
from tests.integration.watched import AT_ONCE_MS
from tests.support.tables import Tables

SAME = "kind", "id", "class", "overdue", "delivered_as", "lateness_ms"


@dataclass(frozen=True)
class Exported:
    """What was exported of some histories, in as many runs as they have cuts."""

    of: Audited
    tables: Tables
    runs: Sequence[Done]


@pytest.fixture(
    scope="module",
    params=[("correct", MARGIN_MS), ("faulty", AT_ONCE_MS)],
    ids=["what is right, and stays open", "what is wrong, and is closed at once"],
)
def exported(
    request: pytest.FixtureRequest, spark: SparkSession, tmp_path_factory: pytest.TempPathFactory
) -> Exported:
    name, margin_ms = request.param
    of: Audited = request.getfixturevalue(name)
    folder = tmp_path_factory.mktemp("tables")
    config = WatchConfig(replace(of.config, ledger=None), margin_ms=margin_ms)
    place = Place(spark, str(folder))
    place.claim(of.config.settings.cluster, "the buffer")
    runs = [export(spark, config, place, lambda: None, cut) for cut in of.cuts]
    return Exported(of, Tables(folder), runs)


def test_each_request_is_one_row_with_what_the_audit_says_of_it(exported: Exported) -> None:
    rows = exported.tables.rows("requests")
    told = {row["source"]: _told(row) for row in exported.of.all.requests}
    assert len(rows) == len(told)
    shown = {row["source"]: {name: row[name] for name in (*SAME, *_TIMES)} for row in rows}
    assert shown == told


_TIMES: Mapping[str, str] = {"due_at": "due_ms", "delivered_at": "delivered_at_ms", "target": "target_topic"}


def _told(row: Row) -> Mapping[str, Any]:
    times = {name: _time(row[ms]) for name, ms in _TIMES.items() if name != "target"}
    return {**{name: row[name] for name in SAME}, **times, "target": row["target_topic"]}


def test_each_delivery_in_kafka_is_one_row(exported: Exported) -> None:
    rows = exported.tables.rows("messages")
    shown = [(row["topic"], row["partition"], row["offset"]) for row in rows]
    deliveries = exported.of.found.records.evidence.deliveries.collect()
    assert sorted(shown) == sorted((row["topic"], row["partition"], row["offset"]) for row in deliveries)
    at = {(row["topic"], row["partition"], row["offset"]): row["timestamp_ms"] for row in deliveries}
    assert {row["delivered_at"] for row in rows} == {_time(ms) for ms in at.values()}


def test_what_a_message_was_delivered_by_has_the_lateness_and_the_epoch_of_its_transaction(
    exported: Exported,
) -> None:
    epochs = {
        (row["lane"], row["seq"]): row["epoch"]
        for row in exported.of.found.records.checkpoints.select("lane", "seq", "epoch").collect()
    }
    told = {
        row["delivered_as"]: (
            row["lateness_ms"],
            _time(row["due_ms"]),
            row["settled_by"],
            epochs.get((row["lane"], row["settled_by"])),
        )
        for row in exported.of.all.messages
        if row["delivered_as"] is not None
    }
    names = "lateness_ms", "due_at", "checkpoint", "epoch"
    shown = {
        f"{row['topic']}/{row['partition']}/{row['offset']}": tuple(row[name] for name in names)
        for row in exported.tables.rows("messages")
    }
    assert {record: shown[record] for record in told} == told


def test_each_checkpoint_is_one_row(exported: Exported) -> None:
    told = exported.of.found.records.checkpoints.filter("epoch is not null").collect()
    names = "lane", "epoch", "number", "node"
    shown = [(row["offset"], *(row[name] for name in names)) for row in exported.tables.rows("checkpoints")]
    assert sorted(shown) == sorted((row["seq"], *(row[name] for name in names)) for row in told)


def test_each_epoch_of_a_lane_is_one_mastership_and_the_last_one_has_no_end(exported: Exported) -> None:
    rows = exported.tables.rows("masterships")
    shown = {(row["lane"], row["epoch"]): row for row in rows}
    told = {(row["lane"], row["epoch"]): row for row in exported.of.found.epochs.collect()}
    assert len(rows) == len(shown)
    assert set(shown) == set(told)
    last = {lane: max(epoch for of, epoch in told if of == lane) for lane, _ in told}
    assert {one for one, row in shown.items() if row["ended_at"] is None} == set(last.items())
    assert {one: (row["node"], row["began_at"]) for one, row in shown.items()} == {
        one: (row["node"], _time(row["from_ms"])) for one, row in told.items()
    }


def test_a_marker_counts_the_rows(exported: Exported) -> None:
    counts = exported.runs[-1].rows
    shown = {}
    for name in TABLES:
        states = [row["state"] for row in exported.tables.rows(name)]
        shown[name] = (states.count(CLOSED), states.count(OPEN))
    assert {name: (one.closed, one.open) for name, one in counts.items()} == shown
    assert all(sum(run.rows[name].new for run in exported.runs) == counts[name].closed for name in TABLES)


def test_the_columns_are_those_that_are_documented(exported: Exported) -> None:
    for name in TABLES:
        assert exported.tables.columns(name) == COLUMNS[name], name


def test_a_time_that_no_calendar_has_is_none(spark: SparkSession) -> None:
    last_ms = 253_402_300_799_999
    times = spark.createDataFrame([(ms,) for ms in (0, last_ms, last_ms + 1, -(2**63), None)], "ms long")
    found = times.select(_shown(made._time("ms")), made._day("ms").cast("string")).collect()
    assert [tuple(row) for row in found] == [
        ("1970-01-01 00:00:00", "1970-01-01"),
        ("9999-12-31 23:59:59.999", "9999-12-31"),
        *3 * [(None, "1970-01-01")],
    ]


def _shown(time: Column) -> Column:
    return time.cast("string")


_PLACE = {"topic": "string", "partition": "int32", "offset": "int64"}
_UTC = "timestamp[us, tz=UTC]"
_BOTH = {"state": "string", "day": "string"}
COLUMNS = {
    "requests": {
        "source": "string",
        "partition": "int32",
        "offset": "int64",
        "lane": "int32",
        "kind": "string",
        "id": "string",
        "asked_at": _UTC,
        "scheduled_for": _UTC,
        "due_at": _UTC,
        "target": "string",
        "target_partition": "int32",
        "recurring": "bool",
        "class": "string",
        "code": "string",
        "overdue": "bool",
        "delivered_as": "string",
        "delivered_at": _UTC,
        "lateness_ms": "int64",
        "stand_in": "string",
        **_BOTH,
    },
    "messages": {
        **_PLACE,
        "delivered_at": _UTC,
        "by_broker": "bool",
        "source": "string",
        "occurrence": "int64",
        "id": "string",
        "attempt": "int32",
        "scheduled_for": _UTC,
        "due_at": _UTC,
        "lateness_ms": "int64",
        "lane": "int32",
        "epoch": "int64",
        "checkpoint": "int64",
        "topic_id": "string",
        **_BOTH,
    },
    "masterships": {
        "lane": "int32",
        "epoch": "int64",
        "node": "string",
        "began_at": _UTC,
        "ended_at": _UTC,
        "last_checkpoint_at": _UTC,
        "checkpoints": "int64",
        "first_offset": "int64",
        "last_offset": "int64",
        "whole": "bool",
        **_BOTH,
    },
    "checkpoints": {
        "lane": "int32",
        "offset": "int64",
        "written_at": _UTC,
        "made_at": _UTC,
        "epoch": "int64",
        "number": "int64",
        "node": "string",
        "first": "bool",
        "position": "list<element: int64>",
        "delivered_up_to": _UTC,
        **_BOTH,
    },
}
"""Of format 1, as pyarrow reads them. Another name or type is another format (pipeline/tables/schema.py)."""


def _time(ms: int | None) -> datetime | None:
    return None if ms is None else datetime.fromtimestamp(ms / 1000, UTC)
