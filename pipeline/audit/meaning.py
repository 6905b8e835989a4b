"""What each record of the buffer asks for, as the one parser of the wire format says (delayline.wire.parse).

The parser is Python, so the headers go through a Python worker, and the values of what the service has
written back, which are signed; all else stays in Spark.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any, NamedTuple

from pyspark.sql import Column, DataFrame, Window
from pyspark.sql import functions as F

from delayline import wire
from delayline.names import ClusterNames
from delayline.partitioner import partition_for
from delayline.recurrence import Recurrence
from delayline.rejects import RejectCode
from delayline.settings import ClusterSettings
from delayline.signing import Keyring
from node.kafka.fetch.records import MOST_HEADERS
from pipeline.audit.batches import RejectedBatches
from pipeline.audit.content import content_digest, digest, headers_digest_of

SCHEDULE, CANCEL, RESCHEDULE, REJECT = "schedule", "cancel", "reschedule", "reject"
CARRY = "carry"
# What the service has written back has one of these at least; its signature is also of its value.
_SIGNED = (wire.H_PARENT, wire.H_SIGNATURE)

MEANING = (
    "kind string, id string, scheduled_for_ms long, due_ms long, target_topic string, target_key binary, "
    "target_partition int, expire_at_ms long, parent long, root string, attempt int, occurrence long, "
    "recurrence struct<cron: string, interval_ms: long, factor_permille: int, time_zone: string, "
    "times: long, until_ms: long, missed: string>, keep boolean, names long, code string, "
    "headers_sha binary, serial array<long>, batch long, moved_by long"
)
# What Kafka's Java client makes of bytes that are not UTF-8.
_UNDECODABLE = "\ufffd"
_NO_LIMIT_MS = 1_000 * 366 * 24 * 3_600_000  # the most that a cluster can have


class RequestRecord(NamedTuple):
    """A record of the buffer as the parser wants it."""

    partition: int
    offset: int
    timestamp_ms: int
    key: bytes | None
    value: bytes | None  # of what has been written back only
    headers: list[tuple[str, bytes | None]]


class Meaning(NamedTuple):
    """One row of `MEANING`; what a kind of request does not have is None."""

    kind: str
    id: str | None = None
    scheduled_for_ms: int | None = None
    due_ms: int | None = None  # of the row that the request becomes; a cancel becomes none
    target_topic: str | None = None
    target_key: bytes | None = None
    target_partition: int | None = None  # where it belongs; None: any will do
    expire_at_ms: int | None = None
    parent: int | None = None
    root: str | None = None
    attempt: int | None = None
    occurrence: int | None = None
    recurrence: Recurrence | None = None
    keep: bool = False
    names: int | None = None  # of a cancel by source: the offset that it names, in its own partition
    code: str | None = None
    headers_sha: bytes | None = None
    serial: tuple[int, int] | None = None  # of what the service has written back
    batch: int | None = None  # where the batch begins with which it was rejected
    moved_by: int | None = None  # offset of the user's last reschedule of it


def requests(
    buffer: DataFrame,
    settings: ClusterSettings,
    keyring: Keyring,
    partitions: Mapping[str, int],
    rejected: RejectedBatches,
) -> DataFrame:
    """The buffer's records and what they ask for: `MEANING`'s columns, content digests, `source`, `lane`.
    Copies of what was written back are among them: see `without_copies_and_carries`.

    `partitions`: how many each topic has.
    """
    header_keys = F.transform("headers", lambda header: header["key"])
    header_values = F.transform("headers", lambda header: header["value"])
    parse = F.udf(_parser(settings, keyring, partitions, rejected), MEANING)
    signed = F.when(F.arrays_overlap(header_keys, F.array(*map(F.lit, _SIGNED))), F.col("value"))
    meaning = parse("partition", "offset", "timestamp_ms", "key", signed, header_keys, header_values)
    parsed = buffer.select(
        "partition",
        "offset",
        "timestamp_ms",
        (F.col("partition") % settings.lanes).alias("lane"),
        source("topic", "partition", "offset").alias("source"),
        digest(F.col("key")).alias("key_sha"),
        digest(F.col("value")).alias("value_sha"),
        F.octet_length("key").alias("key_bytes"),
        F.octet_length("value").alias("value_bytes"),
        "headers",
        meaning.alias("meaning"),
    )
    target_key_sha = digest(F.col("meaning.target_key")).alias("target_key_sha")
    content = content_digest(F.col("key_sha"), F.col("value_sha"), F.col("meaning.headers_sha")).alias(
        "content"
    )
    return parsed.select("*", "meaning.*", target_key_sha, content).drop(
        "meaning", "target_key", "headers_sha"
    )


def source(topic: str, partition: str, offset: str) -> Column:
    """`topic/partition/offset`, the name of a record."""
    return F.concat_ws("/", topic, F.col(partition).cast("string"), F.col(offset).cast("string"))


def beside_source(offset: str) -> Column:
    """What `source` names, at another offset of the same partition."""
    return F.concat_ws("/", F.substring_index("source", "/", 2), F.col(offset).cast("string"))


def _parser(
    settings: ClusterSettings, keyring: Keyring, partitions: Mapping[str, int], rejected: RejectedBatches
) -> Callable[..., tuple[Any, ...]]:
    names = ClusterNames(settings.cluster)
    without_limit = replace(settings, max_delay_ms=_NO_LIMIT_MS)

    def parse(  # the columns of a record
        partition: int,
        offset: int,
        timestamp_ms: int,
        key: bytearray | None,
        value: bytearray | None,
        header_keys: Sequence[str],
        header_values: Sequence[bytearray | None],
    ) -> tuple[Any, ...]:
        values = [None if one is None else bytes(one) for one in header_values]
        headers = list(zip(header_keys, values, strict=True))
        raw_key = None if key is None else bytes(key)
        raw_value = None if value is None else bytes(value)
        record = RequestRecord(partition, offset, timestamp_ms, raw_key, raw_value, headers)
        batch = rejected.first_offset(partition, offset)
        if batch is not None or len(headers) > MOST_HEADERS:
            meaning = Meaning(REJECT, due_ms=timestamp_ms, code=RejectCode.UNDECODABLE)
        elif any(_UNDECODABLE in header_key for header_key in header_keys):
            meaning = Meaning(REJECT, due_ms=timestamp_ms, code=RejectCode.HEADER_KEY)
        else:
            request = wire.parse(record, settings, names, keyring)
            meaning = _meaning(record, request, partitions)
            if meaning.code == RejectCode.DELAY_TOO_LONG:
                meaning = _of_chain(meaning, wire.parse(record, without_limit, names, keyring))
        # A plain string: Spark's own side knows none of our classes.
        code = None if meaning.code is None else str(meaning.code)
        return meaning._replace(code=code, headers_sha=headers_digest_of(headers), batch=batch)

    return parse


def _meaning(record: RequestRecord, request: wire.Request, partitions: Mapping[str, int]) -> Meaning:
    if isinstance(request, wire.Schedule):
        return _schedule(request, partitions)
    if isinstance(request, wire.Cancel):
        return Meaning(CANCEL, request.id, names=request.source)
    if isinstance(request, wire.Reject):
        return Meaning(REJECT, due_ms=record.timestamp_ms, code=request.code, serial=request.serial)
    if isinstance(request, wire.Carry):
        return Meaning(CARRY, serial=request.serial)
    return Meaning(
        RESCHEDULE,
        request.id,
        request.scheduled_for_ms,
        record.timestamp_ms,
        expire_at_ms=request.expire_at_ms,
        parent=request.parent,
        root=request.root,
        attempt=request.attempt,
        serial=request.serial,
    )


def _of_chain(reject: Meaning, request: wire.Request) -> Meaning:
    """A reject that the service has itself written back: an occurrence so far away that it ends its chain."""
    if not isinstance(request, wire.Schedule) or request.parent is None:
        return reject
    return reject._replace(
        scheduled_for_ms=request.scheduled_for_ms,
        parent=request.parent,
        root=request.root,
        attempt=request.attempt,
        occurrence=request.occurrence,
        recurrence=request.recurrence,
        serial=request.serial,
        moved_by=request.moved_by,
    )


def _schedule(request: wire.Schedule, partitions: Mapping[str, int]) -> Meaning:
    return Meaning(
        SCHEDULE,
        request.id,
        request.scheduled_for_ms,
        request.due_ms,
        request.target_topic,
        request.target_key,
        _target_partition(request, partitions.get(request.target_topic)),
        request.expire_at_ms,
        request.parent,
        request.root,
        request.attempt,
        request.occurrence,
        request.recurrence,
        request.keep,
        serial=request.serial,
        moved_by=request.moved_by,
    )


def written_back(buffer: DataFrame) -> DataFrame:
    """Of the buffer's records those that say that the service has written them back."""
    return buffer.filter(F.exists("headers", lambda header: header["key"].isin(*_SIGNED)))


def without_copies_and_carries(asked: DataFrame, numbered: DataFrame) -> DataFrame:
    """The same, without copies of what the service has written back, which are nothing to the nodes: of these
    the serial is not above all before it (docs/design.md, rule 4). And without carries, which say again what
    other records say (rule 12).

    `numbered`: the requests, and those of aborted transactions, which may have been copied as well. Few
    records have a serial.
    """
    before = Window.partitionBy("partition").orderBy("offset").rowsBetween(Window.unboundedPreceding, -1)
    numbered = numbered.filter(F.col("serial").isNotNull()).select("partition", "offset", "serial")
    last = numbered.withColumn("last", F.max("serial").over(before))
    copies = last.filter(F.col("serial") <= F.col("last")).select("partition", "offset")
    originals = asked.join(F.broadcast(copies), ["partition", "offset"], "left_anti")
    return originals.filter(F.col("kind") != CARRY).drop("serial")


def _target_partition(request: wire.Schedule, partitions: int | None) -> int | None:
    if request.target_partition != wire.BY_KEY:
        return request.target_partition
    if request.target_key is None or partitions is None:
        return None
    return partition_for(request.target_key, partitions)
