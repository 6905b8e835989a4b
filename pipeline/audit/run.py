"""The audit itself, from topics to verdict: joins and aggregates are Spark's, the driver's small tables."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass

from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F

from delayline.settings import KAFKA_MAX_MESSAGE_BYTES
from pipeline.audit.batches import RejectedBatches, rejected_batches
from pipeline.audit.bounds import Bounds
from pipeline.audit.carries import Told, carry_violations, doubled_before, lacking, told
from pipeline.audit.cases import cases
from pipeline.audit.chain import chain_violations
from pipeline.audit.checkpoints import checkpoint_violations, checkpoints, epochs, own_records
from pipeline.audit.classes import CLASSES, ENDS, OCCURRENCE
from pipeline.audit.config import AuditConfig
from pipeline.audit.duplicates import heard, marked
from pipeline.audit.evidence import (
    Evidence,
    at_their_rows,
    dead_letters,
    edges_ms,
    of_each_record,
    outcomes,
)
from pipeline.audit.flaw import violations
from pipeline.audit.history import anew, with_history, with_sources
from pipeline.audit.learnt_settings import learnt_settings
from pipeline.audit.ledger import read_ledger
from pipeline.audit.meaning import MARK, requests, without_copies, written_back
from pipeline.audit.moves import move_violations
from pipeline.audit.operations import Operations, operations, replayed, with_skips
from pipeline.audit.order import order_violations
from pipeline.audit.report import AuditReport, Lateness, by_field, listed
from pipeline.audit.snapshot import take_snapshot
from pipeline.audit.verdicts import verdicts
from pipeline.errors import WrongInput
from pipeline.kafka.extent import TopicExtent
from pipeline.kafka.offsets import FOREVER_MS, TopicOffsets
from pipeline.kafka.source import records


@dataclass(frozen=True, slots=True)
class Records:
    """All that there was at `taken_ms`: `requests` with what was written back, and with their history."""

    requests: DataFrame
    checkpoints: DataFrame
    evidence: Evidence
    taken_ms: int


@dataclass(frozen=True, slots=True)
class Audit:
    """What an audit has found, as data frames.

    `requests`: one row for each request of a user's (`source`, `kind`, `id`, `class`, and for messages
    `due_ms`, `target_topic`, `delivered_as`, `delivered_at_ms`, `lateness_ms`). `messages`: the same columns
    for each message and each occurrence of one, with its `end` and its number, `occurrence`. `violations`:
    `kind`, `source`, `detail`. `classes`: how many requests of each kind ended in each class, and
    occurrences (kind `occurrence`) in each end. `lateness`: per target, in ms. `epochs`: who was leader when,
    per lane. `records`: what all that was drawn from.
    """

    requests: DataFrame
    messages: DataFrame
    violations: DataFrame
    classes: DataFrame
    lateness: DataFrame
    epochs: DataFrame
    records: Records
    report: AuditReport


def audit(spark: SparkSession, config: AuditConfig) -> Audit:
    """Hold every request in the buffer against all that became of it.

    Raises PipelineError if Kafka does not answer, or one of the cluster's topics is missing.
    """
    return _AuditRun(spark, config).verdict()


class _AuditRun:
    """The steps of one audit, in their order."""

    def __init__(self, spark: SparkSession, config: AuditConfig) -> None:
        self._spark = spark
        self._config = config
        self._names = config.names
        self._offsets = TopicOffsets(config)
        self._snapshot = take_snapshot(self._offsets, self._names)
        self._done = Operations()  # by operators
        self._versions = config.versions  # of the settings; those of the snapshot, once it is settled
        self._begins = {partition: first for (_, partition), first in self._snapshot.buffer.first.items()}

    def verdict(self) -> Audit:
        ledger_lines = self._ledger_lines()
        checkpointed = self._keep(self._checkpoints())
        self._done = operations(checkpointed)
        log = self._told()
        asked = self._history(log.requests, checkpointed)
        targets = self._targets(asked)
        evidence = at_their_rows(of_each_record(self._evidence(targets), asked), asked)
        again = replayed(asked, evidence, self._done)
        bounds = self._bounds(targets)
        found = self._keep(verdicts(cases(asked, again.evidence, self._ledger()), bounds))
        wrong = self._keep(
            violations(found, F.col("flaws"))
            .unionByName(order_violations(found))
            .unionByName(chain_violations(found))
            .unionByName(move_violations(found))
            .unionByName(checkpoint_violations(checkpointed))
            .unionByName(again.violations)
            .unionByName(carry_violations(log, self._begins))
            .unionByName(doubled_before(evidence, found, bounds))
            .unionByName(lacking(checkpointed, self._begins, self._config.settings))
        )
        verdict = found.drop("flaws", "line", "link", "move")
        classified = verdict.filter(F.col("class").isNotNull())
        messages = verdict.filter(F.col("end").isNotNull())
        classes, lateness = _classes(verdict), _lateness(messages)
        gone = verdict.filter(F.col("kind").isNull() & bounds.before_buffer(F.col("source"))).count()
        report = self._report(classes, lateness, wrong, ledger_lines, gone)
        found_in = Records(asked, checkpointed, evidence, self._snapshot.taken_ms)
        return Audit(classified, messages, wrong, classes, lateness, epochs(checkpointed), found_in, report)

    def _keep(self, frame: DataFrame) -> DataFrame:
        """The same rows, computed once, without the plan that led to them.

        Planning takes its time with each step of a plan, again and again. Should an executor take its part
        of the rows with it, the audit fails, and can be started again.
        """
        return frame.localCheckpoint(eager=False)

    def _told(self) -> Told:
        found = told(self._originals(), self._begins)
        return Told(self._keep(found.requests), found.carries) if any(self._begins.values()) else found

    def _originals(self) -> DataFrame:
        self._offsets.settle(self._snapshot.buffer)
        self._versions = learnt_settings(self._config)
        rejected = self._rejected_batches()
        read = self._keep(self._parsed(records(self._spark, self._config, self._snapshot.buffer), rejected))
        parsed = read.filter(F.col("kind") != MARK)
        if parsed.filter(F.col("serial").isNotNull()).isEmpty():
            return parsed
        everything = records(self._spark, self._config, self._snapshot.buffer, and_aborted=True)
        numbered = self._parsed(written_back(everything), rejected)
        return self._keep(without_copies(parsed, numbered, self._versions))

    def _parsed(self, buffer: DataFrame, rejected: RejectedBatches) -> DataFrame:
        keyring, partitions = self._config.keyring, self._snapshot.partitions
        return requests(buffer, self._versions, keyring, partitions, rejected)

    def _rejected_batches(self) -> RejectedBatches:
        """Letters tell where to look."""
        extent = self._snapshot.evidence.of([self._names.dead_letter])
        if not extent.filled():
            return RejectedBatches()
        self._offsets.settle(extent)
        letters = dead_letters(self._read([self._names.dead_letter]))
        return rejected_batches(letters, self._config.client_config, self._names.buffer)

    def _history(self, requests: DataFrame, checkpointed: DataFrame) -> DataFrame:
        """Which requests are duplicates, and what cancels by source name, is found out only if there are any:
        it takes its time.
        """
        requests = requests.withColumn("duplicate", F.lit(False))
        asked = self._keep(with_skips(with_history(requests, checkpointed), self._done))
        keeps, names = asked.agg(F.max("keep"), F.max("names")).collect()[0]
        if not keeps and names is None:
            return asked
        if names is not None:
            asked = with_sources(asked)
        if keeps:
            asked = marked(asked, self._versions, self._outcomes(), heard(checkpointed, self._begins))
        return self._keep(anew(asked))

    def _outcomes(self) -> DataFrame:
        self._offsets.settle(self._snapshot.evidence.of([self._names.outcomes]))
        return outcomes(self._read([self._names.outcomes]))

    def _checkpoints(self) -> DataFrame:
        topic = self._names.checkpoint
        lag_ms = self._offsets.keeping([topic])[topic].compaction_lag_ms
        extent = self._snapshot.checkpoint
        read, committed = (
            records(self._spark, self._config, extent, and_aborted=aborted) for aborted in (True, False)
        )
        found = own_records(read, committed, self._config.keyring)
        return checkpoints(found, self._snapshot.taken_ms - (FOREVER_MS if lag_ms is None else lag_ms))

    def _targets(self, asked: DataFrame) -> list[str]:
        there = F.col("target_topic").isin(*self._snapshot.partitions)
        named = asked.filter(there).select("target_topic").distinct().collect()
        return sorted(row["target_topic"] for row in named)

    def _evidence(self, targets: Collection[str]) -> Evidence:
        self._offsets.settle(self._extent(targets))
        return Evidence.of(self._read, self._names, targets)

    def _extent(self, targets: Collection[str]) -> TopicExtent:
        return self._snapshot.evidence.of([*targets, self._names.outcomes, self._names.dead_letter])

    def _ledger(self) -> DataFrame | None:
        return None if self._config.ledger is None else read_ledger(self._spark, self._config.ledger)

    def _ledger_lines(self) -> int | None:
        """How many there are. Raises `WrongInput` if one of them is none."""
        ledger = self._ledger()
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

    def _read(self, topics: Collection[str]) -> DataFrame:
        return records(self._spark, self._config, self._snapshot.evidence.of(topics))

    def _edges_ms(self, targets: Collection[str]) -> dict[str, int]:
        """Retention cuts a topic from its start; compaction can take any record of it."""
        extent, taken_ms = self._extent(targets), self._snapshot.taken_ms
        keeping = self._offsets.keeping({topic for topic, _ in extent.end})
        compacted = {topic: taken_ms for topic in targets if keeping[topic].compaction_lag_ms is not None}
        cut = [one for one in extent.end if extent.first[one] > 0]
        if not cut:
            return compacted
        newest_gone_ms = {topic: taken_ms - keeping[topic].retention_ms for topic, _ in cut}
        return edges_ms(self._read(newest_gone_ms.keys()), cut, newest_gone_ms) | compacted

    def _bounds(self, targets: Collection[str]) -> Bounds:
        now_ms = self._snapshot.taken_ms if self._config.now_ms is None else self._config.now_ms
        edges = self._edges_ms(targets)
        return Bounds(
            due_before_ms=now_ms - self._config.grace_ms,
            clock_skew_ms=self._config.max_clock_skew_ms,
            buffer_first=self._begins,
            outcomes_edge_ms=edges.pop(self._names.outcomes, 0),
            letters_edge_ms=edges.pop(self._names.dead_letter, 0),
            letter_limit_bytes=self._letter_limit_bytes(),
            target_edges_ms=edges,
        )

    def _letter_limit_bytes(self) -> int:
        """The limit as it is, or Kafka's default if that is less: it may have been raised since."""
        return min(self._offsets.limit_bytes(self._names.dead_letter), KAFKA_MAX_MESSAGE_BYTES)

    def _report(
        self,
        classes: DataFrame,
        lateness: DataFrame,
        violations: DataFrame,
        ledger_lines: int | None,
        gone: int,
    ) -> AuditReport:
        rows = classes.collect()
        counted = [row for row in rows if row["kind"] != OCCURRENCE]
        occurred = {row["class"]: row["count"] for row in rows if row["kind"] == OCCURRENCE}
        kinds = {row["kind"]: row["count"] for row in violations.groupBy("kind").count().collect()}
        shown = violations.orderBy("kind", "source").limit(self._config.listed).collect() if kinds else []
        totals = {name: sum(row["count"] for row in counted if row["class"] == name) for name in CLASSES}
        return AuditReport(
            requests=sum(totals.values()),
            classes=totals,
            ledger=ledger_lines,
            begins={str(partition): first for partition, first in self._begins.items() if first},
            gone=gone,
            occurrences={name: occurred[name] for name in ENDS if name in occurred},
            overdue=sum(row["overdue"] for row in rows),
            lateness_ms=_overall(lateness),
            violations=listed(shown),
            **by_field(kinds),
        )


