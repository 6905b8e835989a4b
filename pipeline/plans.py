"""How Spark plans what is done with a few thousand records, and with many; and how much memory it has for it.

What queries of a few thousand records take is their planning, and the code that Spark makes for each: these
are left out. Many records pay for both.
"""

from __future__ import annotations

from typing import Final

from pyspark.sql import SparkSession

_FEW: Final = 50_000
_PARTITION_RECORDS: Final = 100_000
"""So many are sorted and joined in one task: its memory is that of a part, whatever there is in all."""
_LEAST_HEAP: Final = 1 << 30  # Spark's own default
_MOST_HEAP: Final = 4 << 30
_RECORD_BYTES: Final = 3_000  # about what is kept of a request, with what became of it
_OF_FEW: Final = {
    "spark.sql.adaptive.enabled": "false",  # it plans each query anew after each of its stages
    "spark.sql.codegen.wholeStage": "false",
    "spark.sql.codegen.factoryMode": "NO_CODEGEN",
    "spark.sql.shuffle.partitions": "1",
}
_OF_MANY: Final = {
    "spark.sql.adaptive.enabled": "true",
    "spark.sql.codegen.wholeStage": "true",
    "spark.sql.codegen.factoryMode": "FALLBACK",
}


def are_few(records: int) -> bool:
    """So few that planning is most of the work."""
    return records <= _FEW


def heap_bytes(records: int | None, free_bytes: int) -> int:
    """How much heap an audit of so many is to have on a machine that has so much free; None: nobody knows
    how many. What has no room in it goes to disk.
    """
    wanted = _MOST_HEAP if records is None else min(_MOST_HEAP, _LEAST_HEAP + records * _RECORD_BYTES)
    return max(_LEAST_HEAP, min(wanted, free_bytes // 2))


def plan_for(spark: SparkSession, records: int) -> None:
    """From now on, so many are to be read."""
    cores = spark.sparkContext.defaultParallelism
    partitions = max(2 * cores, records // _PARTITION_RECORDS)
    of_many = _OF_MANY | {"spark.sql.shuffle.partitions": str(partitions)}
    for key, value in (_OF_FEW if are_few(records) else of_many).items():
        spark.conf.set(key, value)
