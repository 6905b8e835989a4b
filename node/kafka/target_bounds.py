"""What bounds the cost of targets that are not there: users may name as many as they like (rule 10)."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final, NamedTuple

MISSING_FOR_S: Final = 5.0
MOST_MISSING: Final = 50_000
"""Names of 249 characters at most: some 20 MB. More than come in a second, for which a message is parked."""

PATIENCE_S: Final = 0.5
PATIENCE_SHARE: Final = 0.05


class Missing:
    """Names of topics that were not there a moment ago. One thread at a time adds, any may look."""

    def __init__(self) -> None:
        self._until_s: dict[str, float] = {}  # in the order of what they are

    def __len__(self) -> int:
        return len(self._until_s)

    def fresh(self, name: str, now_s: float) -> bool:
        """Whether it was missing so short a time ago that nobody need ask again."""
        return self._until_s.get(name, 0.0) > now_s

    def add(self, names: Iterable[str], now_s: float) -> None:
        """They are missing now. The oldest go, and what has become old."""
        until_s = self._until_s
        for name in names:
            until_s.pop(name, None)
            until_s[name] = now_s + MISSING_FOR_S
        while until_s:
            oldest = next(iter(until_s))
            if len(until_s) <= MOST_MISSING and until_s[oldest] > now_s:
                break
            del until_s[oldest]

    def found(self, names: Iterable[str]) -> None:
        """They are there."""
        for name in names:
            self._until_s.pop(name, None)


class TopicList(NamedTuple):
    """All topics that there were at a time, by the node's clock and by the monotonic one."""

    names: frozenset[str]
    begun_s: float
    begun_ms: int

    def tells_of(self, due_ms: int, now_s: float) -> bool:
        """Whether what is not in it may be called missing for a message that fell due then: the list was made
        after it, by any clock, and is not old.
        """
        long_due = due_ms + MISSING_FOR_S * 1000 <= self.begun_ms
        return long_due and now_s - self.begun_s < MISSING_FOR_S


class Patience:
    """How long delivery may wait for look-ups: a share of the time, which adds up. The lane's own."""

    def __init__(self, now_s: float) -> None:
        self._left_s = PATIENCE_S
        self._at_s = now_s

    def left_s(self, now_s: float) -> float:
        """How much is left now."""
        self._left_s = min(PATIENCE_S, self._left_s + (now_s - self._at_s) * PATIENCE_SHARE)
        self._at_s = now_s
        return self._left_s

    def spend(self, waited_s: float) -> None:
        """So long was waited since."""
        self._left_s = max(0.0, self._left_s - waited_s)
        self._at_s += waited_s
