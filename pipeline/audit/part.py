"""What an audit reads of the topics, between the offsets of a snapshot."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from functools import cached_property
from itertools import chain
from types import MappingProxyType
from typing import Final

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from delayline.settings import KAFKA_MAX_MESSAGE_BYTES
from pipeline.audit.batches import RejectedBatches, rejected_batches
from pipeline.audit.bounds import Bounds
from pipeline.audit.checkpoints import NOTHING_BEFORE, LastCheckpoint, behind, checkpoints, own_records
from pipeline.audit.config import AuditConfig
from pipeline.audit.duplicates import Heard, heard
from pipeline.audit.evidence import Evidence, dead_letters, edges_ms, outcomes
from pipeline.audit.judge import kept
from pipeline.audit.learnt_settings import learnt_settings
from pipeline.audit.ledger import read_ledger
from pipeline.audit.meaning import MARK, NO_SERIALS, Serial, requests, without_copies, written_back
from pipeline.audit.snapshot import Snapshot
from pipeline.errors import WrongInput
from pipeline.kafka.extent import TopicExtent
from pipeline.kafka.offsets import FOREVER_MS, Keeping, TopicOffsets
from pipeline.kafka.source import records
from pipeline.plans import plan_for

_MOST_OTHERS: Final = 1_000
NOTHING_GONE: Final[Mapping[str, int]] = MappingProxyType({})


class LogPart:
    """What the topics hold within the extents of a snapshot: the `Material` of an audit of these."""

    def __init__(
        self,
        spark: SparkSession,
        config: AuditConfig,
        offsets: TopicOffsets,
        snapshot: Snapshot,
        serials: Mapping[int, Serial] = NO_SERIALS,
        last: Mapping[int, LastCheckpoint] = NOTHING_BEFORE,
        beside: int = 0,
        known_edges_ms: Mapping[str, int] = NOTHING_GONE,
    ) -> None:
        """`serials`: of each partition of the buffer the highest one before the snapshot's extent; `last`: of
        each lane what was known of its checkpoints. `beside`: how many records are judged with those that are
        read: how `spark` plans goes by that. `known_edges_ms`: of topics that have lost what they do not
        show, see `edges_ms`.
        """
        self._spark = spark
        self._records = beside + snapshot.records
        plan_for(spark, self._records)
        self._config = config
        self._names = config.names
        self._offsets = offsets
        self._serials = serials
        self._last = last
        self._known_edges_ms = known_edges_ms
        self.snapshot = snapshot
        self.versions = config.versions  # of the settings; those of the snapshot, once it is settled
        self.begins = {partition: first for (_, partition), first in self.snapshot.buffer.first.items()}
        # Once the evidence is read: the targets that requests name, and those that this user may not see.
        self.targets, self.unseen = list[str](), list[str]()
        self._numbered: DataFrame | None = None

    def checkpoints(self) -> DataFrame:
        topic = self._names.checkpoint
        lag_ms = self._offsets.keeping([topic])[topic].compaction_lag_ms
        found = self._own_checkpoints(self.snapshot.checkpoint)
        if self._last and behind(found, self._last):
            found = self._without_older_copies(found)
        compacted_before_ms = self.snapshot.taken_ms - (FOREVER_MS if lag_ms is None else lag_ms)
        return checkpoints(found, compacted_before_ms, self._last)

    def _own_checkpoints(self, extent: TopicExtent) -> DataFrame:
        read, committed = (
            records(self._spark, self._config, extent, and_aborted=aborted) for aborted in (True, False)
        )
        return own_records(read, committed, self._config.keyring)

    def _without_older_copies(self, found: DataFrame) -> DataFrame:
        """What is behind an earlier one is wrong, or a copy of what stands before this part."""
        end = self.snapshot.checkpoint.end
        whole = self._own_checkpoints(TopicExtent(self._offsets.begins(list(end)), end))
        return found.join(whole.select("partition", "offset"), ["partition", "offset"], "left_semi")

    def originals(self) -> DataFrame:
        self._offsets.settle(self.snapshot.buffer)
        self.versions = learnt_settings(self._config)
        rejected = self._rejected_batches()
        read = kept(self._parsed(records(self._spark, self._config, self.snapshot.buffer), rejected))
        parsed = read.filter(F.col("kind") != MARK)
        if parsed.filter(F.col("serial").isNotNull()).isEmpty():
            return parsed
        everything = records(self._spark, self._config, self.snapshot.buffer, and_aborted=True)
        self._numbered = kept(self._parsed(written_back(everything), rejected))
        return kept(without_copies(parsed, self._numbered, self.versions, self._serials))

    def highest_serials(self) -> dict[int, Serial]:
        """Of each partition of the buffer, once the originals are read, up to the snapshot's end."""
        found = dict(self._serials)
        if self._numbered is not None:
            numbered = self._numbered.filter(F.col("serial").isNotNull())
            for partition, serial in numbered.groupBy("partition").agg(F.max("serial")).collect():
                found[partition] = max(found.get(partition, (0, 0)), tuple(serial))
        return found

    def _parsed(self, buffer: DataFrame, rejected: RejectedBatches) -> DataFrame:
        keyring, partitions = self._config.keyring, self.snapshot.partitions
        return requests(buffer, self.versions, keyring, partitions, rejected)

    def _rejected_batches(self) -> RejectedBatches:
        """Letters tell where to look."""
        extent = self.snapshot.evidence.of([self._names.dead_letter])
        if not extent.filled():
            return RejectedBatches()
        self._offsets.settle(extent)
        letters = dead_letters(self._read([self._names.dead_letter]))
        return rejected_batches(letters, self._config.client_config, self._names.buffer)

    def outcomes(self) -> DataFrame:
        self._offsets.settle(self.snapshot.evidence.of([self._names.outcomes]))
        return outcomes(self._read([self._names.outcomes]))

    def heard(self, checkpoints: DataFrame) -> Heard:
        return heard(checkpoints, self.begins)

    def lines(self, found: DataFrame) -> DataFrame:
        return found

    def evidence(self, asked: DataFrame) -> Evidence:
        self.targets, others = targets_of(asked, self.snapshot.topic_ids)
        self.unseen = self._offsets.hidden(others)
        extent = self._extent(self.targets)
        self._offsets.settle(extent)
        plan_for(self._spark, self._records + extent.records)
        targets = {target: self.snapshot.topic_ids[target] for target in self.targets}
        return Evidence.of(self._read, self._names, targets)

    def bounds(self, asked: DataFrame) -> Bounds:
        return bounds_of(self._config, self._offsets, self.snapshot.taken_ms, self.begins, self.edges_ms())

    def ledger(self) -> DataFrame | None:
        return None if self._config.ledger is None else read_ledger(self._spark, self._config.ledger)

    def ledger_lines(self) -> int | None:
        """How many there are. Raises `WrongInput` if one of them is none."""
        ledger = self.ledger()
        if ledger is None:
            return None
        readable = F.count_if(F.col("source").isNotNull() & F.col("sha256").isNotNull())
        lines, good = ledger.agg(F.count("*"), readable).collect()[0]
        if good < lines:
            raise WrongInput(
                f"{self._config.ledger}: {lines - good} of {lines} lines are not those of a ledger, the last "
                "one perhaps half written: take it from its producers again"
            )
        return int(lines)

    def _extent(self, targets: Collection[str]) -> TopicExtent:
        return self.snapshot.evidence.of([*targets, self._names.outcomes, self._names.dead_letter])

    def _read(self, topics: Collection[str]) -> DataFrame:
        return records(self._spark, self._config, self.snapshot.evidence.of(topics))

    def edges_ms(self) -> dict[str, int]:
        """Of each topic, once the evidence is read, up to when its records may be gone: retention cuts it
        from its start; compaction can take any record of it.
        """
        extent, taken_ms = self._extent(self.targets), self.snapshot.taken_ms
        found = dict[str, int]()
        cut = [one for one in extent.end if extent.first[one] > 0]
        if cut:
            newest_gone_ms = {topic: taken_ms - self._keeping[topic].retention_ms for topic, _ in cut}
            found = edges_ms(self._read(newest_gone_ms.keys()), cut, newest_gone_ms)
        return latest(self._known_edges_ms, found, self.compacted_ms())

    def compacted_ms(self) -> dict[str, int]:
        """The same, of what compaction takes alone."""
        is_compacted = {topic: self._keeping[topic].compaction_lag_ms is not None for topic in self.targets}
        return {topic: self.snapshot.taken_ms for topic, is_so in is_compacted.items() if is_so}

    @cached_property
    def _keeping(self) -> dict[str, Keeping]:
        """Of all topics with evidence."""
        return self._offsets.keeping({topic for topic, _ in self._extent(self.targets).end})


