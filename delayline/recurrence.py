"""Recurring messages: what a request can say of them, and when the next delivery is due.

Reading a request is a function of its headers alone. When an occurrence falls due is another matter: a time
zone's rules change, so only the leader computes it, once, and writes it down (`next_turn`).
"""

from __future__ import annotations

import re
from datetime import UTC, datetime, tzinfo
from functools import lru_cache
from typing import Final, NamedTuple
from zoneinfo import ZoneInfo

from cronsim import CronSimError

from delayline.cron_days import Cron
from delayline.headers import (
    H_CRON,
    H_ID,
    H_INTERVAL,
    H_INTERVAL_FACTOR,
    H_MISSED,
    H_TIME_ZONE,
    H_TIMES,
    H_UNTIL,
    Header,
)
from delayline.times import DAY_MS

CRON_MAX_LENGTH: Final = 128
SHORTEST_MS: Final = 1_000
SAME_INTERVAL: Final = 1_000
LARGEST_FACTOR: Final = 1_000 * SAME_INTERVAL

MOST_TIMES: Final = 1_000_000
"""Deliveries that a request may ask for."""

NO_END: Final = f"it would never end: give it {H_ID}, {H_TIMES} or {H_UNTIL}"

ALL, LATEST, SKIP = "all", "latest", "skip"
MISSED: Final = (ALL, LATEST, SKIP)

_FACTOR = re.compile(rb"(\d{1,4})(?:\.(\d{1,3}))?")
_ZONE = re.compile(r"[A-Za-z][A-Za-z0-9_+-]*(?:/[A-Za-z0-9_+-]+)*")
_SOME_DAY: Final = datetime(2000, 1, 1, tzinfo=UTC)
_LAST_AFTER_S: Final = int(datetime(9900, 1, 1, tzinfo=UTC).timestamp())  # datetime ends soon after it
_WITHOUT_SECONDS: Final = 5
MOST_PASSED: Final = 1_000
"""Growing intervals between the start and the request, at most: each of them is counted where it is read."""


MOST_MISSED: int = 10_000
"""Missed occurrences that are delivered one by one, or a few more. The simulation makes it less."""


class UnknownTimeZoneError(Exception):
    """A time zone is not in this node's database; another node's, or a later one, may have it."""


class Recurrence(NamedTuple):
    """How a message comes again: by a cron expression, or after an interval."""

    cron: str | None
    interval_ms: int  # from this occurrence to the next one; 0 beside a cron expression
    factor_permille: int  # by which the interval grows each time
    time_zone: str | None  # of the cron expression; None: UTC
    times: int | None  # deliveries in all; None: no limit
    until_ms: int | None  # none after this
    missed: str  # what becomes of occurrences that another one has overtaken: see `next_turn`

    @property
    def ends(self) -> bool:
        """Whether it does by itself, without a cancel."""
        return self.times is not None or self.until_ms is not None


class Occurrence(NamedTuple):
    """One of a recurring message: which delivery it is, when, and how the message goes on from there."""

    number: int
    at_ms: int
    recurrence: Recurrence


class Turn(NamedTuple):
    """What a leader does with an occurrence that it has selected."""

    deliver_as_ms: int | None  # the time that it stands for; None: nothing is delivered
    following: Occurrence | None  # None: the chain ends


def parse_cron(text: bytes) -> str:
    """A cron expression that fires at some time; ValueError says what is wrong with it."""
    if len(text) > CRON_MAX_LENGTH:  # before the cache, which would keep it
        raise ValueError(f"write at most {CRON_MAX_LENGTH} characters")
    flaw = _cron_flaw(text)
    if flaw is not None:
        raise ValueError(flaw)
    return text.decode("ascii")


@lru_cache(maxsize=4096)
def _cron_flaw(text: bytes) -> str | None:
    try:
        cron = Cron(text.decode("ascii"), _SOME_DAY)
    except (UnicodeDecodeError, CronSimError) as error:
        why = "not ASCII" if isinstance(error, UnicodeDecodeError) else str(error).lower()
        return f"{why}; write minute hour day month weekday, such as 30 9 * * MON-FRI"
    return None if cron.fires() else "no day in fifty years is like that"


def parse_factor(text: bytes) -> int:
    """Permille from `2` or `1.5`; ValueError for anything else, below 1 or above 1000."""
    match = _FACTOR.fullmatch(text)
    if match is not None:
        whole, fraction = match.groups()
        permille = int(whole) * SAME_INTERVAL + int((fraction or b"").ljust(3, b"0"))
        if SAME_INTERVAL <= permille <= LARGEST_FACTOR:
            return permille
    raise ValueError("write 1 to 1000 with at most three decimals, such as 2 or 1.5")


