"""Which requests asked for what was there already: `delay-if-exists: keep`, and the id is known.

An id is known from its last accepted schedule until the cluster's `dedup_window_ms` after that one's due
time; a cancel makes it unknown. So whether a request is a duplicate depends on whether the one before it was:
each id's requests are gone through in the order of the log.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from functools import partial
from typing import Any, NamedTuple

from pyspark.sql import DataFrame, Window
from pyspark.sql import functions as F

from delayline.outcome_kinds import OutcomeKind
from delayline.settings_versions import SettingsVersions
from pipeline.audit.meaning import CANCEL, SCHEDULE


class IdEvent(NamedTuple):
    """A schedule or cancel; `newest_ms`: the newest timestamp in its partition by then. `root`: the offset of
    the user's own request; of a cancel by source, the one that it names. `told`: an outcome calls it a
    duplicate.
    """

    offset: int
    kind: str
    parent: int | None
    keep: bool
    due_ms: int | None
    newest_ms: int
    root: int | None = None
    told: bool = False


def marked(requests: DataFrame, versions: SettingsVersions, outcomes: DataFrame) -> DataFrame:
    """`requests`, with `duplicate` as it is by the log; by the outcomes, where what it would be a duplicate
    of may be in the part that is gone.
    """
    so_far = Window.partitionBy("partition").orderBy("offset").rowsBetween(Window.unboundedPreceding, 0)
    root = F.coalesce("names", F.substring_index("root", "/", -1).try_cast("long"))
    event = F.struct(
        "offset", "kind", "parent", "keep", "due_ms", F.max("timestamp_ms").over(so_far).alias("newest_ms"),
        root.alias("root"), F.col("told"),
    )  # fmt: skip
    is_event = F.col("kind").isin(SCHEDULE, CANCEL) & F.col("id").isNotNull()
    by_id = (
        _with_told(requests, outcomes)
        .select("partition", "id", "kind", "cut", event.alias("event"))
        .filter(is_event)
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


def _with_told(requests: DataFrame, outcomes: DataFrame) -> DataFrame:
    told = outcomes.filter(F.col("outcome") == OutcomeKind.DUPLICATE)
    sources = told.select(F.col("keyed_by").alias("source"), F.lit(True).alias("told")).distinct()
    joined = requests.join(F.broadcast(sources), "source", "left")
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
        known = due_ms is not None and due_ms > known_from_ms(event.offset, event.newest_ms)
        if event.keep and (known if is_known else event.told):
            found.append(event.offset)
            continue
        is_known = True
        origin = max(origin, own_origin)
        source = None
        if event.kind == SCHEDULE:
            source = event.offset if event.root is None else event.root
        due_ms = event.due_ms
    return found
