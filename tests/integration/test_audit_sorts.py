"""What an audit leaves out where there are no requests of a sort, for it would find nothing by it; and the
expressions that every one of its steps is made of.
"""

from __future__ import annotations

from typing import Any

import pytest
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from pipeline.audit import audit
from pipeline.audit.bounds import Bounds
from pipeline.audit.content import last_header
from pipeline.audit.flaw import flaws, violations
from pipeline.audit.history import Sorts, sorts_of, with_history
from pipeline.audit.meaning import RESCHEDULE, SCHEDULE
from tests.integration.audited import Audited

_REQUEST = "kind string, parent long, names long, keep boolean, recurrence struct<times: long>, batch long"
_PLAIN = {"kind": SCHEDULE, "parent": None, "names": None, "keep": False, "recurrence": None, "batch": None}
_NONE = Sorts(*[False] * len(Sorts._fields))
_ALL = Sorts(*[True] * len(Sorts._fields))
_IS_OF = {
    "written_back": "parent is not null",
    "by_source": "names is not null",
    "reschedules": f"kind = '{RESCHEDULE}'",
}
"""Of the sorts by which histories are drawn up, how its requests are told."""


@pytest.mark.parametrize(
    ("request_", "sort"),
    [
        ({}, None),
        ({"parent": 3}, "written_back"),
        ({"names": 3}, "by_source"),
        ({"kind": RESCHEDULE}, "reschedules"),
        ({"keep": True}, "keeping"),
        ({"recurrence": {"times": 3}}, "recurring"),
        ({"batch": 3}, "in_batches"),
    ],
)
def test_one_request_of_a_sort_among_others_is_told(
    spark: SparkSession, request_: dict[str, Any], sort: str | None
) -> None:
    rows = [_PLAIN, _PLAIN | request_, _PLAIN]
    wanted = _NONE if sort is None else _NONE._replace(**{sort: True})
    assert sorts_of(spark.createDataFrame(rows, _REQUEST)) == wanted


def test_of_no_request_at_all_there_is_none_of_any_sort(spark: SparkSession) -> None:
    assert sorts_of(spark.createDataFrame([], _REQUEST)) == _NONE


@pytest.mark.parametrize("sort", list(_IS_OF))
def test_the_history_without_requests_of_a_sort_is_the_same_whether_these_are_looked_for_or_not(
    faulty: Audited, sort: str
) -> None:
    records = faulty.found.records
    others = _without_history(records.requests).filter(f"not coalesce({_IS_OF[sort]}, false)")
    found, wanted = (
        with_history(others, records.checkpoints, sorts) for sorts in (_ALL._replace(**{sort: False}), _ALL)
    )
    assert found.count() > 0
    assert found.exceptAll(wanted).collect() == wanted.exceptAll(found).collect() == []


def test_an_audit_that_is_planned_for_many_finds_the_same(
    faulty: Audited, spark: SparkSession, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Spark makes code for these, and plans anew as it goes on."""
    monkeypatch.setattr("pipeline.plans._FEW", -1)
    planned = audit(spark, faulty.config)
    assert spark.conf.get("spark.sql.codegen.wholeStage") == "true"
    assert planned.report == faulty.report


def _without_history(requests: DataFrame) -> DataFrame:
    """What they were before."""
    return requests.drop(
        *("whole_from", "settled_by", "settled_at_ms", "spell", "seen_by", "late", "passed_by"),
        *("applied_by", "held", "resumed_ms", "hold", "dropped", "met", "answered_by", "judged"),
        *("expected", "removed", "gone_by", "moved", "follows", "followed_by", "skipped"),
    )


@pytest.mark.parametrize(
    ("headers", "wanted"),
    [
        ([("k", b"1")], "1"),
        ([("k", b"1"), ("other", b"2")], "1"),
        ([("k", b"1"), ("k", b"2")], "2"),
        ([("k", b"1"), ("k", None)], None),
        ([("k", None), ("k", b"2")], "2"),
        ([("other", b"1")], None),
        ([], None),
        (None, None),
    ],
)
def test_of_headers_the_last_one_that_has_the_key_counts(
    spark: SparkSession, headers: list[tuple[str, bytes | None]] | None, wanted: str | None
) -> None:
    frame = spark.createDataFrame([(headers,)], "headers array<struct<key: string, value: binary>>")
    assert frame.select(last_header(F.col("headers"), "k")).collect()[0][0] == wanted


@pytest.mark.parametrize(
    ("named", "begins", "wanted"),
    [
        ("b.buffer/0/4", {0: 5, 1: 0}, True),
        ("b.buffer/0/5", {0: 5, 1: 0}, False),
        ("b.buffer/1/0", {0: 5, 1: 0}, False),
        ("b.buffer/0/-1", {0: 5, 1: 0}, False),
        ("b.buffer/0/-1", {0: 0, 1: 0}, False),
        ("other.buffer/0/4", {0: 5, 1: 0}, False),
        ("anything", {0: 5, 1: 0}, False),
    ],
)
def test_what_may_have_been_in_the_buffer_once_lies_before_its_first_offset(
    spark: SparkSession, named: str, begins: dict[int, int], *, wanted: bool
) -> None:
    bounds = Bounds(0, 0, "b.buffer", begins, 0, 0, 0, {})
    frame = spark.createDataFrame([(named,)], "source string")
    assert frame.select(bounds.before_buffer(F.col("source"))).collect()[0][0] is wanted


def test_each_check_that_finds_something_is_a_violation_of_its_own(spark: SparkSession) -> None:
    frame = spark.createDataFrame([("a", 1), ("b", 2), ("c", 3)], "source string, number int")
    number = F.col("number")
    checks = [
        ("lost", F.when(number > 1, F.lit("more than one"))),
        ("early", F.when(number > 2, F.lit("more than two"))),
    ]
    found = violations(frame, flaws(checks)).collect()
    assert {tuple(row) for row in found} == {
        ("lost", "b", "more than one"),
        ("lost", "c", "more than one"),
        ("early", "c", "more than two"),
    }
