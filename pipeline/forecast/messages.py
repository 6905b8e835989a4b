"""The messages of a cluster's log as one frame: who asked for what, when it falls due, what became of it.

`MESSAGES` is what a forecast is made from. Any frame with these columns will do.
"""

from __future__ import annotations

from typing import Final

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

from pipeline.audit.carries import OF_SUCCESSOR
from pipeline.audit.history import word_of
from pipeline.audit.meaning import SCHEDULE

PENDING, HELD, DONE, GONE = "pending", "held", "done", "gone"

RECURRENCE: Final = (
    "struct<cron: string, interval_ms: long, factor_permille: int, time_zone: string, times: long, "
    "until_ms: long, missed: string>"
)
MESSAGES: Final = (
    "asked_ms long, due_ms long, target string, state string, gone_ms long, settled_ms long, bytes long, "
    f"scheduled_for_ms long, occurrence long, recurrence {RECURRENCE}"
)
"""One row for each message, each occurrence, and each later try.

`asked_ms`: the time of the user's last word on it, its request or a reschedule; null: before what the log has
left. `state`: pending; held, by the pause of its target; done; or gone, cancelled or moved to another time,
and then `gone_ms` is when. `settled_ms`: when the broker took the transaction that has done it, as far as
that is known exactly. `bytes`: key, value and headers.
"""
ARRIVALS: Final = "hour long, records long, bytes long, asked long"
"""Of each hour since the epoch: the records of the log, their `bytes` as above, and how many of them are
schedules of users.
"""

_COLUMNS: Final = (
    *("asked_ms", "due_ms", "target", "state", "gone_ms", "settled_ms", "bytes", "scheduled_for_ms"),
    *("occurrence", "recurrence"),
)


def messages(history: DataFrame, checkpoints: DataFrame) -> DataFrame:
    """`MESSAGES` of requests with their history (`pipeline.audit.judge`)."""
    is_row = (F.col("kind") == SCHEDULE) & ~F.col("dropped") & ~F.col("duplicate")
    rows = history.filter(is_row & ~F.col("stand_in").eqNullSafe(F.lit(OF_SUCCESSOR)))
    settled = F.col("settled_by").isNotNull()
    gone = F.col("removed").isNotNull() | F.col("moved") | (~settled & F.col("gone_by").isNotNull())
    state = F.when(gone, GONE).when(F.col("held"), HELD).when(settled, DONE).otherwise(PENDING)
    told = F.col("settled_by") > F.col("whole_from")
    found = rows.filter(~F.col("skipped")).select(
        "partition",
        "lane",
        "due_ms",
        F.col("target_topic").alias("target"),
        state.alias("state"),
        F.when(state == DONE, F.when(told, F.col("settled_at_ms"))).alias("settled_ms"),
        bytes_of().alias("bytes"),
        "scheduled_for_ms",
        "occurrence",
        "recurrence",
        "timestamp_ms",
        word_of().alias("word"),
        (word_of() == F.col("offset")).alias("is_own"),
        "gone_by",
    )
    return _gone(_asked(found, history), checkpoints).select(*_COLUMNS)


def arrivals(requests: DataFrame) -> DataFrame:
    """`ARRIVALS` of the log's requests."""
    is_asked = (F.col("kind") == SCHEDULE) & F.col("parent").isNull()
    there = requests.filter(F.col("timestamp_ms").isNotNull() & F.col("stand_in").isNull())
    return there.groupBy(F.expr("timestamp_ms div 3600000").alias("hour")).agg(
        F.count("*").alias("records"), F.sum(bytes_of()).alias("bytes"), F.count_if(is_asked).alias("asked")
    )


def bytes_of() -> Column:
    """Of a record: its key, value and headers."""
    headers = F.aggregate(
        "headers",
        F.lit(0),
        lambda sum_, header: (
            sum_ + F.octet_length(header["key"]) + F.coalesce(F.octet_length(header["value"]), F.lit(0))
        ),
    )
    parts = (F.coalesce(F.col(name), F.lit(0)) for name in ("key_bytes", "value_bytes"))
    return (next(parts) + next(parts) + headers).cast("long")


def _asked(found: DataFrame, history: DataFrame) -> DataFrame:
    """Adds `asked_ms`. Few rows go back to another request: those alone are joined."""
    own = found.filter("is_own").withColumn("asked_ms", F.col("timestamp_ms"))
    words = history.select(
        "partition", F.col("offset").alias("word"), F.col("timestamp_ms").alias("asked_ms")
    )
    back = found.filter("not is_own").join(words, ["partition", "word"], "left")
    return own.unionByName(back)


def _gone(found: DataFrame, checkpoints: DataFrame) -> DataFrame:
    """Adds `gone_ms`: when the checkpoint was written that has seen what ended it."""
    seen = checkpoints.select("lane", F.col("seq").alias("gone_by"), F.col("timestamp_ms").alias("gone_ms"))
    gone = found.filter(F.col("state") == GONE).join(seen, ["lane", "gone_by"], "left")
    stays = found.filter(F.col("state") != GONE).withColumn("gone_ms", F.lit(None).cast("long"))
    return stays.unionByName(gone)
