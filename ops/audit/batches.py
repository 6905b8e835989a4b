"""Batches of the buffer of which nodes read no record: one dead letter, at the first offset, is for all.

Kafka's own client has no such limits, and reads each of the records. The letter tells which they are.
"""

from __future__ import annotations

from bisect import bisect
from collections import defaultdict
from collections.abc import Iterable

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F  # noqa: N812  # as Spark's own documentation has it

from delayline.headers import H_ERROR_DETAIL
from node.fetch.batches import REJECTED_BATCH
from ops.audit.content import last_header


class RejectedBatches:
    """Which records are in a batch that was rejected as a whole."""

    def __init__(self, spans: Iterable[tuple[int, int, int]] = ()) -> None:
        """`spans`: the partition, the first and the last offset of each."""
        self._lasts: dict[int, dict[int, int]] = defaultdict(dict)
        for partition, first, last in spans:
            self._lasts[partition][first] = last
        self._firsts = {partition: sorted(lasts) for partition, lasts in self._lasts.items()}

    def first_offset(self, partition: int, offset: int) -> int | None:
        """Where the batch begins that a record is in; None if it is in none of these."""
        firsts = self._firsts.get(partition, ())
        at = bisect(firsts, offset)
        if not at or offset > self._lasts[partition][firsts[at - 1]]:
            return None
        return firsts[at - 1]


def rejected_batches(dead_letters: DataFrame) -> RejectedBatches:
    """Those of which there is a letter; `dead_letters` as in `ops.audit.evidence`."""
    detail = last_header(F.col("headers"), H_ERROR_DETAIL)
    place = F.split("source", "/")
    spans = dead_letters.filter(F.col("code") == "undecodable").select(
        F.get(place, F.lit(1)).try_cast("int").alias("partition"),
        F.get(place, F.lit(2)).try_cast("long").alias("offset"),
        _number(detail, 1).alias("first"),
        _number(detail, 2).alias("last"),
    )
    told = spans.filter("offset = first and first <= last").collect()
    return RejectedBatches((row["partition"], row["first"], row["last"]) for row in told)


def _number(detail: Column, group: int) -> Column:
    return F.regexp_extract(detail, f"^{REJECTED_BATCH}", group).try_cast("long")
