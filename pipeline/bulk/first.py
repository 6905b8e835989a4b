"""When a request is to be delivered first, as the wire format counts (delayline/parser.py)."""

from __future__ import annotations

from collections.abc import Collection
from typing import Final

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

from delayline.recurrence import MOST_PASSED, SAME_INTERVAL, SHORTEST_MS
from delayline.settings import ClusterSettings
from pipeline.bulk.asked import Asked
from pipeline.bulk.columns import TIMES, ms_of

START_MS, FIRST_MS = "start_ms", "first_ms"
_FAR_MS: Final = 1 << 60
"""Further away than any cluster takes; what is further is this, so that no sum is too large."""
_LONG_INTERVAL_MS: Final = 1 << 42
"""Longer than from 1970 to now; what is longer is this, so that no product is too large."""


def with_first(rows: DataFrame, has: Collection[str], settings: ClusterSettings, now_ms: int) -> DataFrame:
    """The rows with `first_ms`, epoch milliseconds (long): null if too many growing intervals have passed.

    `has`: the columns of requests that they have; times and durations are read.
    """
    started = rows.withColumn(START_MS, _start_ms(has, settings, now_ms))
    if "interval" not in has:
        return started.withColumn(FIRST_MS, F.col(START_MS))
    interval_ms = F.greatest(_at_most(F.col(ms_of("interval")), _FAR_MS), F.lit(SHORTEST_MS))
    is_timed = Asked({name: F.col(name) for name in TIMES if name in has}).has(*TIMES)
    begins_ms = F.when(is_timed, F.col(START_MS)).otherwise(F.col(START_MS) + interval_ms)
    begun = started.withColumn("interval_ms_", interval_ms).withColumn("begins_ms", begins_ms)
    first = F.when(F.col(ms_of("interval")).isNull(), F.col(START_MS)).otherwise(_stepped_ms(has, now_ms))
    return begun.withColumn(FIRST_MS, first).drop("interval_ms_", "begins_ms")


def _start_ms(has: Collection[str], settings: ClusterSettings, now_ms: int) -> Column:
    """The time asked for; now, if there is none."""
    now = F.lit(now_ms)
    choices = []
    if "due" in has:
        choices.append(_at_most(F.col(ms_of("due")), _FAR_MS))
    if "delay" in has:
        choices.append(now + _at_most(F.col(ms_of("delay")), _FAR_MS))
    if "level" in has:
        level = F.col("level").try_cast("decimal(20,0)")
        levels = F.array(*map(F.lit, settings.levels_ms))
        index = _at_most(level, len(settings.levels_ms)).cast("int")
        choices.append(now + F.when(level < 1, F.lit(0)).otherwise(F.get(levels, index - 1)))
    return F.coalesce(*choices, now)


def _stepped_ms(has: Collection[str], now_ms: int) -> Column:
    """The first of an interval's deliveries that is not past (delayline.recurrence.first_of_interval)."""
    now, begins_ms, interval_ms = F.lit(now_ms), F.col("begins_ms"), F.col("interval_ms_")
    passed = F.floor((now - 1 - begins_ms) / interval_ms) + 1
    same_ms = begins_ms + passed * interval_ms
    if "interval_factor" not in has:
        return F.when(begins_ms >= now, begins_ms).otherwise(same_ms)
    permille = (F.col("interval_factor").try_cast("decimal(20,3)") * SAME_INTERVAL).cast("long")

    def step(at: Column, _: Column) -> Column:
        interval = _at_most(at["interval"], _LONG_INTERVAL_MS)
        grown = F.ceil(interval * permille / F.lit(SAME_INTERVAL))
        further = F.struct((at["at"] + at["interval"]).alias("at"), grown.alias("interval"))
        return F.when(at["at"] >= now, at).otherwise(further)

    begin = F.struct(begins_ms.alias("at"), interval_ms.alias("interval"))
    last_ms = F.aggregate(F.sequence(F.lit(0), F.lit(MOST_PASSED)), begin, step)["at"]
    grows = F.coalesce(permille, F.lit(SAME_INTERVAL)) > SAME_INTERVAL
    growing_ms = F.when(last_ms >= now, last_ms)
    return F.when(begins_ms >= now, begins_ms).when(grows, growing_ms).otherwise(same_ms)


def _at_most(number: Column, most: int) -> Column:
    """Null of a null, as `F.least` is not."""
    return F.when(number > most, F.lit(most)).otherwise(number)
