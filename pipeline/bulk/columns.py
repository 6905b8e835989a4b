"""The columns of a frame of requests, and what may stand in each.

Whatever the user's own types are, each column becomes the text of its header (docs/wire-format.md): so the
rules of the wire format are checked on what is sent.
"""

from __future__ import annotations

from collections.abc import Mapping
from difflib import get_close_matches
from enum import Enum
from typing import Final, NamedTuple

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F
from pyspark.sql.types import (
    ArrayType,
    BinaryType,
    DataType,
    DayTimeIntervalType,
    DecimalType,
    FractionalType,
    IntegralType,
    MapType,
    NullType,
    StringType,
    StructType,
    TimestampType,
)

from delayline import headers as h
from pipeline.bulk.times import interval_ms, moment_ms
from pipeline.errors import WrongInput

HEADERS_TYPE: Final = "array<struct<key: string, value: binary>>"


class Kind(Enum):
    """What a column may be. Its value says it to the user."""

    TEXT = "a string, or a whole number"
    NUMBER = "a whole number, or a string of digits"
    FACTOR = "a number, or a string such as 1.5"
    TIME = "a timestamp, epoch milliseconds as a whole number, or a string of them or of RFC 3339"
    DURATION = "a day-time interval, milliseconds as a whole number, or a string such as 1h30m"
    DATA = "a string or binary"
    HEADERS = "a map from string to string or binary, or an array of structs of key and value"


class RequestColumn(NamedTuple):
    """One column: its kind, and the header that it becomes; None: it is no header."""

    kind: Kind
    header: str | None
    meaning: str


COLUMNS: Final[Mapping[str, RequestColumn]] = {
    "op": RequestColumn(Kind.TEXT, h.H_OP, "schedule (also where it is null), cancel or reschedule"),
    "target": RequestColumn(Kind.TEXT, h.H_TARGET_TOPIC, "topic to deliver to"),
    "partition": RequestColumn(Kind.NUMBER, h.H_TARGET_PARTITION, "of the target; null: by the key"),
    "due": RequestColumn(Kind.TIME, h.H_DELIVER_AT, "when to deliver"),
    "delay": RequestColumn(Kind.DURATION, h.H_AFTER, "how long to wait from when the broker has the request"),
    "level": RequestColumn(Kind.NUMBER, h.H_LEVEL, "an entry of the cluster's level table"),
    "id": RequestColumn(Kind.TEXT, h.H_ID, "a name for the message; null: one is made"),
    "if_exists": RequestColumn(Kind.TEXT, h.H_IF_EXISTS, "keep (also where it is null) or replace"),
    "source": RequestColumn(Kind.TEXT, h.H_SOURCE, "of a cancel, instead of an id: topic/partition/offset"),
    "key": RequestColumn(Kind.DATA, None, "of the delivered message"),
    "value": RequestColumn(Kind.DATA, None, "of the delivered message"),
    "headers": RequestColumn(Kind.HEADERS, None, "of the delivered message"),
    "expire_at": RequestColumn(Kind.TIME, h.H_EXPIRE_AT, "not worth delivering after this"),
    "interval": RequestColumn(Kind.DURATION, h.H_INTERVAL, "from one delivery to the next"),
    "interval_factor": RequestColumn(Kind.FACTOR, h.H_INTERVAL_FACTOR, "by which the interval grows"),
    "cron": RequestColumn(Kind.TEXT, h.H_CRON, "deliver when it fires"),
    "time_zone": RequestColumn(Kind.TEXT, h.H_TIME_ZONE, "of the cron expression; null: UTC"),
    "times": RequestColumn(Kind.NUMBER, h.H_TIMES, "deliveries in all"),
    "until": RequestColumn(Kind.TIME, h.H_UNTIL, "no delivery after this"),
    "missed": RequestColumn(Kind.TEXT, h.H_MISSED, "all (also where it is null), latest or skip"),
}
TIMES: Final = ("due", "delay", "level")
CRON_FLAW: Final = "cron_flaw"
"""The column that says what is wrong with `cron`; null: nothing."""


def ms_of(name: str) -> str:
    """The column that has a time or a duration in milliseconds."""
    return f"{name}_ms"


