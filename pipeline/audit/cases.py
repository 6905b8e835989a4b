"""One case for each source: the request that has it, and every record that speaks of it.

Each record votes for the sources it speaks of: a request for its own, a written-back one for its root's and
its parent's too, a delivery or dead letter for `delay-source`, an outcome for its key and for its root, a
ledger's line for what it acknowledges. The votes are then brought together by source, all of them in one
go: the one large shuffle of the audit's second half.

Of a recurring message each request that was written back is a case of its own, as the user's is: it has its
own delivery, or end.
"""

from __future__ import annotations

import functools

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

from delayline.outcome_kinds import ANSWERS, ENDINGS, PARKS, OutcomeKind
from pipeline.audit.evidence import Evidence
from pipeline.audit.meaning import REJECT, RESCHEDULE, SCHEDULE, beside_source

# What a message is delivered by: its own row, or that of the last request that was written back for it. A
# reschedule that was deferred is answered by it.
_ROW = (
    "offset", "due_ms", "scheduled_for_ms", "expire_at_ms", "attempt", "occurrence", "settled_by",
    "settled_at_ms", "spell", "late", "removed", "skipped", "key_sha", "value_sha", "key_bytes",
    "value_bytes", "headers", "answered_by", "judged", "held", "resumed_ms", "hold",
)  # fmt: skip
# What a request that was written back says of what follows.
_FOLLOWING = (
    "offset", "source", "occurrence", "scheduled_for_ms", "recurrence", "attempt", "kind", "id", "root",
    "moved_by",
)  # fmt: skip
_FIRSTS = ("letter", "effective", "own_effective", "ending", "answer", "own_ending", "own_park", "no_outcome")
_EFFECTIVE = (OutcomeKind.CANCELLED, OutcomeKind.REPLACED)
_COUNTS = ("rewrites", *(f"{name}_count" for name in _FIRSTS))


def cases(requests: DataFrame, evidence: Evidence, ledger: DataFrame | None) -> DataFrame:
    """One row for each source that any record speaks of.

    The columns of its request (all null if there is none), and `row`, what the message is delivered by. Then,
    each with how many there are and the first of them as a struct: `delivered`; `letter`; by root, or if it
    recurs by its own source, `effective` (cancelled, replaced) and `ending` (expired, dead-lettered,
    skipped); by key `answer` (to a cancel, reschedule or replace), `own_ending`, `own_park`, and
    `no_outcome`, what is no outcome. `park`: the last of its parks, by root, or if it recurs by its own
    source.
    `rewrites`: how many requests were written back for this one; `following`: the first of them.
    `acknowledged`: the ledger's hash.
    """
    votes = [
        requests.select("source", _all_but_source(requests).alias("request")),
        evidence.deliveries.select("source", _all_but_source(evidence.deliveries).alias("delivery")),
        _rare(requests, evidence),
        _acknowledged(requests, ledger),
    ]
    delivery = F.col("delivery")
    counted = _earliest(
        "delivered", delivery, delivery.isNotNull(), delivery["timestamp_ms"], delivery["offset"]
    )
    first = [F.first(name, ignorenulls=True).alias(name) for name in ("request", "rare", "acknowledged")]
    grouped = _by_source(votes, [*first, *counted])
    own_row = F.struct("source", *(f"request.{name}" for name in _ROW))
    row = F.coalesce("rare.rewritten", F.when(F.col("request").isNotNull(), own_row)).alias("row")
    # Null where nothing rare is: no letter, no outcome.
    counts = [F.coalesce(f"rare.{name}", F.lit(0)).alias(name) for name in _COUNTS]
    found = grouped.select(
        "source", "request.*", row, "delivered", "delivered_count", "acknowledged", "rare.following",
        "rare.park", *counts,
        *(f"rare.{name}" for name in _FIRSTS),
    )  # fmt: skip
    return _answered_by_row(_recurring_by_row(found))


def _recurring_by_row(found: DataFrame) -> DataFrame:
    """What was said of a recurring message's root is of many rows: of each, what was said of itself."""
    recurs = F.col("recurrence").isNotNull()
    own = {
        f"{name}{suffix}": F.when(recurs, F.col(f"own_{name}{suffix}")).otherwise(F.col(f"{name}{suffix}"))
        for name in ("effective", "ending")
        for suffix in ("", "_count")
    }
    park = F.when(recurs, F.col("own_park")).otherwise(F.col("park"))
    return found.withColumns(own | {"park": park})


def _answered_by_row(found: DataFrame) -> DataFrame:
    """A reschedule that was deferred is answered when the last of its copies is settled."""
    is_reschedule = F.col("kind") == RESCHEDULE
    return found.withColumns(
        {
            name: F.when(is_reschedule, F.col(f"row.{name}")).otherwise(F.col(name))
            for name in ("answered_by", "judged")
        }
    )


