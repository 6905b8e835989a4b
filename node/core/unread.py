"""What a leader waits for the reader to bring: what was written back and cannot be read yet (rule 3)."""

from __future__ import annotations

from typing import Final

from node.core.ports import Clock
from node.core.steps import Wait
from store.checkpoint import Vector
from store.selection import Selection
from store.view import View

HIDDEN_MS: Final = 200
"""What was written back is hidden, behind a user's transaction, if it cannot be read for so long."""


class Unread:
    """Of one leadership. Used by its thread."""

    def __init__(self, view: View, clock: Clock) -> None:
        self._view = view
        self._clock = clock
        self._cut_short = False  # the last selection has ended before something that is due
        self._waits_for: Vector = {}  # by the last selection: what is to be applied first
        self._full: dict[
            int, tuple[int, int]
        ] = {}  # by partition: what is waited for, and since when (steady)

    def forget(self) -> None:
        """Nothing that was written back has waited yet."""
        self._full = {}

    def note_selected(self, chosen: Selection) -> None:
        """What it waits for, if for anything."""
        self._cut_short, self._waits_for = chosen.cut_short, chosen.waits_for | chosen.full
        for partition, end in chosen.full.items():
            self._full.setdefault(partition, (end, self._clock.steady_ms()))

    def hidden(self) -> frozenset[int]:
        """The partitions in which the reader was waited for long enough: a user's transaction is open."""
        has_applied = self._view.has_applied
        self._full = {p: (end, since) for p, (end, since) in self._full.items() if not has_applied({p: end})}
        steady_ms = self._clock.steady_ms()
        return frozenset(p for p, (_, since_ms) in self._full.items() if steady_ms - since_ms >= HIDDEN_MS)

    def until_due(self, until_ms: int) -> Wait:
        """Until the next message is due, or what the last selection waits for is there; or until then."""
        due_ms = self._view.wake_at()
        if self._waits_for:
            self._view.wake_always()
            if self._view.has_applied(self._waits_for):  # meanwhile
                return Wait(self._clock.now_ms())
        if not self._cut_short:  # else what is due waits for that
            return Wait(until_ms if due_ms is None else min(due_ms, until_ms))
        waited_ms = [self._clock.steady_ms() - since_ms for _, since_ms in self._full.values()]
        rest_ms = [HIDDEN_MS - waited for waited in waited_ms if waited < HIDDEN_MS]
        return Wait(min(until_ms, self._clock.now_ms() + min(rest_ms)) if rest_ms else until_ms)
