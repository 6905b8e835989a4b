"""All that an audit's page shows, as values: taken from Spark before it stops."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from pyspark.sql import functions as F

from pipeline.audit.config import AuditConfig
from pipeline.audit.report import AuditReport
from pipeline.audit.run import Audit
from pipeline.audit.spread import Bucket, spread
from pipeline.audit.stories import Story, stories
from pipeline.audit.timeline import Epoch, Timeline, deliveries_over_time

TARGETS: Final = 50
"""Topics that are told of, those with the most messages."""


@dataclass(frozen=True, slots=True)
class TargetLateness:
    """The lateness of one target topic's messages, ms."""

    topic: str
    messages: int
    p50: int
    p99: int
    max: int


@dataclass(frozen=True, slots=True)
class Picture:
    """What an audit has found, as tables of some hundreds of rows at most."""

    cluster: str
    taken_ms: int
    report: AuditReport
    kinds: Mapping[tuple[str, str], int]  # requests by kind and class; of OCCURRENCE: occurrences
    targets: Sequence[TargetLateness]
    late: Sequence[Bucket]
    timeline: Timeline
    epochs: Sequence[Epoch]  # the newest
    epochs_in_all: int
    stories: Sequence[Story]


def picture(found: Audit, config: AuditConfig) -> Picture:
    """Take it from an audit's frames; its Spark must still run."""
    timeline, epochs = deliveries_over_time(found)
    return Picture(
        cluster=config.settings.cluster,
        taken_ms=found.records.taken_ms,
        report=found.report,
        kinds={(row["kind"], row["class"]): row["count"] for row in found.classes.collect()},
        targets=_targets(found),
        late=spread(found.messages),
        timeline=timeline,
        epochs=epochs,
        epochs_in_all=found.epochs.count(),
        stories=stories(found, config.settings, epochs),
    )


def _targets(found: Audit) -> tuple[TargetLateness, ...]:
    of_one = found.lateness.filter(F.col("target_topic").isNotNull())
    most = of_one.orderBy(F.col("count").desc(), "target_topic").limit(TARGETS).collect()
    return tuple(
        TargetLateness(row["target_topic"], row["count"], row["p50"], row["p99"], row["max"]) for row in most
    )
