"""What is due goes first: while more is due than a transaction takes, the leader's view takes in little.

Delivery and intake share an interpreter, and with the brokers the cores. What comes in is not due yet, but
for what is sent too late; what waits for delivery is. So intake rests then, but for a tenth of a core's time:
what cancels or moves a message gets in, however long a backlog lasts. A follower's intake never rests.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from typing import Final

SHARE: Final = 0.1
"""Of a core, for intake beside a backlog."""
FRESH_S: Final = 0.25
"""For how long it counts that something was left: who waits for brokers leaves the cores to others."""


class DueFirst:
    """What selections tell the thread that takes in."""

    def __init__(
        self, clock: Callable[[], float] = time.monotonic, none_left: threading.Event | None = None
    ) -> None:
        """`clock`: in seconds. `none_left`: to be waited for."""
        self._clock = clock
        self._none_left = none_left or threading.Event()
        self._none_left.set()
        self._noted_s = 0.0

    def note(self, *, left: bool) -> None:
        """Whether a selection has left something that it would have taken, had it had more room."""
        if not left:
            self._none_left.set()
            return
        self._noted_s = self._clock()
        self._none_left.clear()

    @property
    def is_left(self) -> bool:
        """What was noted last."""
        return not self._none_left.is_set()

    def rest(self, worked_s: float) -> None:
        """Of who has used a core for so long to take in: until it may go on."""
        until_s = self._clock() + worked_s * (1 / SHARE - 1)
        while (left_s := min(until_s, self._noted_s + FRESH_S) - self._clock()) > 0:
            if self._none_left.wait(left_s):
                return
