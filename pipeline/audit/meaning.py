"""What each record of the buffer asks for, as the one parser of the wire format says (delayline.wire.parse).

The parser is Python, so the headers go through a Python worker, and the values of what the service has
written back, which are signed; all else stays in Spark.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from hashlib import sha256
from typing import Any, Final, NamedTuple, TypeAlias

from pyspark.sql import Column, DataFrame, Window
from pyspark.sql import functions as F

from delayline import wire
from delayline.names import ClusterNames, parse_source
from delayline.partitioner import partition_for
from delayline.recurrence import Recurrence
from delayline.rejects import RejectCode
from delayline.settings import FIRST_MEANING
from delayline.settings_versions import SettingsVersions
from delayline.signing import Keyring
from delayline.sizes import Kept, kept_of, weighed
from node.kafka.fetch.records import MOST_HEADERS, LogRecord
from pipeline.audit.batches import RejectedBatches
from pipeline.audit.content import content_digest, content_of, digest, headers_digest_of
from pipeline.audit.letters import SHORN
from store.rows import (
    Headers,
    NewerCarry,
    RejectRow,
    RescheduleRow,
    Row,
    decode_carry,
    decode_row,
)

SCHEDULE, CANCEL, RESCHEDULE, REJECT = "schedule", "cancel", "reschedule", "reject"
CARRY = "carry"  # what it carries may stand in for its original: pipeline/audit/carries.py
MARK = "mark"
# What the service has written back has one of these at least; its signature is also of its value.
_SIGNED = (wire.H_PARENT, wire.H_SIGNATURE)

# What Kafka's Java client makes of bytes that are not UTF-8.
_UNDECODABLE = "\ufffd"
_NO_LIMIT_MS = 1_000 * 366 * 24 * 3_600_000  # the most that a cluster can have


Serial: TypeAlias = tuple[int, int]
"""Rises from each record that the service has written back into a partition to the next."""
NO_SERIALS: Final[Mapping[int, Serial]] = {}


class CarriedRecord(NamedTuple):
    """The record that a carry says again, as the store has it: where it stood, what it asks for, its parts
    and their digests.
    """

    offset: int
    kind: str
    key_sha: bytes | None
    value_sha: bytes | None
    key_bytes: int | None
    value_bytes: int | None
    headers: Headers
    content: str | None  # None: the store does not have all of it


class Meaning(NamedTuple):
    """What a record asks for; what a kind of request does not have is None. The fields that most have come
    first.
    """

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
    serial: Serial | None = None  # of what the service has written back
    batch: int | None = None  # where the batch begins with which it was rejected
    moved_by: int | None = None  # offset of the user's last reschedule of it
    carried: CarriedRecord | None = None  # by a carry, whose other fields are then those of its row
    kept: int = int(Kept.ALL)  # of a reject, by who has it wait


_FEW_FROM: Final = Meaning._fields.index("expire_at_ms")
_PLAIN: Final = Meaning(SCHEDULE, attempt=1)[_FEW_FROM:]
"""These fields, as all but few requests have them."""
_SPARK_TYPES: Final = {
    "kind": "string",
    "id": "string",
    "scheduled_for_ms": "long",
    "due_ms": "long",
    "target_topic": "string",
    "target_key": "binary",
    "target_partition": "int",
    "expire_at_ms": "long",
    "parent": "long",
    "root": "string",
    "attempt": "int",
    "occurrence": "long",
    "recurrence": "struct<cron: string, interval_ms: long, factor_permille: int, time_zone: string, "
    "times: long, until_ms: long, missed: string>",
    "keep": "boolean",
    "names": "long",
    "code": "string",
    "serial": "array<long>",
    "batch": "long",
    "moved_by": "long",
    "carried": "struct<offset: long, kind: string, key_sha: binary, value_sha: binary, key_bytes: int, "
    "value_bytes: int, headers: array<struct<key: string, value: binary>>, content: string>",
    "kept": "int",
}
"""Of each field of `Meaning`."""


def _columns(fields: Sequence[str]) -> str:
    return ", ".join(f"{name} {_SPARK_TYPES[name]}" for name in fields)


_MEANING: Final = (
    f"{_columns(Meaning._fields[:_FEW_FROM])}, few struct<{_columns(Meaning._fields[_FEW_FROM:])}>, "
    "headers_sha binary"
)
"""As it comes from Python, where each field takes its time: `few` is null where it would be `_PLAIN`."""


def requests(
    buffer: DataFrame,
    versions: SettingsVersions,
    keyring: Keyring,
    partitions: Mapping[str, int],
    rejected: RejectedBatches,
) -> DataFrame:
    """The buffer's records and what they ask for: `Meaning`'s columns, content digests, `source`, `lane`.
    Copies of what was written back are among them (see `without_copies`), and carries.

    `partitions`: how many each topic has.
    """
    header_keys, header_values = F.col("headers.key"), F.col("headers.value")
    parse = F.udf(_parser(versions, keyring, partitions, rejected), _MEANING)
    signed = F.when(F.arrays_overlap(header_keys, F.array(*map(F.lit, _SIGNED))), F.col("value"))
    meaning = parse(
        "partition",
        "offset",
        "timestamp_ms",
        "key",
        signed,
        F.coalesce(F.octet_length("value"), F.lit(0)),
        header_keys,
        header_values,
    )
    parsed = buffer.select(
        "partition",
        "offset",
        "timestamp_ms",
        (F.col("partition") % versions.settings.lanes).alias("lane"),
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
    common = [F.col(f"meaning.{name}") for name in Meaning._fields[:_FEW_FROM] if name != "target_key"]
    few = F.col("meaning.few")
    others = [
        (few[name] if plain is None else F.when(few.isNull(), plain).otherwise(few[name])).alias(name)
        for name, plain in zip(Meaning._fields[_FEW_FROM:], _PLAIN, strict=True)
    ]
    return parsed.select("*", *common, *others, target_key_sha, content).drop("meaning")


def source(topic: str, partition: str, offset: str) -> Column:
    """`topic/partition/offset`, the name of a record."""
    return F.concat_ws("/", topic, F.col(partition).cast("string"), F.col(offset).cast("string"))


def root_offset() -> Column:
    """Where the user's own request stands that a written-back one goes back to; null where it is none."""
    return F.substring_index("root", "/", -1).try_cast("long")


