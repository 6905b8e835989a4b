"""What holds let go once a pause is over, or has lasted for a day, and how far one transaction takes their
cursors (rule 8, docs/design.md).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from collections.abc import Set as AbstractSet
from itertools import islice
from typing import Final

import msgspec

from store import holds, kept, keys
from store.checkpoint import Frontier
from store.holds import Hold, Holds
from store.keys import RowKey
from store.kv import KeyValue
from store.rows import message_target
from store.taking import MOST_WALKED, MOST_WALKED_BYTES, Rows

LITTLE_WALKED: Final = 100


class Budget:
    """What all holds together may take, and walk over: apply waits meanwhile."""

    def __init__(self, messages: int, bytes_: int) -> None:
        self.messages = messages
        self.bytes = bytes_
        self.walked = MOST_WALKED

    @property
    def is_spent(self) -> bool:
        return self.messages <= 0 or self.bytes <= 0 or self.walked <= 0


def take_released(
    kv: KeyValue,
    tip: Frontier,
    ends: Sequence[RowKey | None],
    budget: Budget,
    stay: Mapping[str, AbstractSet[RowKey]],
) -> tuple[Rows, Holds]:
    """Messages that holds let go, each up to its end, and the holds that are left. Those that go on take
    turns; of one target, the later one waits for the earlier one. `stay`: of a target that is paused, what
    cannot be written back.
    """
    released: Rows = []
    left: list[Hold] = []
    turned: list[Hold] = []
    before: set[str] = set()
    for hold, end in zip(tip.holds, ends, strict=True):
        if end is None or hold.target in before or budget.is_spent:
            left.append(hold)
        else:
            taken, at = _take_held(kv, tip, hold, end, budget, stay.get(hold.target, frozenset()))
            released += taken
            if at == hold.last:
                continue
            if at == hold.next:
                left.append(hold)
            else:
                turned.append(msgspec.structs.replace(hold, next=at, rows=max(0, hold.rows - len(taken))))
        before.add(hold.target)
    return released, (*_in_turn(left, turned),)


def _in_turn(left: list[Hold], turned: list[Hold]) -> list[Hold]:
    """Those that have had their turn come last, each before what is later of its target."""
    targets = {hold.target for hold in turned}
    others = [hold for hold in left if hold.target not in targets]
    return [
        *others,
        *sorted((*turned, *(one for one in left if one.target in targets)), key=lambda one: one.next),
    ]


def _take_held(
    kv: KeyValue, tip: Frontier, hold: Hold, end: RowKey, budget: Budget, stay: AbstractSet[RowKey]
) -> tuple[Rows, RowKey]:
    """Messages of a hold, and up to where there are no more of them. It ends before the first one that is to
    stay, and before one that has not been passed: this selection may pass it, as one that is held. Where it
    has found nothing, and walked over little, it stays where it is: to move it is something to commit. But
    not where that has left nothing for others.
    """
    taken: Rows = []
    at, walked_before = hold.next, budget.walked
    for key, raw in kept.of_target(kv, hold.target, holds.next_key(hold.next), end):
        if budget.is_spent:
            return taken, at
        is_its_own = raw is not None and message_target(raw) == hold.target
        is_its_own = is_its_own and not hold.began_after(key, tip.overruns)
        if is_its_own and (key in stay or not tip.passed(key)):
            return taken, at
        at = key
        budget.walked -= 1
        if raw is None:
            continue
        budget.bytes -= len(raw)  # read, whether it is taken or not
        if is_its_own:
            budget.messages -= 1
            taken.append((key, raw))
    stays = not taken and end != hold.last and walked_before - budget.walked < LITTLE_WALKED
    return taken, hold.next if stays and not budget.is_spent else end


def next_released_ms(kv: KeyValue, tip: Frontier) -> int | None:
    """When a hold whose pause is over comes to the next message that a clock which was ahead has passed; so
    far as so many rows tell.
    """
    ended = [hold for hold in tip.holds if hold.last is not None]
    begin = keys.behind(max(tip.position or holds.BEFORE_ALL, keys.last_due_by(tip.delivered_up_to_ms)))
    end = keys.after(keys.row(*max((hold.last for hold in ended if hold.last), default=holds.BEFORE_ALL)))
    bytes_left = MOST_WALKED_BYTES
    for raw_key, raw in islice(kv.scan(begin, end), MOST_WALKED) if begin < end else ():
        bytes_left -= len(raw)
        if bytes_left < 0:
            break
        key, target = keys.timed(raw_key), message_target(raw)
        if any(hold.target == target and hold.has_passed(key, tip.overruns) for hold in ended):
            return key[0]
    return None
