"""What is known of what is wrong: for each violation, every record that speaks of it, ordered by time."""

from __future__ import annotations

import functools
import re
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from pyspark.sql import Column, DataFrame, Row, SparkSession, Window
from pyspark.sql import functions as F

from delayline.names import ClusterNames
from delayline.settings import ClusterSettings
from pipeline.audit.flaw import said
from pipeline.audit.meaning import REJECT, SCHEDULE, source
from pipeline.audit.report import KINDS, Violation
from pipeline.audit.run import Audit
from pipeline.audit.timeline import Epoch

PER_KIND: Final = 50
"""Violations of a kind whose stories are told."""
PER_RECORD: Final = 20
"""Records of a sort that a story has: one that was delivered a thousand times needs no thousand lines."""

_ROUND: Final = {-2: "before it", -1: "before it", 0: "itself", 1: "after it"}
"""Checkpoints that are told of where one is what is wrong."""


@dataclass(frozen=True, slots=True)
class StoryEvent:
    """A record: when (its timestamp, epoch ms), what it is, where it is, and what it says.

    `of` is the request that it belongs to. `epoch` is its own word where it has one, and else that which was
    at that time; None: none was.
    """

    at_ms: int
    what: str
    record: str
    says: str
    of: str
    epoch: int | None


@dataclass(frozen=True, slots=True)
class Story:
    """A violation and its records; `left_out`: how many more there are of a sort."""

    violation: Violation
    events: Sequence[StoryEvent]
    left_out: Mapping[str, int]


def stories(found: Audit, settings: ClusterSettings, epochs: Sequence[Epoch]) -> tuple[Story, ...]:
    """The stories of the first `PER_KIND` violations of each kind, in the order of `KINDS`."""
    if found.report.clean:
        return ()
    return _Teller(found, settings, epochs).tell()


def _first_of_each_kind(violations: DataFrame) -> list[Violation]:
    order = Window.partitionBy("kind").orderBy("source", "detail")
    rows = (
        violations.withColumn("rank", F.row_number().over(order)).filter(F.col("rank") <= PER_KIND).collect()
    )
    found = [Violation(row["kind"], row["source"], row["detail"]) for row in rows]
    kinds = list(KINDS)
    return sorted(found, key=lambda one: (kinds.index(one.kind), _parsed(one.source)))


def _parsed(name: str) -> tuple[str, int, int]:
    """A source in its log's order; anything else, as a forged header may have it, in front."""
    topic, _, offset = name.rpartition("/")
    topic, _, partition = topic.rpartition("/")
    if partition.isdecimal() and offset.isdecimal():
        return topic, int(partition), int(offset)
    return name, 0, 0


