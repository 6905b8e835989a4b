"""The mutants of what partitions that are added to the buffer ask for."""

from __future__ import annotations

from functools import partial
from typing import Any, Final

from delayline.names import MAX_OFFSET
from tests.simulation.overrides import Edit, Override
from tests.simulation.patches import Mutant
from tests.simulation.profile import PARTITIONS_ADDED


def _has_applied(self: Any, *vectors: Any, lacking: int) -> bool:
    applied = self.reached().applied
    return all(applied.get(p, lacking) >= offset for vector in vectors for p, offset in vector.items())


PARTITIONS: Final = (
    Mutant(
        "leads-without-a-partition",
        "added partitions, does not lead without them",
        "a new leader does not ask for what the last checkpoint has of partitions that it lacks",
        (Override("store.view:View.has_applied", partial(_has_applied, lacking=MAX_OFFSET)),),
        PARTITIONS_ADDED,
    ),
    Mutant(
        "leads-without-an-empty-partition",
        "added partitions, does not lead without them",
        "a new leader leads without a partition of which nothing has been applied",
        (Override("store.view:View.has_applied", partial(_has_applied, lacking=0)),),
        PARTITIONS_ADDED,
    ),
    Mutant(
        "forgets-a-partition",
        "added partitions, what a store has read is its lane's",
        "a process that starts without having heard of a partition takes nothing of what its store has of it",
        (Edit("store.frontiers:Frontiers.__init__", "{*partitions, *stored}", "{*partitions}"),),
        PARTITIONS_ADDED,
    ),
)