def beside_source(offset: str) -> Column:
    """What `source` names, at another offset of the same partition."""
    return F.concat_ws("/", F.substring_index("source", "/", 2), F.col(offset).cast("string"))


def _parser(
    versions: SettingsVersions, keyring: Keyring, partitions: Mapping[str, int], rejected: RejectedBatches
) -> Callable[..., tuple[Any, ...]]:
    names = ClusterNames(versions.settings.cluster)

    def parse(  # the columns of a record
        partition: int,
        offset: int,
        timestamp_ms: int,
        key: bytearray | None,
        value: bytearray | None,
        value_bytes: int,
        header_keys: Sequence[str],
        header_values: Sequence[bytearray | None],
    ) -> tuple[Any, ...]:
        values = [None if one is None else bytes(one) for one in header_values]
        headers = list(zip(header_keys, values, strict=True))
        raw_key = None if key is None else bytes(key)
        raw_value = None if value is None else bytes(value)
        record = LogRecord(partition, offset, timestamp_ms, raw_key, raw_value, headers)
        settings, readable = versions.settings_at(partition, offset), headers
        batch = rejected.first_offset(partition, offset)
        if batch is not None or len(headers) > MOST_HEADERS:
            meaning, readable = Meaning(REJECT, due_ms=timestamp_ms, code=RejectCode.UNDECODABLE), []
        elif _UNDECODABLE in "".join(header_keys):
            meaning, readable = Meaning(REJECT, due_ms=timestamp_ms, code=RejectCode.HEADER_KEY), []
        else:
            request = wire.parse(record, settings, names, keyring)
            if isinstance(request, wire.SettingsMark):
                request = wire.weighed_mark(request, record, versions)
            request = weighed(request, raw_key, value_bytes, headers, settings)
            meaning = _meaning(record, request, partitions)
            if meaning.code == RejectCode.DELAY_TOO_LONG:
                without_limit = replace(settings, max_delay_ms=_NO_LIMIT_MS)
                meaning = _of_chain(meaning, wire.parse(record, without_limit, names, keyring))
        if meaning.kind == REJECT:
            kept = kept_of(len(raw_key or b""), value_bytes, readable, settings)
            meaning = meaning._replace(kept=int(kept))
        few: tuple[Any, ...] | None = meaning[_FEW_FROM:]
        if batch is None and few == _PLAIN:
            few = None
        else:  # a plain string: Spark's own side knows none of our classes
            code = None if meaning.code is None else str(meaning.code)
            few = meaning._replace(code=code, batch=batch)[_FEW_FROM:]
        return (*meaning[:_FEW_FROM], few, headers_digest_of(headers))

    return parse


def _meaning(record: LogRecord, request: wire.Request, partitions: Mapping[str, int]) -> Meaning:
    if isinstance(request, wire.Schedule):
        return _schedule(request, partitions)
    if isinstance(request, wire.Cancel):
        return Meaning(CANCEL, request.id, names=request.source)
    if isinstance(request, wire.Reject):
        return Meaning(REJECT, due_ms=record.timestamp_ms, code=request.code, serial=request.serial)
    if isinstance(request, wire.Carry):
        return _carry(request, partitions)
    if isinstance(request, wire.SettingsMark):
        return Meaning(MARK)
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