def _by_source(votes: list[DataFrame], columns: list[Column]) -> DataFrame:
    """Bring the votes together by source.

    Reversed: a sort looks at the first eight bytes, and those tell offsets apart, not one buffer's name from
    itself. Moved before they are sorted for the aggregation, they need not be sorted a second time.
    """
    union = functools.reduce(lambda one, other: one.unionByName(other, allowMissingColumns=True), votes)
    moved = union.withColumn("ecruos", F.reverse("source")).drop("source").repartition("ecruos")
    return moved.groupBy("ecruos").agg(F.reverse("ecruos").alias("source"), *columns).drop("ecruos")


def _rare(requests: DataFrame, evidence: Evidence) -> DataFrame:
    """What few sources have, as one struct: so the many are not sorted and counted with it."""
    letters = evidence.dead_letters
    told, fate, letter = F.col("told"), F.col("fate"), F.col("dead_letter")
    answer, own_ending = told["outcome"].isin(*ANSWERS), told["outcome"].isin(*ENDINGS)
    own_park = told["outcome"].isin(*PARKS)
    no_outcome = told.isNotNull() & ~F.coalesce(answer | own_ending | own_park, F.lit(False))
    parked = F.when(
        fate["outcome"].isin(*PARKS), F.substring_index(fate["keyed_by"], "/", -1).try_cast("long")
    )
    effective, ending = fate["outcome"].isin(*_EFFECTIVE), fate["outcome"].isin(*ENDINGS)
    struck = F.col("struck")
    columns = [
        F.max_by("rewrite", "rewrite.offset").alias("rewritten"),
        F.count("following").alias("rewrites"),
        F.min_by("following", "following.offset").alias("following"),
        *_earliest("letter", letter, letter.isNotNull(), letter["timestamp_ms"]),
        *_earliest("effective", fate, effective, fate["timestamp_ms"]),
        *_earliest("own_effective", struck, struck["outcome"].isin(*_EFFECTIVE), struck["timestamp_ms"]),
        *_earliest("ending", fate, ending, fate["timestamp_ms"]),
        *_earliest("answer", told, answer, told["timestamp_ms"]),
        *_earliest("own_ending", told, own_ending, told["timestamp_ms"]),
        *_earliest("own_park", told, own_park, told["timestamp_ms"]),
        F.max_by(fate, parked).alias("park"),
        *_earliest("no_outcome", told, no_outcome, told["timestamp_ms"]),
    ]
    votes = [
        letters.select("source", _all_but_source(letters).alias("dead_letter")),
        _of_outcomes(evidence.outcomes),
        *_of_written_back(requests),
    ]
    grouped = _by_source(votes, columns)
    return grouped.select("source", _all_but_source(grouped).alias("rare"))


def _of_written_back(requests: DataFrame) -> list[DataFrame]:
    """A written-back request is the row of its root, unless it was dropped or is an occurrence, and the doing
    of its parent. A reschedule that was deferred is as well.
    """
    kinds = SCHEDULE, REJECT, RESCHEDULE
    written_back = requests.filter(F.col("kind").isin(*kinds) & F.col("parent").isNotNull())
    parent = beside_source("parent")
    row, following = F.struct("source", *_ROW).alias("rewrite"), F.struct(*_FOLLOWING).alias("following")
    moved = ~F.col("dropped") & F.col("recurrence").isNull()
    return [
        written_back.filter(moved).select(F.col("root").alias("source"), row),
        written_back.select(parent.alias("source"), following),
    ]


def _of_outcomes(outcomes: DataFrame) -> DataFrame:
    """An outcome is of the request it is keyed by, and of the message that it names, and its root."""
    record = F.struct(
        "record", "timestamp_ms", "outcome", "op", "message", "root", "code", "at_ms", "keyed_by"
    )
    none = F.when(F.lit(False), record)

    def vote(source: str, name: str) -> Column:
        columns = [(record if other == name else none).alias(other) for other in ("told", "fate", "struck")]
        return F.struct(F.col(source).alias("source"), *columns)

    ways = F.array(vote("keyed_by", "told"), vote("root", "fate"), vote("message", "struck"))
    votes = outcomes.select(F.explode(ways).alias("vote")).select("vote.*")
    return votes.filter(F.col("source").isNotNull())


def _acknowledged(requests: DataFrame, ledger: DataFrame | None) -> DataFrame:
    """The lines of the ledger; without one, none."""
    if ledger is None:
        return requests.filter(F.lit(False)).select("source", F.lit("").alias("acknowledged"))
    return ledger.select("source", F.col("sha256").alias("acknowledged"))


def _all_but_source(records: DataFrame) -> Column:
    return F.struct(*(name for name in records.columns if name != "source"))


def _earliest(name: str, record: Column, wanted: Column, *order: Column) -> list[Column]:
    """How many of the records are `wanted`, and the first of them in `order`."""
    rank = F.when(wanted, F.struct(*order))
    return [F.count_if(wanted).alias(f"{name}_count"), F.min_by(record, rank).alias(name)]
