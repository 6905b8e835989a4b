"""The forecast tried on weeks that are over: what it says at the beginning of each of the last days, held
against what came, beside what one would say without it.
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Final, NamedTuple

import pyarrow as pa
from pyarrow import parquet
from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F

from bench.weeks import BEGIN_MS, as_columns, weeks
from delayline.times import DAY_MS, MINUTE_MS
from ops.spark import audit_session
from pipeline.audit.judge import kept
from pipeline.forecast import Asked, Forecast, Horizon, count, forecast
from pipeline.forecast.horizon import WEEK_MS
from pipeline.forecast.messages import DONE, GONE, MESSAGES, PENDING, RECURRENCE
from pipeline.forecast.model import Band, by_hour

ASKED_AT_MS: Final = 8 * 3_600_000
"""The time of day at which it is asked."""
_TABLE: Final = pa.schema(
    [
        ("asked_ms", pa.int64()),
        ("written_ms", pa.int64()),
        ("due_ms", pa.int64()),
        ("target", pa.string()),
        ("gone_ms", pa.int64()),
        ("number", pa.int64()),
        ("every_ms", pa.int64()),
    ]
)


class Trial(NamedTuple):
    """Weeks, on the last seven days of which `days` are forecast, by what the log then has of the last
    `history_days` (None: of all).
    """

    weeks: int
    days: int
    per_minute: float
    history_days: int | None = None


class Try(NamedTuple):
    """One forecast: of each minute what came, what came a week before, and what it had said."""

    came: Sequence[int]
    week_before: Sequence[int]
    said: Forecast


class Errors(NamedTuple):
    """Shares. `hours`, `minutes`: the sum of what a forecast was off by, of the sum of what came. `within_*`:
    how many came within the band. `peak`: how far off it was in each stretch's busiest hour, in the mean.
    The same of what one would say else: what came a week before, and what is known alone.
    """

    hours: float
    hours_week_before: float
    hours_known: float
    minutes: float
    minutes_week_before: float
    within_hours: float
    within_minutes: float
    peak: float
    peak_week_before: float
    seconds: float


def measure(seeds: Sequence[int], trial: Trial) -> Iterator[Errors]:
    """Of each seed's weeks. Raises SetupError."""
    spark = audit_session()
    try:
        for seed in seeds:
            with TemporaryDirectory(prefix="delayline-bench-") as folder:
                frame = _written(spark, Path(folder) / "weeks.parquet", seed, trial)
                begun_s = time.monotonic()
                tries = [_try(frame, trial, day) for day in range(7)]
                yield errors(tries, (time.monotonic() - begun_s) / len(tries))
    finally:
        spark.stop()


def _written(spark: SparkSession, file: Path, seed: int, trial: Trial) -> DataFrame:
    """Once on disk: each forecast reads it anew, as it would a log."""
    columns = as_columns(weeks(seed, trial.weeks + 1, trial.per_minute))
    parquet.write_table(pa.table(columns, schema=_TABLE), file)
    return spark.read.parquet(str(file))


