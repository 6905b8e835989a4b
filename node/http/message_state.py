"""Where a message stands, as a node tells it: docs/lookup.md has this as a table."""

from __future__ import annotations

from enum import StrEnum

from delayline.outcome_kinds import OutcomeKind


class MessageState(StrEnum):
    """Where a message stands."""

    PENDING = "pending"
    PARKED = OutcomeKind.PARKED
    MOVING = "moving"
    DELIVERED = OutcomeKind.DELIVERED
    EXPIRED = OutcomeKind.EXPIRED
    DEAD_LETTERED = OutcomeKind.DEAD_LETTERED
    SKIPPED = OutcomeKind.SKIPPED
    CANCELLED = OutcomeKind.CANCELLED
    CANCELLING = "cancelling"
    DONE = "done"
    UNKNOWN = OutcomeKind.UNKNOWN
