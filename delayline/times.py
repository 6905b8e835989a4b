"""Times and durations as they stand in headers, in whole milliseconds.

Strict on purpose: what is read here decides when a message is delivered, so nothing is guessed. Numbers are
ASCII digits without sign, space or underscore; a time without an offset is refused; whatever is finer than a
millisecond rounds up, so that nothing is early.
"""

from __future__ import annotations

import re
import time
from datetime import UTC, datetime, timedelta
from functools import lru_cache
from typing import Final

MAX_MS: Final = 2**63 - 1
# Longer than any time or duration that means something; it keeps a hostile header from costing anything.
_MAX_LENGTH = 64
_MAX_DIGITS = len(str(MAX_MS))

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_SECOND = timedelta(seconds=1)
_MILLISECOND = timedelta(milliseconds=1)

SECOND_MS: Final = 1_000
MINUTE_MS: Final = 60 * SECOND_MS
HOUR_MS: Final = 60 * MINUTE_MS
DAY_MS: Final = 24 * HOUR_MS
_WEEK_MS = 7 * DAY_MS

_RFC3339 = re.compile(
    rb"(\d{4}-\d\d-\d\d[Tt](?:[01]\d|2[0-3]):[0-5]\d:[0-5]\d)(?:\.(\d+))?"
    rb"(?:[Zz]|([+-])([01]\d|2[0-3]):([0-5]\d))"
)
_NUMBER = rb"(\d+(?:\.\d+)?)"
_SHORT = re.compile(rb"(?:%(n)sd)?(?:%(n)sh)?(?:%(n)sm)?(?:%(n)ss)?(?:%(n)sms)?" % {b"n": _NUMBER})
_SHORT_UNITS = (DAY_MS, HOUR_MS, MINUTE_MS, SECOND_MS, 1)
_ISO_NUMBER = rb"(\d+(?:[.,]\d+)?)"
_ISO = re.compile(
    rb"P(?:%(n)sW|(?:%(n)sD)?(?:T(?=\d)(?:%(n)sH)?(?:%(n)sM)?(?:%(n)sS)?)?)" % {b"n": _ISO_NUMBER}
)
_ISO_UNITS = (_WEEK_MS, DAY_MS, HOUR_MS, MINUTE_MS, SECOND_MS)

_TIME_HELP = "write epoch milliseconds (1767225600000) or RFC 3339 with an offset (2026-01-01T00:00:00Z)"
_DURATION_HELP = "write 1500ms, 90s, 1h30m, 2d or ISO 8601 (PT30M)"


def now_ms() -> int:
    """Epoch milliseconds by this machine's clock."""
    return time.time_ns() // 1_000_000


def parse_time(text: bytes) -> int:
    """Epoch milliseconds from decimal digits or RFC 3339; ValueError says what to write instead.

    The time is 1970 or later. A leap second (:60) is refused: epoch time has no number for it.
    """
    # bytes.isdigit() knows ASCII digits only; int() alone would take "+5", " 5", "1_000" and Unicode digits.
    if text.isdigit() and len(text) <= _MAX_DIGITS and (ms := int(text)) <= MAX_MS:
        return ms
    match = _RFC3339.fullmatch(text) if len(text) <= _MAX_LENGTH else None
    if match is None:
        raise ValueError(_TIME_HELP)
    return _rfc3339_ms(match)


def parse_duration(text: bytes) -> int:
    """Milliseconds from `1h30m` or ISO 8601 `PT1H30M`; ValueError says what to write instead.

    Units from large to small, each once; only the smallest one may have a fraction. Years and months have no
    fixed length and are refused, and so is a number without a unit.
    """
    if len(text) > _MAX_LENGTH:  # before the cache, which would keep it
        raise ValueError(_DURATION_HELP)
    return _duration_ms(text)


@lru_cache(maxsize=4096)  # an application asks for the same few delays again and again
def _duration_ms(text: bytes) -> int:
    iso = text.startswith(b"P")
    match = (_ISO if iso else _SHORT).fullmatch(text)
    parts = [
        (number, unit)
        for number, unit in zip(
            match.groups() if match else (), _ISO_UNITS if iso else _SHORT_UNITS, strict=False
        )
        if number is not None
    ]
    if not parts or any(not number.isdigit() for number, _ in parts[:-1]):
        raise ValueError(_DURATION_HELP)
    return _bounded(sum(_scaled(number, unit) for number, unit in parts))


def parse_number(text: bytes, most: int) -> int:
    """0 to `most` in decimal ASCII digits; ValueError for anything else."""
    if text.isdigit() and len(text) <= _MAX_DIGITS and (number := int(text)) <= most:
        return number
    raise ValueError(f"write a number from 0 to {most} in plain digits")


def render_time(epoch_ms: int) -> str:
    """RFC 3339 in UTC with milliseconds; ValueError after year 9999."""
    try:
        moment = _EPOCH + epoch_ms * _MILLISECOND
    except OverflowError:
        raise ValueError(f"{epoch_ms} ms is after year 9999: RFC 3339 has no name for it") from None
    return moment.replace(tzinfo=None).isoformat(timespec="milliseconds") + "Z"


def render_duration(duration_ms: int) -> str:
    """The short form, `1h30m`, with every unit that is not zero; `0s` for none."""
    rest, text = duration_ms, ""
    for unit, name in zip(_SHORT_UNITS, ("d", "h", "m", "s", "ms"), strict=True):
        count, rest = divmod(rest, unit)
        if count:
            text += f"{count}{name}"
    return text or "0s"


def epoch_ms(moment: datetime) -> int:
    """Epoch milliseconds of an aware datetime, rounded up; ValueError for a naive one or one before 1970."""
    if moment.utcoffset() is None:
        raise ValueError(
            f"{moment!r} has no time zone, so it is no moment: use datetime.now(UTC), or .replace(tzinfo=...)"
        )
    elapsed: timedelta = moment - _EPOCH
    return _not_negative(-(-elapsed // _MILLISECOND), f"{moment!r} is before 1970")


def duration_ms(duration: timedelta) -> int:
    """Milliseconds of a timedelta, rounded up; ValueError for a negative one."""
    rounded_up: int = -(-duration // _MILLISECOND)
    return _not_negative(rounded_up, f"{duration!r} is negative: a delay is 0 or more")


def _rfc3339_ms(match: re.Match[bytes]) -> int:
    moment, fraction, sign, hours, minutes = match.groups()
    try:
        elapsed = datetime.fromisoformat(moment.decode() + "+00:00") - _EPOCH
    except ValueError:
        raise ValueError(f"no such day: {_TIME_HELP}") from None
    ms = elapsed // _SECOND * SECOND_MS
    if fraction is not None:
        ms += _scaled(b"0." + fraction, SECOND_MS)
    if sign is not None:
        offset_ms = int(hours) * HOUR_MS + int(minutes) * MINUTE_MS
        ms += offset_ms if sign == b"-" else -offset_ms
    return _not_negative(ms, "before 1970")


def _scaled(number: bytes, unit_ms: int) -> int:
    """`number` (digits, perhaps a fraction) times the unit, exactly, rounded up."""
    whole, _, fraction = number.replace(b",", b".").partition(b".")
    if not fraction:
        return int(whole) * unit_ms
    denominator: int = 10 ** len(fraction)
    return int(whole) * unit_ms - (-int(fraction) * unit_ms // denominator)


def _bounded(ms: int) -> int:
    if ms > MAX_MS:
        raise ValueError(f"longer than {MAX_MS} ms")
    return ms


def _not_negative(ms: int, otherwise: str) -> int:
    if ms < 0:
        raise ValueError(otherwise)
    return ms
