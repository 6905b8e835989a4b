"""Times as the wire format reads them (delayline/times.py), in Spark's own expressions."""

from __future__ import annotations

from typing import Final

from pyspark.sql import Column
from pyspark.sql import functions as F

from delayline.times import DAY_MS, HOUR_MS, MAX_MS, MINUTE_MS, SECOND_MS

# `\z`: in Java's patterns `$` matches before a line's end, too.
_DIGITS: Final = r"^[0-9]{1,19}\z"
_RFC3339: Final = (
    r"^([0-9]{4}-[0-9]{2}-[0-9]{2})[Tt]((?:[01][0-9]|2[0-3]):[0-5][0-9]:[0-5][0-9])(?:\.([0-9]+))?"
    r"(?:[Zz]|([+-])([01][0-9]|2[0-3]):([0-5][0-9]))\z"
)
_MAX_LENGTH: Final = 64
MILLISECOND_US: Final = 1_000
_NUMBER: Final = "decimal(38,0)"


def time_of(text: Column) -> Column:
    """Epoch milliseconds of decimal digits or RFC 3339, what is finer rounded up; null if it is neither."""
    digits = F.when(text.rlike(_DIGITS), _long(text))
    moment = F.when(F.length(text) <= _MAX_LENGTH, _rfc3339_ms(text))
    ms = F.coalesce(digits, moment)
    return F.when(ms >= 0, ms)


def moment_ms(moment: Column) -> Column:
    """Of a timestamp: epoch milliseconds, rounded up."""
    return F.unix_millis(moment) + F.when(F.unix_micros(moment) % MILLISECOND_US > 0, 1).otherwise(0)


def interval_ms(interval: Column) -> Column:
    """Of a day-time interval: milliseconds, rounded up."""
    whole_s = F.extract(F.lit("DAY"), interval) * (DAY_MS // SECOND_MS)
    whole_s += F.extract(F.lit("HOUR"), interval) * (HOUR_MS // SECOND_MS)
    whole_s += F.extract(F.lit("MINUTE"), interval) * (MINUTE_MS // SECOND_MS)
    rest_s = F.extract(F.lit("SECOND"), interval)
    return whole_s * SECOND_MS + F.ceil(rest_s * SECOND_MS).cast("long")


def _long(digits: Column) -> Column:
    """Null above the largest long."""
    number = digits.try_cast(_NUMBER)
    return F.when(number <= MAX_MS, number).cast("long")


def _rfc3339_ms(text: Column) -> Column:
    def part(group: int) -> Column:
        return F.regexp_extract(text, _RFC3339, group)

    second = F.unix_seconds(F.try_to_timestamp(F.concat_ws("", part(1), F.lit(" "), part(2), F.lit("Z"))))
    fraction = part(3)
    thousandths = F.rpad(F.substring(fraction, 1, 3), 3, "0").try_cast("long")
    finer = F.substring(fraction, 4, _MAX_LENGTH).rlike("[1-9]").cast("long")
    offset_s = F.when(part(4) == "", F.lit(0)).otherwise(
        part(5).try_cast("long") * 3_600 + part(6).try_cast("long") * 60
    )
    utc_s = F.when(part(4) == "-", second + offset_s).otherwise(second - offset_s)
    return F.when(text.rlike(_RFC3339), utc_s * SECOND_MS + thousandths + finer)
