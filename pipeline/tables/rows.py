"""The rows that a round of the watch (pipeline/watch/round.py) adds to the tables, and those that stay open.

A round judges what is new, and of what stood before only what that concerns. So what is open is what it has
judged and not closed, and of the rows that were open before those that it has not judged.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final, NamedTuple

from pyspark.sql import Column, DataFrame, Window
from pyspark.sql import functions as F

from delayline.outcome_kinds import OutcomeKind
from delayline.wire import H_ATTEMPT, H_ID, H_OCCURRENCE, H_SCHEDULED_FOR, H_SOURCE
from pipeline.audit.checkpoints import epochs
from pipeline.audit.content import last_header
from pipeline.audit.evidence import PLACE
from pipeline.audit.judge import kept
from pipeline.audit.meaning import source
from pipeline.tables.schema import DAY, TABLES
from pipeline.watch.round import Ground

_DAY_MS: Final = 86_400_000
_FIRST_MS, _LAST_MS = -62_135_596_800_000, 253_402_300_799_999
"""The years that a calendar has, 1 to 9999: users may ask for other times, and these are none."""


class Split(NamedTuple):
    """Rows of one table: those that are `closed` now, and all that are `open` (None: it has none)."""

    closed: DataFrame
    open: DataFrame | None


def rows_of(ground: Ground, before: Mapping[str, DataFrame]) -> dict[str, Split]:
    """By table. `before`: what the run before has left open."""
    found = {
        "requests": _requests(ground, before["requests"]),
        "messages": _messages(ground, before["messages"]),
        "masterships": _masterships(ground, before["masterships"]),
        "checkpoints": Split(_checkpoints(ground), None),
    }
    return {name: _as_declared(name, split) for name, split in found.items()}


def _as_declared(name: str, split: Split) -> Split:
    table = TABLES[name]
    return Split(table.of(split.closed), None if split.open is None else table.of(split.open))


def _requests(ground: Ground, before: DataFrame) -> Split:
    judged = ground.judged
    asked = judged.asked.select(
        *("source", "partition", "offset", "timestamp_ms", "scheduled_for_ms", "target_partition"),
        *("code", "stand_in", F.col("recurrence").isNotNull().alias("recurring")),
    )
    letters = judged.evidence.dead_letters.groupBy("source").agg(
        F.min_by("code", "timestamp_ms").alias("letter_code")
    )
    known = ground.standing.filter(~F.col("was_closed")).select("source", "closed")
    died = F.col("class").isin(OutcomeKind.DEAD_LETTERED, OutcomeKind.EXPIRED)
    rows = kept(
        judged.found.filter(F.col("class").isNotNull())
        .select(
            *("source", "lane", "kind", "id", "class", "overdue", "due_ms", "target_topic"),
            *("delivered_as", "delivered_at_ms", "lateness_ms"),
        )
        .join(known, "source")
        .join(asked, "source")
        .join(letters, "source", "left")
        .withColumns(
            {
                "asked_at": _time("timestamp_ms"),
                "scheduled_for": _time("scheduled_for_ms"),
                "due_at": _time("due_ms"),
                "delivered_at": _time("delivered_at_ms"),
                "target": F.col("target_topic"),
                "code": F.coalesce("code", F.when(died, F.col("letter_code"))),
                # Of what only a carry has told of, nobody says when it was asked for.
                DAY: _day(F.coalesce("timestamp_ms", "due_ms")),
            }
        )
    )
    others = before.join(rows.select("source"), "source", "left_anti")
    return _split(rows, others)


def _messages(ground: Ground, before: DataFrame) -> Split:
    """What is new, and what was delivered when the checkpoint that says so had not been read yet."""
    judged = ground.judged
    told = ground.evidence.deliveries.select(*PLACE).union(before.select(*PLACE))
    placed = judged.evidence.deliveries.join(told, [*PLACE], "left_semi")
    names = "due_ms", "lateness_ms", "lane", "settled_by", "delivered_as", "delivered_topic_id"
    found = judged.found.select("source", *names)
    known = ground.standing.select("source", "closed", "was_closed")
    settled = judged.checkpoints.select("lane", F.col("seq").alias("settled_by"), "epoch")
    # A later one of the same message is none of the transaction that has settled it.
    is_first = F.col("delivered_topic_id") == F.col("topic_id")
    is_first &= F.col("delivered_as") == source("topic", "partition", "offset")
    is_first &= ~F.coalesce("was_closed", F.lit(False))
    is_first = F.coalesce(is_first, F.lit(False))
    headers = F.col("headers")
    rows = kept(
        placed.join(found, "source", "left")
        .join(known, "source", "left")
        .join(settled, ["lane", "settled_by"], "left")
        .withColumns(
            {
                "closed": ~is_first | F.col("settled_by").isNotNull() | F.coalesce("closed", F.lit(True)),
                "delivered_at": _time("timestamp_ms"),
                "source": last_header(headers, H_SOURCE),
                "occurrence": last_header(headers, H_OCCURRENCE).try_cast("bigint"),
                "id": last_header(headers, H_ID),
                "attempt": last_header(headers, H_ATTEMPT).try_cast("int"),
                "scheduled_for": _time(last_header(headers, H_SCHEDULED_FOR).try_cast("bigint")),
                "due_at": _time("due_ms"),
                "lateness_ms": F.when(is_first, F.col("lateness_ms")),
                "epoch": F.when(is_first, F.col("epoch")),
                "checkpoint": F.when(is_first, F.col("settled_by")),
                DAY: _day("timestamp_ms"),
            }
        )
    )
    others = before.join(rows.select(*PLACE), [*PLACE], "left_anti")
    return _split(rows, others)


def _masterships(ground: Ground, before: DataFrame) -> Split:
    """What was open goes on, or ends where a later epoch has begun. A checkpoint of an epoch that has ended
    makes it no second time.
    """
    known = before.select("lane", F.col("epoch").alias("last_epoch"))
    checkpoints = ground.checkpoints.filter(F.col("epoch").isNotNull())
    read = checkpoints.groupBy("lane", "epoch").agg(
        F.min("seq").alias("first_offset"), F.max("seq").alias("last_offset")
    )
    new = (
        epochs(checkpoints)
        .join(read, ["lane", "epoch"])
        .join(known, "lane", "left")
        .filter(F.coalesce(F.col("epoch") >= F.col("last_epoch"), F.lit(True)))
        .select(
            *("lane", "epoch", "node", "checkpoints", "first_offset", "last_offset", "whole"),
            _time("from_ms").alias("began_at"),
            _time("to_ms").alias("last_checkpoint_at"),
        )
    )
    both = new.unionByName(before.drop("ended_at", DAY))
    newest = F.max("epoch").over(Window.partitionBy("lane"))
    rows = kept(
        both.groupBy("lane", "epoch")
        .agg(
            F.min_by("node", "first_offset").alias("node"),
            F.min_by("began_at", "first_offset").alias("began_at"),
            F.max_by("last_checkpoint_at", "last_offset").alias("last_checkpoint_at"),
            F.sum("checkpoints").alias("checkpoints"),
            F.min_by("whole", "first_offset").alias("whole"),
            F.min("first_offset").alias("first_offset"),
            F.max("last_offset").alias("last_offset"),
        )
        .withColumn("closed", F.col("epoch") < newest)
        .withColumn("ended_at", F.when(F.col("closed"), F.col("last_checkpoint_at")))
        .withColumn(DAY, _day(F.unix_millis("began_at")))
    )
    return _split(rows, None)


def _checkpoints(ground: Ground) -> DataFrame:
    return ground.checkpoints.filter(F.col("epoch").isNotNull()).withColumns(
        {
            "offset": F.col("seq"),
            "written_at": _time("timestamp_ms"),
            "made_at": _time("at_ms"),
            "first": F.coalesce("first", F.lit(False)),
            "delivered_up_to": _time("delivered_up_to_ms"),
            DAY: _day("timestamp_ms"),
        }
    )


def _split(rows: DataFrame, others: DataFrame | None) -> Split:
    """`others`: what was open before, and is so still."""
    now_open = rows.filter(~F.col("closed"))
    if others is not None:
        names = others.columns
        now_open = now_open.select(*names).unionByName(others)
    return Split(rows.filter("closed"), now_open)


def _time(ms: str | Column) -> Column:
    """A point in time; null for what no calendar has."""
    column = F.col(ms) if isinstance(ms, str) else ms
    return F.when(column.between(_FIRST_MS, _LAST_MS), F.timestamp_millis(column))


def _day(ms: str | Column) -> Column:
    """The day in UTC; the first one of 1970 where the time is not known."""
    column = F.col(ms) if isinstance(ms, str) else ms
    known = F.when(column.between(_FIRST_MS, _LAST_MS), column)
    return F.date_from_unix_date(F.floor(F.coalesce(known, F.lit(0)) / _DAY_MS).cast("int"))
