"""Holds: what waits while an operator has paused its target (rule 8, docs/design.md).

A hold is of one target. Its messages with a key behind `next` are passed by the position and are not done:
they wait in the view, and cost nothing. When the pause ends, it ends at the position that there is then
(`last`), and a cursor, `next`, takes them in key order, beside what falls due.

What was done before a hold began stays done, also behind the position, where an overrun may have done it
(rule 6, a rewind): a hold knows which overruns were there (`since`). What a later one covers it holds.

A target is told by a number wherever its name would be too long (`tag_of`).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from collections.abc import Set as AbstractSet
from functools import lru_cache
from hashlib import blake2b
from typing import Final

import msgspec

from store.keys import RowKey, last_due_by
from store.overrun import Overrun, Overruns

MOST_HOLDS: Final = 64
"""So many are in a checkpoint at most. What is for a paused target that has none is parked, again and
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

Target = str | int | None
"""Of a row that is there the name, or None if it is no message; of one that may have gone the tag."""


@lru_cache(4_096)
def tag_of(target: str) -> int:
    """The number of a target, of 63 bits, and never `NO_TAG`: no two are alike unless somebody has tried some
    10^9 names to that end, and then an answer is false that is about the two alone. What is delivered, and
    what is said of a row that is there, goes by the names.
    """
    return int.from_bytes(blake2b(target.encode(), digest_size=8).digest()) >> 1 | 1


class Hold(msgspec.Struct, frozen=True):
    """What is held of one target: next < key, and key <= last unless the pause goes on. `first`: where `next`
    was at first; no two holds of a target have that and `since` alike, the number of the last overrun before
    it. `rows`: how many of those the position has passed, and the cursor has not; what was cancelled or moved
    since is among them.
    """

    target: str
    first: RowKey
    next: RowKey
    last: RowKey | None = None
    rows: int = 0
    since: int = 0

    @property
    def tag(self) -> int:
        return tag_of(self.target)

    def is_of(self, target: Target) -> bool:
        """Whether that is its target."""
        return self.tag == target if isinstance(target, int) else self.target == target

    def covers(self, key: RowKey) -> bool:
        """Whether a message of its target is held, if it was not done before."""
        return self.next < key and (self.last is None or key <= self.last)

    def rests_on(self, overrun: Overrun) -> bool:
        """Whether that has done what it would hold else."""
        return overrun.number <= self.since and self.next < overrun.position

    def began_after(self, key: RowKey, overruns: Overruns) -> bool:
        """Whether a row was done before it began."""
        return any(one.number <= self.since and one.covers(key) for one in overruns)

    def has_passed(self, key: RowKey, overruns: Overruns) -> bool:
        """Whether it holds a row that an overrun has passed."""
        is_passed = any(one.covers(key) for one in overruns)
        return is_passed and self.covers(key) and not self.began_after(key, overruns)


Holds = tuple[Hold, ...]


def hold_of(holds: Iterable[Hold], overruns: Overruns, key: RowKey, target: Target) -> Hold | None:
    """The one that holds a row with this key and target."""
    return next(
        (
            hold
            for hold in holds
            if hold.is_of(target) and hold.covers(key) and not hold.began_after(key, overruns)
        ),
        None,
    )


def needed_by(holds: Holds, overruns: Overruns) -> frozenset[int]:
    """The numbers of the overruns that any of them rests on."""
    return frozenset(one.number for one in overruns if any(hold.rests_on(one) for hold in holds))


def with_pauses(
    holds: Holds, paused: AbstractSet[str], position: RowKey | None, overruns: Overruns, now_ms: int
) -> Holds:
    """The holds once the pauses are those. What is done, and what is not, stays so: what they begin to hold
    lies behind the position, and what overruns have done there is done.
    """
    at = BEFORE_ALL if position is None else position
    kept = [
        msgspec.structs.replace(hold, last=_end_of(hold, at, overruns))
        if hold.last is None and hold.target not in paused
        else hold
        for hold in holds
    ]
    kept = [hold for hold in kept if hold.last is None or hold.next < hold.last]
    since = max((one.number for one in overruns), default=0)
    for target in sorted(paused):
        for first, last in list(_left_open(target, kept, at, last_due_by(now_ms))):
            if len(kept) < MOST_HOLDS and sum(hold.target == target for hold in kept) < MOST_OF_ONE:
                kept.insert(_place_of(target, first, kept), Hold(target, first, first, last, since=since))
    return tuple(kept)


def _end_of(hold: Hold, position: RowKey, overruns: Overruns) -> RowKey:
    """Behind this nothing has been passed that it holds."""
    return max(position, *(one.position for one in overruns if one.number > hold.since), BEFORE_ALL)


def _left_open(
    target: str, holds: list[Hold], at: RowKey, now: RowKey
) -> Iterator[tuple[RowKey, RowKey | None]]:
    """The ranges behind the position that no hold of the target has. Where a cursor has passed, nothing is
    due behind the position, most often: only one that was ahead leaves a range there.
    """
    for hold in sorted((one for one in holds if one.target == target), key=lambda one: one.next):
        if at < hold.next and now < hold.next:
            yield at, hold.next
        if hold.last is None:
            return
        at = max(at, hold.last)
    yield at, None


def _place_of(target: str, first: RowKey, holds: list[Hold]) -> int:
    """Before those of its target that are behind it."""
    behind = (n for n, hold in enumerate(holds) if hold.target == target and first < hold.next)
    return next(behind, len(holds))


def with_passed(holds: Holds, passed: Mapping[RowKey, str]) -> Holds:
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


def may_go_to(hold: Hold, paused: AbstractSet[str], now_ms: int, carried_ms: int) -> RowKey | None:
    """Up to where a hold's cursor may go now: to its end, once the pause is over; before, to what has waited
    for `carried_ms`, which is to be written back. None: it stays. Never to what is not due: a clock that was
    ahead may have passed it.
    """
    until_ms = now_ms
    if hold.target in paused:
        if hold.next[0] >= now_ms - carried_ms - carried_ms // CARRIED_PARTS:
            return None
        until_ms = now_ms - carried_ms
    end = last_due_by(until_ms) if hold.last is None else min(hold.last, last_due_by(until_ms))
    return end if end > hold.next else None


def next_key(key: RowKey) -> RowKey:
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
