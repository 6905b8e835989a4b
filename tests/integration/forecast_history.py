"""Weeks that are alike to the minute, as frames."""

from __future__ import annotations

from pyspark.sql import DataFrame, SparkSession

from pipeline.forecast.messages import ARRIVALS, DONE, GONE, MESSAGES, PENDING

MINUTE_MS, HOUR_MS, DAY_MS = 60_000, 3_600_000, 86_400_000


def alike_weeks(spark: SparkSession, now_ms: int) -> tuple[DataFrame, DataFrame]:
    """`MESSAGES` and `ARRIVALS` of three, and what waits at their end."""
    rows: list[tuple[object, ...]] = []
    asked: dict[int, int] = {}
    for hour in range(-21 * 24, 24):
        begin_ms = now_ms + hour * HOUR_MS
        for minute in range(60):
            due_ms = begin_ms + minute * MINUTE_MS
            is_late = minute % 3 != 0
            asked_ms = due_ms - (HOUR_MS // 2 if is_late else DAY_MS)
            is_gone = minute % 30 == 0
            if asked_ms > now_ms:
                continue
            state = PENDING if due_ms >= now_ms else GONE if is_gone else DONE
            gone_ms = due_ms - 10 * MINUTE_MS if state == GONE else None
            rows.append((asked_ms, due_ms, "t", state, gone_ms, None, 100, due_ms, None, None))
            asked[asked_ms // HOUR_MS] = asked.get(asked_ms // HOUR_MS, 0) + 1
    arrivals = [(hour, count, 100 * count, count) for hour, count in asked.items()]
    return spark.createDataFrame(rows, MESSAGES), spark.createDataFrame(arrivals, ARRIVALS)
