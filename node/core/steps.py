"""Where a leadership stands between two steps, what it waits for, and how it ends."""

from __future__ import annotations

from collections.abc import Generator
from enum import StrEnum
from typing import Final, TypeVar

import msgspec

RETRY_MS: Final = 100
"""Before what did not answer is asked again."""


class Step(StrEnum):
    """The points between two steps, where the simulation and the chaos tests kill."""

    BEFORE_BEGIN = "before-begin"
    AFTER_PRODUCE = "after-produce"
    AFTER_CHECKPOINT_RECORD = "after-checkpoint-record"
    DURING_COMMIT = "during-commit"
    AFTER_COMMIT = "after-commit"
    AFTER_MIRROR = "after-mirror"
    CONFIRMED = "confirmed"
    OPENED = "opened"
    ALIGNED = "aligned"
    LEADERSHIP_BEGUN = "leadership-begun"


class Wait(msgspec.Struct, frozen=True):
    """Nothing to do before `until_ms` by the own clock (None: no such time) unless something wakes the
    leader: the view, a commit, the election.
    """

    until_ms: int | None


class StepDown(StrEnum):
    """Why a leadership ended: the node was asked to resign; another one leads, or has led since; or ZooKeeper
    does not confirm that this one does, and knows of no other.
    """

    RESIGNED = "resigned"
    SUPERSEDED = "superseded"
    UNCONFIRMED = "unconfirmed"


T = TypeVar("T")
Process = Generator[Step | Wait, None, T]
"""What a leader does, step by step; whoever drives it waits where it waits."""
