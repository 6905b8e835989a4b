"""The buffer and the checkpoints of one cluster as they were at one moment, read as a node reads them.

The audit holds what it finds here against what became of it; the forecast counts it.
"""

from __future__ import annotations

from collections.abc import Collection

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from pipeline.audit.batches import RejectedBatches, rejected_batches
from pipeline.audit.carries import Told, told
from pipeline.audit.checkpoints import checkpoints, own_records
from pipeline.audit.config import AuditConfig
from pipeline.audit.duplicates import heard, marked
from pipeline.audit.evidence import dead_letters, outcomes
from pipeline.audit.history import anew, with_history, with_sources
from pipeline.audit.learnt_settings import learnt_settings
from pipeline.audit.meaning import MARK, requests, without_copies, written_back
from pipeline.audit.operations import Operations, with_skips
from pipeline.audit.snapshot import take_snapshot
from pipeline.kafka.offsets import FOREVER_MS, TopicOffsets
from pipeline.kafka.source import records


def keep(frame: DataFrame) -> DataFrame:
    """The same rows, computed once, without the plan that led to them.

    Planning takes its time with each step of a plan, again and again. Should an executor take its part
    of the rows with it, the reading fails, and can be started again.
    """
    return frame.localCheckpoint(eager=False)


class Reading:
    """What there was when it was made. `begins`: of each partition of the buffer the first offset there is.

    Raises PipelineError if Kafka does not answer, or one of the cluster's topics is missing.
    """

    def __init__(self, spark: SparkSession, config: AuditConfig) -> None:
        self._spark = spark
        self._config = config
        self.offsets = TopicOffsets(config)
        self.snapshot = take_snapshot(self.offsets, config.names)
        self._versions = config.versions  # of the settings; those of the snapshot, once it is settled
        self.begins = {partition: first for (_, partition), first in self.snapshot.buffer.first.items()}

    def checkpoints(self) -> DataFrame:
        """Those that the service has written."""
        topic = self._config.names.checkpoint
        lag_ms = self.offsets.keeping([topic])[topic].compaction_lag_ms
        extent = self.snapshot.checkpoint
        read, committed = (
            records(self._spark, self._config, extent, and_aborted=aborted) for aborted in (True, False)
        )
        found = own_records(read, committed, self._config.keyring)
        return checkpoints(found, self.snapshot.taken_ms - (FOREVER_MS if lag_ms is None else lag_ms))

    def told(self) -> Told:
        """What the log tells."""
        found = told(self._originals(), self.begins)
        return Told(keep(found.requests), found.carries) if any(self.begins.values()) else found

    def history(self, requests: DataFrame, checkpointed: DataFrame, done: Operations) -> DataFrame:
        """What became of each of `requests`, by the checkpoints.

        Which requests are duplicates, and what cancels by source name, is found out only if there are any:
        it takes its time.
        """
        requests = requests.withColumn("duplicate", F.lit(False))
        asked = keep(with_skips(with_history(requests, checkpointed), done))
        keeps, names = asked.agg(F.max("keep"), F.max("names")).collect()[0]
        if not keeps and names is None:
            return asked
        if names is not None:
            asked = with_sources(asked)
        if keeps:
            asked = marked(asked, self._versions, self._outcomes(), heard(checkpointed, self.begins))
        return keep(anew(asked))

    def evidence(self, topics: Collection[str]) -> DataFrame:
        """The records of these topics, beside the cluster's log and checkpoints."""
        return records(self._spark, self._config, self.snapshot.evidence.of(topics))

    def _originals(self) -> DataFrame:
        self.offsets.settle(self.snapshot.buffer)
        self._versions = learnt_settings(self._config)
        rejected = self._rejected_batches()
        read = keep(self._parsed(records(self._spark, self._config, self.snapshot.buffer), rejected))
        parsed = read.filter(F.col("kind") != MARK)
        if parsed.filter(F.col("serial").isNotNull()).isEmpty():
            return parsed
        everything = records(self._spark, self._config, self.snapshot.buffer, and_aborted=True)
        numbered = self._parsed(written_back(everything), rejected)
        return keep(without_copies(parsed, numbered, self._versions))

    def _parsed(self, buffer: DataFrame, rejected: RejectedBatches) -> DataFrame:
        keyring, partitions = self._config.keyring, self.snapshot.partitions
        return requests(buffer, self._versions, keyring, partitions, rejected)

    def _rejected_batches(self) -> RejectedBatches:
        """Letters tell where to look."""
        dead_letter = self._config.names.dead_letter
        extent = self.snapshot.evidence.of([dead_letter])
        if not extent.filled():
            return RejectedBatches()
        self.offsets.settle(extent)
        letters = dead_letters(self.evidence([dead_letter]))
        return rejected_batches(letters, self._config.client_config, self._config.names.buffer)

    def _outcomes(self) -> DataFrame:
        topic = self._config.names.outcomes
        self.offsets.settle(self.snapshot.evidence.of([topic]))
        return outcomes(self.evidence([topic]))
