"""The checkpoint topic: what each transaction claims, and whether the claims are in order (I5, I6)."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Final

import msgspec
from pyspark.sql import Column, DataFrame, Window
from pyspark.sql import functions as F

from delayline.headers import H_SIGNATURE
from delayline.signing import BadSignatureError, Keyring
from pipeline.audit.flaw import flaws, said, violations
from pipeline.audit.meaning import source

NOTHING_BEFORE: Final[Mapping[int, LastCheckpoint]] = {}
VECTORS = ("applied", "seen", "read", "written_back", "carried")
_JSON = (
    "lane int, epoch long, number long, position array<long>, overruns array<struct<position: array<long>>>, "
    "applied map<string, long>, seen map<string, long>, "
    "read map<string, long>, written_back map<string, long>, carried map<string, long>, "
    "newest_ms map<string, long>, "
    "delivered_up_to_ms long, node string, "
    "at_ms long, first boolean, operation struct<number: long, refused: string, "
    "request: struct<type: string, from_ms: long, to_ms: long, target: string>, "
    # Offsets go up to the last one that there can be, which no long holds.
    "replay: struct<number: long, next: array<decimal(20, 0)>>, skip_to: array<decimal(20, 0)>>, "
    "holds array<struct<target: string, first: array<long>, next: array<long>, last: array<long>>>"
)


def own_records(topic: DataFrame, committed: DataFrame, ring: Keyring) -> DataFrame:
    """The `committed` records that the service has written, without copies of them, which are the same to the
    byte. The nodes pass over all others, and say so.

    `topic`: with what was aborted, whose copy is one as well.
    """
    signature = F.get(F.filter("headers", lambda header: header["key"] == H_SIGNATURE), 0)["value"]
    is_own = F.udf(_is_own(ring), "boolean")
    own = topic.filter(is_own("topic", "partition", "offset", "key", "value", signature))
    copies = Window.partitionBy("partition", "key", "value").orderBy("offset")
    first = own.withColumn("time", F.row_number().over(copies)).filter(F.col("time") == 1).drop("time")
    return first.join(committed.select("partition", "offset"), ["partition", "offset"], "left_semi")


def _is_own(ring: Keyring) -> Callable[..., bool]:
    def is_own(
        topic: str,
        partition: int,
        offset: int,
        key: bytearray | None,
        value: bytearray | None,
        signature: bytearray | None,
    ) -> bool:
        if offset < ring.checkpoints_from.get(partition, 0):
            return True
        raw_key, raw_value = (None if one is None else bytes(one) for one in (key, value))
        try:
            ring.check_checkpoint(bytes(signature or b""), topic, partition, raw_key, raw_value)
        except BadSignatureError:
            return False
        return True

    return is_own


class LastCheckpoint(msgspec.Struct, frozen=True):
    """What was known of a lane before the part of its log that is read: its last checkpoint, the `spell` of
    that, and `whole_from`.
    """

    epoch: int
    number: int
    position: tuple[int, ...] | None
    spell: int
    whole_from: int | None


def checkpoints(
    topic: DataFrame, compacted_before_ms: int, last: Mapping[int, LastCheckpoint] = NOTHING_BEFORE
) -> DataFrame:
    """The checkpoints in the order of their lane's log; `seq` is the offset.

    `spell`: how often the position has gone back by then. `whole_from` is the `seq` of the first one after
    which none has been compacted away (null: no such): of what a later one covers, the one just before it is
    known. `last`: by lane, where the topic begins behind that. `apart`: false, since none is missing between
    it and the one before.
    """
    lane, order = Window.partitionBy("partition"), Window.partitionBy("lane").orderBy("seq")
    before = F.coalesce(F.lag("position").over(order), _known(last, "position", "array<long>"))
    fell = (F.col("position") < before).cast("int")
    recent = F.when(F.col("timestamp_ms") >= compacted_before_ms, F.col("offset"))
    return (
        topic.select(
            F.col("partition").alias("lane"),
            F.col("offset").alias("seq"),
            "timestamp_ms",
            source("topic", "partition", "offset").alias("source"),
            F.from_json(F.col("value").cast("string"), _JSON).alias("checkpoint"),
            F.coalesce(_known(last, "whole_from", "long", "partition"), F.min(recent).over(lane)).alias(
                "whole_from"
            ),
        )
        .select(
            "lane",
            "seq",
            "source",
            "timestamp_ms",
            "whole_from",
            *(
                f"checkpoint.{name}"
                for name in (
                    "epoch",
                    "number",
                    "position",
                    *VECTORS,
                    "newest_ms",
                    "delivered_up_to_ms",
                    "node",
                    "at_ms",
                    "first",
                    "operation",
                    "overruns",
                    "holds",
                )
            ),
        )
        .withColumn("fell", fell)
        .withColumn(
            "spell", F.coalesce(F.sum("fell").over(order), F.lit(0)) + _known(last, "spell", "long", other=0)
        )
        .withColumn("apart", F.lit(False))
        .drop("fell")
    )


def behind(topic: DataFrame, last: Mapping[int, LastCheckpoint]) -> bool:
    """Whether any of the records is not above the last checkpoint of its lane."""
    said = F.from_json(F.col("value").cast("string"), "epoch long, number long")
    lane = topic.select(F.col("partition").alias("lane"), said.alias("said"))
    before = F.struct(
        _known(last, "epoch", "long").alias("epoch"), _known(last, "number", "long").alias("number")
    )
    return not lane.filter(F.col("said") <= before).isEmpty()


def _known(
    last: Mapping[int, LastCheckpoint], name: str, kind: str, lane: str = "lane", other: int | None = None
) -> Column:
    """What `last` has for each row's lane."""
    found = F.lit(other).cast(kind)
    for number, one in last.items():
        value = getattr(one, name)
        known = F.array(*map(F.lit, value)) if isinstance(value, tuple) else F.lit(value)
        found = F.when(F.col(lane) == number, known.cast(kind)).otherwise(found)
    return found


