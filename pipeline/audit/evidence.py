"""What became of requests, as the targets, the dead-letter topic and the outcomes topic show it."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, replace
from typing import Final

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

from delayline.names import ClusterNames, PartitionId
from delayline.rejects import RejectCode
from delayline.wire import H_ERROR, H_OCCURRENCE, H_PARENT, H_SOURCE
from pipeline.audit.content import digest, last_header
from pipeline.audit.meaning import SCHEDULE, beside_source, source

NO_NUMBER = 0
"""In place of the number of an occurrence: the first one is still to be found."""
PLACE: Final = ("topic_id", "partition", "offset")
"""What tells a delivery from all others."""
_OUTCOME = (
    "outcome string, op string, id string, message string, root string, code string, detail string, "
    "epoch long, at_ms long"
)


@dataclass(frozen=True, slots=True)
class Evidence:
    """What the evidence topics of one cluster hold; `source` is the request that a record is of.

    `occurrence`: which delivery of a recurring message a record says it is. `topic_id`: Kafka's own, which
    tells the places of a target from those of one before it that had the same name.
    """

    deliveries: DataFrame  # of the targets: what came from this cluster's buffer
    dead_letters: DataFrame
    outcomes: DataFrame

    @classmethod
    def of(
        cls, read: Callable[[Collection[str]], DataFrame], names: ClusterNames, targets: Mapping[str, str]
    ) -> Evidence:
        """Read the evidence; `read` gives the records of some topics. `targets`: Kafka's ids of them."""
        records = read(targets.keys())
        ids = records.sparkSession.createDataFrame([*targets.items()], "topic string, topic_id string")
        return cls(
            _deliveries(records, names).join(F.broadcast(ids), "topic"),
            dead_letters(read([names.dead_letter])),
            outcomes(read([names.outcomes])),
        )


def _deliveries(targets: DataFrame, names: ClusterNames) -> DataFrame:
    """Records without `delay-source`, or of another cluster's, are none of this audit's business."""
    return targets.select(
        last_header(F.col("headers"), H_SOURCE).alias("source"),
        _number(F.col("headers")).alias("occurrence"),
        "topic",
        "partition",
        "offset",
        "timestamp_ms",
        "by_broker",
        digest(F.col("key")).alias("key_sha"),
        digest(F.col("value")).alias("value_sha"),
        "headers",
    ).filter(F.col("source").startswith(names.buffer + "/"))


def dead_letters(topic: DataFrame) -> DataFrame:
    """Of the dead-letter topic: `source` is the request that a letter is of, `record` the letter itself."""
    headers, record = F.col("headers"), source("topic", "partition", "offset")
    return topic.select(
        F.coalesce(last_header(headers, H_SOURCE), record).alias("source"),
        record.alias("record"),
        _letter_number(headers).alias("occurrence"),
        "timestamp_ms",
        last_header(headers, H_ERROR).alias("code"),
        digest(F.col("key")).alias("key_sha"),
        digest(F.col("value")).alias("value_sha"),
        "headers",
    )


def _number(headers: Column) -> Column:
    return last_header(headers, H_OCCURRENCE).try_cast("long")


def _letter_number(headers: Column) -> Column:
    """A user's own request has none, whatever it carries or pretends; `NO_NUMBER`: the first one is still to
    be found.
    """
    pretends = last_header(headers, H_ERROR) == RejectCode.BAD_PARENT
    written_back = last_header(headers, H_PARENT).isNotNull() & ~pretends
    return F.when(written_back, F.coalesce(_number(headers), F.lit(NO_NUMBER)))


def at_their_rows(evidence: Evidence, requests: DataFrame) -> Evidence:
    """The same, with deliveries and dead letters of a recurring message at the row of their occurrence.

    They name the user's request and a number; the row is the last of that number that was applied. The rows
    are broadcast: some 100 bytes for each occurrence, and the many other messages need not move for them.
    """
    rows = _rows(requests)
    deliveries, letters = (_placed(records, rows) for records in (evidence.deliveries, evidence.dead_letters))
    return Evidence(deliveries, letters, evidence.outcomes)


def of_each_record(evidence: Evidence, requests: DataFrame) -> Evidence:
    """The same, where what is told of a batch is told of each of its records: the requests with a `batch`."""
    rest = requests.filter(F.col("batch") < F.col("offset"))
    first = beside_source("batch")
    records = F.broadcast(rest.select(first.alias("first"), F.col("source").alias("its")))
    letters, outcomes = evidence.dead_letters, evidence.outcomes
    of_first = letters.join(records, F.col("source") == F.col("first"))
    told_of_first = outcomes.join(records, F.col("keyed_by") == F.col("first"))
    itself = {name: F.col("its") for name in ("keyed_by", "message", "root")}
    return replace(
        evidence,
        dead_letters=letters.unionByName(of_first.withColumn("source", F.col("its")).drop("first", "its")),
        outcomes=outcomes.unionByName(told_of_first.withColumns(itself).drop("first", "its")),
    )


def at_its_row(records: DataFrame, requests: DataFrame) -> DataFrame:
    """Records of `source`, a user's request, and of an `occurrence`, at the row of that."""
    return _placed(records, _rows(requests))


def _rows(requests: DataFrame) -> DataFrame:
    rank = F.struct(~F.col("dropped"), F.col("offset").alias("offset"))
    root = F.coalesce("root", "source").alias("source")
    return (
        requests.filter(F.col("recurrence").isNotNull() & (F.col("kind") == SCHEDULE))
        .groupBy(root, F.coalesce("occurrence", F.lit(NO_NUMBER)).alias("occurrence"))
        .agg(F.max(rank)["offset"].alias("row_offset"))
    )


def _placed(records: DataFrame, rows: DataFrame) -> DataFrame:
    own = F.when(F.col("row_offset").isNotNull(), beside_source("row_offset")).otherwise(F.col("source"))
    joined = records.join(F.broadcast(rows), ["source", "occurrence"], "left")
    return joined.withColumn("source", own).drop("row_offset")


def outcomes(topic: DataFrame) -> DataFrame:
    """Of the outcomes topic: `keyed_by` is the request that an outcome is of; the other fields are null if it
    cannot be read.
    """
    record = source("topic", "partition", "offset")
    return topic.select(
        F.coalesce(F.col("key").cast("string"), record).alias("keyed_by"),
        record.alias("record"),
        "timestamp_ms",
        F.from_json(F.col("value").cast("string"), _OUTCOME).alias("told"),
    ).select("keyed_by", "record", "timestamp_ms", "told.*")


def edges_ms(
    records: DataFrame, cut: Collection[PartitionId], newest_gone_ms: Mapping[str, int]
) -> dict[str, int]:
    """For each topic that retention has cut, the time before which its records may be gone.

    `cut` are the partitions whose first offset is not 0. What is gone of one is older than what is left of
    it, and than what the topic's retention can have taken: `newest_gone_ms`, by topic.
    """
    oldest = records.groupBy("topic", "partition").agg(F.min("timestamp_ms").alias("oldest_ms")).collect()
    found = {(row["topic"], row["partition"]): int(row["oldest_ms"]) for row in oldest}
    edges: dict[str, int] = {}
    for partition_id in cut:
        topic, newest_ms = partition_id[0], newest_gone_ms[partition_id[0]]
        edges[topic] = max(edges.get(topic, 0), min(found.get(partition_id, newest_ms), newest_ms))
    return edges
