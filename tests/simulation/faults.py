"""The faults that a seed draws: each strikes one process, or what they all depend on."""

from __future__ import annotations

from typing import Final

from tests.simulation.process import Process
from tests.simulation.world import Node, World

# These wait for the next call of their kind by the process that they are meant for.
ARMED: Final = frozenset(
    (
        "commit-lost",
        "commit-answer-lost",
        "commit-late",
        "commit-aborted",
        "send-fails",
        "open-fails",
        "read-fails",
        "learn-fails",
    )
)
