"""From a frame of requests to records of the buffer, and the rows that the service would reject."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Final

from pyspark.sql import Column, DataFrame, Window
from pyspark.sql import functions as F

from delayline.recurrence import parse_cron
from delayline.settings import ClusterSettings
from delayline.times import now_ms as clock_ms
from delayline.times import parse_duration
from pipeline.bulk.asked import Asked
from pipeline.bulk.columns import COLUMNS, CRON_FLAW, HEADERS_TYPE, header_values, ms_of
from pipeline.bulk.first import FIRST_MS, with_first
from pipeline.bulk.rules import Verdict
from pipeline.bulk.times import time_of
from pipeline.errors import WrongInput

REJECT_CODE, REJECT_DETAIL, TARGET = "reject_code", "reject_detail", "target"
CHANGES: Final = "changes"
"""Whether a row replaces or reschedules what has its id."""
_DIGEST_LENGTH: Final = 32
_TO_THE_MICROSECOND: Final = {
    "timestampFormat": "yyyy-MM-dd'T'HH:mm:ss.SSSSSSXXX",
    "timestampNTZFormat": "yyyy-MM-dd'T'HH:mm:ss.SSSSSS",
    "timeZone": "UTC",
}
"""Whatever the session's own settings are: the same row has the same digest again."""
_MOMENTS: Final = ("due", "expire_at", "until")
_INPUT, _RULE = "input", "rule"
_RECORD: Final = ("key", "value", "headers", "partition")


@dataclass(frozen=True, slots=True)
class Requests:
    """What a frame asks for.

    `records`: `key` and `value` (binary), `headers` (array of key and value), and, if the frame has sources,
    `partition` (int; null: by the key, as Kafka's Java client does it), as Spark's Kafka sink takes them.
    `rejected`: the frame's own columns of each row that the service would reject, with `reject_code` (string;
    docs/wire-format.md) and `reject_detail` (string).
    """

    records: DataFrame
    rejected: DataFrame


def requests(
    frame: DataFrame,
    settings: ClusterSettings,
    *,
    job: str,
    columns: Mapping[str, str] | None = None,
    now_ms: int | None = None,
) -> Requests:
    """What a frame asks of a cluster with these settings. Nothing is computed yet.

    Args:
        frame: one request a row, in the columns of `pipeline.bulk.columns.COLUMNS`.
        settings: of the cluster.
        job: a name for what is asked. A schedule without an id gets one, made of the job's name and the row:
            equal rows are counted. The same frame gives the same ids again.
        columns: for columns of other names, what stands for which: an expression of SQL for each.
        now_ms: since when a delay counts; by default, now.

    Raises:
        WrongInput: a column that is none of a request, or cannot be read as one.
    """
    return split(judged(frame, settings, job, columns or {}, clock_ms() if now_ms is None else now_ms))


def split(rows: DataFrame) -> Requests:
    """What was judged, as records and as rows that are rejected."""
    is_sound = F.col(REJECT_CODE).isNull()
    return Requests(
        rows.where(is_sound).select(*(name for name in rows.columns if name in _RECORD)),
        rows.where(~is_sound).select(f"{_INPUT}.*", REJECT_CODE, REJECT_DETAIL),
    )


def judged(
    frame: DataFrame, settings: ClusterSettings, job: str, columns: Mapping[str, str], now_ms: int
) -> DataFrame:
    """Each row, as `input`, with the record that it becomes, why that would be rejected (null: it would
    not), its `target`, when it is delivered first (`first_ms`; null: nobody knows), and whether it `changes`
    what has its id.
    """
    _require_free(frame)
    rows = _rows(frame, job, columns, settings, now_ms)
    asked = Asked({name: F.col(name) for name in rows.columns if name in COLUMNS})
    verdict, rule = Verdict(asked, settings, now_ms), F.col(_RULE)
    return rows.withColumn(_RULE, verdict.rule()).select(
        _INPUT,
        verdict.code(rule).alias(REJECT_CODE),
        verdict.detail(rule).alias(REJECT_DETAIL),
        asked.text("target").alias(TARGET),
        F.when(~asked.is_cancel & ~asked.has("cron"), F.col(FIRST_MS)).alias(FIRST_MS),
        asked.changes().alias(CHANGES),
        *_record(asked),
    )