def checkpoint_violations(found: DataFrame) -> DataFrame:
    """Rewinds, and epochs that are not one after the other: columns `kind`, `source`, `detail`."""
    fields = F.struct("seq", "epoch", "node", "position", *VECTORS, "delivered_up_to_ms")
    readable = F.col("epoch").isNotNull()
    order = Window.partitionBy("lane", readable).orderBy("seq")
    checks = [
        ("checkpoint_moved_back", F.when(readable, _moved_back())),
        ("epochs_overlapping", F.when(readable, _overlap())),
        ("unexplained", F.when(~readable, F.lit("this is no checkpoint"))),
        ("unexplained", F.when(readable, _first_passes())),
    ]
    return violations(found.withColumn("before", F.lag(fields).over(order)), flaws(checks))


def epochs(found: DataFrame) -> DataFrame:
    """One row for each epoch of each lane: who was leader, from when to when, and the pause before it.

    `whole`: none of its checkpoints has been compacted away.
    """
    by_epoch = (
        found.filter(F.col("epoch").isNotNull())
        .groupBy("lane", "epoch")
        .agg(
            F.min_by("node", "seq").alias("node"),
            F.min_by("at_ms", "seq").alias("from_ms"),
            F.max_by("at_ms", "seq").alias("to_ms"),
            F.count("*").alias("checkpoints"),
            F.coalesce(F.min("seq") >= F.first("whole_from"), F.lit(False)).alias("whole"),
        )
    )
    order = Window.partitionBy("lane").orderBy("epoch")
    pause = F.col("from_ms") - F.lag("to_ms").over(order)
    return by_epoch.withColumn("pause_ms", pause).orderBy("lane", "epoch")


def _moved_back() -> Column:
    """What has moved back against the checkpoint before, but for a rewind, which keeps its position."""
    position, before = F.col("position"), F.col("before.position")
    up_to_ms, before_ms = F.col("delivered_up_to_ms"), F.col("before.delivered_up_to_ms")
    goes_on = ~F.coalesce(F.try_element_at("overruns", F.lit(-1))["position"] == before, F.lit(False))
    lower = goes_on & before.isNotNull() & (position.isNull() | (position < before))
    moved = [
        F.when(lower, said("position ", F.array_join(before, "/"), " -> ", F.array_join(position, "/"))),
        *(_vector_moved_back(name) for name in VECTORS),
        F.when(goes_on & (up_to_ms < before_ms), said("delivered_up_to_ms ", before_ms, " -> ", up_to_ms)),
    ]
    text = F.concat_ws("; ", *moved)
    return F.when(text != "", text)


def _first_passes() -> Column:
    """The first checkpoint of an epoch repeats the one before, where that has not been compacted away."""
    known = F.coalesce(F.col("first"), F.lit(False)) & (F.col("before.seq") >= F.col("whole_from"))
    names = ("position", *VECTORS, "delivered_up_to_ms")
    changed = [F.when(~_same(name), F.lit(name)) for name in names]
    text = F.concat_ws(", ", *changed)
    return F.when(
        known & (text != ""), said("the first checkpoint of epoch ", F.col("epoch"), " changes ", text)
    )


def _same(name: str) -> Column:
    """Spark compares no maps. A vector that a version does not know is one of no partitions."""
    now, before = F.col(name), F.col(f"before.{name}")
    if name not in VECTORS:
        return now.eqNullSafe(before)
    same = F.array_sort(F.map_entries(now)).eqNullSafe(F.array_sort(F.map_entries(before)))
    return same | ((_size(now) <= 0) & (_size(before) <= 0))


def _size(vector: Column) -> Column:
    return F.coalesce(F.size(vector), F.lit(0))


def _vector_moved_back(name: str) -> Column:
    now, before = F.col(name), F.col(f"before.{name}")

    def is_lower(partition: Column) -> Column:
        return F.coalesce(now[partition], F.lit(0)) < before[partition]

    def shown(partition: Column) -> Column:
        return said(f"{name}[", partition, "] ", before[partition], " -> ", now[partition])

    lower = F.filter(F.map_keys(before), is_lower)
    return F.when(F.size(lower) > 0, F.array_join(F.transform(lower, shown), "; "))


def _overlap() -> Column:
    """How a checkpoint's epoch does not follow from the one before."""
    epoch, node, first = F.col("epoch"), F.col("node"), F.coalesce(F.col("first"), F.lit(False))
    before = F.col("before")
    same = epoch == before["epoch"]
    return (
        F.when(epoch < before["epoch"], said("epoch ", epoch, " after epoch ", before["epoch"]))
        .when(
            same & (node != before["node"]), said("epoch ", epoch, " of ", before["node"], " and of ", node)
        )
        .when(same & first, said("epoch ", epoch, " begins a second time"))
        .when((epoch > before["epoch"]) & ~first, said("epoch ", epoch, " has no first checkpoint"))
    )
