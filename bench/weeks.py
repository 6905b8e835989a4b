"""Weeks of requests to forecast from: seasons, bursts, outages, cancels and recurring messages, from a seed.

Nothing in it is known to the forecast. The times are of no real service: hours of the day and days of the
week weigh as people do, messages like to fall due at quarters of an hour, campaigns at full hours.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass
from random import Random
from typing import Any, Final

from delayline.times import DAY_MS, MINUTE_MS
from pipeline.forecast.horizon import HOUR_MS, WEEK_MS

BEGIN_MS: Final = 2_955 * WEEK_MS + 4 * DAY_MS  # a Monday: the epoch was a Thursday
QUARTER_MS: Final = 15 * MINUTE_MS
_HOURS: Final = (
    *(0.25, 0.18, 0.15, 0.14, 0.18, 0.35, 0.7, 1.2, 1.8, 2.1, 2.0, 1.8),
    *(1.6, 1.5, 1.5, 1.5, 1.6, 1.7, 1.6, 1.4, 1.1, 0.8, 0.55, 0.35),
)
_DAYS: Final = (1.1, 1.15, 1.15, 1.1, 1.2, 0.7, 0.6)
_TARGETS: Final = ("reminders", "billing", "retries", "mail", "push")
_GROWTH: Final = 0.02
"""A week."""
_CANCELLED, _MOVED = 0.06, 0.03
_CHAINS: Final = ((QUARTER_MS, 12), (HOUR_MS, 40), (DAY_MS, 300))


@dataclass(frozen=True, slots=True)
class Message:
    """`written_ms`: when it came into the log; of an occurrence later than when it was asked for."""

    asked_ms: int
    written_ms: int
    due_ms: int
    target: str
    gone_ms: int | None = None
    number: int | None = None
    every_ms: int | None = None


def weeks(seed: int, count: int, per_minute: float) -> Iterator[Message]:
    """All of them, in no order: what is asked for from `BEGIN_MS` on, in so many weeks."""
    random = Random(seed)
    end_ms = BEGIN_MS + count * WEEK_MS
    silent = _outages(random, count)
    for hour in range(count * 7 * 24):
        at_ms = BEGIN_MS + hour * HOUR_MS
        rate = per_minute * 60 * _season(hour) * random.lognormvariate(0, 0.08)
        for _ in range(_poisson(random, rate)):
            asked_ms = at_ms + random.randrange(HOUR_MS)
            if not any(begin <= asked_ms < end for begin, end in silent):
                yield from _message(random, asked_ms)
    yield from _campaigns(random, count, per_minute)
    yield from _recurring(random, end_ms)


def _season(hour: int) -> float:
    growth = math.pow(1 + _GROWTH, hour / (7 * 24))
    return _HOURS[hour % 24] * _DAYS[hour // 24 % 7] * growth


def _outages(random: Random, count: int) -> list[tuple[int, int]]:
    """When nobody could ask for anything: one to three hours, every other week."""
    found = []
    for week in range(0, count, 2):
        begin = BEGIN_MS + week * WEEK_MS + random.randrange(WEEK_MS)
        found.append((begin, begin + random.randrange(HOUR_MS, 3 * HOUR_MS)))
    return found


def _message(random: Random, asked_ms: int) -> Iterator[Message]:
    due_ms = asked_ms + _delay_ms(random, asked_ms)
    target = random.choices(_TARGETS, (5, 3, 3, 2, 1))[0]
    if random.random() < 0.03:
        target = f"small-{random.randrange(40)}"
    fate = random.random()
    if fate < _CANCELLED + _MOVED:
        gone_ms = random.randint(asked_ms, due_ms)
        yield Message(asked_ms, asked_ms, due_ms, target, gone_ms)
        if fate < _MOVED:
            yield Message(gone_ms, gone_ms, gone_ms + _delay_ms(random, gone_ms), target)
        return
    yield Message(asked_ms, asked_ms, due_ms, target)


def _delay_ms(random: Random, asked_ms: int) -> int:
    kind = random.random()
    if kind < 0.4:  # a retry, a reminder soon
        return min(DAY_MS, round(random.lognormvariate(math.log(10 * MINUTE_MS), 1.0)))
    if kind < 0.7:  # later today or tomorrow, at a quarter
        due_ms = asked_ms + random.randrange(HOUR_MS, DAY_MS)
        return -(-due_ms // QUARTER_MS) * QUARTER_MS - asked_ms
    if kind < 0.9:
        return DAY_MS
    return random.randrange(DAY_MS, WEEK_MS)


def _campaigns(random: Random, count: int, per_minute: float) -> Iterator[Message]:
    """One each Tuesday at 9, asked for the evening before; and three a week that nobody could foresee."""
    for week in range(count):
        begin_ms = BEGIN_MS + week * WEEK_MS
        known = (begin_ms + DAY_MS - 5 * HOUR_MS, begin_ms + DAY_MS + 9 * HOUR_MS, random.uniform(80, 120))
        sudden = []
        for _ in range(3):
            due_ms = begin_ms + random.randrange(7) * DAY_MS + random.randrange(8, 21) * HOUR_MS
            sudden.append(
                (due_ms - random.randrange(10 * MINUTE_MS, 2 * DAY_MS), due_ms, random.uniform(30, 150))
            )
        for asked_ms, due_ms, minutes in (known, *sudden):
            for _ in range(round(minutes * per_minute)):
                at_ms = max(BEGIN_MS, asked_ms) + random.randrange(MINUTE_MS)
                yield Message(at_ms, at_ms, due_ms + random.randrange(MINUTE_MS), "campaigns")


def _recurring(random: Random, end_ms: int) -> Iterator[Message]:
    """Chains that were asked for at some time, and go on."""
    for every_ms, chains in _CHAINS:
        for _ in range(chains):
            asked_ms = BEGIN_MS + random.randrange((end_ms - BEGIN_MS) // 2)
            first_ms = -(-asked_ms // MINUTE_MS) * MINUTE_MS + random.choice((0, QUARTER_MS))
            written_ms = asked_ms
            for number, due_ms in enumerate(range(first_ms, end_ms + WEEK_MS, every_ms), 1):
                yield Message(asked_ms, written_ms, due_ms, "jobs", None, number, every_ms)
                written_ms = due_ms


def _poisson(random: Random, mean: float) -> int:
    """Near enough to it for means that are not small."""
    return max(0, round(random.gauss(mean, math.sqrt(mean))))


def as_columns(messages: Iterator[Message]) -> dict[str, list[Any]]:
    """For a table."""
    found: dict[str, list[Any]] = {name: [] for name in Message.__slots__}
    for message in messages:
        for name, values in found.items():
            values.append(getattr(message, name))
    return found
