"""What a node does now and then, it does more often in tests: they wait for what it says of itself."""

from __future__ import annotations

from typing import Any

import node.contender
import node.handover
import node.housekeeping
import node.inspection
import node.kafka.checkpoints
import node.membership
import node.preference
import node.probation
import node.zookeeper.operator_watch


def hurry() -> None:
    """From now on, in this process."""
    _set(
        (node.housekeeping, "PERIOD_S", 0.2),
        (node.kafka.checkpoints, "LOOK_EVERY_S", 0.5),
        (node.inspection, "INSPECT_EVERY_S", 0.2),
        (node.contender, "SIT_OUT_S", 1.0),
    )


def prefer_after(seconds: float) -> None:
    """From now on a leader of this process hands over by preference after so long, however often."""
    _set(
        (node.preference, "FIT_S", seconds),
        (node.preference, "AGAIN_S", seconds),
        (node.probation, "BEGINS_WITHIN_S", 5.0),
        (node.handover, "LOOK_EVERY_S", 0.5),
        (node.zookeeper.operator_watch, "LOOK_AGAIN_S", 0.5),
        (node.membership, "PERIOD_S", 0.1),  # what a follower says is not older than the leader's last look
    )


def _set(*constants: tuple[Any, str, float]) -> None:
    for module, name, seconds in constants:
        assert hasattr(module, name)
        setattr(module, name, seconds)
