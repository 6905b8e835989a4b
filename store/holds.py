"""Holds: what waits while an operator has paused its target (rule 8, docs/design.md).

A hold is of one target. Its messages with a key behind `next` are passed by the position and are not done:
they wait in the view, and cost nothing. When the pause ends, it ends at the position that there is then
(`last`), and a cursor, `next`, takes them in key order, beside what falls due.

A target is told by a number wherever its name would be too long (`tag_of`).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from collections.abc import Set as AbstractSet
from functools import lru_cache
from hashlib import blake2b
from typing import Final

import msgspec

from store.keys import Key

MOST_HOLDS: Final = 64
"""So many are in a checkpoint at most. What is for a paused target that has none is put off, again and
again.
"""
MOST_OF_ONE: Final = 4
"""So many of one target: it may be paused again and again before what waits is delivered."""
CARRIED_MS: Final = 86_400_000
"""So long a message waits in one place. Then it is written back, so that its record never grows so old that
retention removes it.
"""
CARRIED_PARTS: Final = 24
"""That is looked at so often in that time."""
NO_TAG: Final = 0
"""Of what goes to no target: nothing holds it."""
BEFORE_ALL: Final = (0, 0, 0)
"""No row has this key."""


@lru_cache(4_096)
def tag_of(target: str) -> int:
    """The number of a target, of 63 bits, and never `NO_TAG`: no two are alike unless somebody has tried some
    10^9 names to that end, and then an answer is false that is about the two alone. What is
    delivered, and what is said of a row that is there, goes by the names.
    """
    return int.from_bytes(blake2b(target.encode(), digest_size=8).digest()) >> 1 | 1


class Hold(msgspec.Struct, frozen=True):
    """What is held of one target: next < key, and key <= last unless the pause goes on. `first`: where `next`
    was at first; no two holds of a target have the same. `rows`: how many of those the position has passed,
    and the cursor has not; what was cancelled or moved since is among them.
    """

    target: str
    first: Key
    next: Key
    last: Key | None = None
    rows: int = 0

    @property
    def tag(self) -> int:
        return tag_of(self.target)

    def covers(self, key: Key) -> bool:
        """Whether a message of its target is held."""
        return self.next < key and (self.last is None or key <= self.last)


Holds = tuple[Hold, ...]
Target = str | int | None
"""Of a row that is there the name, or None if it is no message; of one that may have gone the tag."""


def hold_back(holds: Holds, key: Key, target: Target) -> bool:
    """Whether any of them holds a row with this key and target."""
    if not isinstance(target, int):
        return hold_row(holds, key, target)
    return any(hold.tag == target and hold.covers(key) for hold in holds)


def hold_row(holds: Holds, key: Key, target: str | None) -> bool:
    """Whether any of them holds a row that is there: its name is at hand, and no two are alike."""
    return any(hold.target == target and hold.covers(key) for hold in holds)


def taken_up(holds: Holds, paused: AbstractSet[str], highest: Key | None) -> Holds:
    """The holds once the pauses are those. `highest`: behind it nothing has been passed. So what is done, and
    what is not, stays so.
    """
    at = BEFORE_ALL if highest is None else highest
    kept = [
        msgspec.structs.replace(hold, last=at) if hold.last is None and hold.target not in paused else hold
        for hold in holds
    ]
    kept = [hold for hold in kept if hold.last is None or hold.next < hold.last]
    going_on = {hold.target for hold in kept if hold.last is None}
    counts = Counter(hold.target for hold in kept)
    begun = [
        Hold(target, at, at)
        for target in sorted(paused)
        if target not in going_on and counts[target] < MOST_OF_ONE
    ]
    return (*kept, *begun[: MOST_HOLDS - len(kept)])


def with_passed(holds: Holds, passed: Mapping[Key, str]) -> Holds:
    """With rows that the position passes: the target of each."""
    counts = Counter(
        number
        for key, target in passed.items()
        for number, hold in enumerate(holds)
        if hold.target == target and hold.covers(key)
    )
    return tuple(
        msgspec.structs.replace(hold, rows=hold.rows + counts[number]) if counts[number] else hold
        for number, hold in enumerate(holds)
    )


def may_go_to(hold: Hold, paused: AbstractSet[str], now_ms: int, carried_ms: int) -> Key | None:
    """Up to where a hold's cursor may go now: to its end, once the pause is over; before, to what has waited
    for `carried_ms`, which is to be written back. None: it stays. Never to what is not due: a clock that was
    ahead may have passed it.
    """
    until_ms = now_ms
    if hold.target in paused:
        if hold.next[0] >= now_ms - carried_ms - carried_ms // CARRIED_PARTS:
            return None
        until_ms = now_ms - carried_ms
    end = (until_ms, 0, 0) if hold.last is None else min(hold.last, (until_ms, 0, 0))
    return end if end > hold.next else None


def behind(key: Key) -> Key:
    """The key right behind another."""
    return (*key[:2], key[2] + 1)


class Held(msgspec.Struct, frozen=True):
    """What is held of one target: so many messages at most, none of which fell due before `since_ms`."""

    rows: int
    since_ms: int


def held_of(holds: Holds) -> dict[str, Held]:
    """By target."""
    return held_together({hold.target: Held(hold.rows, hold.next[0])} for hold in holds)


def held_together(some: Iterable[Mapping[str, Held]]) -> dict[str, Held]:
    """Of several holds of a target, or of several lanes."""
    found: dict[str, Held] = {}
    for target, more in (one for each in some for one in sorted(each.items())):
        known = found.get(target, Held(0, more.since_ms))
        found[target] = Held(known.rows + more.rows, min(known.since_ms, more.since_ms))
    return found
