"""What the log tells whose beginning retention has taken (docs/design.md, rule 12).

A carry says again what another record says. Where that record is gone, the carry *stands in* for it: a
request with the place, the content and the meaning of the original. Where what is left goes back to a user's
request that is gone, that has a stand-in as well, made from what goes back to it: it is known to have been
there, and what it asked for. All else that was there is not known any more: nothing is held against it.

What the service wrote back before it had read what is gone is nothing here, as to a node that begins there:
such a row waits no more, or has been carried since. So it is kept as `BEFORE`, with its place and its root
alone.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final, NamedTuple

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

from delayline.names import ClusterNames
from delayline.settings import ClusterSettings
from delayline.wire import H_ATTEMPT
from pipeline.audit.bounds import Bounds, looked_up
from pipeline.audit.content import last_header
from pipeline.audit.evidence import NO_NUMBER, Evidence
from pipeline.audit.flaw import Checks, flaws, said, violations
from pipeline.audit.meaning import CARRY, SCHEDULE, beside_source, root_offset, source
from pipeline.errors import NewerRecord

BEFORE: Final = "before"
"""The kind of a record that counts no more where the log begins."""
OF_CARRY, OF_SUCCESSOR = "carry", "successor"
"""What a stand-in was made from."""
_NOT_OF_ROOT: Final = ("root", "parent", "moved_by", "content", "timestamp_ms")
_AS_CARRIED: Final = ("key_sha", "value_sha", "key_bytes", "value_bytes", "headers", "content", "kind")
_OF_BEFORE: Final = (
    *("id", "parent", "due_ms", "recurrence", "occurrence", "names", "expire_at_ms", "moved_by"),
)


class Told(NamedTuple):
    """`requests`: what the log tells, with `stand_in`, what it was made from (null: it is the record itself),
    and `cut`, whether its partition has lost its beginning. `carries`: all of them; None: there are none.
    """

    requests: DataFrame
    carries: DataFrame | None


def told(parsed: DataFrame, begins: Mapping[int, int]) -> Told:
    """What records of the buffer tell that are no copies. `begins`: of each partition the first offset there
    is.

    Raises `NewerRecord` for a carry that only a newer version reads.
    """
    carries = parsed.filter(F.col("kind") == CARRY)
    has_carries = _has_any(carries)
    none = F.lit(None).cast("string")
    cut = looked_up(begins, F.col("partition"), 0) > 0
    asked = parsed.filter(F.col("kind") != CARRY).drop("carried").withColumn("stand_in", none)
    if any(begins.values()):
        asked = _with_stand_ins(asked, carries, begins)
    return Told(asked.withColumn("cut", cut).drop("serial"), carries if has_carries else None)


def carry_violations(carries: DataFrame, requests: DataFrame, begins: Mapping[int, int]) -> DataFrame:
    """Carries that say something else than what they carry: columns `kind`, `source`, `detail`."""
    original = requests.select(
        "partition",
        F.col("offset").alias("place"),
        F.col("content").alias("of_content"),
        F.coalesce("due_ms", "timestamp_ms").alias("of_due_ms"),
        F.col("kind").alias("of_kind"),
    )
    placed = carries.withColumn("place", F.col("carried.offset"))
    compared = placed.join(original, ["partition", "place"], "left")
    return violations(compared, flaws(_checks(begins)))


def doubled_before(evidence: Evidence, verdicts: DataFrame, bounds: Bounds) -> DataFrame:
    """What was delivered twice by its first attempt, of requests of which the log tells nothing any more:
    columns `kind`, `source`, `detail`.
    """
    judged = verdicts.filter(F.col("end").isNotNull()).select("source")
    attempt = last_header(F.col("headers"), H_ATTEMPT).try_cast("int")
    first = evidence.deliveries.filter(bounds.before_buffer(F.col("source")) & (attempt == 1))
    record = source("topic", "partition", "offset")
    counted = (
        first.join(judged, "source", "left_anti")
        .groupBy("source", "occurrence")
        .agg(F.count("*").alias("times"), F.max(record).alias("record"))
    )
    detail = said(
        "delivered ", F.col("times"), " times by its first attempt, the last time as ", F.col("record")
    )
    return violations(counted, flaws([("duplicated", F.when(F.col("times") > 1, detail))])).distinct()


def lacking(checkpoints: DataFrame, begins: Mapping[int, int], settings: ClusterSettings) -> DataFrame:
    """Where the log begins behind what may still wait: columns `kind`, `source`, `detail`. Of a cluster that
    carries nothing nobody says so.
    """
    last = checkpoints.groupBy("lane").agg(F.max_by("carried", "seq").alias("carried")).collect()
    carried = {row["lane"]: row["carried"] or {} for row in last}
    buffer, found = ClusterNames(settings.cluster).buffer, []
    for partition, begin in begins.items() if settings.retention_ms is not None else ():
        needed = carried.get(settings.lane_of(partition), {}).get(str(partition), 0)
        if begin > needed:
            detail = f"the log begins there, and what waits may stand from offset {needed} on"
            found.append(("missing_from_buffer", f"{buffer}/{partition}/{begin}", detail))
    return checkpoints.sparkSession.createDataFrame(found, "kind string, source string, detail string")


def _has_any(carries: DataFrame) -> bool:
    """Whether there are any. Raises `NewerRecord` for one that only a newer version reads."""
    newer = F.min(F.when(F.col("carried").isNull(), F.struct("source", "code")))
    (count, unreadable), *_ = carries.agg(F.count("*"), newer).collect()
    if unreadable is not None:
        source, code = unreadable
        raise NewerRecord(f"{source}: {code}: audit with the version that wrote it")
    return bool(count)


def _with_stand_ins(asked: DataFrame, carries: DataFrame, begins: Mapping[int, int]) -> DataFrame:
    begin = looked_up(begins, F.col("partition"), 0)
    as_of = F.coalesce(F.col("serial")[0], F.col("parent") + 1)
    counts = F.coalesce(as_of >= begin, F.lit(True))
    known = asked.filter(counts)
    rows = _rows(carries.filter(counts)).join(_places(known), ["partition", "offset"], "left_anti")
    before = asked.filter(~counts).join(_places(rows), ["partition", "offset"], "left_anti")
    there = known.unionByName(rows)
    roots = _roots(there, begin).join(_places(there), ["partition", "offset"], "left_anti")
    return there.unionByName(roots).unionByName(_bare(before))


def _places(requests: DataFrame) -> DataFrame:
    return requests.select("partition", "offset")


def _rows(carries: DataFrame) -> DataFrame:
    """One for each record that is carried. Nobody says when that came; what is no message is due at once."""
    as_carried = {name: F.col(f"carried.{name}") for name in _AS_CARRIED}
    as_carried |= {"offset": F.col("carried.offset"), "source": beside_source("carried.offset")}
    came_ms = F.when(F.col("carried.kind") != SCHEDULE, F.col("due_ms"))
    return (
        carries.withColumns(as_carried | {"timestamp_ms": came_ms, "stand_in": F.lit(OF_CARRY)})
        .drop("carried")
        .dropDuplicates(["partition", "offset"])
    )


def _roots(requests: DataFrame, begin: Column) -> DataFrame:
    """Users' requests that are gone, as the last of what goes back to each of them has them."""
    root = root_offset()
    back = requests.filter((F.col("kind") == SCHEDULE) & (root < begin)).withColumn("place", root)
    every = F.struct(*requests.columns)
    last = back.groupBy("partition", "place").agg(F.max_by(every, "offset").alias("last"))
    kinds = dict(requests.dtypes)
    none = {name: F.lit(None).cast(kinds[name]) for name in _NOT_OF_ROOT}
    # The first occurrence of a chain has a number, so that this one is not taken for what looks for it.
    number = F.when(F.col("recurrence").isNotNull(), F.lit(NO_NUMBER).cast("long"))
    return (
        last.select("place", "last.*")
        .withColumns(
            none
            | {
                "source": F.col("root"),
                "offset": F.col("place"),
                "occurrence": number,
                "attempt": F.lit(1),
                "stand_in": F.lit(OF_SUCCESSOR),
            }
        )
        .drop("place")
    )


def _bare(before: DataFrame) -> DataFrame:
    kinds = dict(before.dtypes)
    none = {name: F.lit(None).cast(kinds[name]) for name in _OF_BEFORE}
    return before.withColumns(none | {"kind": F.lit(BEFORE), "keep": F.lit(False)})


def _checks(begins: Mapping[int, int]) -> Checks:
    carried, place = F.col("carried"), F.col("place")
    begin = looked_up(begins, F.col("partition"), 0)
    nothing = F.col("of_kind").isNull() & (place >= begin)
    parts = F.concat_ws(
        ", ",
        F.when(F.col("of_kind") != carried["kind"], "kind"),
        F.when(F.col("of_due_ms") != F.col("due_ms"), "due time"),
        F.when(F.col("of_content") != carried["content"], "content"),
    )
    judged = F.col("of_kind").isNotNull() & (F.col("of_kind") != BEFORE)
    return [
        (
            "unexplained",
            F.when(nothing, said("it carries what stood at offset ", place, ", and nothing did")),
        ),
        (
            "altered",
            F.when(judged & (parts != ""), said("it carries offset ", place, ", and differs in ", parts)),
        ),
    ]
