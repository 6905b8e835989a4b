"""An audit of all that the topics hold: what is read, and what is told of it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Final

from pyspark.sql import Column, DataFrame, Row, SparkSession
from pyspark.sql import functions as F

from pipeline.audit.checkpoints import epochs
from pipeline.audit.classes import CLASSES, ENDS, OCCURRENCE
from pipeline.audit.config import AuditConfig
from pipeline.audit.evidence import Evidence
from pipeline.audit.judge import judge
from pipeline.audit.part import LogPart
from pipeline.audit.report import AuditReport, Lateness, by_field, listed
from pipeline.audit.snapshot import Snapshot, require_same, require_seen, take_snapshot
from pipeline.kafka.offsets import TopicOffsets

_MOST_ASKED: Final = 1_000
"""Topics, of one question."""


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


def audit(spark: SparkSession, config: AuditConfig, snapshot: Snapshot | None = None) -> Audit:
    """Hold every request in the buffer against all that became of it, up to the ends of `snapshot`, or to
    those that there are now. How `spark` plans is set by how many records there are, and stays so.

    Raises PipelineError if Kafka does not answer, one of the cluster's topics is missing, something is lost
    to a target that is hidden from this user, or a topic that it reads is deleted meanwhile.
    """
    offsets = TopicOffsets(config)
    snapshot = snapshot or take_snapshot(offsets, config.names)
    log = LogPart(spark, config, offsets, snapshot)
    lines = log.ledger_lines()
    judged = judge(log)
    verdict = judged.found.drop("flaws", "line", "link", "move")
    classified = verdict.filter(F.col("class").isNotNull())
    messages = verdict.filter(F.col("end").isNotNull())
    classes, lateness = classes_of(verdict), _lateness(messages)
    before = F.col("kind").isNull() & judged.bounds.before_buffer(F.col("source"))
    counts = classes.collect()
    if any(row["class"] == "lost" for row in counts):
        require_lost_seen(verdict, offsets, log.snapshot)
    report = replace(
        _report(counts, lateness, judged.wrong, config.listed),
        ledger=lines,
        begins={str(partition): first for partition, first in log.begins.items() if first},
        gone=verdict.filter(before).count(),
        unseen=tuple(log.unseen),
    )
    require_same(offsets, snapshot, config.names.own_topics.union(log.targets))
    found_in = Records(judged.asked, judged.checkpoints, judged.evidence, log.snapshot.taken_ms)
    return Audit(
        classified,
        messages,
        judged.wrong,
        classes,
        lateness,
        epochs(judged.checkpoints),
        found_in,
        report,
    )


def require_lost_seen(found: DataFrame, offsets: TopicOffsets, snapshot: Snapshot) -> None:
    """Raises `NotAllowed` if something is lost only because this user may not see where it went: by the
    checkpoints it went there.

    What no request is lost to need not be seen: clients name topics that are none.
    """
    lost = ((F.col("class") == "lost") | (F.col("end") == "lost")) & F.col("settled_by").isNotNull()
    unseen = ~F.col("target_topic").isin(*snapshot.partitions)
    named = found.filter(lost & unseen).select("target_topic").distinct().limit(_MOST_ASKED).collect()
    require_seen(offsets, [row["target_topic"] for row in named])


def _report(rows: Sequence[Row], lateness: DataFrame, violations: DataFrame, most_listed: int) -> AuditReport:
    """What was found; of how far that reaches, nothing yet."""
    counted = [row for row in rows if row["kind"] != OCCURRENCE]
    occurred = {row["class"]: row["count"] for row in rows if row["kind"] == OCCURRENCE}
    kinds = {row["kind"]: row["count"] for row in violations.groupBy("kind").count().collect()}
    shown = violations.orderBy("kind", "source").limit(most_listed).collect() if kinds else []
    totals = {name: sum(row["count"] for row in counted if row["class"] == name) for name in CLASSES}
    return AuditReport(
        requests=sum(totals.values()),
        classes=totals,
        ledger=None,
        occurrences={name: occurred[name] for name in ENDS if name in occurred},
        overdue=sum(row["overdue"] for row in rows),
        lateness_ms=_overall(lateness),
        violations=listed(shown),
        **by_field(kinds),  # type: ignore[arg-type]  # these are its counts
    )


def classes_of(told: DataFrame) -> DataFrame:
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
