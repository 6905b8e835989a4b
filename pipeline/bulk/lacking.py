"""What of some records is not in the buffer yet."""

from __future__ import annotations

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

from delayline.headers import H_OP
from pipeline.bulk.requests import made_id_pattern

_SAME = "same"


def lacking(records: DataFrame, sent: DataFrame, job: str) -> DataFrame:
    """The records that are not among `sent`, records of the buffer. Two are the same if key, value and
    headers are, wherever they stand. Schedules with an id that the job has made are if that is: a column may
    be of the time at which it is read.
    """
    same = _same(job)
    there = sent.select(same.alias(_SAME)).distinct()
    return records.withColumn(_SAME, same).join(there, _SAME, "left_anti").drop(_SAME)


def _same(job: str) -> Column:
    """SHA-256 of what tells a record, with its lengths: no two of them are alike."""
    key, headers = _sized(F.col("key")), F.aggregate(F.col("headers"), F.lit(b""), _with_header)
    is_control = F.exists("headers", lambda header: header["key"] == H_OP)
    is_made = F.coalesce(F.col("key").cast("string").rlike(made_id_pattern(job)), F.lit(False)) & ~is_control
    told = F.when(is_made, key).otherwise(F.concat(key, _sized(F.col("value")), headers))
    return F.sha2(told, 256)


def _with_header(before: Column, header: Column) -> Column:
    return F.concat(before, _sized(F.encode(header["key"], "UTF-8")), _sized(header["value"]))


def _sized(of: Column) -> Column:
    """A length of -1: null."""
    length = F.coalesce(F.octet_length(of), F.lit(-1)).cast("string")
    return F.concat(F.encode(length, "UTF-8"), F.lit(b":"), F.coalesce(of, F.lit(b"")))
