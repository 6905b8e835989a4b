"""What of some records is not in the buffer yet."""

from __future__ import annotations

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

_DIGEST = "digest"


def lacking(records: DataFrame, sent: DataFrame) -> DataFrame:
    """The records that are not among `sent`, records of the buffer. Two are the same if key, value and
    headers are, wherever they stand.
    """
    there = sent.select(_digest().alias(_DIGEST)).distinct()
    return records.withColumn(_DIGEST, _digest()).join(there, _DIGEST, "left_anti").drop(_DIGEST)


def _digest() -> Column:
    """SHA-256 of all three, with their lengths: no two of them are alike."""
    headers = F.aggregate(F.col("headers"), F.lit(b""), _with_header)
    return F.sha2(F.concat(_sized(F.col("key")), _sized(F.col("value")), headers), 256)


def _with_header(before: Column, header: Column) -> Column:
    return F.concat(before, _sized(F.encode(header["key"], "UTF-8")), _sized(header["value"]))


def _sized(of: Column) -> Column:
    """A length of -1: null."""
    length = F.coalesce(F.octet_length(of), F.lit(-1)).cast("string")
    return F.concat(F.encode(length, "UTF-8"), F.lit(b":"), F.coalesce(of, F.lit(b"")))
