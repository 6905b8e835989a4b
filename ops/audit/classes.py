"""What became of each request: one class for each, so that the classes sum to the requests."""

from __future__ import annotations

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F  # noqa: N812  # as Spark's own documentation has it

from ops.audit.bounds import Bounds
from ops.audit.meaning import CANCEL, REJECT, RESCHEDULE, SCHEDULE

CLASSES = (
    "delivered", "cancelled", "replaced", "expired", "dead-lettered",
    "rescheduled", "too-late", "unknown", "pending", "aged-out", "lost",
)  # fmt: skip


def with_class(cases: DataFrame, bounds: Bounds) -> DataFrame:
    """Adds `class`, null for what is no request of a user's, and `overdue`: lost only in that it is late."""
    settled = F.when(is_message(), F.col("row.settled_by").isNotNull() | F.col("row.removed").isNotNull())
    reached = settled.otherwise(F.col("answered_by").isNotNull())
    verdict = F.when(is_message(), _of_message(bounds)).when(is_control(), _of_control(bounds))
    return cases.withColumn("class", verdict).withColumn("overdue", (F.col("class") == "lost") & ~reached)


def is_message() -> Column:
    """A user's own schedule, or what was meant to be one."""
    return F.col("kind").isin(SCHEDULE, REJECT) & F.col("parent").isNull()


def is_control() -> Column:
    """A cancel or a reschedule."""
    return F.col("kind").isin(CANCEL, RESCHEDULE)


def _of_message(bounds: Bounds) -> Column:
    row = F.col("row")
    removed = row["removed"]
    return (
        F.when(F.col("delivered_count") > 0, "delivered")
        .when(F.col("letter_count") > 0, _death(F.col("letter.code")))
        .when(F.col("ending_count") > 0, F.col("ending.outcome"))
        .when(F.col("applied_count") > 0, F.col("applied.outcome"))
        .when(row["due_ms"] <= bounds.edge_ms(F.col("target_topic")), "aged-out")
        .when(removed["timestamp_ms"] <= bounds.outcomes_edge_ms, "aged-out")
        # The answer that is missing is the cancel's loss; a replace has no other answer.
        .when(removed["kind"] == CANCEL, "cancelled")
        .when(row["settled_by"].isNotNull() | removed.isNotNull(), "lost")
        .when(row["due_ms"] < bounds.due_before_ms, "lost")
        .otherwise("pending")
    )


def _death(code: Column) -> Column:
    return F.when(code == "expired", "expired").otherwise("dead-lettered")


def _of_control(bounds: Bounds) -> Column:
    at_ms = F.col("timestamp_ms")
    return (
        F.when(F.col("answer_count") > 0, F.col("answer.outcome"))
        .when(at_ms <= bounds.outcomes_edge_ms, "aged-out")
        .when(F.col("answered_by").isNotNull() | (at_ms < bounds.due_before_ms), "lost")
        .otherwise("pending")
    )
