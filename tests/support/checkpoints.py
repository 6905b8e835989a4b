"""A checkpoint as it might be, for tests that care for a field or two of it."""

from __future__ import annotations

from typing import Any

import msgspec

from store.checkpoint import Checkpoint, Lineage


def sample_checkpoint(lane: int = 0, **changes: Any) -> Checkpoint:
    """That of a lane with one partition, which has the lane's number; but for the `changes`."""
    sample = Checkpoint(
        lane=lane,
        epoch=1,
        number=1,
        position=(1_767_225_600_000, lane, 9),
        applied={lane: 10},
        seen={lane: 11},
        read={lane: 11},
        written_back={lane: 0},
        delivered_up_to_ms=1_767_225_600_001,
        node="n1",
        at_ms=1_767_225_600_002,
        lineage=Lineage("topic", 0),
    )
    return msgspec.structs.replace(sample, **changes)
