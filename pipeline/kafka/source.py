"""Topics as data frames: exactly the records between two offsets, as Kafka's readers see them."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from delayline.names import PartitionId
from pipeline.kafka.access import KafkaAccess
from pipeline.kafka.extent import TopicExtent
from pipeline.kafka.security import spark_options

RECORD = (
    "topic string, partition int, offset long, timestamp_ms long, by_broker boolean, "
    "key binary, value binary, headers array<struct<key: string, value: binary>>"
)


def records(
    spark: SparkSession, access: KafkaAccess, extent: TopicExtent, *, and_aborted: bool = False
) -> DataFrame:
    """The records of `extent`, with the columns of `RECORD`; those of aborted transactions only if asked for.

    `by_broker` tells whether the broker has set the timestamp (LogAppendTime). Header keys are text:
    Kafka's Java client decodes them, and puts U+FFFD where they are not UTF-8.
    """
    partition_ids = extent.filled()
    if not partition_ids:
        return spark.createDataFrame([], RECORD)
    raw = (
        spark.read.format("kafka")
        .option("kafka.bootstrap.servers", access.bootstrap_servers)
        .option("kafka.isolation.level", "read_uncommitted" if and_aborted else "read_committed")
        .option("includeHeaders", "true")
        .option("assign", _partitions(partition_ids))
        .option("startingOffsets", _offsets(extent.first, partition_ids))
        .option("endingOffsets", _offsets(extent.end, partition_ids))
        # Offsets that retention takes away while they are read end the job: it must not pass over them.
        .option("failOnDataLoss", "true")
        .options(**spark_options(access.kafka))
        .load()
    )
    return raw.select(
        "topic",
        "partition",
        "offset",
        F.unix_millis("timestamp").alias("timestamp_ms"),
        (F.col("timestampType") == 1).alias("by_broker"),
        "key",
        "value",
        F.coalesce("headers", F.array().cast("array<struct<key: string, value: binary>>")).alias("headers"),
    )


def _partitions(partition_ids: Iterable[PartitionId]) -> str:
    """Spark's JSON for partitions: a list for each topic."""
    topics: dict[str, list[int]] = {}
    for topic, partition in partition_ids:
        topics.setdefault(topic, []).append(partition)
    return json.dumps(topics)


def _offsets(offsets: Mapping[PartitionId, int], partition_ids: Iterable[PartitionId]) -> str:
    """Spark's JSON for offsets: a mapping from partition to offset for each topic."""
    topics: dict[str, dict[str, int]] = {}
    for topic, partition in partition_ids:
        topics.setdefault(topic, {})[str(partition)] = offsets.get((topic, partition), 0)
    return json.dumps(topics)
