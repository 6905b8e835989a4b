"""Batches of the buffer of which nodes read no record: one dead letter, at the first offset, is for all.

Kafka's own client has no such limits, and reads each of the records. The letter tells where to look.
"""

from __future__ import annotations

import re
from bisect import bisect
from collections import defaultdict
from collections.abc import Iterable
from contextlib import closing
from typing import Any, Final

from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from delayline.headers import H_ERROR_DETAIL
from delayline.rejects import RejectCode
from node.core.ports import Unanswered
from node.kafka.fetch.batches import REJECTED_BATCH
from node.kafka.reader import OffsetsGone, TopicReader
from pipeline.audit.content import last_header
from pipeline.errors import KafkaSilent

POLL_S: Final = 0.2
PATIENCE_S: Final = 15.0


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


def rejected_batches(dead_letters: DataFrame, client_config: dict[str, Any], buffer: str) -> RejectedBatches:
    """Those of which there is a letter (`dead_letters` as in `pipeline.audit.evidence`), and which are so:
    what a letter says is not believed, the batch itself is read again.

    Raises `PipelineError` if it cannot be read.
    """
    detail = last_header(F.col("headers"), H_ERROR_DETAIL)
    parts = F.split("source", "/")
    spans = (
        dead_letters.filter((F.col("code") == RejectCode.UNDECODABLE) & detail.rlike(f"^{REJECTED_BATCH}"))
        .select(
            F.get(parts, F.lit(1)).try_cast("int").alias("partition"),
            F.get(parts, F.lit(2)).try_cast("long").alias("first"),
        )
        .dropna()
        .distinct()
        .collect()
    )
    if not spans:
        return RejectedBatches()
    with closing(TopicReader(client_config, buffer)) as reader:
        found = [_span(reader, row["partition"], row["first"]) for row in spans]
    return RejectedBatches(span for span in found if span is not None)


def _span(reader: TopicReader, partition: int, first: int) -> tuple[int, int, int] | None:
    """The batch that begins there, if it is none that nodes read."""
    try:
        reader.start({partition: first})
        for records in reader.read_to({partition: first + 1}, poll_s=POLL_S, patience_s=PATIENCE_S):
            for record in records[:1]:
                told = None if record.flaw is None else re.match(REJECTED_BATCH, record.flaw.detail)
                return None if told is None else (partition, int(told[1]), int(told[2]))
    except OffsetsGone:
        return None  # and so are its records
    except Unanswered as error:
        raise KafkaSilent(str(error)) from error
    return None