class _Teller:
    """Collects the records of some violations: one query for each sort of record, whatever their number."""

    def __init__(self, found: Audit, settings: ClusterSettings, epochs: Sequence[Epoch]) -> None:
        names = ClusterNames(settings.cluster)
        self._found = found
        self._lanes = settings.lanes
        self._epochs = epochs
        self._due_ms: Mapping[str, int] = {}
        self._shown = _first_of_each_kind(found.violations)
        self._spark: SparkSession = found.violations.sparkSession
        self._buffer = re.compile(re.escape(names.buffer) + r"/\d+/\d+")
        self._checkpoint = names.checkpoint

    def tell(self) -> tuple[Story, ...]:
        requests = self._requests()
        self._due_ms = _due_ms(requests)
        rows = [*requests, *self._evidence(), *self._checkpoints(requests)]
        by_source: dict[str, list[Row]] = defaultdict(list)
        for row in rows:
            by_source[row["of"]].append(row)
        return tuple(self._story(violation, by_source) for violation in self._shown)

    def _about(self, violation: Violation) -> list[str]:
        """The source itself, and others that the finding names."""
        named: list[str] = self._buffer.findall(violation.detail)
        return list(dict.fromkeys([violation.source, *named]))

    def _all_about(self) -> list[str]:
        return sorted({about for violation in self._shown for about in self._about(violation)})

    def _story(self, violation: Violation, by_source: Mapping[str, list[Row]]) -> Story:
        rows = [row for about in self._about(violation) for row in by_source.get(about, ())]
        left_out: dict[str, int] = {}
        for row in rows:
            if row["there_are"] > PER_RECORD:
                left_out[row["what"]] = max(left_out.get(row["what"], 0), row["there_are"] - PER_RECORD)
        # One record may speak of several: of the request that it is of, and of another of the same id.
        events = {row["record"]: self._event(row) for row in reversed(rows)}
        order = sorted(
            events.values(), key=lambda event: (event.at_ms, _RANK.index(event.what), event.record)
        )
        return Story(violation, tuple(order), left_out)

    def _event(self, row: Row) -> StoryEvent:
        epoch = row["epoch"]
        if epoch is None and row["what"] in _BY_A_LEADER:
            epoch = self._epoch_at(_parsed(row["of"])[1] % self._lanes, row["timestamp_ms"])
        says = row["says"] + (self._lateness(row) if row["what"] == "delivery" else "")
        return StoryEvent(row["timestamp_ms"], row["what"], row["record"], says, row["of"], epoch)

    def _lateness(self, row: Row) -> str:
        due_ms = self._due_ms.get(row["of"])
        if due_ms is None:
            return ""
        late_ms = row["timestamp_ms"] - due_ms
        return f", {abs(late_ms):,} ms {'before' if late_ms < 0 else 'after'} it was due"

    def _epoch_at(self, lane: int, at_ms: int) -> int | None:
        begun = [one.epoch for one in self._epochs if one.lane == lane and one.from_ms <= at_ms]
        return max(begun, default=None)

    def _requests(self) -> list[Row]:
        """The requests themselves, those written back for them, and those of the same id round them."""
        about = F.broadcast(self._values("about", self._all_about()))
        asked = self._found.records.requests
        itself = asked.join(about, F.col("source") == F.col("about"))
        keys = itself.filter(F.col("id").isNotNull()).select(
            "about", F.col("partition").alias("in_partition"), F.col("id").alias("with_id"),
            F.col("offset").alias("at_offset"),
        )  # fmt: skip
        same_id = (F.col("partition") == F.col("in_partition")) & (F.col("id") == F.col("with_id"))
        near = asked.join(F.broadcast(keys), same_id).withColumn(
            "distance", F.abs(F.col("offset") - F.col("at_offset"))
        )
        # Exploded, and not joined on either of the two: that would compare each with each.
        own_or_root = F.explode(F.array_distinct(F.array_compact(F.array("source", "root"))))
        own = asked.withColumn("of", own_or_root).join(about, F.col("of") == F.col("about")).drop("of")
        found = near.drop("in_partition", "with_id", "at_offset").unionByName(
            own.withColumn("distance", F.lit(-1).cast("long"))
        )
        told = found.select(
            F.col("about").alias("of"), "timestamp_ms", "distance", _what_request().alias("what"),
            F.col("source").alias("record"), _request_says().alias("says"),
            F.lit(None).cast("long").alias("epoch"), "lane", "settled_by", "due_ms", "root",
            F.col("recurrence").isNotNull().alias("recurs"),
            F.when(F.col("expected").isNotNull(), F.col("answered_by")).alias("answered_by"),
        )  # fmt: skip
        return _bounded(told.dropDuplicates(["of", "record"]), "distance")

    def _evidence(self) -> list[Row]:
        evidence = self._found.records.evidence
        about = F.broadcast(self._values("about", self._all_about()))
        spoken_of = F.array_distinct(F.array_compact(F.array("keyed_by", "root", "message")))
        outcomes = evidence.outcomes.withColumn("source", F.explode(spoken_of))
        sorts = [
            _said(evidence.deliveries, "delivery", source("topic", "partition", "offset"), _delivery_says()),
            _said(evidence.dead_letters, "dead letter", F.col("record"), said("code ", F.col("code"))),
            _said(outcomes, "outcome", F.col("record"), _outcome_says()),
        ]
        union = functools.reduce(DataFrame.unionByName, sorts)
        return _bounded(union.join(about, F.col("of") == F.col("about")).drop("about"), "timestamp_ms")

    def _checkpoints(self, requests: Sequence[Row]) -> list[Row]:
        """Those that cover or answer a request, and, where one is itself what is wrong, its neighbours."""
        wanted = {
            (row["of"], row["lane"], row[name], 0): why
            for name, why in (("answered_by", "answers it"), ("settled_by", "covers it"))
            for row in requests
            if row[name] is not None
        }
        for violation in self._shown:
            topic, lane, seq = _parsed(violation.source)
            if topic == self._checkpoint:
                wanted |= {(violation.source, lane, seq, step): why for step, why in _ROUND.items()}
        if not wanted:
            return []
        rows = [(*record, why) for record, why in sorted(wanted.items())]
        about = self._spark.createDataFrame(rows, "of string, lane int, wanted long, step int, why string")
        order = Window.partitionBy("lane").orderBy("seq")
        steps = [
            F.struct(F.lit(step).alias("step"), F.lag("seq", step).over(order).alias("wanted"))
            for step in _ROUND
        ]
        placed = self._found.records.checkpoints.withColumn("near", F.array(*steps))
        met = (
            placed.withColumn("near", F.explode("near"))
            .select("*", "near.*")
            .join(F.broadcast(about), ["lane", "wanted", "step"])
        )
        told = met.select(
            "of", "timestamp_ms", F.lit("checkpoint").alias("what"), F.col("source").alias("record"),
            _checkpoint_says().alias("says"), "epoch",
        )  # fmt: skip
        return _bounded(told.dropDuplicates(["of", "record"]), "timestamp_ms")

    def _values(self, name: str, values: Iterable[str]) -> DataFrame:
        return self._spark.createDataFrame([(value,) for value in values], f"{name} string")


