"""The verdict on each case: its class, and what is wrong with it."""

from __future__ import annotations

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

from pipeline.audit.answer_checks import answer_checks
from pipeline.audit.bounds import Bounds
from pipeline.audit.carries import BEFORE
from pipeline.audit.chain import link
from pipeline.audit.classes import recurs, with_class
from pipeline.audit.flaw import flaws
from pipeline.audit.meaning import source
from pipeline.audit.message_checks import message_checks
from pipeline.audit.moves import move
from pipeline.audit.order import line
from pipeline.audit.parks import park_checks


def verdicts(cases: DataFrame, bounds: Bounds) -> DataFrame:
    """One narrow row for each case.

    `class`, `end` and `overdue` as in pipeline.audit.classes; `flaws`, what is wrong; `line`, where a message
    stands among others; `link`, where an occurrence stands in its chain, and its number; `move`, what is
    known of a reschedule; and of a message when it was due, where it was delivered, when, and in which
    transaction (the checkpoint `settled_by` of its `lane`).
    """
    record = source("delivered.topic", "delivered.partition", "delivered.offset")
    delivered_at_ms = F.col("delivered.timestamp_ms")
    return with_class(cases, bounds).select(
        "source",
        "kind",
        "id",
        "class",
        "end",
        F.when(recurs(), F.col("occurrence")).alias("occurrence"),
        "overdue",
        F.col("row.due_ms").alias("due_ms"),
        "target_topic",
        "lane",
        F.col("row.settled_by").alias("settled_by"),
        F.when(F.col("delivered").isNotNull(), record).alias("delivered_as"),
        F.col("delivered.topic_id").alias("delivered_topic_id"),
        delivered_at_ms.alias("delivered_at_ms"),
        _lateness_ms(delivered_at_ms).alias("lateness_ms"),
        line().alias("line"),
        link().alias("link"),
        move().alias("move"),
        _flaws(bounds).alias("flaws"),
    )


def _flaws(bounds: Bounds) -> Column:
    """Of what counted no more where the log begins, nothing is known that could be wrong."""
    found = flaws([*message_checks(bounds), *park_checks(bounds), *answer_checks(bounds)])
    return F.when(~F.col("kind").eqNullSafe(F.lit(BEFORE)), found)


def _lateness_ms(delivered_at_ms: Column) -> Column:
    """What has waited for the end of a pause is late by what came after that."""
    due_ms, resumed_ms = F.col("row.due_ms"), F.col("row.resumed_ms")
    since_pause_ms = F.greatest(delivered_at_ms - F.greatest(due_ms, resumed_ms), F.lit(0))
    # What was not delivered has none; `greatest` would pass over that.
    waited = resumed_ms.isNotNull() & delivered_at_ms.isNotNull()
    return F.when(waited, since_pause_ms).otherwise(delivered_at_ms - due_ms)
