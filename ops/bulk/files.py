"""Where a bulk job's rows come from, and where those go that would be rejected."""

from __future__ import annotations

from collections.abc import Collection
from typing import Any, Final

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from ops.errors import ConfigError, ConflictError
from ops.pending.line import MessageLine
from pipeline.bulk.requests import REJECT_CODE, REJECT_DETAIL

_OPTIONS: Final = {
    # As RFC 4180 has it. What is no row ends the load: read as nulls, it might be sent.
    "csv": {
        "header": "true",
        "enforceSchema": "false",  # a file whose columns stand in another order ends it, too
        "multiLine": "true",
        "escape": '"',
        "ignoreLeadingWhiteSpace": "false",
        "ignoreTrailingWhiteSpace": "false",
        "mode": "FAILFAST",
    },
    # A type that is guessed from the values would change with them, and with it the ids that are made.
    "json": {"primitivesAsString": "true", "mode": "FAILFAST"},
    "parquet": {"mergeSchema": "true"},  # not whatever the file has that is listed first
    "orc": {"mergeSchema": "true"},
}
KINDS: Final = frozenset(("parquet", "csv", "json", "orc", "table"))


def require_place(option: str, text: str, kinds: Collection[str] = KINDS) -> None:
    """Raises ConfigError: it is no `kind:path`."""
    kind, _, place = text.partition(":")
    if kind not in kinds or not place:
        known = ", ".join(f"{one}:" for one in sorted(kinds))
        raise ConfigError(f"{option} {text!r}: write one of {known} and where")


def read(spark: SparkSession, place: str) -> DataFrame:
    """`kind:path`, or `table:name`. Of CSV the first line has the names, and all columns are text."""
    kind, _, where = place.partition(":")
    if kind == "table":
        return spark.read.table(where)
    return spark.read.format(kind).options(**_OPTIONS.get(kind, {})).load(where)


def write(frame: DataFrame, place: str) -> None:
    """Into a folder that is not there yet. Of CSV the first line has the names."""
    kind, _, where = place.partition(":")
    frame.write.format(kind).options(**_OPTIONS.get(kind, {})).save(where)


def require_free(spark: SparkSession, place: str) -> None:
    """Raises ConflictError: something is there, which is not to be written over."""
    # PySpark has no words of its own for this.
    jvm: Any = spark._jvm  # noqa: SLF001
    java: Any = spark.sparkContext._jsc  # noqa: SLF001
    where = jvm.org.apache.hadoop.fs.Path(place.partition(":")[2])
    if where.getFileSystem(java.hadoopConfiguration()).exists(where):
        raise ConflictError(f"{place} is there already: name another place, or take it away")


def require_no_export(frame: DataFrame, place: str) -> None:
    """Raises ConfigError: a row there may be several requests, and which they are depends on when they are
    sent; and what was imported before is known by its place in the export alone.
    """
    if set(MessageLine.__struct_fields__) <= set(frame.columns):
        raise ConfigError(
            f"--from {place!r}: that is an export of what waits in a cluster: 'delayline pending import'"
            " sends it, each message once"
        )


def with_op(frame: DataFrame, op: str) -> DataFrame:
    """All rows ask for that. Raises ConfigError if they say themselves what they ask for."""
    frame = frame.drop(REJECT_CODE, REJECT_DETAIL)  # of rows that were rejected, and are mended
    if "op" in frame.columns:
        raise ConfigError(f"column 'op' is there, and all rows are to {op}: leave it out")
    return frame.withColumn("op", F.lit(op))
