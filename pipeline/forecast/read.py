"""The frames of a cluster: its log and checkpoints, as the audit reads them."""

from __future__ import annotations

from dataclasses import dataclass

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from pipeline.audit import AuditConfig
from pipeline.audit.history import sorts_of
from pipeline.audit.judge import history_of, kept, told_of
from pipeline.audit.operations import operations
from pipeline.audit.part import LogPart
from pipeline.audit.snapshot import take_snapshot
from pipeline.forecast.messages import arrivals, messages
from pipeline.kafka.offsets import TopicOffsets


@dataclass(frozen=True, slots=True)
class Log:
    """A cluster at `taken_ms`: `MESSAGES` and `ARRIVALS` (pipeline.forecast.messages).

    `since_ms`: from when on the log has all requests; None: it has none. `retention_ms`: how long it keeps
    them; None: for ever.
    """

    messages: DataFrame
    arrivals: DataFrame
    taken_ms: int
    since_ms: int | None
    retention_ms: int | None


def read(spark: SparkSession, config: AuditConfig) -> Log:
    """Raises PipelineError if Kafka does not answer, or one of the cluster's topics is missing."""
    offsets = TopicOffsets(config)
    log = LogPart(spark, config, offsets, take_snapshot(offsets, config.names))
    checkpointed = kept(log.checkpoints())
    requests = told_of(log).requests
    history = history_of(requests, sorts_of(requests), checkpointed, operations(checkpointed), log)
    return Log(
        kept(messages(history, checkpointed)),
        kept(arrivals(history)),
        log.snapshot.taken_ms,
        _since_ms(history, log.begins),
        offsets.retention_ms(config.names.buffer),
    )


def _since_ms(history: DataFrame, begins: dict[int, int]) -> int | None:
    """Where a partition has lost its beginning, not before the first record that it has left."""
    there = history.filter(F.col("timestamp_ms").isNotNull() & F.col("stand_in").isNull())
    rows = there.groupBy("partition").agg(F.min("timestamp_ms").alias("first")).collect()
    cut = [row["first"] for row in rows if begins.get(row["partition"], 0)]
    return max(cut) if cut else min((row["first"] for row in rows), default=None)
