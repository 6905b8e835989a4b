"""The audit itself, from topics to verdict: joins and aggregates are Spark's, the driver's small tables."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass

from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F

from delayline.settings import KAFKA_MAX_MESSAGE_BYTES
from pipeline.audit.bounds import Bounds
from pipeline.audit.carries import carry_violations, doubled_before, lacking
from pipeline.audit.cases import cases
from pipeline.audit.chain import chain_violations
from pipeline.audit.checkpoints import checkpoint_violations, epochs
from pipeline.audit.classes import CLASSES, ENDS, OCCURRENCE
from pipeline.audit.config import AuditConfig
from pipeline.audit.evidence import Evidence, at_their_rows, edges_ms, of_each_record
from pipeline.audit.flaw import violations
from pipeline.audit.ledger import read_ledger
from pipeline.audit.moves import move_violations
from pipeline.audit.operations import operations, replayed
from pipeline.audit.order import order_violations
from pipeline.audit.reading import Reading, keep
from pipeline.audit.report import AuditReport, Lateness, by_field, listed
from pipeline.audit.verdicts import verdicts
from pipeline.errors import WrongInput
from pipeline.kafka.extent import TopicExtent


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
        self._reading = Reading(spark, config)
        self._offsets, self._snapshot = self._reading.offsets, self._reading.snapshot
        self._begins = self._reading.begins

    def verdict(self) -> Audit:
        ledger_lines = self._ledger_lines()
        checkpointed = keep(self._reading.checkpoints())
        done = operations(checkpointed)
        log = self._reading.told()
        asked = self._reading.history(log.requests, checkpointed, done)
        targets = self._targets(asked)
        evidence = at_their_rows(of_each_record(self._evidence(targets), asked), asked)
        again = replayed(asked, evidence, done)
        bounds = self._bounds(targets)
        found = keep(verdicts(cases(asked, again.evidence, self._ledger()), bounds))
        wrong = keep(
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

    def _targets(self, asked: DataFrame) -> list[str]:
        there = F.col("target_topic").isin(*self._snapshot.partitions)
        named = asked.filter(there).select("target_topic").distinct().collect()
        return sorted(row["target_topic"] for row in named)

    def _evidence(self, targets: Collection[str]) -> Evidence:
        self._offsets.settle(self._extent(targets))
        return Evidence.of(self._reading.evidence, self._names, targets)

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

    def _edges_ms(self, targets: Collection[str]) -> dict[str, int]:
        """Retention cuts a topic from its start; compaction can take any record of it."""
        extent, taken_ms = self._extent(targets), self._snapshot.taken_ms
        keeping = self._offsets.keeping({topic for topic, _ in extent.end})
        compacted = {topic: taken_ms for topic in targets if keeping[topic].compaction_lag_ms is not None}
        cut = [one for one in extent.end if extent.first[one] > 0]
        if not cut:
            return compacted
        newest_gone_ms = {topic: taken_ms - keeping[topic].retention_ms for topic, _ in cut}
        gone = self._reading.evidence(newest_gone_ms.keys())
        return edges_ms(gone, cut, newest_gone_ms) | compacted

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
