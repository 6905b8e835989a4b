"""A leader's clock, and whether a commit has shown it to be right (docs/design.md, rules 1 and 6, "Node").

Nothing is delivered by a clock that no commit has shown to be right (I2): each checkpoint is sent at a time
of this clock, and its acknowledgement shows the brokers'. From then on the clock is compared with one that
nobody sets, so that it is noticed if it is set ahead, and shown to the brokers again before it counts.
"""

from __future__ import annotations

from typing import NamedTuple, Protocol

from node.core.ports import Clock, Doubtful
from store.checkpoint import Frontier
from store.overrun import MOST_OVERRUNS


class NewestTimestamps(Protocol):
    """What the view knows of the brokers' clock."""

    def newest_ms(self, most_ms: int) -> int:
        """The newest timestamp of the partitions in which it is not above `most_ms`; 0 if there is none."""


class Reading(NamedTuple):
    """The time, by the clock of rule 1, and by how much the own clock was ahead then of one that nobody sets:
    that changes only where the clock is set.
    """

    now_ms: int
    lead_ms: int


class LeaderClock:
    """One leadership's. Used by its thread."""

    def __init__(self, clock: Clock, view: NewestTimestamps, max_skew_ms: int) -> None:
        """`max_skew_ms`: by so much it may be off the brokers' clock, and is right still."""
        self._clock = clock
        self._view = view
        self._max_skew_ms = max_skew_ms
        self._shown_lead_ms = 0  # with the last checkpoint
        self._proven_lead_ms: int | None = None  # by the last commit that showed the clock to be right
        self._offset_ms = 0  # of the brokers' clock, by the last commit

    def own_ms(self) -> int:
        """By the node's own clock: what waits, waits by that."""
        return self._clock.now_ms()

    def read(self) -> Reading:
        """Rule 1's clock: the brokers' may be ahead of the own by as much as the skew allowed, so that an
        immediate message does not wait for this node's clock to reach its timestamp. A partition whose newest
        record is further ahead says nothing of the time.
        """
        own_ms = self._clock.now_ms()
        now_ms = max(own_ms, self._view.newest_ms(own_ms + self._max_skew_ms))
        return Reading(now_ms, self._lead_ms())

    def _lead_ms(self) -> int:
        """Taken after the reading that it is of: should the clock be set ahead in between, that is seen."""
        return self._clock.now_ms() - self._clock.steady_ms()

    # -- its proof

    def forget_proof(self) -> None:
        """Whatever was shown before: the next commit shows it anew."""
        self._proven_lead_ms = None

    def note_shown(self) -> None:
        """A checkpoint is sent, which will bear the brokers' time."""
        self._shown_lead_ms = self._lead_ms()

    def note_committed(self, offset_ms: int) -> None:
        """The last checkpoint is committed. `offset_ms`: by how much the brokers' clock was ahead then."""
        is_right = abs(offset_ms) <= self._max_skew_ms
        self._proven_lead_ms = min(self._shown_lead_ms, self._lead_ms()) if is_right else None
        self._offset_ms = offset_ms

    def has_jumped(self, lead_ms: int) -> bool:
        """Whether the clock has been set ahead since a commit showed it to be right."""
        proven_ms = self._proven_lead_ms
        return proven_ms is not None and lead_ms - proven_ms > self._max_skew_ms

    def require_proof(self, lead_ms: int) -> None:
        """What was selected by a clock is committed only once a commit has shown that clock to be right (I2):
        the first messages of a leadership are sent beside the commit that does, and the clock may be set at
        any time. Raises `Doubtful`.
        """
        if self._proven_lead_ms is None or self.has_jumped(lead_ms):
            raise Doubtful(
                f"the clock is {-self._offset_ms:+d} ms off the brokers', or was set: "
                "what it selected may be early"
            )

    # -- the position that it may be behind

    def not_before_ms(self, now_ms: int, tip: Frontier) -> int | None:
        """The position's due time, if the clock has not come as far: the last leader's was ahead, or this one
        was set back. Nothing is selected before (rule 6).
        """
        position = tip.position
        return position[0] if position is not None and now_ms < position[0] else None

    def must_rewind(self, reading: Reading, tip: Frontier) -> bool:
        """Whether the position, or delivered-up-to, is further ahead than is worth a wait, by a clock that a
        commit has shown to be right: the clock was ahead, and the brokers' with it.
        """
        proven_ms, skew_ms = self._proven_lead_ms, self._max_skew_ms
        if tip.position is None or proven_ms is None or abs(reading.lead_ms - proven_ms) > skew_ms:
            return False
        ahead_ms = max(tip.position[0], tip.delivered_up_to_ms) - reading.now_ms
        return ahead_ms > skew_ms and len(tip.overruns) < MOST_OVERRUNS
