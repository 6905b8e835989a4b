"""What became of each request: one class for each, so that the classes sum to the requests.

A recurring request is of the class `recurring`: what became of its occurrences is counted apart.
"""

from __future__ import annotations

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

from delayline.outcome_kinds import OutcomeKind
from delayline.rejects import RejectCode
from pipeline.audit.bounds import Bounds
from pipeline.audit.carries import OF_SUCCESSOR
from pipeline.audit.meaning import CANCEL, REJECT, RESCHEDULE, SCHEDULE

CLASSES = (
    OutcomeKind.DELIVERED,
    "recurring",
    OutcomeKind.DUPLICATE,
    OutcomeKind.CANCELLED,
    OutcomeKind.REPLACED,
    OutcomeKind.SKIPPED,
    OutcomeKind.EXPIRED,
    OutcomeKind.DEAD_LETTERED,
    OutcomeKind.RESCHEDULED,
    OutcomeKind.TOO_LATE,
    OutcomeKind.OVERTAKEN,
    OutcomeKind.UNKNOWN,
    "pending",
    "aged-out",
    "lost",
)
ENDS = (
    OutcomeKind.DELIVERED,
    OutcomeKind.SKIPPED,
    OutcomeKind.CANCELLED,
    OutcomeKind.REPLACED,
    OutcomeKind.RESCHEDULED,
    OutcomeKind.EXPIRED,
    OutcomeKind.DEAD_LETTERED,
    OutcomeKind.PARKED,
    "pending",
    "aged-out",
    "lost",
)
"""What becomes of an occurrence. One that was parked is there again: its later try has an end of its own."""
OCCURRENCE = "occurrence"
BEGUN = "begun"
"""The end of a request that is no occurrence itself: a cron expression's, once the first one is found."""


def with_class(cases: DataFrame, bounds: Bounds) -> DataFrame:
    """Adds `end`, what became of a message or an occurrence; `class`, that of a user's request (null where
    there is no such thing); and `overdue`: lost only in that it is late.
    """
    settled = F.when(is_message(), F.col("row.settled_by").isNotNull() | F.col("row.removed").isNotNull())
    reached = settled.otherwise(F.col("answered_by").isNotNull())
    end = F.when(is_message() & ~_is_dropped(), _of_message(bounds))
    control = F.when(is_control(), _of_control(bounds))
    of_user = F.when(F.col("parent").isNull(), F.when(recurs(), _of_recurring()).otherwise(F.col("end")))
    lost = F.coalesce(F.col("class"), F.col("end")) == "lost"
    return (
        cases.withColumn("end", end)
        .withColumn("class", F.coalesce(control, of_user))
        .withColumn("overdue", F.coalesce(lost, F.lit(False)) & ~reached)
    )


def is_message() -> Column:
    """A user's own schedule, or what was meant to be one; or one that was written back to recur."""
    own = F.col("parent").isNull() | recurs()
    return F.col("kind").isin(SCHEDULE, REJECT) & own & ~F.col("duplicate") & ~_is_root_alone()


def _is_root_alone() -> Column:
    """A recurring request of which nothing but what goes back to it is known any more."""
    return recurs() & F.col("stand_in").eqNullSafe(F.lit(OF_SUCCESSOR))


def is_control() -> Column:
    """A cancel, a user's reschedule, or a schedule that changes nothing: it is answered."""
    return (F.col("kind") == CANCEL) | is_reschedule() | F.col("duplicate")


def is_reschedule() -> Column:
    """A user's own: what was deferred is answered for the first one."""
    return (F.col("kind") == RESCHEDULE) & F.col("parent").isNull()


def is_refused_reschedule() -> Column:
    """One whose message the brokers would not take back into the buffer."""
    return is_reschedule() & (F.col("letter_count") > 0)


def recurs() -> Column:
    """One of a recurring message's requests, a user's or one that was written back."""
    return F.col("recurrence").isNotNull()


def is_beginning() -> Column:
    """A cron expression's request: what it is taken for is to find the first occurrence."""
    return recurs() & F.col("occurrence").isNull()


def _is_dropped() -> Column:
    return recurs() & F.col("dropped")


def _of_message(bounds: Bounds) -> Column:
    row = F.col("row")
    removed = row["removed"]
    return (
        F.when(F.col("delivered_count") > 0, OutcomeKind.DELIVERED)
        .when(F.col("letter_count") > 0, _death(F.col("letter.code")))
        .when(F.col("ending_count") > 0, F.col("ending.outcome"))
        .when(F.col("effective_count") > 0, F.col("effective.outcome"))
        .when(F.col("answer.outcome") == OutcomeKind.DUPLICATE, OutcomeKind.DUPLICATE)
        .when(recurs() & F.col("moved"), OutcomeKind.RESCHEDULED)
        .when(is_beginning() & (F.col("rewrites") > 0), BEGUN)
        .when(recurs() & F.col("park").isNotNull() & (F.col("rewrites") > 0), OutcomeKind.PARKED)
        .when(row["held"], "pending")
        .when(row["due_ms"] <= bounds.edge_ms(F.col("target_topic")), "aged-out")
        .when(removed["timestamp_ms"] <= bounds.outcomes_edge_ms, "aged-out")
        # The answer that is missing is the cancel's loss; a replace has no other answer.
        .when(removed["kind"] == CANCEL, OutcomeKind.CANCELLED)
        .when(row["settled_by"].isNotNull() | removed.isNotNull(), "lost")
        .when(row["due_ms"] < bounds.due_before_ms, "lost")
        .otherwise("pending")
    )


def _of_recurring() -> Column:
    """By its own row only where that is not all that there can be to it."""
    end = F.col("end")
    never_begun = is_beginning() & (end == OutcomeKind.DEAD_LETTERED)
    told = F.when(end.isNotNull() | _is_root_alone(), "recurring")
    return F.when(end.isin(OutcomeKind.DUPLICATE, "aged-out", "lost") | never_begun, end).otherwise(told)


def _death(code: Column) -> Column:
    return F.when(code == RejectCode.EXPIRED, OutcomeKind.EXPIRED).otherwise(OutcomeKind.DEAD_LETTERED)


def _of_control(bounds: Bounds) -> Column:
    at_ms = F.col("timestamp_ms")
    return (
        F.when(F.col("duplicate") & (F.col("delivered_count") > 0), OutcomeKind.DELIVERED)
        .when(F.col("answer_count") > 0, F.col("answer.outcome"))
        .when(is_refused_reschedule(), OutcomeKind.DEAD_LETTERED)
        .when(at_ms <= bounds.outcomes_edge_ms, "aged-out")
        .when(F.col("answered_by").isNotNull() | (at_ms < bounds.due_before_ms), "lost")
        .otherwise("pending")
    )
