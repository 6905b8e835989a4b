"""What operators have had done, as the checkpoints tell it: which messages each replay had to deliver again,
and up to when each transaction skipped (docs/design.md, rule 8).

A replay's rows are those that were done, and not held, under the checkpoint before the one that took the
request up, in its range and to its target; but not those that a cancel or another request of the same id had
removed when the transaction was selected that passed them, nor those that were parked: their later tries are
messages of their own. It delivers them with `delay-attempt` one higher, so that these are told from what was
delivered first.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace
from decimal import Decimal
from functools import reduce
from operator import and_
from typing import Any, Final

from pyspark.sql import Column, DataFrame, Row, Window
from pyspark.sql import functions as F

from delayline.outcome_kinds import ENDINGS, PARKS, OutcomeKind
from delayline.wire import H_ATTEMPT, PREFIX
from pipeline.audit.classes import is_beginning
from pipeline.audit.content import last_header
from pipeline.audit.evidence import Evidence, at_its_row
from pipeline.audit.flaw import flaws, said, violations
from pipeline.audit.meaning import SCHEDULE, source
from store.keys import RowKey

_KEY: Final = "struct<due_ms: long, partition: long, offset: decimal(20, 0)>"
_REPLAY: Final = (
    f"of_lane long, number long, begin {_KEY}, end {_KEY}, covered map<string, long>, only string, "
    f"parts array<struct<end: {_KEY}, seq: long>>"
)
_SKIP: Final = "lane int, settled_by long, skipped_to_ms long"
_CONTENT: Final = ("target_key_sha", "value_sha", "headers", "target_topic", "target_partition")
_NO_FLAWS: Final = "kind string, source string, detail string"


@dataclass(slots=True)
class AuditedReplay:
    """One replay of a lane: from where on, up to (and without) where, what it covers, and to which target
    only; `parts`: the checkpoint of each transaction that went on with it, and how far that came.
    """

    lane: int
    number: int
    begin: RowKey
    end: RowKey
    covered: dict[str, int]
    only: str | None
    parts: list[tuple[RowKey, int]] = field(default_factory=list)


@dataclass(frozen=True, slots=True)
class Operations:
    """What was done. `skips`: the lane and checkpoint of each transaction that skipped, and up to when."""

    replays: Sequence[AuditedReplay] = ()
    skips: Sequence[tuple[int, int, int]] = ()


def operations(checkpoints: DataFrame) -> Operations:
    """What these checkpoints tell of, where none of those that it needs has been compacted away."""
    order = Window.partitionBy("lane").orderBy("seq")
    before = F.lag(F.struct("seq", "operation", "position", "applied")).over(order)
    operation, was = F.col("operation"), F.col("before.operation")
    busy = operation["number"] > F.coalesce(was["number"], F.lit(0))
    busy |= was["replay"].isNotNull() | was["skip_to"].isNotNull()
    told = checkpoints.filter(F.col("epoch").isNotNull()).withColumn("before", before)
    known = F.coalesce(F.col("before.seq") >= F.col("whole_from"), F.lit(False))
    rows = told.filter(busy & known).select("lane", "seq", "operation", "before").orderBy("lane", "seq")
    return from_rows(rows.collect())


def from_rows(rows: Iterable[Row]) -> Operations:
    """What checkpoints say, each with the one `before` it, in the order of their lanes' logs."""
    replays: dict[int, AuditedReplay] = {}  # the last one of each lane
    found, skips = [], []
    for row in rows:
        operation, was = row["operation"], row["before"]["operation"]
        request = _taken_up(operation, was)
        kind = None if request is None else request["type"]
        if kind == "replay":
            replays[row["lane"]] = _begun(row)
            found.append(replays[row["lane"]])
        if kind == "replay" or (was is not None and was["replay"] is not None and kind != "stop-replay"):
            replay = replays.get(row["lane"])
            if replay is not None:
                now = operation["replay"]
                replay.parts.append((replay.end if now is None else _cursor(now), row["seq"]))
        if kind == "skip":
            skips.append((row["lane"], row["seq"], request["to_ms"]))
        elif was is not None and was["skip_to"] is not None:
            skips.append((row["lane"], row["seq"], int(was["skip_to"][0]) + 1))
    for replay in found:
        replay.end = max(end for end, _ in replay.parts)
    return Operations(found, skips)


def _taken_up(operation: Any, was: Any) -> Any:
    """The request that was taken up and not refused, if there is one."""
    before = 0 if was is None else was["number"] or 0
    if (operation["number"] or 0) <= before or operation["refused"] is not None:
        return None
    return operation["request"]


