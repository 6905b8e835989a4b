"""When messages were delivered, by whom, and how long nobody delivered: small tables, whatever there was."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from pyspark.sql import Column, DataFrame, Window
from pyspark.sql import functions as F

from pipeline.audit.run import Audit

BUCKETS: Final = 300
"""At most so many of them make a timeline."""
EPOCHS: Final = 200
"""At most so many are told of, the newest."""
REACH_MS: Final = 1_000
"""How far round an epoch's change a pause counts as its own."""

_S, _MIN, _H, _DAY = 1_000, 60_000, 3_600_000, 86_400_000
_SIZES_MS: Final = (
    *(10, 20, 50, 100, 200, 500, _S, 2 * _S, 5 * _S, 10 * _S, 30 * _S, _MIN, 2 * _MIN, 5 * _MIN),
    *(10 * _MIN, 30 * _MIN, _H, 2 * _H, 6 * _H, 12 * _H, _DAY, 2 * _DAY, 7 * _DAY),
)


@dataclass(frozen=True, slots=True)
class Bar:
    """Messages that one leader delivered in the bucket that begins at `at_ms`; leader None: not known."""

    at_ms: int
    node: str | None
    messages: int


@dataclass(frozen=True, slots=True)
class Timeline:
    """Deliveries over time."""

    bucket_ms: int
    bars: Sequence[Bar]


@dataclass(frozen=True, slots=True)
class Epoch:
    """One leader's time. Times are those of its first and last checkpoint, epoch ms.

    `transactions` is None where compaction has taken some. `gap_ms` is the longest pause between two
    deliveries within `REACH_MS` of the change to this epoch, `gap_from_ms` its begin, `late_ms` the greatest
    lateness there: None for a first epoch, and where nothing was delivered then.
    """

    lane: int
    epoch: int
    node: str
    from_ms: int
    to_ms: int
    transactions: int | None
    messages: int
    gap_ms: int | None
    gap_from_ms: int | None
    late_ms: int | None


def deliveries_over_time(found: Audit) -> tuple[Timeline, tuple[Epoch, ...]]:
    """The timeline, and the newest epochs, oldest first."""
    bucket_ms = _bucket_ms(found.messages)
    served = _served(found, bucket_ms).localCheckpoint(eager=False)
    return Timeline(bucket_ms, _bars(served)), _epochs(found.epochs, served)


def bucket_size_ms(span_ms: int) -> int:
    """The smallest size, of those that people count in, that makes no more than `BUCKETS` of a span."""
    fitting = (size_ms for size_ms in _SIZES_MS if span_ms // size_ms < BUCKETS - 1)
    return next(fitting, (span_ms // (BUCKETS - 1) // _DAY + 1) * _DAY)


def _bucket_ms(messages: DataFrame) -> int:
    at_ms = F.col("delivered_at_ms")
    span_ms = messages.agg(F.max(at_ms) - F.min(at_ms)).collect()[0][0]
    return bucket_size_ms(span_ms or 0)


def _served(found: Audit, bucket_ms: int) -> DataFrame:
    """A row for each transaction and bucket: whose it was, how many messages, from when to when, how late."""
    at_ms = F.col("delivered_at_ms")
    bucket = F.floor(at_ms / bucket_ms) * bucket_ms
    by_transaction = (
        found.messages.filter(at_ms.isNotNull())
        .groupBy("lane", "settled_by", bucket.alias("bucket"))
        .agg(
            F.count("*").alias("messages"),
            F.min(at_ms).alias("first_ms"),
            F.max(at_ms).alias("last_ms"),
            F.max("lateness_ms").alias("late_ms"),
        )
    )
    return by_transaction.join(_leaders(found.records.checkpoints), ["lane", "settled_by"], "left")


def _leaders(checkpoints: DataFrame) -> DataFrame:
    """Whose transaction each checkpoint stands for: `epoch` and `node`.

    An epoch's first one covers nothing of its own: where it is the first above a message, compaction has
    taken what did cover it, of the epoch before.
    """
    readable = checkpoints.filter(F.col("epoch").isNotNull())
    own = F.struct("epoch", "node")
    before = F.lag(own).over(Window.partitionBy("lane").orderBy("seq"))
    leader = F.when(F.coalesce("first", F.lit(False)), before).otherwise(own)
    return readable.select("lane", F.col("seq").alias("settled_by"), leader.alias("leader")).select(
        "lane", "settled_by", "leader.*"
    )


def _bars(served: DataFrame) -> tuple[Bar, ...]:
    rows = served.groupBy("bucket", "node").agg(F.sum("messages").alias("messages")).collect()
    return tuple(
        sorted(
            (Bar(row["bucket"], row["node"], row["messages"]) for row in rows),
            key=lambda bar: (bar.at_ms, bar.node or ""),
        )
    )


def _epochs(epochs: DataFrame, served: DataFrame) -> tuple[Epoch, ...]:
    order = Window.partitionBy("lane").orderBy("epoch")
    # Not after a limit: the oldest one that is told of has one before it, too.
    newest = (
        epochs.withColumn("before_to_ms", F.lag("to_ms").over(order))
        .orderBy(F.col("from_ms").desc())
        .limit(EPOCHS)
    )
    messages = served.groupBy("lane", "epoch").agg(F.sum("messages").alias("messages"))
    rows = (
        newest.join(messages, ["lane", "epoch"], "left")
        .join(_gaps(newest, served), ["lane", "epoch"], "left")
        .orderBy("lane", "epoch")
        .collect()
    )
    return tuple(
        Epoch(
            row["lane"],
            row["epoch"],
            row["node"],
            row["from_ms"],
            row["to_ms"],
            row["checkpoints"] if row["whole"] else None,
            row["messages"] or 0,
            row["gap"] and row["gap"]["ms"],
            row["gap"] and row["gap"]["from_ms"],
            row["late_ms"],
        )
        for row in rows
    )


def _gaps(epochs: DataFrame, served: DataFrame) -> DataFrame:
    """For each epoch the longest pause near its beginning, and the greatest lateness there."""
    earlier = Window.partitionBy("lane").orderBy("first_ms", "last_ms").rowsBetween(_FIRST, -1)
    pauses = served.select(
        "lane", "first_ms", "last_ms", F.col("late_ms"), F.max("last_ms").over(earlier).alias("since_ms")
    )
    changes = epochs.filter(F.col("before_to_ms").isNotNull()).select(
        "lane", "epoch", "from_ms", "before_to_ms"
    )
    near = pauses.join(F.broadcast(changes), "lane").filter(_touches())
    gap = F.struct((F.col("first_ms") - F.col("since_ms")).alias("ms"), F.col("since_ms").alias("from_ms"))
    # A struct's first field decides; a row that comes before the end of another is no pause.
    pause = F.when(F.col("since_ms") < F.col("first_ms"), gap)
    return near.groupBy("lane", "epoch").agg(F.max(pause).alias("gap"), F.max("late_ms").alias("late_ms"))


def _touches() -> Column:
    ends_ms = F.col("first_ms") >= F.col("before_to_ms") - REACH_MS
    return ends_ms & (F.col("since_ms") <= F.col("from_ms") + REACH_MS)


_FIRST: Final = Window.unboundedPreceding
