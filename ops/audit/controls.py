"""The verdict on every control request, and on every outcome: each answered once, and truly (I7)."""

from __future__ import annotations

from collections.abc import Mapping

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F  # noqa: N812  # as Spark's own documentation has it

from ops.audit.evidence import ANSWERS, ENDINGS, Evidence
from ops.audit.flaw import said, violations
from ops.audit.meaning import CANCEL, RESCHEDULE
from ops.audit.messages import Bounds, looked_up


def answers(requests: DataFrame, evidence: Evidence, bounds: Bounds) -> DataFrame:
    """One row for each request, and for each key in the outcomes topic that no request has.

    `answer`, `ending`: the first outcome of each sort keyed by the request, with their counts; `others`:
    outcomes that are neither; `rewrites`: how many requests were written back for it; `class`, for control
    requests only.
    """
    rewrites = (
        requests.filter(F.col("parent").isNotNull())
        .groupBy("partition", F.col("parent").alias("offset"))
        .agg(F.count("*").alias("rewrites"))
    )
    known = requests.select(
        "source",
        "kind",
        "id",
        "partition",
        "offset",
        "timestamp_ms",
        "root",
        "settled_by",
        "seen_by",
        "judged",
        "expected",
    ).join(rewrites, ["partition", "offset"], "left")
    joined = known.join(_told(evidence), "source", "full")
    counts = ["rewrites", "answer_count", "ending_count", "other_count"]
    return joined.fillna(0, counts).withColumn("class", _class(evidence.edges_ms, bounds))


def answer_violations(found: DataFrame, bounds: Bounds) -> DataFrame:
    """What `answers` shows to be wrong: columns `kind`, `source`, `detail`."""
    checks = [
        ("lost", _lost()),
        ("duplicated", _duplicated()),
        ("false_outcome", _false()),
        ("unexplained", _unexplained(bounds)),
    ]
    return violations(found, checks)


def _told(evidence: Evidence) -> DataFrame:
    record = F.struct("record", "outcome", "op", "message", "root")
    answer, ending = F.col("outcome").isin(*ANSWERS), F.col("outcome").isin(*ENDINGS)
    at = F.col("timestamp_ms")
    return evidence.outcomes.groupBy(F.col("outcome_of").alias("source")).agg(
        F.count_if(answer).alias("answer_count"),
        F.min_by(record, F.when(answer, at)).alias("answer"),
        F.count_if(ending).alias("ending_count"),
        F.min_by(record, F.when(ending, at)).alias("ending"),
        F.count_if(~F.coalesce(answer | ending, F.lit(False))).alias("other_count"),
        F.min("record").alias("record"),
    )


def _is_control() -> Column:
    return F.col("kind").isin(CANCEL, RESCHEDULE)


def due_by() -> Column:
    """The checkpoint by which the request must have its answer."""
    return F.when(F.col("kind") == RESCHEDULE, F.col("settled_by")).otherwise(F.col("seen_by"))


def _class(edges_ms: Mapping[str, int], bounds: Bounds) -> Column:
    at_ms = F.col("timestamp_ms")
    return F.when(
        _is_control(),
        F.when(F.col("answer_count") > 0, F.col("answer.outcome"))
        .when(at_ms <= edges_ms.get(bounds.outcomes, 0), "aged-out")
        .when(due_by().isNotNull() | (at_ms < bounds.due_before_ms), "lost")
        .otherwise("pending"),
    )


def _lost() -> Column:
    overdue = said("unanswered since ", F.col("timestamp_ms"))
    passed = said("checkpoint ", due_by(), " has seen it, and it has no outcome")
    return F.when(F.col("class") == "lost", F.when(due_by().isNotNull(), passed).otherwise(overdue))


def _duplicated() -> Column:
    return F.when(
        F.col("kind").isNotNull() & ((F.col("answer_count") > 1) | (F.col("rewrites") > 1)),
        said("answered ", F.col("answer_count"), " times, written back ", F.col("rewrites"), " times"),
    )


def _false() -> Column:
    answer, expected, ending = F.col("answer"), F.col("expected"), F.col("ending")
    given = F.col("kind").isNotNull() & answer.isNotNull()
    outcome = answer["outcome"]
    held = given & F.col("judged")
    misplaced = ~answer["message"].eqNullSafe(expected["message"]) | ~answer["root"].eqNullSafe(
        expected["root"]
    )
    whose = F.coalesce(F.col("root"), F.col("source"))
    return (
        F.when(
            given & (answer["op"] != F.col("kind")),
            said("answered as a ", answer["op"], ", it is a ", F.col("kind")),
        )
        .when(held & expected.isNull(), said(outcome, ", and nothing was to be said of it"))
        .when(
            held & ~F.array_contains(expected["outcomes"], outcome),
            said(outcome, " instead of ", F.array_join(expected["outcomes"], " or "), _of(expected)),
        )
        .when(
            held & (outcome != "unknown") & misplaced,
            said(outcome, _of(answer), " instead of", _of(expected)),
        )
        .when(
            given & (outcome == "rescheduled") & (F.col("rewrites") == 0),
            F.lit("rescheduled, and nothing was written back"),
        )
        .when(
            F.col("kind").isNotNull() & ending.isNotNull() & ~ending["root"].eqNullSafe(whose),
            said(ending["outcome"], " for ", ending["root"], " instead of ", whose),
        )
    )


def _of(answer: Column) -> Column:
    return F.coalesce(
        F.concat(F.lit(" of "), answer["message"], F.lit(" for "), answer["root"]), F.lit(" of nothing")
    )


def _unexplained(bounds: Bounds) -> Column:
    """An outcome of no request (unless retention has taken that), or with a value that is none."""
    parts = F.split("source", "/")
    first = looked_up(bounds.buffer_first, F.get(parts, 1).try_cast("int"), None)
    aged_out = F.coalesce(F.get(parts, 2).try_cast("long") < first, F.lit(False))
    return F.when(
        F.col("kind").isNull() & ~aged_out, said(F.col("record"), " is of no request in the buffer")
    ).when(F.col("other_count") > 0, said(F.col("record"), " is no outcome that this version knows"))