def render_factor(permille: int) -> str:
    """What `parse_factor` reads as this."""
    whole, fraction = divmod(permille, SAME_INTERVAL)
    return f"{whole}.{fraction:03d}".rstrip("0").rstrip(".")


def parse_time_zone(text: bytes) -> str:
    """What may be the name of a time zone; whether it is one, the leader's database says."""
    name = text.decode("latin-1")
    if len(name) > CRON_MAX_LENGTH or _ZONE.fullmatch(name) is None:
        raise ValueError("write a name such as Europe/Berlin")
    return name


def recurrence_headers(recurrence: Recurrence) -> list[Header]:
    """How a message comes again, as `parse` reads it."""
    headers: list[Header] = []
    if recurrence.cron is not None:
        headers.append((H_CRON, recurrence.cron.encode()))
    else:
        headers.append((H_INTERVAL, b"%dms" % recurrence.interval_ms))
    if recurrence.factor_permille != SAME_INTERVAL:
        headers.append((H_INTERVAL_FACTOR, render_factor(recurrence.factor_permille).encode()))
    if recurrence.time_zone is not None:
        headers.append((H_TIME_ZONE, recurrence.time_zone.encode()))
    if recurrence.times is not None:
        headers.append((H_TIMES, b"%d" % recurrence.times))
    if recurrence.until_ms is not None:
        headers.append((H_UNTIL, b"%d" % recurrence.until_ms))
    if recurrence.missed != ALL:
        headers.append((H_MISSED, recurrence.missed.encode()))
    return headers


def first_of_interval(recurrence: Recurrence, start_ms: int, asked_ms: int) -> Occurrence | None:
    """The first one from the start, or if that was past when it was asked for, the next one after it; None if
    there is none any more.

    Raises `ValueError` for a growing interval of which too many have passed: they are counted one by one.
    """
    if start_ms >= asked_ms:
        return _within(1, start_ms, recurrence)
    at_ms, interval_ms = _stepped(recurrence, start_ms, asked_ms - 1, MOST_PASSED)
    return _within(1, at_ms + interval_ms, _grown(recurrence._replace(interval_ms=interval_ms)))


