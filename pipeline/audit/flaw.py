"""How a check speaks: a column that holds what is wrong in words, and null where nothing is."""

from __future__ import annotations

from typing import TypeAlias

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

Checks: TypeAlias = list[tuple[str, Column]]
"""Kinds of violation, each with its check."""


def said(*parts: str | Column) -> Column:
    """The parts as one text; what is null reads `none`."""
    texts = [F.lit(part) if isinstance(part, str) else part.cast("string") for part in parts]
    return F.concat(*(F.coalesce(text, F.lit("none")) for text in texts))


def flaws(checks: Checks) -> Column:
    """What the checks find, as an array of `kind` and `detail`; null where they find nothing.

    Spark makes no code for `array_compact`, nor for what is within it: few rows come to that.
    """
    found = [
        F.when(detail.isNotNull(), F.struct(F.lit(kind).alias("kind"), detail.alias("detail")))
        for kind, detail in checks
    ]
    is_any = F.coalesce(*(detail for _, detail in checks)).isNotNull()
    return F.when(is_any, F.array_compact(F.array(*found)))


def violations(frame: DataFrame, found: Column) -> DataFrame:
    """A row for each of `found` (of `flaws`) in a frame with `source`: `kind`, `source`, `detail`."""
    listed = frame.select("source", F.explode(found).alias("flaw"))
    return listed.select("flaw.kind", "source", "flaw.detail")
