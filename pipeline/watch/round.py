"""One round of a watch: what is new, and what that concerns of what was kept, goes through the audit's steps.

**It tells what an audit of everything would tell**, up to the same offsets. A round judges whole families
(pipeline/watch/keeping.py) with all that was ever said of the requests of theirs that stand, so it comes to
the audit's verdict on each. What it cannot judge so is what concerns a request that it has closed: a delivery
or an outcome that comes then, or an answer that goes by what the id was before. A request is closed when
nothing may come of it any more by the rules, so in a sound cluster there is no such thing; where there is,
the round has all topics audited, up to its own ends, and tells what that has found.

A round is committed by its marker (pipeline/watch/journal.py), in one transaction with what it tells. The
next one begins from what the marker names. So a watch that is killed at any point tells nothing twice, and
leaves nothing out.
"""

from __future__ import annotations

import uuid
from collections.abc import Mapping, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, Final, NamedTuple

from pyspark.sql import Column, DataFrame, SparkSession, Window
from pyspark.sql import functions as F

from delayline.names import PartitionId
from delayline.settings_versions import SettingsVersions
from pipeline.audit.bounds import Bounds, looked_up, place_in
from pipeline.audit.checkpoints import LastCheckpoint
from pipeline.audit.config import AuditConfig
from pipeline.audit.duplicates import Heard, heard
from pipeline.audit.evidence import PLACE, Evidence
from pipeline.audit.judge import Judged, judge, kept
from pipeline.audit.meaning import CARRY
from pipeline.audit.order import lines_of
from pipeline.audit.part import NOTHING_GONE, LogPart, bounds_of, latest
from pipeline.audit.run import audit, classes_of, require_lost_seen
from pipeline.audit.snapshot import Snapshot, require_same, take_snapshot
from pipeline.kafka.extent import TopicExtent
from pipeline.kafka.offsets import TopicOffsets
from pipeline.watch.keeping import (
    checkpoints_to_keep,
    evidence_to_keep,
    last_lines,
    newest_of,
    place_of,
    standing_of,
    to_keep,
    touched_families,
)
from pipeline.watch.marker import CLEARED, FOUND, Counted, Marker, summed
from pipeline.watch.state import State

MARGIN_MS: Final = 15 * 60_000
"""For how long after a request may not be asked for any more it stands: nodes forget in their own time."""
_DOUBTFUL: Final = ("false_outcome", "unexplained", "duplicated")
_NOTHING: Final = "nothing"
"""Of what a round has taken for a violation, and the audit of everything has not."""
_TOLD: Final = "kind string, source string, detail string, state string"
_ENDS: Final = "topic string, partition int, offset long, topic_id string"


@dataclass(frozen=True, slots=True)
class WatchConfig:
    """What is audited. `replay_window_ms`: the nodes' own. A request stands for that long after it is over,
    or for as long as its id is known, and `margin_ms` more.
    """

    audit: AuditConfig
    replay_window_ms: int = 3_600_000
    margin_ms: int = MARGIN_MS


@dataclass(frozen=True, slots=True)
class Ground:
    """What a round has gone by: what it has `judged`, what is known of each of these requests by now
    (`standing`, see pipeline/watch/keeping.py), and what it has read of `checkpoints` and `evidence`.
    """

    judged: Judged
    standing: DataFrame
    checkpoints: DataFrame
    evidence: Evidence


@dataclass(frozen=True, slots=True)
class Round:
    """`found`: violations that were not told yet; `cleared`: those that were, and are none any more (`kind`,
    `source`, `detail`). `state`: to be written before the `marker`.
    """

    found: DataFrame
    cleared: DataFrame
    state: State
    marker: Marker
    in_full: bool  # all topics were audited
    unseen: tuple[str, ...]  # as in `AuditReport`
    ground: Ground


def first_round(
    spark: SparkSession, config: WatchConfig, snapshot: Snapshot | None = None, last: Marker | None = None
) -> Round:
    """An audit of all that there is. `last`: the end of a round that cannot be gone on with."""
    offsets = TopicOffsets(config.audit)
    whole = snapshot or _snapshot(offsets, config.audit)
    number, edges_ms = (0, NOTHING_GONE) if last is None else (last.number + 1, last.edges_ms)
    return _Round(spark, config, offsets, whole, None, number, edges_ms).run()


