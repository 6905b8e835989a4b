"""Whether messages arrive in key order (I4).

In a target partition, messages of one lane that were not late come in key order, over the whole history;
late ones do within a transaction. A message is late or not as the checkpoints say (ops/audit/history.py),
so what was taken into account in time and still delivered behind a greater key stands out.
"""

from __future__ import annotations

from pyspark.sql import DataFrame, Window
from pyspark.sql import functions as F  # noqa: N812  # as Spark's own documentation has it

from ops.audit.flaw import said, violations


def order_violations(messages: DataFrame) -> DataFrame:
    """Messages delivered behind one with a greater key: columns `kind`, `source`, `detail`."""
    row = F.col("row")
    judged = messages.filter(
        F.col("kind").isNotNull() & (F.col("delivered_count") > 0) & (row["settled_by"] > F.col("whole_from"))
    ).select(
        "source",
        "lane",
        F.col("delivered.topic").alias("topic"),
        F.col("delivered.partition").alias("target"),
        F.col("delivered.offset").alias("at"),
        F.when(row["late"], row["settled_by"]).alias("late_in"),
        F.struct(row["due_ms"], "partition", row["offset"]).alias("key"),
    )
    line = Window.partitionBy("lane", "topic", "target", "late_in").orderBy("at")
    before = F.lag(F.struct("key", "source", "at")).over(line)
    compared = judged.withColumn("before", before)
    place = F.concat_ws("/", "topic", "target", "at")
    behind = said(
        place, " is behind offset ", F.col("before.at"), ", whose key is greater: ", F.col("before.source")
    )
    return violations(compared, [("out_of_order", F.when(F.col("key") < F.col("before.key"), behind))])
