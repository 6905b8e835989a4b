"""The mutants of what partitions that are added to the buffer ask for."""

from __future__ import annotations

from typing import Final

from tests.simulation.patches import Mutant, Patch
from tests.simulation.profile import PARTITIONS_ADDED

PARTITIONS: Final = (
    Mutant(
        "leads-without-a-partition",
        "added partitions, does not lead without them",
        "a new leader does not ask for what the last checkpoint has of partitions that it lacks",
        (
            Patch(
                "store/view.py",
                "all(applied.get(p, -1) >= offset for vector",
                "all(p not in applied or applied[p] >= offset for vector",
            ),
        ),
        PARTITIONS_ADDED,
    ),
    Mutant(
        "leads-without-an-empty-partition",
        "added partitions, does not lead without them",
        "a new leader leads without a partition of which nothing has been taken in",
        (
            Patch(
                "store/view.py",
                "all(applied.get(p, -1) >= offset for vector",
                "all(applied.get(p, 0) >= offset for vector",
            ),
        ),
        PARTITIONS_ADDED,
    ),
    Mutant(
        "forgets-a-partition",
        "added partitions, what a store has read is its lane's",
        "a process that starts without having heard of a partition takes nothing of what its store has of it",
        (
            Patch(
                "store/frontiers.py",
                "partitions = sorted({*partitions, *stored})",
                "partitions = sorted({*partitions})",
            ),
        ),
        PARTITIONS_ADDED,
    ),
)