def _try(frame: DataFrame, trial: Trial, day: int) -> Try:
    now_ms = BEGIN_MS + (trial.weeks - 1) * WEEK_MS + day * DAY_MS + ASKED_AT_MS
    horizon = Horizon(now_ms, trial.days * DAY_MS // MINUTE_MS)
    kept_ms = now_ms - BEGIN_MS if trial.history_days is None else trial.history_days * DAY_MS
    since_ms = now_ms - kept_ms
    there = kept(as_of(frame, now_ms, since_ms))
    counts = count(there, _arrivals(frame, now_ms, since_ms), horizon, since_ms)
    said = forecast("bench", counts, horizon, Asked())
    return Try(_came(frame, horizon, 0), _came(frame, horizon, WEEK_MS), said)


def as_of(frame: DataFrame, now_ms: int, since_ms: int) -> DataFrame:
    """What a log would have told then (`pipeline.forecast.messages.MESSAGES`). What retention has taken and
    waits has been carried: nobody knows when it was asked for.
    """
    is_kept = F.col("written_ms") >= since_ms
    there = frame.filter((F.col("written_ms") <= now_ms) & (is_kept | (F.col("due_ms") > now_ms)))
    gone = F.when(F.col("gone_ms") <= now_ms, F.col("gone_ms"))
    state = F.when(gone.isNotNull(), GONE).when(F.col("due_ms") <= now_ms, DONE).otherwise(PENDING)
    columns = {
        "asked_ms": F.when(F.col("asked_ms") >= since_ms, F.col("asked_ms")),
        "state": state,
        "gone_ms": gone,
        "settled_ms": F.when(state == DONE, F.col("due_ms")),
        "bytes": F.lit(300).cast("long"),
        "scheduled_for_ms": F.col("due_ms"),
        "occurrence": F.col("number"),
        "recurrence": _recurrence(),
    }
    return there.withColumns(columns).to(frame.sparkSession.createDataFrame([], MESSAGES).schema)


def _recurrence() -> Column:
    none, long = F.lit(None), "long"
    fields = F.struct(
        none.cast("string").alias("cron"),
        F.col("every_ms").alias("interval_ms"),
        F.lit(1_000).alias("factor_permille"),
        none.cast("string").alias("time_zone"),
        none.cast(long).alias("times"),
        none.cast(long).alias("until_ms"),
        F.lit("all").alias("missed"),
    )
    return F.when(F.col("every_ms").isNotNull(), fields).cast(RECURRENCE)


def _arrivals(frame: DataFrame, now_ms: int, since_ms: int) -> DataFrame:
    there = frame.filter(F.col("written_ms").between(since_ms, now_ms))
    is_asked = F.col("number").isNull() | (F.col("number") == 1)
    return there.groupBy(F.expr("written_ms div 3600000").alias("hour")).agg(
        F.count("*").alias("records"),
        (F.count("*") * 300).alias("bytes"),
        F.count_if(is_asked).alias("asked"),
    )


def _came(frame: DataFrame, horizon: Horizon, before_ms: int) -> list[int]:
    """What fell due in the horizon and was not gone by then, or so long before."""
    due = F.col("due_ms") + before_ms
    within = frame.filter(F.col("gone_ms").isNull() & (due >= horizon.now_ms) & (due < horizon.end_ms))
    minute = F.floor(due / MINUTE_MS) - horizon.first_minute
    found: dict[int, int] = dict(within.groupBy(minute.alias("minute")).agg(F.count("*")).collect())
    return [found.get(at, 0) for at in range(horizon.minutes)]


def errors(tries: Sequence[Try], seconds: float) -> Errors:
    """Of all tries together."""
    hours: list[tuple[float, float, float, float]] = []
    minutes: list[tuple[float, float, float]] = []
    peaks: list[tuple[float, float]] = []
    within_hours: list[bool] = []
    within_minutes: list[bool] = []
    for one in tries:
        horizon, said = one.said.horizon, one.said
        came, before, known = (by_hour(each, horizon) for each in (one.came, one.week_before, said.known))
        rows = list(zip(came, said.hours.expected, before, known, strict=True))
        hours += rows
        minutes += zip(one.came, said.minutes.expected, one.week_before, strict=True)
        within_hours += within(said.hours, came)
        within_minutes += within(said.minutes, one.came)
        most = max(rows)
        peaks.append((abs(most[1] - most[0]) / most[0], abs(most[2] - most[0]) / most[0]))
    return Errors(
        hours=_off(hours, 1),
        hours_week_before=_off(hours, 2),
        hours_known=_off(hours, 3),
        minutes=_off(minutes, 1),
        minutes_week_before=_off(minutes, 2),
        within_hours=_mean(within_hours),
        within_minutes=_mean(within_minutes),
        peak=_mean([ours for ours, _ in peaks]),
        peak_week_before=_mean([naive for _, naive in peaks]),
        seconds=seconds,
    )


def within(band: Band, came: Sequence[float]) -> list[bool]:
    """Whether each came within the band."""
    return [low <= count <= high for low, high, count in zip(band.low, band.high, came, strict=True)]


def _off(rows: Sequence[tuple[float, ...]], which: int) -> float:
    return sum(abs(row[which] - row[0]) for row in rows) / sum(row[0] for row in rows)


def _mean(values: Sequence[float]) -> float:
    return sum(values) / len(values)
