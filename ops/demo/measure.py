"""What a consumer's receipts say: how late messages came, and how long nothing came. Pure.

Times are epoch milliseconds by this machine's one clock; those of receipts have fractions.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import NamedTuple


class ReceivedMessage(NamedTuple):
    """A message as the consumer got it: when, what it was scheduled for, and its kind (of the workload's)."""

    at_ms: float
    scheduled_for_ms: int
    kind: str


class Stretch(NamedTuple):
    """A time in which nothing was disturbed, ends included."""

    begin_ms: float
    end_ms: float


@dataclass(frozen=True, slots=True)
class ReceivedLateness:
    """Of some messages, in milliseconds; None if there were none."""

    count: int = 0
    p50: float | None = None
    p99: float | None = None
    max: float | None = None


def lateness_of(late_ms: Iterable[float]) -> ReceivedLateness:
    """Percentiles by nearest rank, to a tenth of a millisecond."""
    ranked = sorted(late_ms)
    if not ranked:
        return ReceivedLateness()
    p50, p99 = (ranked[min(len(ranked) - 1, int(len(ranked) * part))] for part in (0.5, 0.99))
    return ReceivedLateness(len(ranked), round(p50, 1), round(p99, 1), round(ranked[-1], 1))


def lateness_within(
    received: Iterable[ReceivedMessage], stretches: Sequence[Stretch], kinds: frozenset[str]
) -> ReceivedLateness:
    """Lateness of the messages of `kinds` that were due, and came, within one of the stretches."""
    return lateness_of(
        message.at_ms - message.scheduled_for_ms
        for message in received
        if message.kind in kinds
        and any(
            stretch.begin_ms <= message.scheduled_for_ms and message.at_ms <= stretch.end_ms
            for stretch in stretches
        )
    )


def longest_pause_ms(at_ms: Sequence[float], stretch: Stretch) -> float:
    """The longest time without a receipt inside the stretch; `at_ms` ascends."""
    inside = at_ms[bisect_left(at_ms, stretch.begin_ms) : bisect_right(at_ms, stretch.end_ms)]
    return _longest_step([stretch.begin_ms, *inside, stretch.end_ms])


def gap_ms(at_ms: Sequence[float], since_ms: float, until_ms: float) -> float:
    """The longest time without a receipt that touches [since, until], its full length; `at_ms` ascends.

    Without a receipt before or after, the time up to that end counts.
    """
    before = bisect_left(at_ms, since_ms) - 1
    after = bisect_right(at_ms, until_ms)
    head = [at_ms[before]] if before >= 0 else [since_ms]
    tail = [at_ms[after]] if after < len(at_ms) else [until_ms]
    return _longest_step([*head, *at_ms[before + 1 : after], *tail])


def due_near(scheduled_for_ms: Sequence[int], moment_ms: float, reach_ms: float = 1000) -> int:
    """How many messages were due within `reach_ms` of the moment, either way; any order."""
    return sum(abs(due_ms - moment_ms) <= reach_ms for due_ms in scheduled_for_ms)


def _longest_step(moments: Sequence[float]) -> float:
    return max((later - earlier for earlier, later in pairwise(moments)), default=0.0)
