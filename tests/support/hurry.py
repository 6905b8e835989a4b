"""What a node does now and then, it does more often in tests: they wait for what it says of itself."""

from __future__ import annotations

from typing import Any, cast

import node.housekeeping
import node.kafka.checkpoints
import node.node
import node.parts


def hurry() -> None:
    """From now on, in this process."""
    for module, name, seconds in (
        (node.housekeeping, "PERIOD_S", 0.2),
        (node.kafka.checkpoints, "LOOK_EVERY_S", 0.5),
        (node.node, "INSPECT_EVERY_S", 0.2),
        (node.parts, "SIT_OUT_S", 1.0),
    ):
        assert hasattr(module, name)
        setattr(cast("Any", module), name, seconds)
