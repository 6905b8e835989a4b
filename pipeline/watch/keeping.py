"""Which rows a round keeps for the next one.

A request *stands* as long as something may still come of it, and for a while after that: a replay may have it
delivered again, and its id may be asked for. Then it is *closed*: it is counted, and judged no more. Closed
ones are kept as long as one that stands goes back to them, or is next to them in the log of its id.

All requests of one id, or of one source without an id, are a *family*: what becomes of one can change what is
right for another. A family is judged anew when something new concerns it, or when its time has come.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from pyspark.sql import Column, DataFrame, Window
from pyspark.sql import functions as F

from pipeline.audit.bounds import looked_up
from pipeline.audit.carries import BEFORE
from pipeline.audit.evidence import PLACE, Evidence
from pipeline.audit.judge import Judged
from pipeline.audit.meaning import CANCEL, beside_source, root_offset
from pipeline.audit.order import ORDER

NEVER_MS: Final = 2**62
_PENDING: Final = "pending"
_SEQS: Final = ("settled_by", "seen_by", "passed_by", "applied_by", "answered_by")


def family_of(alone: Column) -> Column:
    """By the partition and the id, or what stands for one where there is none."""
    return F.xxhash64("partition", "id", F.when(F.col("id").isNull(), alone))


def place_of() -> Column:
    """Where a record stands, or what it carries."""
    return F.coalesce("carried.offset", "offset")


def touched_families(
    standing: DataFrame, new: DataFrame, evidence: Evidence, taken_ms: int, horizon_ms: Mapping[int, int]
) -> DataFrame:
    """The families that something new concerns (`new` requests, new `evidence`), or whose time has come.

    `horizon_ms`: of each partition, what is over since then may still be asked for.
    """
    own = new.select(family_of(F.coalesce(root_offset(), place_of())).alias("family"))
    of_requests = F.array(
        beside_source("names"), "root", beside_source("parent"), beside_source("carried.offset")
    )
    named = [
        new.select(F.explode(F.array_compact(of_requests)).alias("source")),
        evidence.deliveries.select("source"),
        evidence.dead_letters.select("source"),
        evidence.outcomes.select(F.explode(F.array_compact(F.array("keyed_by", "message", "root")))),
    ]
    sources = named[0].union(named[1]).union(named[2]).union(named[3]).distinct()
    by_name = standing.join(sources, "source", "left_semi").select("family")
    horizon = looked_up(horizon_ms, F.col("partition"), 0)
    in_time = F.when(F.col("final"), F.col("leave_ms") < horizon).otherwise(F.col("look_ms") <= taken_ms)
    by_time = standing.filter(~F.col("closed") & in_time).select("family")
    return own.union(by_name).union(by_time).distinct()


def standing_of(judged: Judged, closed: DataFrame, taken_ms: int, horizon_ms: Mapping[int, int]) -> DataFrame:
    """Each judged request with its `family`, and its `class`, `end`, `occurrence`, `overdue` as found.

    `was_closed`, `closed`: before this round, and now. `final`: nothing more is to come of it; `leave_ms`:
    when that was. `look_ms`: else, when it is to be looked at even if nothing new concerns it. `compared`:
    where it stands among others is known (pipeline/audit/order.py). `beside`: the offsets of those that it
    goes back to, or is next to. `seqs`: the checkpoints that it goes by.
    """
    named = F.when(F.col("of_message"), F.col("names"))
    alone = F.coalesce(named, root_offset(), F.col("offset"))
    compared = F.col("line").isNotNull().alias("compared")
    ended = judged.found.select(
        "source", "class", "end", "occurrence", "overdue", "delivered_at_ms", compared
    )
    known = closed.select("source", F.lit(True).alias("was_closed"))
    rows = (
        judged.asked.withColumn("family", family_of(alone))
        .drop("occurrence")
        .join(ended, "source", "left")
        .join(known, "source", "left")
        .withColumn("was_closed", F.coalesce("was_closed", F.lit(False)))
    )
    over = (
        F.col("dropped")
        | F.col("duplicate")
        | F.col("moved")
        | F.col("removed").isNotNull()
        | (F.col("settled_by").isNotNull() & ~F.col("held"))
        | (F.col("kind") == CANCEL)
    )
    answered, is_open = F.col("seen_by").isNotNull(), _is_open("class") | _is_open("end")
    final = (F.col("kind") == BEFORE) | (answered & over & ~is_open)
    settled_due_ms = F.when(F.col("settled_by").isNotNull(), F.col("due_ms"))
    leave_ms = F.least(
        F.greatest(
            "timestamp_ms", "settled_at_ms", settled_due_ms, "resumed_ms", "delivered_at_ms", F.lit(0)
        ),
        F.lit(taken_ms),
    )
    look_ms = F.when(answered & over, NEVER_MS).when(answered, F.coalesce("due_ms", F.lit(0))).otherwise(0)
    beside = F.array("follows", "followed_by", "met.offset", "parent", root_offset(), "names")
    horizon = looked_up(horizon_ms, F.col("partition"), 0)
    return rows.select(
        "source",
        "family",
        "lane",
        "partition",
        "offset",
        "kind",
        "id",
        "follows",
        (F.col("met").isNotNull()).alias("has_met"),
        "class",
        "end",
        "occurrence",
        F.coalesce("overdue", F.lit(False)).alias("overdue"),
        F.coalesce("compared", F.lit(False)).alias("compared"),
        "was_closed",
        (F.col("was_closed") | (final & (leave_ms < horizon))).alias("closed"),
        final.alias("final"),
        leave_ms.alias("leave_ms"),
        F.when(F.col("kind") == CANCEL, 0).otherwise(look_ms).alias("look_ms"),
        F.array_compact(beside).alias("beside"),
        F.array_compact(F.array(*_SEQS)).alias("seqs"),
    )


def _is_open(column: str) -> Column:
    ended = F.col(column)
    overdue = (ended == "lost") & F.coalesce("overdue", F.lit(False))
    return F.coalesce((ended == _PENDING) | overdue, F.lit(False))


def to_keep(rows: DataFrame) -> DataFrame:
    """Of `standing_of`: those that stand, and those that they need."""
    stand = rows.filter(~F.col("closed"))
    places = stand.select("partition", F.explode("beside").alias("offset")).distinct()
    others = rows.filter(F.col("closed")).join(places, ["partition", "offset"], "left_semi")
    return stand.unionByName(others)


def evidence_to_keep(raw: Evidence, placed: Evidence, stand: DataFrame, there: Column) -> Evidence:
    """Of the `raw` evidence what is of requests that stand, or of none that is there yet, with the `family`
    (of the latter 0). `placed`: the same at the rows that it is of. `there`: whether what `source` names may
    be there.
    """
    families = stand.select("source", "family")

    def of(records: DataFrame, all_placed: DataFrame, by: list[str], names: list[str]) -> DataFrame:
        votes = [all_placed.select(*by, F.col(name).alias("source")) for name in names]
        all_votes = votes[0]
        for more in votes[1:]:
            all_votes = all_votes.unionByName(more)
        known = all_votes.join(families, "source")
        to_come = all_votes.filter(~there).select(*by, "source", F.lit(0).cast("long").alias("family"))
        kept = known.unionByName(to_come).groupBy(*by).agg(F.max("family").alias("family"))
        return records.join(kept, by)

    return Evidence(
        of(raw.deliveries, placed.deliveries, [*PLACE], ["source"]),
        of(raw.dead_letters, placed.dead_letters, ["record"], ["source"]),
        of(raw.outcomes, placed.outcomes, ["record"], ["keyed_by", "message", "root"]),
    )


def checkpoints_to_keep(checkpoints: DataFrame, rows: DataFrame, horizon_ms: int) -> DataFrame:
    """All since the last one before the horizon at which no operator's request was under way; of those
    before, `apart`, what kept rows go by, and where a hold that is there still has changed.
    """
    lane = Window.partitionBy("lane")
    operation = F.col("operation")
    idle = operation.isNull() | (operation["replay"].isNull() & operation["skip_to"].isNull())
    old = F.when(idle & (F.col("timestamp_ms") < horizon_ms) & ~F.col("apart"), F.col("seq"))
    no_hold = F.when(F.coalesce(F.size("holds"), F.lit(0)) <= 0, F.col("seq"))
    before = F.lag("holds").over(Window.partitionBy("lane").orderBy("seq"))
    known = checkpoints.withColumns(
        {
            "all_from": F.max(old).over(lane),
            "held_from": F.max(no_hold).over(lane),
            "changed": ~F.col("holds").eqNullSafe(before),
        }
    )
    needed = rows.select("lane", F.explode("seqs").alias("seq")).distinct().withColumn("needed", F.lit(True))
    joined = known.join(needed, ["lane", "seq"], "left")
    whole = ~F.col("apart") & F.coalesce(F.col("seq") >= F.col("all_from"), F.lit(True))
    held = F.col("changed") & F.coalesce(F.col("seq") > F.col("held_from"), F.lit(True))
    wanted = whole | held | F.coalesce("needed", F.lit(False))
    return (
        joined.filter(wanted).withColumn("apart", ~whole).drop("all_from", "held_from", "changed", "needed")
    )


def last_lines(lines: DataFrame) -> DataFrame:
    """The last message of each order that goes on: what came late in one transaction is whole by now."""
    goes_on = F.col("line.late_in").isNull() | F.col("line.late_in.hold").isNotNull()
    order = Window.partitionBy(*(f"line.{name}" for name in ORDER)).orderBy(F.desc("line.offset"))
    ranked = lines.filter(goes_on).withColumn("rank", F.row_number().over(order))
    return ranked.filter(F.col("rank") == 1).drop("rank")


def newest_of(new: DataFrame, before_ms: Mapping[int, int]) -> DataFrame:
    """The newest timestamp of the partition at each of the `new` requests that asks to keep what is there."""
    order = Window.partitionBy("partition").orderBy("offset").rowsBetween(Window.unboundedPreceding, 0)
    newest_ms = F.greatest(
        F.max("timestamp_ms").over(order), looked_up(before_ms, F.col("partition"), 0).cast("long")
    )
    return (
        new.select("partition", "offset", "keep", newest_ms.alias("timestamp_ms")).filter("keep").drop("keep")
    )
