"""From frames to small tables: all that a forecast needs of a log, however long it is.

What is still to come is told by what came: in an earlier week, of what fell due in the same stretch, all that
nobody had asked for by the same moment of it. A message is in that *sample* if it was done, was due in the
stretch, and was asked for after its beginning. So a sample has the seasons, the delays and what cancels and
reschedules take away or bring, without a model of any of them.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

from delayline.recurrence import Occurrence, Recurrence
from delayline.times import MINUTE_MS
from pipeline.forecast.chains import later
from pipeline.forecast.horizon import HOUR_MS, Horizon, Shifts, shifts
from pipeline.forecast.messages import DONE, GONE, HELD, PENDING

MOST_TARGETS: Final = 20
"""Counted apart: users name as many as they like."""
BUSY_MS: Final = 10_000
LEADS_MS: Final = (HOUR_MS, 6 * HOUR_MS, 24 * HOUR_MS)
"""How long a message waits yet, in classes: up to the first, the second, and so on."""

Target = str | None
"""A topic; None: all others together."""


@dataclass(frozen=True, slots=True)
class Waiting:
    """What waits: `overdue`, `held` by pauses, and all of it, in messages and bytes."""

    overdue: int
    held: int
    messages: int
    bytes: int


@dataclass(frozen=True, slots=True)
class Counts:
    """Counts by minute and by hour, from the horizon's beginning.

    `plain`, `chains`: what waits, and of chains also what follows, by minute and target. `bursts`: how many
    of what waits are due in the same second at most, by minute. `samples`: of each shift, by minute. `fresh`:
    the same by hour and target, of all shifts together. `known`: of each shift and class of `LEADS_MS`, how
    many were known at its beginning, and how many of them came. `arrivals`: hours since the epoch, each with
    records, bytes and schedules of users. `busiest`: most deliveries in `BUSY_MS`; None: nothing is known.
    """

    shifts: Shifts | None
    since_ms: int | None
    waiting: Waiting
    plain: Mapping[tuple[int, Target], int]
    chains: Mapping[tuple[int, Target], int]
    bursts: Mapping[int, int]
    samples: Mapping[int, Mapping[int, int]]
    fresh: Mapping[tuple[int, Target], int]
    known: Mapping[tuple[int, int], tuple[int, int]]
    arrivals: Mapping[int, tuple[int, int, int]]
    busiest: int | None


def count(messages: DataFrame, arrivals: DataFrame, horizon: Horizon, since_ms: int | None) -> Counts:
    """Looks at all of `MESSAGES` and `ARRIVALS`. `since_ms`: from when on they are whole; None: never."""
    back = shifts(horizon, since_ms)
    pending = messages.filter(F.col("state").isin(PENDING, HELD))
    waits = _due_within(pending.filter(F.col("state") == PENDING), horizon).localCheckpoint()
    samples = None if back is None else _samples(messages, horizon, back).localCheckpoint()
    top = _top(waits, samples, 1 if back is None else back.count)
    by_minute = waits.withColumn("target", _among(top)).groupBy("minute", "target", "chain")
    rows = by_minute.agg(F.sum("count").alias("count")).collect()
    bursts = waits.filter(~F.col("chain")).groupBy("minute", "second").agg(F.sum("count").alias("count"))
    return Counts(
        shifts=back,
        since_ms=since_ms,
        waiting=_waiting(pending, horizon),
        plain={(row["minute"], row["target"]): row["count"] for row in rows if not row["chain"]},
        chains={(row["minute"], row["target"]): row["count"] for row in rows if row["chain"]},
        bursts=dict(bursts.groupBy("minute").agg(F.max("count")).collect()),
        samples={} if samples is None else _by_shift(samples),
        fresh={} if samples is None else _by_hour(samples, top, horizon),
        known={} if back is None else _known(messages, horizon, back),
        arrivals={row["hour"]: (row["records"], row["bytes"], row["asked"]) for row in arrivals.collect()},
        busiest=_busiest(messages),
    )


def _due_within(pending: DataFrame, horizon: Horizon) -> DataFrame:
    """What waits, and what follows from it: how many by minute, second, target, and whether of a chain."""
    begins = F.col("recurrence").isNotNull() & F.col("occurrence").isNull()
    due = F.col("due_ms")
    own = pending.filter(~begins & (due >= horizon.now_ms) & (due < horizon.end_ms)).select(
        _minute(due, horizon).alias("minute"),
        F.expr("due_ms div 1000").alias("second"),
        "target",
        F.col("recurrence").isNotNull().alias("chain"),
    )
    counted = own.groupBy("minute", "second", "target", "chain").agg(F.count("*").alias("count"))
    return counted.unionByName(_following(pending, horizon))


def _following(pending: DataFrame, horizon: Horizon) -> DataFrame:
    """The later occurrences. Chains that are alike are gone through once."""
    now_ms, end_ms = horizon.now_ms, horizon.end_ms

    def found(number: int | None, at_ms: int, recurrence: Any) -> dict[int, int]:
        chain = Recurrence(*recurrence)
        waiting = None if number is None else Occurrence(number, at_ms, chain)
        return later(waiting, at_ms, chain, now_ms, end_ms)

    expand = F.udf(found, "map<long, long>")
    alike = (
        pending.filter(F.col("recurrence").isNotNull())
        .groupBy("target", "scheduled_for_ms", "occurrence", "recurrence")
        .agg(F.count("*").alias("chains"))
    )
    of_each = alike.select(
        "target",
        "chains",
        F.explode(expand("occurrence", "scheduled_for_ms", "recurrence")).alias("at", "times"),
    )
    return (
        of_each.groupBy("target", "at")
        .agg(F.sum(F.col("times") * F.col("chains")).alias("count"))
        .select(
            (F.col("at") - horizon.first_minute).cast("int").alias("minute"),
            F.lit(None).cast("long").alias("second"),
            "target",
            F.lit(True).alias("chain"),
            "count",
        )
    )


def _samples(messages: DataFrame, horizon: Horizon, back: Shifts) -> DataFrame:
    """What came of what nobody had asked for yet: how many by shift, minute and target."""
    # Asked for after the stretch's beginning, and due before its end.
    asked, due = F.col("asked_ms"), F.col("due_ms")
    first = _periods(horizon.now_ms - asked, back) + 1
    last = F.least(_periods(horizon.end_ms - 1 - due, back), F.lit(back.count))
    came = messages.filter((F.col("state") == DONE) & (due <= horizon.now_ms) & asked.isNotNull())
    return (
        _shifted(came, first, last, horizon, back)
        .groupBy("shift", "minute", "target")
        .agg(F.count("*").alias("count"))
    )


def _known(messages: DataFrame, horizon: Horizon, back: Shifts) -> dict[tuple[int, int], tuple[int, int]]:
    """Of what had been asked for by then, and does not recur: how much there was, and how much came."""
    due, now_ms = F.col("due_ms"), horizon.now_ms
    ended = messages.filter(F.col("state").isin(DONE, GONE) & (due <= now_ms) & F.col("recurrence").isNull())
    # It was there, and neither gone nor due yet.
    until_ms = F.least(due, F.coalesce("gone_ms", due))
    first = _periods(F.lit(now_ms) - until_ms, back) + 1
    asked_in = F.coalesce(_periods(now_ms - F.col("asked_ms"), back), F.lit(back.count))
    last = F.least(asked_in, _periods(horizon.end_ms - 1 - due, back), F.lit(back.count))
    there = _shifted(ended, first, last, horizon, back)
    wait_ms = F.col("due_ms") + F.col("shift") * back.period_ms - now_ms
    lead = F.lit(len(LEADS_MS))
    for number, at_most in reversed(list(enumerate(LEADS_MS))):
        lead = F.when(wait_ms <= at_most, number).otherwise(lead)
    counted = there.groupBy("shift", lead.alias("lead")).agg(
        F.count("*").alias("known"), F.count_if(F.col("state") == DONE).alias("came")
    )
    return {(row["shift"], row["lead"]): (row["known"], row["came"]) for row in counted.collect()}


def _shifted(frame: DataFrame, first: Column, last: Column, horizon: Horizon, back: Shifts) -> DataFrame:
    """A row for each shift from the first to the last; `minute` of the horizon."""
    each = frame.withColumns({"first": F.greatest(first, F.lit(1)), "last": last}).filter("first <= last")
    shifted = each.withColumn("shift", F.explode(F.sequence("first", "last")))
    due = F.col("due_ms") + F.col("shift") * back.period_ms
    return shifted.withColumn("minute", _minute(due, horizon))


def _periods(length_ms: Column, back: Shifts) -> Column:
    """How many whole periods a length has, rounded down; below zero, too."""
    return F.floor(length_ms / F.lit(back.period_ms)).cast("long")


def _minute(due: Column, horizon: Horizon) -> Column:
    return (F.floor(due / F.lit(MINUTE_MS)) - horizon.first_minute).cast("int")


def _top(waits: DataFrame, samples: DataFrame | None, stretches: int) -> list[str]:
    """The targets to which most go, of what waits and of the mean of the samples."""
    parts = waits.select("target", F.col("count").cast("double").alias("count"))
    if samples is not None:
        parts = parts.unionByName(samples.select("target", (F.col("count") / stretches).alias("count")))
    most = parts.groupBy("target").agg(F.sum("count").alias("count"))
    rows = most.filter(F.col("target").isNotNull()).orderBy(F.desc("count"), "target").limit(MOST_TARGETS)
    return [row["target"] for row in rows.collect()]


def _among(top: list[str]) -> Column:
    return F.when(F.col("target").isin(*top), F.col("target")) if top else F.lit(None).cast("string")


def _by_shift(samples: DataFrame) -> dict[int, dict[int, int]]:
    found: dict[int, dict[int, int]] = {}
    for row in samples.groupBy("shift", "minute").agg(F.sum("count").alias("count")).collect():
        found.setdefault(row["shift"], {})[row["minute"]] = row["count"]
    return found


def _by_hour(samples: DataFrame, top: list[str], horizon: Horizon) -> dict[tuple[int, Target], int]:
    minute = F.col("minute") + horizon.first_minute
    hour = (F.floor(minute / 60) - horizon.first_hour).cast("int")
    grouped = samples.groupBy(hour.alias("hour"), _among(top).alias("target"))
    return {
        (row["hour"], row["target"]): row["n"] for row in grouped.agg(F.sum("count").alias("n")).collect()
    }


def _waiting(pending: DataFrame, horizon: Horizon) -> Waiting:
    is_held = F.col("state") == HELD
    row = pending.agg(
        F.count_if(~is_held & (F.col("due_ms") < horizon.now_ms)),
        F.count_if(is_held),
        F.count("*"),
        F.coalesce(F.sum("bytes"), F.lit(0)),
    ).collect()[0]
    return Waiting(*row)


def _busiest(messages: DataFrame) -> int | None:
    told = messages.filter(F.col("settled_ms").isNotNull())
    counted = told.groupBy(F.floor(F.col("settled_ms") / BUSY_MS).alias("at")).agg(
        F.count("*").alias("count")
    )
    most = counted.agg(F.max("count")).collect()[0][0]
    return None if most is None else int(most)
