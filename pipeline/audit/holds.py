"""What waited while operators had paused its target, as the checkpoints tell it (docs/design.md, rule 8).

A row of a hold is not done by the transaction that passes it, but by the first one whose checkpoint does not
hold it any more: the hold's cursor has come to its key, or the hold has gone. At no time two holds of a
target share a key; but where the position was rewound, a later one may have keys of an earlier one. So a
row is of the one that had its key when it was passed. What was passed before is not held.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from typing import Any, Final, NamedTuple

from pyspark.sql import Column, DataFrame, Window
from pyspark.sql import functions as F

from pipeline.audit.meaning import SCHEDULE
from store.keys import RowKey

_KEY: Final = "struct<due_ms: long, partition: long, offset: long>"
_PART: Final = f"struct<end: {_KEY}, seq: long, at_ms: long>"
_HOLD: Final = f"struct<first: {_KEY}, last: {_KEY}, over_ms: long, parts: array<{_PART}>>"
_OF_TARGETS: Final = f"of_lane int, paused_target string, holds array<{_HOLD}>"

BEHIND_ALL: Final[RowKey] = (2**63 - 1, 2**31 - 1, 2**63 - 1)


class HoldPart(NamedTuple):
    """Up to where a hold had let its rows go, from which checkpoint on, and when that was."""

    end: RowKey
    seq: int
    at_ms: int


class AuditedHold(NamedTuple):
    """A hold: of which keys, those behind `first` and up to `last`, if the end of its pause was told; when
    that was; and its `parts` in their order.
    """

    lane: int
    target: str
    first: RowKey
    last: RowKey | None
    over_ms: int | None
    parts: list[HoldPart]


def holds(checkpoints: DataFrame) -> list[AuditedHold]:
    """All that these checkpoints tell of."""
    order = Window.partitionBy("lane").orderBy("seq")
    at = F.struct("seq", F.col("timestamp_ms").alias("at_ms"))
    told = checkpoints.filter(F.col("epoch").isNotNull()).withColumn("next_one", F.lead(at).over(order))
    each = told.filter(F.size("holds") > 0).withColumn("hold", F.explode("holds")).withColumn("at", at)
    steps = each.groupBy("lane", "hold.target", "hold.first", "hold.next").agg(
        F.min("at").alias("at"),
        F.max("hold.last").alias("last"),
        F.min(F.when(F.col("hold.last").isNotNull(), F.col("at.at_ms"))).alias("over_ms"),
        F.max(F.struct("seq", "next_one")).alias("until"),
    )
    of_hold: dict[tuple[int, str, RowKey], list[Any]] = defaultdict(list)
    for step in steps.collect():
        of_hold[step["lane"], step["target"], _key(step["first"])].append(step)
    return [_hold(*which, found) for which, found in sorted(of_hold.items())]


def _hold(lane: int, target: str, first: RowKey, steps: Sequence[Any]) -> AuditedHold:
    parts = sorted(HoldPart(_key(step["next"]), *step["at"]) for step in steps)
    gone_by = max(steps, key=lambda step: step["until"]["seq"])["until"]["next_one"]
    if gone_by is not None:
        parts.append(HoldPart(BEHIND_ALL, *gone_by))
    last = max((_key(step["last"]) for step in steps if step["last"] is not None), default=None)
    over_ms = min((step["over_ms"] for step in steps if step["over_ms"] is not None), default=None)
    if over_ms is None and gone_by is not None:
        over_ms = gone_by["at_ms"]  # its end and all of it were in one transaction
    return AuditedHold(lane, target, first, last, over_ms, parts)


def _key(parts: Sequence[int]) -> RowKey:
    due_ms, partition, offset = parts
    return due_ms, partition, offset


def _had(hold: Column, key: Column, seq: Column) -> Column:
    """Whether a hold had a key, and had not let it go, by that checkpoint."""
    within = (hold["first"] < key) & (hold["last"].isNull() | (key <= hold["last"]))
    let_go_by = F.exists(hold["parts"], lambda part: (part["end"] >= key) & (part["seq"] <= seq))
    return within & (F.get(hold["parts"], F.lit(0))["seq"] <= seq) & ~let_go_by


def let_go(placed: DataFrame, found: Sequence[AuditedHold]) -> DataFrame:
    """What was passed, `settled_by` the transaction that has let it go, which counts as `late`: it is not in
    the order of the position. Adds `held`, whether none has; `resumed_ms`, when the pause was over; and
    `hold`, where the hold begins that has let it go.
    """
    if not found:
        nothing = {"resumed_ms": F.lit(None).cast("long"), "hold": F.lit(None).cast(_KEY)}
        return placed.withColumns({"held": F.lit(False), **nothing})
    of_target: dict[tuple[int, str], list[tuple[Any, ...]]] = defaultdict(list)
    for one in found:
        of_target[one.lane, one.target].append(one[2:])
    rows = [(*which, some) for which, some in of_target.items()]
    frame = F.broadcast(placed.sparkSession.createDataFrame(rows, _OF_TARGETS))
    to_it = (F.col("lane") == F.col("of_lane")) & (F.col("target_topic") == F.col("paused_target"))
    key = F.struct(F.col("due_ms"), F.col("partition"), F.col("offset")).cast(_KEY)
    hold = F.get(F.filter("holds", lambda one: _had(one, key, F.col("settled_by"))), 0)
    known = placed.join(frame, to_it, "left").withColumn("hold", hold)
    begins = F.col("recurrence").isNotNull() & F.col("occurrence").isNull()
    is_its = (F.col("kind") == SCHEDULE) & ~begins & F.col("hold").isNotNull()
    part = F.get(F.filter("hold.parts", lambda one: one["end"] >= key), 0)
    known = known.withColumn("part", F.when(is_its & F.col("settled_by").isNotNull(), part))
    held = is_its & F.col("settled_by").isNotNull() & F.col("part").isNull()
    later = F.coalesce(F.col("part.seq") > F.col("settled_by"), F.lit(False))
    return known.withColumns(
        {
            "settled_by": F.when(later, F.col("part.seq")).when(~held, F.col("settled_by")),
            "settled_at_ms": F.when(later, F.col("part.at_ms")).when(~held, F.col("settled_at_ms")),
            "late": F.col("late") | later,
            "held": held,
            "resumed_ms": F.when(later, F.col("hold.over_ms")),
            "hold": F.when(later, F.col("hold.first")),
        }
    ).drop("of_lane", "paused_target", "holds", "part")
