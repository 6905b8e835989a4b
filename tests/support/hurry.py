"""What a node does now and then, it does more often in tests: they wait for what it says of itself."""

from __future__ import annotations

from typing import Any, cast

import node.contender
import node.housekeeping
import node.inspection
import node.kafka.checkpoints


def hurry() -> None:
    """From now on, in this process."""
    for module, name, seconds in (
        (node.housekeeping, "PERIOD_S", 0.2),
        (node.kafka.checkpoints, "LOOK_EVERY_S", 0.5),
        (node.inspection, "INSPECT_EVERY_S", 0.2),
        (node.contender, "SIT_OUT_S", 1.0),
    ):
        assert hasattr(module, name)
        setattr(cast("Any", module), name, seconds)
