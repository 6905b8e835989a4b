"""What the lanes cannot deliver at once waits: a simple queue, minute by minute."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

_MINUTE_S: Final = 60.0


@dataclass(frozen=True, slots=True)
class Backlog:
    """Of each minute: what is left over at its end, and how late the latest of its messages is."""

    left: Sequence[float]
    late_s: Sequence[float]


def backlog(due: Sequence[float], bursts: Sequence[float], per_s: float, overdue: float) -> Backlog:
    """`due`: messages in each minute. `bursts`: how many of them are due in one second, at the minute's
    beginning for all that is known; the others come evenly. `per_s`: what the lanes deliver in a second.
    `overdue`: what waits when the first minute begins.
    """
    left, late_s = [], []
    waits = overdue
    for count, burst in zip(due, bursts, strict=True):
        at_once = waits + min(burst, count)
        waits = max(0.0, waits + count - per_s * _MINUTE_S)
        # What is due within a second has that second.
        late_s.append(max(0.0, at_once / per_s - 1.0, waits / per_s))
        left.append(waits)
    return Backlog(left, late_s)