def _begun(row: Row) -> AuditedReplay:
    operation, request, position = row["operation"], row["operation"]["request"], row["before"]["position"]
    end = min((request["to_ms"], 0, 0), (position[0], position[1], position[2] + 1))
    begin = request["from_ms"], 0, 0
    covered = dict(row["before"]["applied"])
    return AuditedReplay(row["lane"], operation["number"], begin, end, covered, request["target"])


def _cursor(replay: Any) -> RowKey:
    due_ms, partition, offset = map(int, replay["next"])
    return due_ms, partition, offset


@dataclass(frozen=True, slots=True)
class Replayed:
    """`evidence` without what was rightly delivered again; `violations` of what was not, or twice."""

    evidence: Evidence
    violations: DataFrame


def with_skips(requests: DataFrame, done: Operations) -> DataFrame:
    """`requests`, with `skipped`: whether the transaction that settled it has skipped it, for an operator."""
    if not done.skips:
        return requests.withColumn("skipped", F.lit(False))
    skips = F.broadcast(requests.sparkSession.createDataFrame(list(done.skips), _SKIP))
    to_be_delivered = (F.col("kind") == SCHEDULE) & ~is_beginning()
    skipped = to_be_delivered & ~F.col("late") & (F.col("due_ms") < F.col("skipped_to_ms"))
    known = requests.join(skips, ["lane", "settled_by"], "left")
    return known.withColumn("skipped", F.coalesce(skipped, F.lit(False))).drop("skipped_to_ms")


def replayed(requests: DataFrame, evidence: Evidence, done: Operations) -> Replayed:
    """Tells what replays have delivered from what came first; `evidence` as it is `at_their_rows`."""
    if not done.replays:
        return Replayed(evidence, requests.sparkSession.createDataFrame([], _NO_FLAWS))
    wanted = _wanted(requests, evidence, done.replays).localCheckpoint(eager=False)
    attempt = F.coalesce(_attempt(), F.lit(0))
    deliveries = evidence.deliveries.withColumn("attempt", attempt)
    later = deliveries.filter(attempt > 1).localCheckpoint(eager=False)
    held = wanted.join(_found(wanted, later), ["source", "attempt"], "left")
    held = held.fillna(0, ["found"]).withColumn("refused", F.lit(0)).localCheckpoint(eager=False)
    others = later.join(held.select("source", "attempt"), ["source", "attempt"], "left_anti")
    ordinary = deliveries.filter(attempt <= 1).unionByName(others)
    rest = replace(evidence, deliveries=ordinary.drop("attempt"))
    if held.filter(F.col("found") < F.col("wanted")).limit(1).collect():
        rest, held = _without_letters(rest, held)
    return Replayed(rest, violations(held, flaws(_checks())))


def _found(wanted: DataFrame, deliveries: DataFrame) -> DataFrame:
    """How often what was wanted is there, and a record that is not what it was to be."""
    row = wanted.select("source", "attempt", "row")
    again = deliveries.filter(F.col("attempt") > 1).join(row, ["source", "attempt"])
    record = source("topic", "partition", "offset")
    return again.groupBy("source", "attempt").agg(
        F.count("*").alias("found"), F.min(F.when(_is_altered(), record)).alias("altered")
    )


def _is_altered() -> Column:
    row = F.col("row")
    same = [
        F.col("key_sha").eqNullSafe(row["target_key_sha"]),
        F.col("value_sha").eqNullSafe(row["value_sha"]),
        _own(F.col("headers")) == _own(row["headers"]),
        F.col("topic") == row["target_topic"],
        F.coalesce(F.col("partition") == row["target_partition"], F.lit(True)),
    ]
    return ~reduce(and_, same)


def _own(headers: Column) -> Column:
    """The user's own headers."""
    return F.filter(headers, lambda header: ~header["key"].startswith(PREFIX))


def _checks() -> list[tuple[str, Column]]:
    wanted, found, refused = F.col("wanted"), F.col("found"), F.col("refused")
    asked = said("request ", F.col("number"), " had it delivered again as attempt ", F.col("attempt"), ", ")
    times = said(wanted, " times in all, and it is there ", found, " times")
    return [
        ("lost", F.when(found + refused < wanted, F.concat(asked, times))),
        ("duplicated", F.when(found + refused > wanted, F.concat(asked, times))),
        (
            "altered",
            F.when(F.col("altered").isNotNull(), said(F.col("altered"), " is not as it was asked for")),
        ),
    ]


def _key(due_ms: Column, partition: Column, offset: Column) -> Column:
    return F.struct(due_ms.alias("due_ms"), partition.alias("partition"), offset.alias("offset")).cast(_KEY)


def _frame(requests: DataFrame, replays: Sequence[AuditedReplay]) -> DataFrame:
    rows = [
        (one.lane, one.number, _spark(one.begin), _spark(one.end), one.covered, one.only, _parts(one))
        for one in replays
    ]
    return F.broadcast(requests.sparkSession.createDataFrame(rows, _REPLAY))