def next_round(
    spark: SparkSession, config: WatchConfig, marker: Marker, state: State, snapshot: Snapshot | None = None
) -> Round | None:
    """What is new since `marker`; None if Kafka does not have all of that any more."""
    offsets = TopicOffsets(config.audit)
    snapshot = snapshot or _snapshot(offsets, config.audit)
    ends, ids = state.ends.collect(), snapshot.topic_ids
    anew = {row["topic"] for row in ends if row["topic"] in ids and row["topic_id"] != ids[row["topic"]]}
    if anew & config.audit.names.own_topics:
        return None
    read_to = {(row["topic"], row["partition"]): row["offset"] for row in ends if row["topic"] not in anew}
    if _is_gone(snapshot.buffer, read_to) or _is_gone(snapshot.checkpoint, read_to):
        return None
    own = snapshot.evidence.of([config.audit.names.outcomes, config.audit.names.dead_letter])
    if _is_gone(own, read_to):
        return None
    before = _Before(marker, state, read_to, anew, [tuple(row) for row in ends])
    return _Round(spark, config, offsets, snapshot, before, marker.number + 1).run()


def _snapshot(offsets: TopicOffsets, config: AuditConfig) -> Snapshot:
    """As an audit's; of the buffer up to the first transaction of a user's that is open: nothing depends on
    what is behind that.
    """
    snapshot = take_snapshot(offsets, config.names)
    end = offsets.ends(list(snapshot.buffer.end), committed=True)
    return replace(snapshot, buffer=TopicExtent(snapshot.buffer.first, end))


def _is_gone(extent: TopicExtent, read_to: Mapping[PartitionId, int]) -> bool:
    return any(
        extent.first[one] > read_to.get(one, 0) or end < read_to.get(one, 0)
        for one, end in extent.end.items()
    )


def _since(snapshot: Snapshot, read_to: Mapping[PartitionId, int]) -> Snapshot:
    def since(extent: TopicExtent) -> TopicExtent:
        first = {
            one: begin if read_to.get(one, 0) > extent.end[one] else max(begin, read_to.get(one, 0))
            for one, begin in extent.first.items()
        }
        return TopicExtent(first, extent.end)

    return replace(
        snapshot,
        checkpoint=since(snapshot.checkpoint),
        evidence=since(snapshot.evidence),
        buffer=since(snapshot.buffer),
    )


class _Before(NamedTuple):
    """Where the round before has ended, what it has kept, and up to where it has read each topic. `anew`:
    topics that are others now, of the same name. `ends`: as it has left them.
    """

    marker: Marker
    state: State
    read_to: Mapping[PartitionId, int]
    anew: AbstractSet[str]
    ends: Sequence[tuple[Any, ...]]