def _classes(told: DataFrame) -> DataFrame:
    """A recurring request may itself be the first occurrence: then it counts as both, but is overdue once."""
    request = F.struct(F.col("kind"), F.col("class"), (F.col("overdue") & ~_is_occurrence()).alias("overdue"))
    occurrence = F.struct(F.lit(OCCURRENCE).alias("kind"), F.col("end").alias("class"), "overdue")
    as_one = F.when(F.col("class").isNotNull(), request)
    as_other = F.when(F.col("end").isNotNull() & _is_occurrence(), occurrence)
    counted = told.select(F.explode(F.array_compact(F.array(as_one, as_other))).alias("one")).select("one.*")
    return counted.groupBy("kind", "class").agg(
        F.count("*").alias("count"), F.count_if("overdue").alias("overdue")
    )


def _is_occurrence() -> Column:
    return F.col("occurrence").isNotNull()


def _lateness(messages: DataFrame) -> DataFrame:
    """Per target; the row without a target is of all of them."""
    late = F.col("lateness_ms")
    return (
        messages.filter(late.isNotNull())
        .rollup("target_topic")
        .agg(
            F.count("*").alias("count"),
            F.percentile_approx(late, 0.5).alias("p50"),
            F.percentile_approx(late, 0.99).alias("p99"),
            F.max(late).alias("max"),
        )
    )


def _overall(lateness: DataFrame) -> Lateness:
    for row in lateness.filter(F.col("target_topic").isNull()).collect():
        return Lateness(row["p50"], row["p99"], row["max"])
    return Lateness()
