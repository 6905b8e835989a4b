"""What was done by a clock that was ahead (docs/design.md, rule 6, a rewind).

A frontier whose position is ahead of the clock holds its lane up: whatever arrives is late, and nothing late
may be selected. A rewind gives it an earlier position, and keeps as an overrun what it says is done.

Why no row is lost or doubled. The step changes no row's being done: what its frontier covered is covered by
the overrun, and the new position covers nothing more, as it is no higher and applied stays. After it what
is done only grows: an overrun stays until the position has reached its own, and what it covers is covered
then, for applied never falls. What the step changes is where a row that is not done is taken from. At or
below the new position it has a late entry, as it was below the old one, and keeps it. Above, its entry goes
in one batch with the position, so that it lies among what is due in its time and nowhere else. Nothing is
early: whatever is at or below the new position is due.

What an overrun has done no later hold holds (store/holds.py, `since`). So overruns are numbered, and one that
such a hold reaches into is kept until the hold's cursor has passed it.
"""

from __future__ import annotations

from collections.abc import Set as AbstractSet
from typing import Final

import msgspec

from store.keys import RowKey

MOST_OVERRUNS: Final = 8
"""Each is in every checkpoint until the position has passed it."""


class Overrun(msgspec.Struct, frozen=True):
    """Position, applied and delivered-up-to of the frontier before a rewind. `number`: it is higher than
    those of all overruns and holds before it.
    """

    position: RowKey
    applied: dict[int, int]
    delivered_up_to_ms: int
    number: int = 1

    def covers(self, key: RowKey) -> bool:
        """Whether a row was done by it."""
        return key <= self.position and key[2] < self.applied.get(key[1], 0)


Overruns = tuple[Overrun, ...]
"""What was applied rises from one to the next."""


def with_one(overruns: Overruns, last: Overrun, needed: AbstractSet[int]) -> Overruns:
    """What was done by all of them. Those that reached no further than the last one, which had applied as
    much or more, say nothing that it does not, but for how far all was delivered. `needed`: the numbers of
    those that holds rest on.
    """
    kept = tuple(one for one in overruns if one.position > last.position or one.number in needed)
    up_to_ms = max(one.delivered_up_to_ms for one in (*overruns, last))
    return (*kept, msgspec.structs.replace(last, delivered_up_to_ms=up_to_ms))


def left_of(
    overruns: Overruns, position: RowKey | None, delivered_up_to_ms: int, needed: AbstractSet[int]
) -> Overruns:
    """Those that a frontier has not reached yet, or that are needed: holds rest on them. What it has reached
    it covers: its applied is no lower.
    """
    return tuple(
        one
        for one in overruns
        if position is None
        or position < one.position
        or delivered_up_to_ms < one.delivered_up_to_ms
        or one.number in needed
    )
