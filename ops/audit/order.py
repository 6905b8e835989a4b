"""Whether messages arrive in key order (I4).

In a target partition, messages of one lane that were not late come in key order, over the whole history;
late ones do within a transaction. A message is late or not as the checkpoints say (ops/audit/history.py), so
what was taken into account in time and still delivered behind a greater key stands out.
"""

from __future__ import annotations

from pyspark.sql import DataFrame, Window
from pyspark.sql import functions as F  # noqa: N812  # as Spark's own documentation has it

from ops.audit.classes import is_message
from ops.audit.flaw import said, violations


def order_violations(cases: DataFrame) -> DataFrame:
    """Messages delivered behind one with a greater key: columns `kind`, `source`, `detail`."""
    row, delivered = F.col("row"), F.col("delivered")
    judged = is_message() & delivered.isNotNull() & (row["settled_by"] > F.col("whole_from"))
    arrived = cases.filter(judged).select(
        "source",
        "lane",
        delivered["topic"].alias("topic"),
        delivered["partition"].alias("target"),
        delivered["offset"].alias("at"),
        F.when(row["late"], row["settled_by"]).alias("late_in"),
        F.struct(row["due_ms"], "partition", row["offset"]).alias("key"),
    )
    line = Window.partitionBy("lane", "topic", "target", "late_in").orderBy("at")
    compared = arrived.withColumn("before", F.lag(F.struct("key", "source", "at")).over(line))
    before, place = F.col("before"), F.concat_ws("/", "topic", "target", "at")
    behind = said(place, " is behind offset ", before["at"], ", which has a greater key: ", before["source"])
    return violations(compared, [("out_of_order", F.when(F.col("key") < before["key"], behind))])
