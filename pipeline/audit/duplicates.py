"""Which requests asked for what was there already: `delay-if-exists: keep`, and the id is known.

An id is known from its last accepted schedule until the cluster's `dedup_window_ms` after that one's due
time; a cancel makes it unknown. So whether a request is a duplicate depends on whether the one before it was:
each id's requests are gone through in the order of the log.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple

from pyspark.sql import DataFrame, Window
from pyspark.sql import functions as F

from pipeline.audit.meaning import CANCEL, SCHEDULE


class IdEvent(NamedTuple):
    """A schedule or cancel; `newest_ms`: the newest timestamp in its partition by then. `root`: the offset of
    the user's own request; of a cancel by source, the one that it names.
    """

    offset: int
    kind: str
    parent: int | None
    keep: bool
    due_ms: int | None
    newest_ms: int
    root: int | None = None


def marked(requests: DataFrame, dedup_window_ms: int) -> DataFrame:
    """`requests`, with `duplicate` as it is by the log."""
    so_far = Window.partitionBy("partition").orderBy("offset").rowsBetween(Window.unboundedPreceding, 0)
    root = F.coalesce("names", F.substring_index("root", "/", -1).try_cast("long"))
    event = F.struct(
        "offset", "kind", "parent", "keep", "due_ms", F.max("timestamp_ms").over(so_far).alias("newest_ms"),
        root.alias("root"),
    )  # fmt: skip
    is_event = F.col("kind").isin(SCHEDULE, CANCEL) & F.col("id").isNotNull()
    by_id = (
        requests.select("partition", "id", "kind", event.alias("event"))
        .filter(is_event)
        .groupBy("partition", "id")
        .agg(F.max("event.keep").alias("keeps"), F.sort_array(F.collect_list("event")).alias("events"))
    )
    find = F.udf(
        lambda rows: duplicates_of([IdEvent(*row) for row in rows], dedup_window_ms), "array<bigint>"
    )
    found = by_id.filter("keeps").select("partition", F.explode(find("events")).alias("offset"))
    known = found.withColumn("known", F.lit(True))
    joined = requests.drop("duplicate").join(known, ["partition", "offset"], "left")
    return joined.withColumn("duplicate", F.coalesce("known", F.lit(False))).drop("known")


def duplicates_of(events: Iterable[IdEvent], dedup_window_ms: int) -> list[int]:
    """The offsets of the duplicates among the schedules and cancels of one id, given in the log's order."""
    known_until_ms = origin = -1
    source: int | None = None  # of the last schedule; None: it was cancelled
    found: list[int] = []
    for event in events:
        own_origin = event.offset if event.parent is None else event.parent
        if event.parent is not None and origin > event.parent:
            continue  # written back too late
        if event.kind == CANCEL and event.root is not None and event.root != source:
            continue  # by source, of a message that has been replaced
        if event.keep and event.newest_ms < known_until_ms:
            found.append(event.offset)
            continue
        origin = max(origin, own_origin)
        source = None
        if event.kind == SCHEDULE:
            source = event.offset if event.root is None else event.root
        known_until_ms = -1 if event.due_ms is None else event.due_ms + dedup_window_ms
    return found