class _Round:
    """Implements `Material`: what is new, with what was kept of the families that it concerns."""

    def __init__(
        self,
        spark: SparkSession,
        config: WatchConfig,
        offsets: TopicOffsets,
        whole: Snapshot,
        before: _Before | None,
        number: int,
        known_edges_ms: Mapping[str, int] = NOTHING_GONE,
    ) -> None:
        """`whole`: from where the topics begin. `before`: the round before; None: there is none, and what is
        known of topics that have lost what they do not show is `known_edges_ms`.
        """
        self._spark = spark
        self._config = config.audit
        self._watch = config
        self._offsets = offsets
        self._whole = whole
        self._before = before
        self._number = number
        self._taken_ms = whole.taken_ms
        if before is None:
            self._part = LogPart(spark, config.audit, offsets, whole, known_edges_ms=known_edges_ms)
            self.begins = self._part.begins
        else:
            marker, snapshot = before.marker, _since(whole, before.read_to)
            self._part = LogPart(
                spark, config.audit, offsets, snapshot, marker.serials, marker.last, marker.open_requests
            )
            self.begins = dict(marker.begins)

    # ---- Material

    @property
    def versions(self) -> SettingsVersions:
        return self._part.versions

    def checkpoints(self) -> DataFrame:
        if self._before is None:
            return self._new_checkpoints
        lane = Window.partitionBy("lane")
        both = self._before.state.checkpoints.unionByName(self._new_checkpoints)
        return both.withColumn("whole_from", F.min("whole_from").over(lane))

    def originals(self) -> DataFrame:
        return self._requests

    def outcomes(self) -> DataFrame:
        return self._raw.outcomes

    def lines(self, found: DataFrame) -> DataFrame:
        """With the last ones of the rounds before: what comes behind those is compared with them."""
        if self._before is None:
            return found
        last = self._before.state.lines
        return found.unionByName(last.join(found.select("source"), "source", "left_anti"))

    def heard(self, checkpoints: DataFrame) -> Heard:
        found, newest = heard(checkpoints, self.begins), self._newest
        told = newest if found.told is None else found.told.unionByName(newest)
        return found._replace(told=told)

    def evidence(self, asked: DataFrame) -> Evidence:
        return self._raw

    def bounds(self, asked: DataFrame) -> Bounds:
        return bounds_of(self._config, self._offsets, self._taken_ms, self.begins, self._edges_ms)

    def ledger(self) -> DataFrame | None:
        return None

    # ---- what there is

    @cached_property
    def _new_checkpoints(self) -> DataFrame:
        return kept(self._part.checkpoints())

    @cached_property
    def _new(self) -> DataFrame:
        return kept(self._part.originals())

    @cached_property
    def _new_evidence(self) -> Evidence:
        known = self._new.select("target_topic")
        if self._before is not None:
            known = known.union(self._before.state.requests.select("target_topic"))
        found = self._part.evidence(known)
        return Evidence(*map(kept, (found.deliveries, found.dead_letters, found.outcomes)))

    @cached_property
    def _horizon_ms(self) -> dict[int, int]:
        """Of each partition, what was over before may not be asked for any more."""
        window_ms = max(self._watch.replay_window_ms, self.versions.longest_dedup_window_ms)
        keep_ms = window_ms + self._watch.margin_ms
        return {
            partition: min(self._taken_ms, self._newest_ms.get(partition, 0)) - keep_ms
            for _, partition in self._whole.buffer.end
        }

    @cached_property
    def _newest_ms(self) -> dict[int, int]:
        known = {} if self._before is None else dict(self._before.marker.newest_ms)
        newest = self._new.filter(F.col("kind") != CARRY).groupBy("partition").agg(F.max("timestamp_ms"))
        for partition, newest_ms in newest.collect():
            known[partition] = max(newest_ms, known.get(partition, 0))
        return known

    @cached_property
    def _families(self) -> DataFrame | None:
        """Those that are judged, of those that were kept; None: there are none."""
        if self._before is None:
            return None
        standing = self._before.state.standing
        if self._operators_at_work():
            return kept(standing.select("family").distinct())
        return kept(
            touched_families(standing, self._new, self._new_evidence, self._taken_ms, self._horizon_ms)
        )

    def _operators_at_work(self) -> bool:
        """Whether a replay or a skip was asked for, or was under way: these concern many."""
        assert self._before is not None, "there was a round before"
        last = Window.partitionBy("lane").orderBy(F.desc("seq"))
        before = self._before.state.checkpoints.withColumn("rank", F.row_number().over(last)).filter(
            "rank = 1"
        )
        operation = F.col("operation")
        number = F.coalesce(operation["number"], F.lit(0)).alias("number")
        busy = (operation["replay"].isNotNull() | operation["skip_to"].isNotNull()).alias("busy")
        seen = before.select("lane", number, busy).union(self._new_checkpoints.select("lane", number, busy))
        found = seen.groupBy("lane").agg(
            F.min("number").alias("from"), F.max("number").alias("to"), F.max("busy").alias("busy")
        )
        return not found.filter((F.col("from") < F.col("to")) | F.col("busy")).isEmpty()

    def _of_families(self, frame: DataFrame, *, judged: bool) -> DataFrame:
        assert self._families is not None, "the first round has nothing that was kept"
        own = self._families.union(self._spark.createDataFrame([(0,)], "family long"))
        return frame.join(own.distinct(), "family", "left_semi" if judged else "left_anti")

    @cached_property
    def _requests(self) -> DataFrame:
        if self._before is None:
            return self._new
        known = self._of_families(self._before.state.requests, judged=True).drop("family")
        return kept(known.unionByName(self._new))

    @cached_property
    def _raw(self) -> Evidence:
        new = self._new_evidence
        if self._before is None:
            return new
        state = self._before.state

        def both(known: DataFrame, more: DataFrame) -> DataFrame:
            return kept(self._of_families(known, judged=True).drop("family").unionByName(more))

        # A target that was truncated is read again from its beginning.
        again = new.deliveries.select(*PLACE)
        return Evidence(
            both(state.deliveries.join(again, [*PLACE], "left_anti"), new.deliveries),
            both(state.dead_letters, new.dead_letters),
            both(state.outcomes, new.outcomes),
        )

    @cached_property
    def _newest(self) -> DataFrame:
        before_ms = {} if self._before is None else self._before.marker.newest_ms
        found = newest_of(self._new.filter(F.col("kind") != CARRY), before_ms)
        return kept(found if self._before is None else self._before.state.newest.unionByName(found))

    @cached_property
    def _edges_ms(self) -> dict[str, int]:
        if self._before is None:
            return self._part.edges_ms()
        return latest(self._before.marker.edges_ms, self._part.compacted_ms(), self._lost_unread_ms())

    def _lost_unread_ms(self) -> dict[str, int]:
        """Of the targets that have lost what the watch had not read: by retention, or by being deleted;
        some of these are made anew.
        """
        assert self._before is not None, "there was a round before"
        read_to, first, anew = self._before.read_to, self._whole.evidence.first, self._before.anew
        cut = {one[0] for one, begin in first.items() if begin > read_to.get(one, 0)}
        lacking = {topic for topic, *_ in self._before.ends} - self._whole.topic_ids.keys()
        gone = _named_by(self._requests, lacking.difference(self._offsets.hidden(lacking)))
        return dict.fromkeys((cut | anew).intersection(self._part.targets) | gone, self._taken_ms)

    # ---- the round

    def run(self) -> Round:
        judged = judge(self)
        closed = self._closed_before()
        require_lost_seen(judged.found.join(closed, "source", "left_anti"), self._offsets, self._whole)
        rows = kept(standing_of(judged, closed, self._taken_ms, self._horizon_ms))
        wrong = kept(self._wrong(judged, rows))
        told, in_full = self._told_before(), False
        if self._is_doubtful(judged, rows, wrong, told):
            # What is lost this round and those before it have found: they know of more than is there now.
            whole, in_full = audit(self._spark, self._config, self._whole).violations, True
            whole = whole.filter(F.col("kind") != "lost")
            sure = wrong.filter(~F.col("kind").isin(*_DOUBTFUL))
            nothing = wrong.join(whole, ["kind", "source"], "left_anti").filter(
                F.col("kind").isin(*_DOUBTFUL)
            )
            wrong = kept(_each_once(sure.unionByName(whole)))
            told = told.unionByName(nothing.withColumn("state", F.lit(_NOTHING)))
        found = kept(wrong.join(told.filter(F.col("state") != CLEARED), ["kind", "source"], "left_anti"))
        gone = told.filter(F.col("state") == FOUND).join(wrong, ["kind", "source"], "left_anti").drop("state")
        judged_now = rows.filter(~F.col("was_closed")).select("source")
        cleared = gone.join(judged_now, "source", "left_semi")
        if in_full:  # only then may something have come of what was taken for lost, and closed
            came = gone.filter(F.col("kind") == "lost").join(self._came(judged), "source", "left_semi")
            cleared = cleared.union(came).distinct()
        cleared = kept(cleared)
        state = self._state_after(judged, rows, _told_after(told, found, cleared))
        marker = self._marker_after(judged, rows, state, found)
        ground = Ground(judged, rows, self._new_checkpoints, self._new_evidence)
        require_same(self._offsets, self._whole, self._config.names.own_topics.union(self._part.targets))
        return Round(found, cleared, state, marker, in_full, tuple(self._part.unseen), ground)

    def _closed_before(self) -> DataFrame:
        if self._before is None:
            return self._spark.createDataFrame([], "source string")
        return self._before.state.standing.filter("closed").select("source")

    def _told_before(self) -> DataFrame:
        return self._spark.createDataFrame([], _TOLD) if self._before is None else self._before.state.told

    def _wrong(self, judged: Judged, rows: DataFrame) -> DataFrame:
        """What this round can judge: nothing that was closed before, no checkpoint of a round before, and of
        the order only what was delivered behind the last that was compared.
        """
        closed = rows.filter("was_closed").select("source")
        found = _each_once(judged.wrong.join(closed, "source", "left_anti"))
        if self._before is None:
            return found
        topic = self._config.names.checkpoint
        lane, seq = place_in(F.col("source"))
        ends = self._part.snapshot.checkpoint.first
        begins = {partition: first for (_, partition), first in ends.items()}
        old = F.startswith("source", F.lit(topic + "/")) & (seq < looked_up(begins, lane, 0))
        found = found.filter(~F.coalesce(old, F.lit(False)))
        compared = self._before.state.lines.select("source").union(self._lines_before())
        seen = found.filter(F.col("kind") == "out_of_order").join(compared, "source", "left_semi")
        return found.join(seen.select("kind", "source"), ["kind", "source"], "left_anti")

    def _lines_before(self) -> DataFrame:
        """What was compared in a round before, and stood still."""
        assert self._before is not None, "there was a round before"
        return self._before.state.standing.filter("compared").select("source")

    def _is_doubtful(self, judged: Judged, rows: DataFrame, wrong: DataFrame, told: DataFrame) -> bool:
        """Whether something concerns what was closed."""
        if self._before is None:
            return False
        unsure = rows.filter(F.col("id").isNotNull() & F.col("follows").isNull() & ~F.col("has_met"))
        doubted = wrong.filter(F.col("kind").isin(*_DOUBTFUL)).join(unsure, "source", "left_semi")
        if not doubted.join(told, ["kind", "source"], "left_anti").isEmpty():
            return True
        stand = rows.filter(~F.col("was_closed")).select("source")
        new = self._new_evidence.outcomes.select("record")
        told_of = judged.evidence.outcomes.join(new, "record", "left_semi").select("keyed_by")
        named = self._came(judged).union(told_of).distinct()
        partition, offset = place_in(F.col("source"))
        first = {partition_id[1]: begin for partition_id, begin in self._part.snapshot.buffer.first.items()}
        was_there = (offset < looked_up(first, partition, 0)) & (
            offset >= looked_up(self.begins, partition, 0)
        )
        was_there &= F.startswith("source", F.lit(self._config.names.buffer + "/"))
        old = named.filter(F.coalesce(was_there, F.lit(False)))
        return not old.join(stand, "source", "left_anti").isEmpty()

    def _came(self, judged: Judged) -> DataFrame:
        """Of what this round has deliveries and dead letters."""
        placed, new = judged.evidence, self._new_evidence
        delivered = placed.deliveries.join(new.deliveries.select(*PLACE), [*PLACE], "left_semi")
        dead = placed.dead_letters.join(new.dead_letters.select("record"), "record", "left_semi")
        return delivered.select("source").union(dead.select("source"))

    def _state_after(self, judged: Judged, rows: DataFrame, told: DataFrame) -> State:
        keep = kept(to_keep(rows))
        families = keep.select("partition", F.col("offset").alias("place"), "family")
        requests = (
            self._requests.withColumn("place", place_of())
            .join(families, ["partition", "place"])
            .drop("place")
        )
        stand = keep.filter(~F.col("closed"))
        evidence = evidence_to_keep(self._raw, judged.evidence, stand, self._may_be_there())
        lines = lines_of(judged.found)
        if self._before is not None:
            lines = lines.unionByName(self._before.state.lines)
        state = self._with_the_others(
            State(
                requests=requests,
                deliveries=evidence.deliveries,
                dead_letters=evidence.dead_letters,
                outcomes=evidence.outcomes,
                checkpoints=judged.checkpoints,
                newest=self._newest,
                lines=last_lines(lines),
                standing=keep.drop("was_closed", "id", "follows", "has_met", "beside"),
                told=told,
                ends=self._ends(requests),
            )
        )
        asking = state.requests.filter("keep").select("partition", "offset")
        horizon_ms = min(self._horizon_ms.values(), default=0)
        return replace(
            state,
            newest=state.newest.join(asking, ["partition", "offset"], "left_semi"),
            checkpoints=checkpoints_to_keep(state.checkpoints, state.standing, horizon_ms),
        )

    def _with_the_others(self, state: State) -> State:
        """And what was kept of the families that this round did not judge."""
        if self._before is None:
            return state
        names = "requests", "deliveries", "dead_letters", "outcomes", "standing"
        others = {name: self._of_families(getattr(self._before.state, name), judged=False) for name in names}
        return replace(state, **{name: getattr(state, name).unionByName(others[name]) for name in names})

    def _may_be_there(self) -> Column:
        """Whether what `source` names is in what was read, or is nothing that can come."""
        partition, offset = place_in(F.col("source"))
        ends = {partition_id[1]: end for partition_id, end in self._whole.buffer.end.items()}
        topic = F.substring_index("source", "/", 1)
        to_come = (topic == self._config.names.buffer) & (offset >= looked_up(ends, partition, 0))
        return ~F.coalesce(to_come, F.lit(False))

    def _ends(self, requests: DataFrame) -> DataFrame:
        """With those of before of what this snapshot lacks, and the `requests` that are kept name: it may be
        hidden for a while, or be made anew.
        """
        snapshot = self._whole
        extents = snapshot.checkpoint, snapshot.evidence, snapshot.buffer
        ids = snapshot.topic_ids
        rows = [(*one, end, ids[one[0]]) for extent in extents for one, end in extent.end.items()]
        there = {(topic, partition) for topic, partition, *_ in rows}
        lacking = [] if self._before is None else [row for row in self._before.ends if row[:2] not in there]
        named = _named_by(requests, {row[0] for row in lacking})
        rows += [row for row in lacking if row[0] in named]
        return self._spark.createDataFrame(rows, _ENDS).coalesce(1)

    def _marker_after(self, judged: Judged, rows: DataFrame, state: State, found: DataFrame) -> Marker:
        before = None if self._before is None else self._before.marker
        closed = counted(rows.filter(F.col("closed") & ~F.col("was_closed")))
        last, up_to_ms = self._last_of_lanes(judged)
        told: dict[str, int] = dict(found.groupBy("kind").count().collect())
        already = {} if before is None else before.found
        stand = state.told.filter(F.col("state") == FOUND).groupBy("kind").count().collect()
        return Marker(
            number=self._number,
            folder=f"round-{self._number:09d}-{uuid.uuid4().hex[:8]}",
            taken_ms=self._taken_ms,
            proven_up_to_ms=up_to_ms,
            begins=self.begins,
            serials=self._part.highest_serials(),
            newest_ms=self._newest_ms,
            edges_ms=self._edges_ms,
            last=last,
            closed=summed(closed, () if before is None else before.closed),
            standing=counted(state.standing.filter(~F.col("closed"))),
            found={kind: told.get(kind, 0) + already.get(kind, 0) for kind in {*told, *already}},
            open=dict(stand),
        )

    def _last_of_lanes(self, judged: Judged) -> tuple[dict[int, LastCheckpoint], int]:
        """The last checkpoint of each lane, and up to when all lanes have delivered."""
        fields = "epoch", "number", "position", "spell", "whole_from", "delivered_up_to_ms"
        readable = judged.checkpoints.filter(F.col("epoch").isNotNull())
        rows = readable.groupBy("lane").agg(F.max_by(F.struct(*fields), "seq").alias("last")).collect()
        last = {
            lane: LastCheckpoint(
                one["epoch"],
                one["number"],
                None if one["position"] is None else tuple(one["position"]),
                one["spell"],
                one["whole_from"],
            )
            for lane, one in rows
        }
        lanes = range(self._config.settings.lanes)
        up_to_ms = {lane: one["delivered_up_to_ms"] or 0 for lane, one in rows}
        return last, min(up_to_ms.get(lane, 0) for lane in lanes)


def counted(rows: DataFrame) -> tuple[Counted, ...]:
    """What requests and occurrences have come to, as in `Audit.classes`."""
    return summed([Counted(row["kind"], row["class"], row["count"]) for row in classes_of(rows).collect()])


def _named_by(requests: DataFrame, topics: AbstractSet[str]) -> set[str]:
    """Those of the topics that are a target of any of the requests."""
    if not topics:
        return set()
    found = requests.filter(F.col("target_topic").isin(*topics)).select("target_topic").distinct()
    return {row["target_topic"] for row in found.collect()}


def _each_once(wrong: DataFrame) -> DataFrame:
    return wrong.groupBy("kind", "source").agg(F.min("detail").alias("detail"))


def _told_after(told: DataFrame, found: DataFrame, cleared: DataFrame) -> DataFrame:
    again = found.select("kind", "source").unionByName(cleared.select("kind", "source"))
    rest = told.join(again, ["kind", "source"], "left_anti")
    return rest.unionByName(found.withColumn("state", F.lit(FOUND))).unionByName(
        cleared.withColumn("state", F.lit(CLEARED))
    )
