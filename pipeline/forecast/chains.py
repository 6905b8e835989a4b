"""What follows from a recurring message that waits, within the horizon: by `delayline.recurrence`, as the
service itself goes on from one occurrence to the next.
"""

from __future__ import annotations

from collections import Counter
from typing import Final

from delayline.recurrence import (
    SAME_INTERVAL,
    Occurrence,
    Recurrence,
    UnknownTimeZoneError,
    first_turn,
    next_turn,
)
from delayline.times import MINUTE_MS

MOST_STEPS: Final = 25_000
"""Occurrences of one chain that are found one by one: of those at equal intervals there may be more."""


def later(
    waiting: Occurrence | None, start_ms: int, recurrence: Recurrence, now_ms: int, end_ms: int
) -> dict[int, int]:
    """How many of the occurrences after the one that waits fall due in each minute (since the epoch), before
    `end_ms`, if each is delivered when it is due.

    `waiting` None: the request of a cron expression, which finds its first occurrence at `start_ms`. A chain
    whose time zone is not known here has none.
    """
    counts: Counter[int] = Counter()
    try:
        if waiting is None:
            following = first_turn(recurrence, start_ms).following
        else:
            following = next_turn(waiting, max(now_ms, waiting.at_ms)).following
        for _ in range(MOST_STEPS):
            if following is None or following.at_ms >= end_ms:
                break
            if is_even(following.recurrence):
                counts.update(evenly(following, now_ms, end_ms))
                break
            counts[max(following.at_ms, now_ms) // MINUTE_MS] += 1
            following = next_turn(following, following.at_ms).following
    except UnknownTimeZoneError:
        return {}
    return dict(counts)


def is_even(recurrence: Recurrence) -> bool:
    """Whether all its intervals are equal."""
    return recurrence.cron is None and recurrence.factor_permille == SAME_INTERVAL


def evenly(first: Occurrence, now_ms: int, end_ms: int) -> dict[int, int]:
    """The same of occurrences at equal intervals, from `first` on, without looking at each of them."""
    number, at_ms, recurrence = first
    every_ms = recurrence.interval_ms
    last_ms = end_ms - 1 if recurrence.until_ms is None else min(end_ms - 1, recurrence.until_ms)
    count = (last_ms - at_ms) // every_ms + 1
    if recurrence.times is not None:
        count = min(count, recurrence.times - number + 1)
    found: dict[int, int] = {}
    begun = 0
    while begun < count:
        minute = (at_ms + begun * every_ms) // MINUTE_MS
        end = min(count, ((minute + 1) * MINUTE_MS - 1 - at_ms) // every_ms + 1)
        due_minute = max(minute, now_ms // MINUTE_MS)
        found[due_minute] = found.get(due_minute, 0) + end - begun
        begun = end
    return found