def first_turn(recurrence: Recurrence, start_ms: int) -> Turn:
    """Finds the first occurrence of a cron expression, at or after the start.

    Raises `UnknownTimeZoneError`.
    """
    at_ms = _next_fire_ms(recurrence, -(-start_ms // 1000) * 1000 - 1)  # it fires at whole seconds
    return Turn(None, _within(1, at_ms, recurrence))


def next_turn(current: Occurrence, now_ms: int) -> Turn:
    """What becomes of an occurrence that is due, and what follows it, which is later.

    It is *missed* if the next one is due already. The last one that is due has not been missed: it is
    delivered, and before it `all` delivers each that was missed; `latest` delivers it at once in their place;
    `skip` passes those that were missed, and it is what follows. `all` passes those of which it would be too
    many. Deliveries alone are counted.

    Raises `UnknownTimeZoneError`.
    """
    number, _, recurrence = current
    following = _following(current)
    missed_by_ms = now_ms - (MOST_MISSED * _mean_ms(recurrence) if recurrence.missed == ALL else 0)
    if following is not None and following.at_ms <= missed_by_ms:
        current = _latest(following, missed_by_ms)._replace(number=number)
        if recurrence.missed != LATEST:
            return Turn(None, current)
        following = _following(current)
    return Turn(current.at_ms, None if number == recurrence.times else following)


def _mean_ms(recurrence: Recurrence) -> int:
    """From one occurrence to the next: of cron, in the mean of a day on which it fires."""
    return recurrence.interval_ms if recurrence.cron is None else DAY_MS // _fires_in_a_day(recurrence.cron)


@lru_cache(maxsize=4096)
def _fires_in_a_day(cron: str) -> int:
    fires = Cron(cron, _SOME_DAY)
    return len(fires.seconds) * len(fires.minutes) * len(fires.hours)


def _following(occurrence: Occurrence) -> Occurrence | None:
    number, at_ms, recurrence = occurrence
    if recurrence.cron is not None:
        return _within(number + 1, _next_fire_ms(recurrence, at_ms), recurrence)
    return _within(number + 1, at_ms + recurrence.interval_ms, _grown(recurrence))


def _grown(recurrence: Recurrence) -> Recurrence:
    if recurrence.factor_permille == SAME_INTERVAL:
        return recurrence
    return recurrence._replace(interval_ms=_next_interval_ms(recurrence.interval_ms, recurrence))


def _next_interval_ms(interval_ms: int, recurrence: Recurrence) -> int:
    return -(-interval_ms * recurrence.factor_permille // SAME_INTERVAL)


def _within(number: int, at_ms: int | None, recurrence: Recurrence) -> Occurrence | None:
    if at_ms is None or (recurrence.until_ms is not None and at_ms > recurrence.until_ms):
        return None
    return Occurrence(number, at_ms, recurrence)


def _latest(occurrence: Occurrence, now_ms: int) -> Occurrence:
    """The last occurrence that is due, with the number of the given one, which is due and may be it."""
    number, at_ms, recurrence = occurrence
    by_ms = now_ms if recurrence.until_ms is None else min(now_ms, recurrence.until_ms)
    if recurrence.cron is not None:
        last_s = _last_fire_s(recurrence.cron, recurrence.time_zone, at_ms // 1000, by_ms // 1000)
        return occurrence._replace(at_ms=last_s * 1000)
    at_ms, interval_ms = _stepped(recurrence, at_ms, by_ms)
    return Occurrence(number, at_ms, recurrence._replace(interval_ms=interval_ms))


def _stepped(recurrence: Recurrence, at_ms: int, by_ms: int, most: int | None = None) -> tuple[int, int]:
    """The last occurrence by a time, and the interval after it. `ValueError`: it is more than `most` away."""
    interval_ms = recurrence.interval_ms
    if recurrence.factor_permille == SAME_INTERVAL:
        return at_ms + (by_ms - at_ms) // interval_ms * interval_ms, interval_ms
    steps = 0  # of growing intervals there are never so many that they must not be counted
    while at_ms + interval_ms <= by_ms:
        if steps == most:
            raise ValueError(f"the start is more than {most} growing intervals in the past: start later")
        at_ms += interval_ms
        interval_ms = _next_interval_ms(interval_ms, recurrence)
        steps += 1
    return at_ms, interval_ms


def _next_fire_ms(recurrence: Recurrence, after_ms: int) -> int | None:
    """When the cron expression fires next, after a time; None: in fifty years it does not."""
    assert recurrence.cron is not None, "the caller looked"
    fire_s = _next_fire_s(recurrence.cron, recurrence.time_zone, after_ms // 1000)
    return None if fire_s is None else fire_s * 1000


@lru_cache(maxsize=16384)  # the occurrences of a crowd ask the same
def _next_fire_s(cron: str, time_zone: str | None, after_s: int) -> int | None:
    if after_s > _LAST_AFTER_S:
        return None
    for fire in Cron(_as_debians(cron), datetime.fromtimestamp(after_s, _zone(time_zone))):
        fire_s = int(fire.astimezone(UTC).timestamp())
        if fire_s > after_s:  # it is not where clocks were set back: CronSim then begins with the hour before
            return fire_s
    return None


@lru_cache(maxsize=1024)
def _last_fire_s(cron: str, time_zone: str | None, at_s: int, by_s: int) -> int:
    """When it fires last, from the occurrence at `at_s` to `by_s`. Found by asking for the next one again and
    again, so that what follows it is later than `by_s`; backwards, CronSim errs where clocks are set back.
    """
    low_s, high_s = at_s, by_s  # it fires at `low_s`, and not between `high_s` and `by_s`
    following_s = _next_fire_s(cron, time_zone, low_s)
    probe_s = low_s if following_s is None else max(low_s, high_s - (following_s - low_s))
    while low_s < high_s:
        fire_s = _next_fire_s(cron, time_zone, probe_s)
        if fire_s is None or fire_s > high_s:
            high_s = probe_s
            probe_s = (low_s + high_s) // 2
        else:  # most often there is none after that; if there is, the rest is halved
            probe_s = fire_s if probe_s > low_s else (fire_s + high_s) // 2
            low_s = fire_s
    return low_s


def _as_debians(cron: str) -> str:
    """Without seconds that are 0: of six fields, CronSim does not do as Debian's cron where clocks change."""
    seconds, *others = cron.split()
    return " ".join(others) if len(others) == _WITHOUT_SECONDS and not seconds.strip("0") else cron


def _zone(time_zone: str | None) -> tzinfo:
    if time_zone is None:
        return UTC
    try:
        return ZoneInfo(time_zone)
    except (KeyError, OSError, ValueError):  # ZoneInfoNotFoundError is a KeyError
        raise UnknownTimeZoneError(f"{time_zone} is no time zone that this node knows") from None
