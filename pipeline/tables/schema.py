"""The tables' columns: a contract with whoever reads them (docs/tables.md).

A column is added at the end, and none is taken away, renamed or given another meaning without a new number of
`FORMAT` (pipeline/tables/marker.py).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

DAY: Final = "day"
"""By this column the files are apart: the day in UTC."""
CLOSED, OPEN = "closed", "open"
"""What is final, and what the next run writes anew."""


@dataclass(frozen=True, slots=True)
class Table:
    """`columns`: name and Spark's type of each. `order`: those by which a file is sorted."""

    columns: Mapping[str, str]
    order: tuple[str, ...]

    @property
    def ddl(self) -> str:
        return ", ".join(f"{name} {kind}" for name, kind in self.columns.items())

    def of(self, rows: DataFrame) -> DataFrame:
        """The rows with these columns, of these types, and the `day`.

        What is no UTF-8 in a text, which anybody may write into a header, is U+FFFD: for it readers of
        Parquet refuse a whole column.
        """
        typed = (_typed(name, kind).alias(name) for name, kind in self.columns.items())
        return rows.select(*typed, DAY)


def _typed(name: str, kind: str) -> Column:
    typed = F.col(name).cast(kind)
    return F.make_valid_utf8(typed) if kind == "string" else typed


TABLES: Final[Mapping[str, Table]] = {
    "requests": Table(
        {
            "source": "string",
            "partition": "int",
            "offset": "bigint",
            "lane": "int",
            "kind": "string",
            "id": "string",
            "asked_at": "timestamp",
            "scheduled_for": "timestamp",
            "due_at": "timestamp",
            "target": "string",
            "target_partition": "int",
            "recurring": "boolean",
            "class": "string",
            "code": "string",
            "overdue": "boolean",
            "delivered_as": "string",
            "delivered_at": "timestamp",
            "lateness_ms": "bigint",
            "stand_in": "string",
        },
        order=("partition", "offset"),
    ),
    "messages": Table(
        {
            "topic": "string",
            "partition": "int",
            "offset": "bigint",
            "delivered_at": "timestamp",
            "by_broker": "boolean",
            "source": "string",
            "occurrence": "bigint",
            "id": "string",
            "attempt": "int",
            "scheduled_for": "timestamp",
            "due_at": "timestamp",
            "lateness_ms": "bigint",
            "lane": "int",
            "epoch": "bigint",
            "checkpoint": "bigint",
            "topic_id": "string",
        },
        order=("topic", "partition", "offset"),
    ),
    "masterships": Table(
        {
            "lane": "int",
            "epoch": "bigint",
            "node": "string",
            "began_at": "timestamp",
            "ended_at": "timestamp",
            "last_checkpoint_at": "timestamp",
            "checkpoints": "bigint",
            "first_offset": "bigint",
            "last_offset": "bigint",
            "whole": "boolean",
        },
        order=("lane", "epoch"),
    ),
    "checkpoints": Table(
        {
            "lane": "int",
            "offset": "bigint",
            "written_at": "timestamp",
            "made_at": "timestamp",
            "epoch": "bigint",
            "number": "bigint",
            "node": "string",
            "first": "boolean",
            "position": "array<bigint>",
            "delivered_up_to": "timestamp",
        },
        order=("lane", "offset"),
    ),
}
