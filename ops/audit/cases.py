"""One case for each source: the request that has it, and every record that speaks of it.

Each record votes for the sources it speaks of: a request for its own, a written-back one for its root's and
its parent's too, a delivery or dead letter for `delay-source`, an outcome for its key and for its root, a
ledger's line for what it acknowledges. The votes are then brought together by source, all of them in one
go: the one large shuffle of the audit's second half.
"""

from __future__ import annotations

import functools

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F  # noqa: N812  # as Spark's own documentation has it

from ops.audit.evidence import ANSWERS, ENDINGS, Evidence
from ops.audit.meaning import SCHEDULE

# What a message is delivered by: its own row, or that of the last request that was written back for it.
_ROW = (
    "offset", "due_ms", "scheduled_for_ms", "expire_at_ms", "attempt", "occurrence", "settled_by", "late",
    "removed", "key_sha", "value_sha", "headers",
)  # fmt: skip


def cases(requests: DataFrame, evidence: Evidence, ledger: DataFrame | None) -> DataFrame:
    """One row for each source that any record speaks of.

    The columns of its request (all null if there is none); `row`, what the message is delivered by; then
    the first record of each sort, as a struct, with how many there are: `delivered`, `letter`; by root
    `applied` (cancelled, replaced) and `ending` (expired, dead-lettered); by key `answer` (to a control
    request or replace) and `own_ending`; `strange_outcomes`; `rewrites`, how many requests were written
    back for this one; `acknowledged`, the ledger's hash.
    """
    votes = [
        *_of_requests(requests),
        evidence.deliveries.select("source", _all_but_source(evidence.deliveries).alias("delivery")),
        evidence.dead_letters.select("source", _all_but_source(evidence.dead_letters).alias("dead_letter")),
        _of_outcomes(evidence.outcomes),
    ]
    if ledger is not None:
        votes.append(ledger.select("source", F.col("sha256").alias("acknowledged")))
    union = functools.reduce(lambda one, other: one.unionByName(other, allowMissingColumns=True), votes)
    if ledger is None:
        union = union.withColumn("acknowledged", F.lit(None).cast("string"))
    # Brought together before they are sorted for the aggregation, not after it too.
    grouped = union.repartition("source").groupBy("source").agg(*_brought_together())
    own_row = F.when(F.col("request").isNotNull(), F.struct(*(f"request.{name}" for name in _ROW)))
    row = F.coalesce("rewritten", own_row)
    return grouped.withColumn("row", row).select("*", "request.*").drop("request", "rewritten")


def _of_requests(requests: DataFrame) -> list[DataFrame]:
    """A request's own case; for a written-back one its root's, unless it was dropped, and its parent's."""
    written_back = requests.filter((F.col("kind") == SCHEDULE) & F.col("parent").isNotNull())
    buffer = F.substring_index("source", "/", 2)
    return [
        requests.select("source", _all_but_source(requests).alias("request")),
        written_back.filter(~F.col("overtaken")).select(
            F.col("root").alias("source"), F.struct(*_ROW).alias("rewrite")
        ),
        written_back.select(
            F.concat_ws("/", buffer, F.col("parent").cast("string")).alias("source"), "parent"
        ),
    ]


def _of_outcomes(outcomes: DataFrame) -> DataFrame:
    """An outcome is of the request it is keyed by, and of the message whose root it names."""
    record = F.struct(
        "record", "timestamp_ms", "outcome", "op", "message", "root", "code", "at_ms", "keyed_by"
    )
    slots = F.array(
        _vote(F.col("keyed_by"), told=record, fate=_none_like(record)),
        _vote(F.col("root"), told=_none_like(record), fate=record),
    )
    return (
        outcomes.select(F.explode(slots).alias("vote")).select("vote.*").filter(F.col("source").isNotNull())
    )


def _vote(source: Column, **slots: Column) -> Column:
    return F.struct(source.alias("source"), *(slot.alias(name) for name, slot in slots.items()))


def _none_like(column: Column) -> Column:
    return F.when(F.lit(False), column)


def _all_but_source(records: DataFrame) -> Column:
    return F.struct(*(name for name in records.columns if name != "source"))


def _brought_together() -> list[Column]:
    fate, told = F.col("fate"), F.col("told")
    answer, own_ending = told["outcome"].isin(*ANSWERS), told["outcome"].isin(*ENDINGS)
    strange = told.isNotNull() & ~F.coalesce(answer | own_ending, F.lit(False))
    delivery, letter = F.col("delivery"), F.col("dead_letter")
    return [
        F.first("request", ignorenulls=True).alias("request"),
        F.max_by("rewrite", "rewrite.offset").alias("rewritten"),
        F.count("parent").alias("rewrites"),
        F.first("acknowledged", ignorenulls=True).alias("acknowledged"),
        *_earliest("delivered", delivery, delivery.isNotNull(), delivery["timestamp_ms"], delivery["offset"]),
        *_earliest("letter", letter, letter.isNotNull(), letter["timestamp_ms"]),
        *_earliest("applied", fate, fate["outcome"].isin("cancelled", "replaced"), fate["timestamp_ms"]),
        *_earliest("ending", fate, fate["outcome"].isin(*ENDINGS), fate["timestamp_ms"]),
        *_earliest("answer", told, answer, told["timestamp_ms"]),
        *_earliest("own_ending", told, own_ending, told["timestamp_ms"]),
        *_earliest("strange", told, strange, told["timestamp_ms"]),
    ]


def _earliest(name: str, record: Column, wanted: Column, *order: Column) -> list[Column]:
    """How many of the records are `wanted`, and the first of them in `order`."""
    rank = F.when(wanted, F.struct(*order))
    return [F.count_if(wanted).alias(f"{name}_count"), F.min_by(record, rank).alias(name)]