def _parts(replay: AuditedReplay) -> list[tuple[tuple[int, int, Decimal], int]]:
    return [(_spark(end), seq) for end, seq in sorted(replay.parts)]


def _spark(key: RowKey) -> tuple[int, int, Decimal]:
    return key[0], key[1], Decimal(key[2])


def _wanted(requests: DataFrame, evidence: Evidence, replays: Sequence[AuditedReplay]) -> DataFrame:
    """What replays had to deliver: `source` and `attempt` of the deliveries, how many (`wanted`), and the
    `number` of the last request that had it done. `by_row`: the source is that of an occurrence.
    """
    rows = requests.filter(
        (F.col("kind") == SCHEDULE) & ~F.col("duplicate") & ~F.col("dropped") & ~is_beginning()
    )
    key = _key(F.col("due_ms"), F.col("partition"), F.col("offset"))
    covered = F.col("offset") < F.col("covered")[F.col("partition").cast("string")]
    within = (key >= F.col("begin")) & (key < F.col("end")) & covered
    to_target = F.col("only").isNull() | (F.col("only") == F.col("target_topic"))
    passed = rows.join(_frame(requests, replays), (F.col("lane") == F.col("of_lane")) & within & to_target)
    # Spark may look at this for rows that are out of the range, too.
    carried_by = F.get(F.filter("parts", lambda part: part["end"] > key), 0)["seq"]
    there = F.col("gone_by").isNull() | (F.col("gone_by") > carried_by)
    parked = evidence.outcomes.filter(F.col("outcome").isin(*PARKS)).select(F.col("keyed_by").alias("source"))
    was_done = F.col("settled_by") < F.array_min(F.transform("parts", lambda part: part["seq"]))
    kept = passed.filter(there & was_done).join(parked, "source", "left_anti")
    named = at_its_row(kept.withColumn("source", F.coalesce("root", "source")), requests)
    attempt = (F.col("attempt") + 1).cast("long").alias("attempt")
    return named.groupBy("source", attempt).agg(
        F.count("*").alias("wanted"),
        F.max("number").alias("number"),
        F.first(F.col("recurrence").isNotNull()).alias("by_row"),
        F.first(F.struct(*_CONTENT)).alias("row"),
    )


def _without_letters(rest: Evidence, held: DataFrame) -> tuple[Evidence, DataFrame]:
    """What was to be delivered again and could not be is a dead letter, with its outcome: what there is of
    them beyond the first end of a message. Returns the evidence without them, and `held` with how many were
    `refused`.
    """
    missing = held.filter(F.col("found") < F.col("wanted")).select("source", "by_row").distinct()
    delivered = rest.deliveries.join(missing, "source", "left_semi").select("source").distinct()
    known = missing.join(delivered.withColumn("delivered", F.lit(True)), "source", "left")
    ends = _ranked(_endings(rest.outcomes).join(known, ["source", "by_row"]))
    has_end = F.coalesce("delivered", F.lit(False))
    later = (F.col("rank") > F.when(has_end, 0).otherwise(1)) & (
        F.col("outcome") == OutcomeKind.DEAD_LETTERED
    )
    told = ends.filter(later).localCheckpoint(eager=False)
    first_letters = ends.filter((F.col("rank") == 1) & ~has_end & (F.col("outcome") != OutcomeKind.SKIPPED))
    buried = first_letters.select("source", F.lit(1).alias("first_letters"))
    letters = _ranked(rest.dead_letters.join(missing, "source", "left_semi"))
    letters = letters.join(buried, "source", "left").filter(
        F.col("rank") > F.coalesce("first_letters", F.lit(0))
    )
    evidence = replace(
        rest,
        outcomes=rest.outcomes.join(told.select("record"), "record", "left_anti"),
        dead_letters=rest.dead_letters.join(letters.select("record"), "record", "left_anti"),
    )
    refused = letters.groupBy("source").agg(F.count("*").alias("refused"))
    return evidence, held.drop("refused").join(refused, "source", "left").fillna(0, ["refused"])


def _endings(outcomes: DataFrame) -> DataFrame:
    """Each outcome of an end twice: as that of the user's request, and as that of the row."""
    ends = outcomes.filter(F.col("outcome").isin(*ENDINGS))
    by_root = ends.withColumns({"source": F.col("root"), "by_row": F.lit(False)})
    return by_root.unionByName(ends.withColumns({"source": F.col("keyed_by"), "by_row": F.lit(True)}))


def _ranked(records: DataFrame) -> DataFrame:
    order = Window.partitionBy("source").orderBy("timestamp_ms", "record")
    return records.withColumn("rank", F.row_number().over(order))


def _attempt() -> Column:
    return last_header(F.col("headers"), H_ATTEMPT).try_cast("long")
