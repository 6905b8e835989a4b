"""The verdict on every message: a user's schedule or reject, held against all that became of it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F  # noqa: N812  # as Spark's own documentation has it

from ops.audit.evidence import ENDINGS, Evidence
from ops.audit.meaning import REJECT, SCHEDULE

# What a message is delivered by: its own row, or that of the last request that was written back for it.
_ROW = (
    "offset", "due_ms", "scheduled_for_ms", "expire_at_ms", "attempt", "occurrence", "settled_by", "late",
    "removed", "key_sha", "value_sha", "raw_sha",
)  # fmt: skip


@dataclass(frozen=True, slots=True)
class Bounds:
    """What a verdict depends on beside the records."""

    due_before_ms: int  # nothing due before this may be outstanding
    clock_skew_ms: int
    buffer_first: Mapping[int, int]  # the buffer's first offset in each partition
    outcomes: str
    dead_letter: str


def messages(requests: DataFrame, evidence: Evidence, bounds: Bounds) -> DataFrame:
    """One row for each message, and one for each source that evidence speaks of and no message has.

    `row` is what the message is delivered by; `delivered`, `letter`, `applied`, `ending` the first
    delivery, dead letter, cancel or replace, and ending among the outcomes, each with its count; `class`
    what became of it.
    """
    known = _own(requests)
    for found in (_delivered(evidence), _letters(evidence), _told(evidence)):
        known = known.join(found, "source", "full")
    counts = [f"{name}_count" for name in ("delivered", "letter", "applied", "ending")]
    return known.fillna(0, counts).withColumn("class", _class(evidence, bounds))


def _own(requests: DataFrame) -> DataFrame:
    row = F.struct(*_ROW)
    mine = requests.filter(F.col("kind").isin(SCHEDULE, REJECT) & F.col("parent").isNull())
    rewritten = (
        requests.filter((F.col("kind") == SCHEDULE) & F.col("parent").isNotNull() & ~F.col("overtaken"))
        .groupBy(F.col("root").alias("source"))
        .agg(F.max_by(row, F.col("offset")).alias("rewritten"))
    )
    return mine.withColumn("row", row).join(rewritten, "source", "left").select(
        "source", "kind", "id", "lane", "partition", "whole_from", "target_topic", "target_partition", "code",
        "target_key_sha", "value_sha", "user_sha",
        F.coalesce("rewritten", "row").alias("row"),
    )  # fmt: skip


def _delivered(evidence: Evidence) -> DataFrame:
    found = evidence.deliveries
    record = F.struct(*(name for name in found.columns if name != "delivery_of"))
    return found.groupBy(F.col("delivery_of").alias("source")).agg(
        F.count("*").alias("delivered_count"),
        F.min_by(record, F.struct("timestamp_ms", "offset")).alias("delivered"),
    )


def _letters(evidence: Evidence) -> DataFrame:
    found = evidence.dead_letters
    record = F.struct(*(name for name in found.columns if name != "dead_letter_of"))
    return found.groupBy(F.col("dead_letter_of").alias("source")).agg(
        F.count("*").alias("letter_count"),
        F.min_by(record, "timestamp_ms").alias("letter"),
    )


def _told(evidence: Evidence) -> DataFrame:
    record = F.struct("record", "outcome", "code", "at_ms", "outcome_of")
    applied = F.col("outcome").isin("cancelled", "replaced")
    ending = F.col("outcome").isin(*ENDINGS)
    return (
        evidence.outcomes.filter(F.col("root").isNotNull() & (applied | ending))
        .groupBy(F.col("root").alias("source"))
        .agg(
            F.count_if(applied).alias("applied_count"),
            F.min_by(record, F.when(applied, F.col("timestamp_ms"))).alias("applied"),
            F.count_if(ending).alias("ending_count"),
            F.min_by(record, F.when(ending, F.col("timestamp_ms"))).alias("ending"),
        )
    )


def _class(evidence: Evidence, bounds: Bounds) -> Column:
    """Null for what is no message."""
    removed = F.col("row.removed")
    return (
        F.when(F.col("kind").isNull(), None)
        .when(F.col("delivered_count") > 0, "delivered")
        .when(F.col("letter_count") > 0, _death(F.col("letter.code")))
        .when(F.col("ending_count") > 0, F.col("ending.outcome"))
        .when(F.col("applied_count") > 0, F.col("applied.outcome"))
        .when(F.col("row.due_ms") <= _edge_ms(evidence, bounds), "aged-out")
        .when(
            removed.isNotNull() & (removed["timestamp_ms"] <= evidence.edges_ms.get(bounds.outcomes, 0)),
            "aged-out",
        )
        .when(F.col("row.settled_by").isNotNull() | removed.isNotNull(), "lost")
        .when(F.col("row.due_ms") < bounds.due_before_ms, "lost")
        .otherwise("pending")
    )


def _death(code: Column) -> Column:
    return F.when(code == "expired", "expired").otherwise("dead-lettered")


def _edge_ms(evidence: Evidence, bounds: Bounds) -> Column:
    """The time up to which this message's end may have left no trace that is still there."""
    edges = evidence.edges_ms
    own = max(edges.get(bounds.outcomes, 0), edges.get(bounds.dead_letter, 0))
    return F.greatest(F.lit(own), looked_up(edges, F.col("target_topic"), 0))


def looked_up(mapping: Mapping[str, int] | Mapping[int, int], key: Column, default: int | None) -> Column:
    """What a small mapping has for `key`."""
    if not mapping:
        return F.lit(default)
    pairs = [F.lit(item) for pair in mapping.items() for item in pair]
    return F.coalesce(F.create_map(*pairs)[key], F.lit(default))