class Value(NamedTuple):
    """What a column has: the text of its header, or data; of a time or a duration that is a number, the
    milliseconds (long), too.
    """

    text: Column
    ms: Column | None = None


def header_values(frame: DataFrame, mapping: Mapping[str, str]) -> dict[str, Value]:
    """The columns of requests that a frame has, as expressions over it: headers as text, `key` and `value` as
    binary, `headers` as `HEADERS_TYPE`.

    `mapping`: of each column that the frame has under no such name, an expression of SQL. Raises
    `WrongInput` for a name, an expression or a type that cannot be meant.
    """
    named = {name: F.col(f"`{name}`") for name in frame.columns if name in COLUMNS}
    mapped = {name: F.expr(expression) for name, expression in mapping.items()}
    _require_known([*mapping, *([] if mapping else frame.columns)])
    wanted = named | mapped
    types = frame.select(*(column.alias(name) for name, column in wanted.items())).schema
    return {name: _value(name, wanted[name], types[name].dataType) for name in COLUMNS if name in wanted}


def _require_known(names: list[str]) -> None:
    for name in names:
        if name not in COLUMNS:
            near = get_close_matches(name, COLUMNS, 1)
            meant = f"is {near[0]} meant? " if near else ""
            raise WrongInput(
                f"column {name!r} is none of a request: {meant}The columns are {', '.join(COLUMNS)}; "
                "leave out what is none of them, or say which it is"
            )


def _value(name: str, column: Column, of: DataType) -> Value:
    kind = COLUMNS[name].kind
    ms = _ms(kind, column, of)
    if ms is not None:
        unit = "ms" if kind is Kind.DURATION else ""
        return Value(F.concat(ms.cast("string"), F.lit(unit)), F.when(ms >= 0, ms))
    text = _data(kind, column, of) if kind in {Kind.DATA, Kind.HEADERS} else _text(kind, column, of)
    if text is None:
        raise WrongInput(f"column {name!r} is of the type {of.simpleString()}: use {kind.value}")
    return Value(text)


def _ms(kind: Kind, column: Column, of: DataType) -> Column | None:
    """None: it is no number of milliseconds."""
    if kind is Kind.TIME and isinstance(of, TimestampType):
        return moment_ms(column)
    if kind is Kind.DURATION and isinstance(of, DayTimeIntervalType):
        return interval_ms(column)
    return (
        column.cast("long") if kind in {Kind.TIME, Kind.DURATION} and isinstance(of, IntegralType) else None
    )


def _data(kind: Kind, column: Column, of: DataType) -> Column | None:
    if isinstance(of, NullType):
        return column.cast(HEADERS_TYPE if kind is Kind.HEADERS else "binary")
    if kind is Kind.HEADERS:
        return _headers(column, of)
    return column.cast("binary") if isinstance(of, (StringType, BinaryType)) else None


def _text(kind: Kind, column: Column, of: DataType) -> Column | None:
    """None: no column of the kind has this type."""
    if kind is Kind.FACTOR and isinstance(of, (FractionalType, DecimalType)):
        return _decimal_text(column)
    return column.cast("string") if isinstance(of, (StringType, IntegralType, NullType)) else None


def _decimal_text(column: Column) -> Column:
    """Without the zeros that a type may have behind the point."""
    return F.regexp_replace(F.regexp_replace(column.cast("string"), r"(\.[0-9]*?)0+\z", "$1"), r"\.\z", "")


def _headers(column: Column, of: DataType) -> Column | None:
    if isinstance(of, MapType):
        return _headers(F.map_entries(column), ArrayType(_struct_of(of)))
    if not isinstance(of, ArrayType) or not isinstance(of.elementType, StructType):
        return None
    fields = {field.name: field.dataType for field in of.elementType.fields}
    if set(fields) != {"key", "value"} or not isinstance(fields["key"], StringType):
        return None
    if not isinstance(fields["value"], (StringType, BinaryType, NullType)):
        return None
    return column.cast(HEADERS_TYPE)


def _struct_of(of: MapType) -> StructType:
    return StructType().add("key", of.keyType).add("value", of.valueType)
