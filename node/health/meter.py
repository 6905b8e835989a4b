"""What a leader counts of its commits: once for each of them, on the lane's thread, not for each message.

Selected rows are in the order in which they fell due. So how many of them were late by how much is found by
bisection, however many they are.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Sequence
from itertools import accumulate
from operator import itemgetter
from typing import Final, assert_never

from delayline.outcome_kinds import OutcomeKind
from delayline.rejects import ParkCode, RejectCode
from node.core.delivery import InFlight
from node.core.outcome_record import Decided
from node.kafka.outbox import CommitTime
from store.keys import RowKey

LATENESS_MS: Final = (
    *(2, 5, 10, 15, 25, 50, 100, 150, 250, 500),
    *(1_000, 2_500, 5_000, 10_000, 30_000, 60_000, 300_000, 3_600_000),
)
COMMIT_MS: Final = (2, 5, 10, 15, 25, 50, 100, 250, 500, 1_000, 2_000, 5_000, 10_000)
SELECTION: Final = (1, 5, 10, 50, 100, 500, 1_000, 2_000, 5_000, 10_000)

OTHER: Final = "other"
REASONS: Final = frozenset((*RejectCode, *ParkCode))
"""What the label may be, besides `OTHER` and none at all."""


def _ops(outcome: OutcomeKind) -> tuple[str, ...]:
    """The requests of which it is an outcome without a code."""
    match outcome:
        case (
            OutcomeKind.DELIVERED
            | OutcomeKind.REPLAYED
            | OutcomeKind.REPLACED
            | OutcomeKind.DUPLICATE
            | OutcomeKind.SKIPPED
        ):
            return ("schedule",)
        case OutcomeKind.CANCELLED:
            return ("cancel",)
        case OutcomeKind.RESCHEDULED | OutcomeKind.OVERTAKEN:
            return ("reschedule",)
        case OutcomeKind.TOO_LATE | OutcomeKind.UNKNOWN:
            return "cancel", "reschedule"
        case OutcomeKind.DEAD_LETTERED | OutcomeKind.EXPIRED | OutcomeKind.PARKED | OutcomeKind.DEFERRED:
            return ()  # they have a code, or are not decided yet
        case _:
            assert_never(outcome)


_ALWAYS: Final = tuple((op, outcome) for outcome in OutcomeKind for op in _ops(outcome))

_DELIVERED: Final = (OutcomeKind.DELIVERED, OutcomeKind.REPLAYED)

Row = tuple[RowKey, bytes]

_first: Final = itemgetter(0)


class Histogram:
    """Counts by bucket. One thread counts; any may read."""

    def __init__(self, edges: Sequence[int]) -> None:
        """`edges`: what a bucket holds at most, ascending."""
        self.edges = edges
        self.sum = 0.0
        self._counts = [0] * (len(edges) + 1)

    def add(self, value: float) -> None:
        """Counts one value."""
        self._counts[bisect_left(self.edges, value)] += 1
        self.sum += value

    def add_since(self, rows: Sequence[Row], now_ms: int) -> None:
        """Counts the time from when each row fell due until now; `rows` are in that order."""
        end = len(rows)
        for bucket, edge_ms in enumerate(self.edges):
            if not end:
                break
            begin = bisect_left(rows, now_ms - edge_ms, 0, end, key=_due_ms)
            self._counts[bucket] += end - begin
            end = begin
        self._counts[-1] += end
        # A clock may be behind the brokers', by which a message fell due: it was not late for that.
        self.sum += max(0, len(rows) * now_ms - sum(map(_first, map(_first, rows))))

    def reached(self) -> list[int]:
        """For each edge how many values were at most that, then how many there are."""
        return list(accumulate(list(self._counts)))


def _due_ms(row: Row) -> int:
    return row[0][0]


class Meter:
    """What has been counted since the process began. One thread counts; any may read."""

    def __init__(self) -> None:
        self.lateness = Histogram(LATENESS_MS)
        self.commits = Histogram(COMMIT_MS)
        self.selections = Histogram(SELECTION)
        self.losses = 0  # leaderships that began without the end of the checkpoint topic
        # What is to be alarmed of is there before it happens: whoever looks for an increase would miss it.
        self.requests: dict[Decided, int] = {(op, outcome, ""): 0 for op, outcome in _ALWAYS}
        self.requests |= {("schedule", OutcomeKind.DEAD_LETTERED, code): 0 for code in (*RejectCode, OTHER)}

    @property
    def delivered(self) -> int:
        """Messages that were produced to their targets, replayed ones, too."""
        return sum(self.requests["schedule", outcome, ""] for outcome in _DELIVERED)

    def committed(self, flight: InFlight, known: CommitTime) -> None:
        """Counts a transaction that is committed. What was skipped or replayed is not late, nor what has
        waited for the end of a pause.
        """
        chosen = flight.selection
        self.commits.add(known.took_s * 1000)
        if chosen.size:
            self.selections.add(chosen.size)
        beside, due = chosen.to_carry
        released = {key for key, _ in chosen.released}
        late = [one for one in beside if one[0] not in released] if released else beside
        self.lateness.add_since(late, known.at_ms)
        self.lateness.add_since(_not_skipped(due, chosen.skip_to), known.at_ms)
        for (op, outcome, code), count in flight.decided.items():
            counted = op, outcome, _reason(code)
            self.requests[counted] = self.requests.get(counted, 0) + count


def _not_skipped(due: list[Row], skip_to: RowKey | None) -> Sequence[Row]:
    return due if skip_to is None else due[bisect_right(due, skip_to, key=_first) :]


def _reason(code: str | None) -> str:
    if code is None:
        return ""
    return code if code in REASONS else OTHER
