"""The lane's partition of the outcomes topic, as brokers have it: it is made anew, loses its end or its
beginning, and changes its leader (docs/design.md, rule 12). All that was ever told is kept elsewhere, for the
judge.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from itertools import pairwise
from typing import TYPE_CHECKING, Final

from delayline.names import parse_source
from delayline.outcome_kinds import OutcomeKind
from store.keys import RecordId
from store.told import EpochEnd, Look, Told
from tests.simulation.log import Entry, Fate
from tests.simulation.setup import LANE

if TYPE_CHECKING:
    from tests.simulation.host import World

LOSSES: Final = ("made anew", "end", "end", "beginning", "leader")


class OutcomesTopic:
    """What is there of it."""

    def __init__(self, world: World) -> None:
        self._world = world
        self._number = 0
        self._copied = 0  # so much of what was ever told
        self._entries: list[Entry] = []
        self._begin = 0
        self._epochs = [(0, 0)]  # of its leaders, each with where it began

    def look(self, told: Told | None, at_ms: int) -> Look:
        """What who looks at a time finds. `told`: what it knows."""
        self._copy()
        (epoch, _), end = self._epochs[-1], len(self._entries)
        left = (one.record for one in self._entries[self._begin :])
        first_ms = next((record.timestamp_ms for record in left if record is not None), None)
        is_later = told is not None and told.topic_id == self._id and told.leader_epoch < epoch
        earlier = self._end_of(told.leader_epoch) if told is not None and is_later else None
        return Look(self._id, self._begin, end, epoch, first_ms, at_ms, earlier)

    def duplicates(self) -> frozenset[RecordId]:
        """What it calls so."""
        self._copy()
        return duplicates_of(self._entries[self._begin :])

    def lose(self, told: Sequence[Told], looks: Sequence[Look]) -> None:
        """It loses something, or its leader. `told`: what checkpoints say of it; `looks`: what processes have
        found.

        An end is lost with something that all have seen whom the next look may be compared with: the topic
        takes no unclean election for the rest.
        """
        self._copy()
        rng = self._world.rng
        loss = rng.choice(LOSSES)
        self._world.note("outcomes", loss)
        if loss == "made anew":
            self._number += 1
            self._entries, self._begin, self._epochs = [], 0, [(0, 0)]
        elif loss == "beginning":
            self._begin = rng.choice((len(self._entries), rng.randint(self._begin, len(self._entries))))
        else:
            seen = self._seen(told, looks)
            if loss == "end" and self._begin < seen:
                del self._entries[max(self._begin, seen - rng.choice((1, 2, 5, 20))) :]
            kept = [(one, begin) for one, begin in self._epochs if begin <= len(self._entries)]
            self._epochs = [*kept, (self._epochs[-1][0] + 1, len(self._entries))]

    def _seen(self, told: Sequence[Told], looks: Sequence[Look]) -> int:
        """Below which offset. A look that is older than what a checkpoint says counts no more."""
        known = [(one.leader_epoch, one.end) for one in told if one.topic_id == self._id]
        found = [(one.leader_epoch, one.end) for one in looks if one.topic_id == self._id]
        newer = [one for one in found if all(one >= other for other in known)]
        return min((end for _, end in (*known, *newer)), default=0)

    @property
    def _id(self) -> str:
        return f"outcomes-{self._number}"

    def _copy(self) -> None:
        """What was told since is there."""
        ever = self._world.topics[self._world.names.outcomes][LANE].entries
        self._entries += ever[self._copied :]
        self._copied = len(ever)

    def _end_of(self, epoch: int) -> EpochEnd:
        """Where what its leaders up to that one have written ends."""
        ends = [end for (one, _), (_, end) in pairwise(self._epochs) if one <= epoch]
        return EpochEnd(epoch, ends[-1])


def duplicates_of(entries: Iterable[Entry]) -> frozenset[RecordId]:
    """The requests that these outcomes call so."""
    found: list[RecordId] = []
    for entry in entries:
        if entry.record is None or entry.transaction is None or entry.transaction.fate is not Fate.COMMIT:
            continue
        if json.loads(entry.record.value or b"")["outcome"] == OutcomeKind.DUPLICATE:
            _, partition, offset = parse_source((entry.record.key or b"").decode())
            found.append((partition, offset))
    return frozenset(found)
