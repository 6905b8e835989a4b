"""What can become of a request, in one word each: of the outcomes topic, of metrics, commands and the audit.

docs/wire-format.md has those that are written as a table.
"""

from __future__ import annotations

from enum import Enum, StrEnum, auto
from typing import Final, assert_never


class OutcomeKind(StrEnum):
    """What became of a request. Each is a string, and equal to its name on the wire.

    A newer service may write a name that is not here. Nothing raises for it: what is read from the outcomes
    topic stays the string that it is there (`Outcome.outcome`), equal to none of these.
    """

    CANCELLED = "cancelled"
    REPLACED = "replaced"
    RESCHEDULED = "rescheduled"
    TOO_LATE = "too-late"
    OVERTAKEN = "overtaken"
    UNKNOWN = "unknown"
    DUPLICATE = "duplicate"
    SKIPPED = "skipped"
    EXPIRED = "expired"
    DEAD_LETTERED = "dead-lettered"
    PARKED = "parked"
    # These are never written.
    DELIVERED = "delivered"
    REPLAYED = "replayed"
    DEFERRED = "deferred"


class Sort(Enum):
    """What an outcome is to the request under whose source it is written."""

    ANSWER = auto()  # to a cancel, a reschedule, or a schedule that has met another of its id
    ENDING = auto()  # of a message: it is not delivered
    PARK = auto()  # of nothing: what becomes of the message is decided later
    UNWRITTEN = auto()  # no record says so


def sort_of(outcome: OutcomeKind) -> Sort:
    """The one place that sorts them; mypy says so if one is left out."""
    match outcome:
        case (
            OutcomeKind.CANCELLED
            | OutcomeKind.REPLACED
            | OutcomeKind.RESCHEDULED
            | OutcomeKind.TOO_LATE
            | OutcomeKind.OVERTAKEN
            | OutcomeKind.UNKNOWN
            | OutcomeKind.DUPLICATE
        ):
            return Sort.ANSWER
        case OutcomeKind.EXPIRED | OutcomeKind.DEAD_LETTERED | OutcomeKind.SKIPPED:
            return Sort.ENDING
        case OutcomeKind.PARKED:
            return Sort.PARK
        case OutcomeKind.DELIVERED | OutcomeKind.REPLAYED | OutcomeKind.DEFERRED:
            return Sort.UNWRITTEN
        case _:
            assert_never(outcome)


def _of(sort: Sort) -> frozenset[OutcomeKind]:
    return frozenset(outcome for outcome in OutcomeKind if sort_of(outcome) is sort)


ANSWERS: Final = _of(Sort.ANSWER)
ENDINGS: Final = _of(Sort.ENDING)
PARKS: Final = _of(Sort.PARK)
