"""Whether messages arrive in key order (I4).

In a target partition, messages of one lane that were not late come in key order, until the position steps
back; late ones do within a transaction, and what a hold has let go does over all of its transactions. A
message is late or not as the checkpoints say (pipeline/audit/history.py), so what was taken into account in
time and still delivered behind a greater key stands out.
"""

from __future__ import annotations

from typing import Final

from pyspark.sql import Column, DataFrame, Window
from pyspark.sql import functions as F

from pipeline.audit.classes import is_message
from pipeline.audit.flaw import flaws, said, violations
from pipeline.audit.meaning import source
from pipeline.audit.parks import by_parked_try

ORDER: Final = ("lane", "topic_id", "partition", "late_in", "spell")
"""The fields of a line that messages share which are compared."""


def line() -> Column:
    """Where a message stands, for `order_violations`; null if it was not delivered or cannot be judged."""
    row, delivered = F.col("row"), F.col("delivered")
    judged = is_message() & delivered.isNotNull() & (row["settled_by"] > F.col("whole_from"))
    judged &= ~by_parked_try()
    return F.when(
        judged,
        F.struct(
            "lane",
            delivered["topic"].alias("topic"),
            delivered["topic_id"].alias("topic_id"),
            delivered["partition"].alias("partition"),
            F.when(row["late"], F.struct(F.when(row["hold"].isNull(), row["settled_by"]), row["hold"])).alias(
                "late_in"
            ),
            row["spell"].alias("spell"),
            delivered["offset"].alias("offset"),
            F.struct(row["due_ms"], "partition", row["offset"]).alias("key"),
        ),
    )


def lines_of(verdicts: DataFrame) -> DataFrame:
    """Where each message stands, with its `source`."""
    return verdicts.filter(F.col("line").isNotNull()).select("source", "line")


def order_violations(lines: DataFrame) -> DataFrame:
    """Messages delivered behind one with a greater key: columns `kind`, `source`, `detail`."""
    order = Window.partitionBy(*ORDER).orderBy("offset")
    each = lines.select("source", "line.*")
    compared = each.withColumn("before", F.lag(F.struct("key", "source", "offset")).over(order))
    before, record = F.col("before"), source("topic", "partition", "offset")
    behind = said(
        record, " is behind offset ", before["offset"], ", which has a greater key: ", before["source"]
    )
    return violations(compared, flaws([("out_of_order", F.when(F.col("key") < before["key"], behind))]))