def _carry(request: wire.Carry, partitions: Mapping[str, int]) -> Meaning:
    """The meaning of its row. Of what a newer version has written, nothing but that."""
    try:
        due_ms, offset, raw = decode_carry(request.row)
    except NewerCarry as error:
        return Meaning(CARRY, code=str(error), serial=request.serial)
    row = decode_row(raw)
    meaning = _of_row(row, due_ms, partitions)
    return meaning._replace(kind=CARRY, serial=request.serial, carried=_record(offset, meaning.kind, row))


def _of_row(row: Row, due_ms: int, partitions: Mapping[str, int]) -> Meaning:
    if isinstance(row, RejectRow):
        return Meaning(REJECT, due_ms=due_ms, code=row.code)
    if isinstance(row, RescheduleRow):
        # The parent of one that was deferred again is another copy: that there is one is what counts.
        parent = None if row.root is None else parse_source(row.root)[2]
        return Meaning(
            RESCHEDULE,
            row.id,
            row.scheduled_for_ms,
            due_ms,
            expire_at_ms=row.expire_at_ms,
            parent=parent,
            root=row.root,
            attempt=row.attempt,
        )
    request = wire.Schedule(
        row.id,
        row.scheduled_for_ms,
        due_ms,
        row.target_topic,
        row.key if row.target_key is None else row.target_key[0],
        row.target_partition,
        row.expire_at_ms,
        row.headers,
        row.parent,
        row.root,
        row.attempt,
        row.occurrence,
        row.recurrence,
        moved_by=row.moved_by,
    )
    return _schedule(request, partitions)


def _record(offset: int, kind: str, row: Row) -> CarriedRecord:
    key_sha, value_sha = (None if one is None else sha256(one).digest() for one in (row.key, row.value))
    key_bytes, value_bytes = (None if one is None else len(one) for one in (row.key, row.value))
    is_whole = not (isinstance(row, RejectRow) and (row.code in SHORN or row.value is None))
    content = content_of(row.key, row.value, row.headers) if is_whole else None
    return CarriedRecord(offset, kind, key_sha, value_sha, key_bytes, value_bytes, row.headers, content)


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


def without_copies(
    asked: DataFrame,
    numbered: DataFrame,
    versions: SettingsVersions,
    serials: Mapping[int, Serial] = NO_SERIALS,
) -> DataFrame:
    """The same, without copies of what the service has written back, which are nothing to the nodes: of these
    the serial is not above all before it (docs/design.md, rule 4). In the first meaning they are rejects.

    `numbered`: the requests, and those of aborted transactions, which may have been copied as well. Few
    records have a serial. `serials`: of each partition the highest one before these.
    """
    before = Window.partitionBy("partition").orderBy("offset").rowsBetween(Window.unboundedPreceding, -1)
    numbered = numbered.filter(F.col("serial").isNotNull()).select("partition", "offset", "serial")
    known = [(partition, -1, list(serial)) for partition, serial in serials.items()]
    if known:
        numbered = numbered.unionByName(
            numbered.sparkSession.createDataFrame(known, "partition int, offset long, serial array<long>")
        )
    last = numbered.withColumn("last", F.max("serial").over(before))
    copies = last.filter(F.col("serial") <= F.col("last")).select(
        "partition", "offset", F.lit(True).alias("copy")
    )
    found = asked.join(F.broadcast(copies), ["partition", "offset"], "left")
    if all(version.settings.meaning > FIRST_MEANING for version in versions.all):
        return found.filter(F.col("copy").isNull()).drop("copy")
    is_reject = F.udf(
        lambda partition, offset: versions.settings_at(partition, offset).meaning == FIRST_MEANING, "boolean"
    )
    kept = found.filter(F.col("copy").isNull() | is_reject("partition", "offset"))
    as_a_reject = {
        "kind": F.lit(REJECT),
        "due_ms": F.col("timestamp_ms"),
        "code": F.lit(RejectCode.BAD_PARENT),
        "keep": F.lit(False),
        **{name: F.lit(None) for name in _NOT_A_REJECTS},
    }
    return kept.select(
        *(
            F.when(F.col("copy"), as_a_reject[name]).otherwise(F.col(name)).alias(name)
            if name in as_a_reject
            else F.col(name)
            for name in asked.columns
        )
    )


_NOT_A_REJECTS = (
    *("id", "scheduled_for_ms", "target_topic", "target_partition", "expire_at_ms", "target_key_sha"),
    *("parent", "root", "attempt", "occurrence", "recurrence", "moved_by"),
)


def _target_partition(request: wire.Schedule, partitions: int | None) -> int | None:
    if request.target_partition != wire.BY_KEY:
        return request.target_partition
    if request.target_key is None or partitions is None:
        return None
    return partition_for(request.target_key, partitions)
