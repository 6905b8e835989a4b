"""Which requests asked for what was there already: `delay-if-exists: keep`, and the id is known.

An id is known from its last accepted schedule until the cluster's `dedup_window_ms` after that one's due
time; a cancel makes it unknown. So whether a request is a duplicate depends on whether the one before it was:
each id's requests are gone through in the order of the log.

Until when it is known goes by the newest timestamp that the partition had by then. Where the log has lost its
beginning, a clock that was ahead may have left a newer one there than any that is left. Checkpoints say it,
from their *seen* on (docs/design.md, rule 12); before that, the outcomes do, as to a node that begins there.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from functools import partial
from typing import Any, NamedTuple

from pyspark.sql import Column, DataFrame, Window
from pyspark.sql import functions as F

from delayline.outcome_kinds import OutcomeKind
from delayline.settings_versions import SettingsVersions
from pipeline.audit.bounds import looked_up
from pipeline.audit.meaning import CANCEL, SCHEDULE, root_offset


class Heard(NamedTuple):
    """What checkpoints tell of newest timestamps. `told`: of each `partition` the `offset`s from which on
    `timestamp_ms` had been there; None: the log has lost nothing. `all_from`: of each partition the offset
    from which on they tell all that is gone, and `all_ms`, the newest one then.
    """

    told: DataFrame | None
    all_from: Mapping[int, int]
    all_ms: Mapping[int, int]


class IdEvent(NamedTuple):
    """A schedule or cancel; `newest_ms`: the newest timestamp in its partition by then, as far as it is
    known; `most_ms`: what it was at most; None: nobody knows. `root`: the offset of the user's own request;
    of a cancel by source, the one that it names. `told`: an outcome calls it a duplicate.
    """

    offset: int
    kind: str
    parent: int | None
    keep: bool
    due_ms: int | None
    newest_ms: int
    most_ms: int | None
    root: int | None = None
    told: bool = False


def heard(checkpoints: DataFrame, begins: Mapping[int, int]) -> Heard:
    """`begins`: of each partition the first offset there is."""
    if not any(begins.values()):
        return Heard(None, {}, {})
    entry = F.explode(F.map_entries("newest_ms")).alias("entry")
    each = checkpoints.select("seq", "seen", "carried", entry).select(
        F.col("entry.key").cast("int").alias("partition"),
        F.col("seen")[F.col("entry.key")].alias("offset"),
        F.col("entry.value").alias("timestamp_ms"),
        F.col("carried")[F.col("entry.key")].alias("carried"),
        "seq",
    )
    known = each.filter((F.col("timestamp_ms") > 0) & F.col("offset").isNotNull())
    told = known.groupBy("partition", "timestamp_ms").agg(F.min("offset").alias("offset"))
    tells_all = F.col("carried") >= looked_up(begins, F.col("partition"), 0)
    first = F.min_by(F.struct("offset", "timestamp_ms"), "seq").alias("first")
    rows = known.filter(tells_all).groupBy("partition").agg(first).collect()
    return Heard(
        told,
        {row["partition"]: row["first"]["offset"] for row in rows},
        {row["partition"]: row["first"]["timestamp_ms"] for row in rows},
    )


def marked(
    requests: DataFrame, versions: SettingsVersions, outcomes: DataFrame, by_checkpoints: Heard
) -> DataFrame:
    """`requests`, with `duplicate` as it is by the log; by the outcomes, where what it would be a duplicate
    of may be in the part that is gone, or what has made that unknown.
    """
    root = F.coalesce("names", root_offset())
    event = F.struct(
        "offset", "kind", "parent", "keep", "due_ms", "newest_ms", _most_ms(by_checkpoints).alias("most_ms"),
        root.alias("root"), F.col("told"),
    )  # fmt: skip
    is_event = F.col("kind").isin(SCHEDULE, CANCEL) & F.col("id").isNotNull()
    by_id = (
        _with_newest(_with_told(requests, outcomes), by_checkpoints)
        .filter(is_event)
        .select("partition", "id", "kind", "cut", event.alias("event"))
        .groupBy("partition", "id")
        .agg(
            F.max("event.keep").alias("keeps"),
            F.max("cut").alias("cut"),
            F.sort_array(F.collect_list("event")).alias("events"),
        )
    )

    def find(partition: int, rows: list[Any], cut: bool) -> list[int]:  # noqa: FBT001 - a column
        events = [IdEvent(*row) for row in rows]
        return duplicates_of(events, partial(versions.known_from_ms, partition), cut=cut)

    found_in = F.udf(find, "array<bigint>")("partition", "events", "cut")
    found = by_id.filter("keeps").select("partition", F.explode(found_in).alias("offset"))
    known = found.withColumn("known", F.lit(True))
    joined = requests.drop("duplicate").join(known, ["partition", "offset"], "left")
    return joined.withColumn("duplicate", F.coalesce("known", F.lit(False))).drop("known")


def _with_newest(requests: DataFrame, by_checkpoints: Heard) -> DataFrame:
    """Adds `newest_ms`. Of what stands in for a record that is gone nobody says when that came."""
    columns, its_own = requests.columns, requests.withColumn("record", F.lit(True))
    if by_checkpoints.told is not None:
        told = by_checkpoints.told.withColumn("record", F.lit(False))
        its_own = its_own.unionByName(told, allowMissingColumns=True)
    order = Window.partitionBy("partition").orderBy("offset", "record")  # what is told comes first
    so_far = order.rowsBetween(Window.unboundedPreceding, 0)
    newest_ms = F.coalesce(F.max("timestamp_ms").over(so_far), F.lit(0)).alias("newest_ms")
    return its_own.select(*columns, "record", newest_ms).filter("record").drop("record")


def _most_ms(by_checkpoints: Heard) -> Column:
    partition, newest_ms = F.col("partition"), F.col("newest_ms")
    all_from, all_ms = (
        looked_up(one, partition, -1) for one in (by_checkpoints.all_from, by_checkpoints.all_ms)
    )
    is_whole = ~F.col("cut") | ((all_from >= 0) & (F.col("offset") >= all_from))
    return F.when(is_whole, newest_ms).when(all_from >= 0, F.greatest(newest_ms, all_ms))


def _with_told(requests: DataFrame, outcomes: DataFrame) -> DataFrame:
    told = outcomes.filter(F.col("outcome") == OutcomeKind.DUPLICATE)
    sources = told.select(F.col("keyed_by").alias("source"), F.lit(True).alias("told")).distinct()
    joined = requests.join(sources, "source", "left")
    return joined.withColumn("told", F.coalesce("told", F.lit(False)))


def duplicates_of(
    events: Iterable[IdEvent], known_from_ms: Callable[[int, int], int], *, cut: bool = False
) -> list[int]:
    """The offsets of the duplicates among the schedules and cancels of one id, given in the log's order.

    `known_from_ms`: of an offset and the newest timestamp there, the due time above which an id is known.
    `cut`: there were others before the first one, perhaps.
    """
    is_known = not cut
    due_ms: int | None = None  # of the last schedule, while that is known
    origin = -1
    source: int | None = None  # of the last schedule; None: it was cancelled
    found: list[int] = []
    for event in events:
        own_origin = event.offset if event.parent is None else event.parent
        if event.parent is not None and origin > event.parent:
            continue  # written back too late
        if event.kind == CANCEL and event.root is not None and event.root != source:
            continue  # by source, of a message that has been replaced
        if event.keep and (_knows(event, due_ms, known_from_ms) if is_known else event.told):
            found.append(event.offset)
            continue
        is_known = True
        origin = max(origin, own_origin)
        source = None
        if event.kind == SCHEDULE:
            source = event.offset if event.root is None else event.root
        due_ms = event.due_ms
    return found


def _knows(event: IdEvent, due_ms: int | None, known_from_ms: Callable[[int, int], int]) -> bool:
    """Whether the id of a schedule due then is known to the event; where the log does not tell, by its
    outcome.
    """
    if due_ms is None or due_ms <= known_from_ms(event.offset, event.newest_ms):
        return False
    is_sure = event.most_ms is not None and due_ms > known_from_ms(event.offset, event.most_ms)
    return is_sure or event.told
