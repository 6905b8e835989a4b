"""How late messages were: how many of them by how much, in steps that grow with the lateness."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Final

from pyspark.sql import DataFrame
from pyspark.sql import functions as F

GROWTH: Final = 1.1
_EXACT_BELOW_MS: Final = 10  # a tenth of it is a millisecond, the finest there is


@dataclass(frozen=True, slots=True)
class Bucket:
    """So many messages were at least `from_ms` and less than `to_ms` late; below zero, they were early."""

    from_ms: int
    to_ms: int
    messages: int


def spread(messages: DataFrame) -> tuple[Bucket, ...]:
    """The steps that hold any message, in their order: some hundreds, however many messages there are.

    Early ones are all in one step.
    """
    late = F.col("lateness_ms")
    above = F.floor(F.log(late / _EXACT_BELOW_MS) / math.log(GROWTH)) + _EXACT_BELOW_MS
    step = F.when(late < 0, -1).when(late < _EXACT_BELOW_MS, late).otherwise(above)
    counted = (
        messages.filter(late.isNotNull())
        .groupBy(step.alias("step"))
        .agg(F.count("*").alias("messages"), F.min(late).alias("least_ms"), F.max(late).alias("most_ms"))
        .orderBy("step")
        .collect()
    )
    return tuple(_step(row["step"], row["least_ms"], row["most_ms"], row["messages"]) for row in counted)


def _step(step: int, least_ms: int, most_ms: int, messages: int) -> Bucket:
    """What is in a step widens it: the two ways to compute its ends may round differently."""
    if step < _EXACT_BELOW_MS:
        return Bucket(least_ms, most_ms + 1, messages)
    begin, end = (_EXACT_BELOW_MS * GROWTH ** (step + more - _EXACT_BELOW_MS) for more in (0, 1))
    return Bucket(min(least_ms, math.ceil(begin)), max(most_ms + 1, math.ceil(end)), messages)