_RANK: Final = ("request", "written back", "delivery", "dead letter", "outcome", "checkpoint")
"""What comes first of several with the same time."""
_CALENDAR_MS: Final = 253_402_300_800_000  # the end of the year 9999
_BY_A_LEADER: Final = ("written back", "delivery", "dead letter")


def _due_ms(requests: Sequence[Row]) -> dict[str, int]:
    """When each message was due, by the last request that was written back for it, or its own. Of a recurring
    one each request is a message.
    """
    due_ms: dict[str, int] = {}
    for row in sorted(requests, key=lambda row: _parsed(row["record"])):
        own = row["of"] == row["record"] or (row["of"] == row["root"] and not row["recurs"])
        if own and row["due_ms"] is not None:
            due_ms[row["of"]] = row["due_ms"]
    return due_ms


def _bounded(told: DataFrame, order: str) -> list[Row]:
    """The first records of each sort, with how many there are."""
    sort = Window.partitionBy("of", "what")
    ranked = told.withColumn("there_are", F.count("*").over(sort)).withColumn(
        "rank", F.row_number().over(sort.orderBy(order, "record"))
    )
    return ranked.filter(F.col("rank") <= PER_RECORD).collect()


def _said(records: DataFrame, what: str, record: Column, says: Column) -> DataFrame:
    epoch = F.col("epoch") if "epoch" in records.columns else F.lit(None)
    return records.select(
        F.col("source").alias("of"), "timestamp_ms", F.lit(what).alias("what"), record.alias("record"),
        says.alias("says"), epoch.cast("long").alias("epoch"),
    )  # fmt: skip


def _words(*pairs: tuple[str, Column]) -> Column:
    """`name value` for each value that is there, with commas between."""
    return F.concat_ws(", ", *(F.concat(F.lit(name), value.cast("string")) for name, value in pairs))


def _time(column: Column) -> Column:
    """As people read it; a time that no calendar has, which users may ask for, as its number."""
    shown = F.date_format(F.timestamp_millis(column), "yyyy-MM-dd HH:mm:ss.SSS")
    return F.when(F.abs(column) < _CALENDAR_MS, shown).when(column.isNotNull(), said(column, " ms"))


def _what_request() -> Column:
    return F.when(F.col("parent").isNull(), "request").otherwise("written back")


def _request_says() -> Column:
    target = F.concat_ws("/", "target_topic", "target_partition")
    is_schedule = F.col("kind") == SCHEDULE
    fate = (
        F.when(F.col("dropped"), ", dropped: the id had changed since")
        .when(F.col("late"), ", late")
        .otherwise("")
    )
    return F.concat(
        _words(
            ("", F.col("kind")),
            ("code ", F.when(F.col("kind") == REJECT, F.col("code"))),
            ("id ", F.col("id")),
            ("of offset ", F.col("names")),
            ("", F.when(F.col("keep"), F.lit("kept if the id is known"))),
            ("occurrence ", F.col("occurrence")),
            ("due ", _time(F.col("due_ms"))),
            ("to ", F.when(is_schedule, target)),
            ("expires ", _time(F.col("expire_at_ms"))),
            ("for ", F.col("root")),
            ("by offset ", F.col("parent")),
            ("removed by ", F.col("removed.source")),
        ),
        F.coalesce(fate, F.lit("")),
    )


def _delivery_says() -> Column:
    return F.when(F.col("by_broker"), F.lit("time by the broker")).otherwise(F.lit("time by the leader"))


def _outcome_says() -> Column:
    return _words(
        ("", F.coalesce("outcome", F.lit("not readable"))),
        ("to a ", F.col("op")),
        ("keyed by ", F.col("keyed_by")),
        ("of ", F.col("message")),
        ("code ", F.col("code")),
        ("", F.col("detail")),
    )


def _checkpoint_says() -> Column:
    vectors = [(f"{name} ", F.when(F.col(name).isNotNull(), F.to_json(name))) for name in ("applied", "seen")]
    first = F.when(F.col("first"), F.lit("first of its epoch"))
    return F.when(F.col("epoch").isNull(), "not readable").otherwise(
        _words(
            ("", F.col("why")),
            ("by ", F.col("node")),
            ("", first),
            ("position ", F.array_join("position", "/")),
            *vectors,
            ("delivered up to ", _time(F.col("delivered_up_to_ms"))),
        )
    )