def _rows(
    frame: DataFrame, job: str, columns: Mapping[str, str], settings: ClusterSettings, now_ms: int
) -> DataFrame:
    """Each row of the frame, as `input`, with the texts of its headers and what they say."""
    values = header_values(frame, columns)
    own = F.struct(*(F.col(f"`{name}`") for name in frame.columns)).alias(_INPUT)
    numbers = {name: value.ms for name, value in values.items() if value.ms is not None}
    texts = (value.text.alias(name) for name, value in values.items())
    rows = frame.select(own, *texts, *(ms.alias(ms_of(name)) for name, ms in numbers.items()))
    for name, read in _READ_ONCE.items():
        if name in values and name not in numbers:
            rows = _with_what_is_read(rows, name, *read)
    for name in _MOMENTS:
        if name in values and name not in numbers:
            rows = rows.withColumn(ms_of(name), time_of(F.col(name)))
    return with_first(_with_ids(rows, job), values, settings, now_ms)


def made_id_pattern(job: str) -> str:
    """What the ids are like that are made for a job's rows, as Java's patterns have it."""
    return rf"^\Q{job}\E/[0-9a-f]{{{_DIGEST_LENGTH}}}/[0-9]+\z"


def _require_free(frame: DataFrame) -> None:
    for name in (REJECT_CODE, REJECT_DETAIL):
        if name in frame.columns:
            raise WrongInput(f"column {name!r} is where what is wrong is said: rename yours")


def _with_ids(rows: DataFrame, job: str) -> DataFrame:
    """A schedule that has no id has one made. Those that have one are not sorted for that."""
    given = rows if "id" in rows.columns else rows.withColumn("id", F.lit(None).cast("string"))
    needs = Asked({name: F.col(name) for name in ("op",) if name in rows.columns}).is_schedule
    needs &= F.col("id").isNull()
    return given.where(~needs).unionByName(_with_made_ids(given.where(needs), job))


def _with_made_ids(rows: DataFrame, job: str) -> DataFrame:
    names = sorted(rows.select(f"{_INPUT}.*").columns)
    row = F.struct(*(F.col(_INPUT)[name].alias(name) for name in names))
    text = F.to_json(row, _TO_THE_MICROSECOND)  # without what is null: another column changes nothing
    digested = rows.withColumn("digest", F.substring(F.sha2(text, 256), 1, _DIGEST_LENGTH))
    equal = Window.partitionBy("digest").orderBy("digest")
    made = F.concat_ws("/", F.lit(job), F.col("digest"), F.row_number().over(equal).cast("string"))
    return digested.withColumn("id", made).drop("digest")


def _with_what_is_read(
    rows: DataFrame, text: str, read: str, reads: Callable[[str], object], type_: str
) -> DataFrame:
    """Python reads the texts of a column, each of them once: there are far fewer of them than rows."""
    texts = rows.select(text).where(F.col(text).isNotNull()).distinct()
    return rows.join(texts.withColumn(read, F.udf(reads, type_)(text)), text, "left")


def _cron_flaw(text: str) -> str | None:
    try:
        parse_cron(text.encode())
    except ValueError as error:
        return str(error)
    return None


def _duration_ms(text: str) -> int | None:
    try:
        return parse_duration(text.encode())
    except ValueError:
        return None


_READ_ONCE: Final = {
    "delay": (ms_of("delay"), _duration_ms, "long"),
    "interval": (ms_of("interval"), _duration_ms, "long"),
    "cron": (CRON_FLAW, _cron_flaw, "string"),
}


def _record(asked: Asked) -> list[Column]:
    """Key, value and headers; the partition where a cancel names a source, which is in it."""
    record = [
        F.col("id").cast("binary").alias("key"),
        F.when(asked.is_schedule, asked.data("value")).alias("value"),
        _headers(asked).alias("headers"),
    ]
    for name in asked.present("source"):
        of_source = F.split_part(asked.text(name), F.lit("/"), F.lit(2)).try_cast("int")
        record.append(F.when(asked.is_by_source, of_source).alias("partition"))
    return record


def _headers(asked: Asked) -> Column:
    """The user's own, then the service's."""
    parts = [F.when(asked.is_schedule, asked.text(name)) for name in asked.present("headers")]
    for key, value, is_sent in asked.sent_headers():
        pair = F.struct(F.lit(key).alias("key"), value.cast("binary").alias("value"))
        parts.append(F.when(is_sent, F.array(pair)))
    return F.concat(*(F.coalesce(part, F.array().cast(HEADERS_TYPE)) for part in parts))