def latest(*edges_ms: Mapping[str, int]) -> dict[str, int]:
    """Of each topic the latest edge."""
    found: dict[str, int] = {}
    for topic, edge_ms in chain(*(one.items() for one in edges_ms)):
        found[topic] = max(edge_ms, found.get(topic, 0))
    return found


def targets_of(asked: DataFrame, topics: Collection[str]) -> tuple[list[str], list[str]]:
    """What requests name as their targets: of the `topics` that there are all, and some of what is none of
    them, for clients may name anything.
    """
    there = F.coalesce(F.col("target_topic").isin(*topics), F.lit(False)).alias("there")
    named = asked.select("target_topic", there).dropna().distinct()
    found = named.orderBy(F.desc("there")).limit(len(topics) + _MOST_OTHERS).collect()
    known, others = ([row["target_topic"] for row in found if row["there"] == one] for one in (True, False))
    return sorted(known), sorted(others)


def bounds_of(
    config: AuditConfig,
    offsets: TopicOffsets,
    taken_ms: int,
    begins: Mapping[int, int],
    edges: Mapping[str, int],
) -> Bounds:
    """`edges`: of each topic, as in `Bounds`. A letter's limit is what it is, or Kafka's default if that is
    less: it may have been raised since.
    """
    names, now_ms = config.names, taken_ms if config.now_ms is None else config.now_ms
    own = names.outcomes, names.dead_letter
    return Bounds(
        due_before_ms=now_ms - config.grace_ms,
        clock_skew_ms=config.max_clock_skew_ms,
        buffer=names.buffer,
        buffer_first=begins,
        outcomes_edge_ms=edges.get(names.outcomes, 0),
        letters_edge_ms=edges.get(names.dead_letter, 0),
        letter_limit_bytes=min(offsets.limit_bytes(names.dead_letter), KAFKA_MAX_MESSAGE_BYTES),
        target_edges_ms={topic: edge_ms for topic, edge_ms in edges.items() if topic not in own},
    )
