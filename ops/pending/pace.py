"""How fast an operator's command may go, and what it says meanwhile."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Final

SAY_S: Final = 5.0

Say = Callable[[str], None]


class Pace:
    """Holds a command to so many messages a second, and says how far it is every few seconds."""

    def __init__(self, rate: float, say: Say) -> None:
        self.count = 0
        self._rate = rate
        self._say = say
        self._begun_s = time.monotonic()
        self._said_s = self._begun_s

    def add(self, count: int, what: str) -> None:
        """So many more are done."""
        self.count += count
        now_s = time.monotonic()
        if now_s - self._said_s >= SAY_S:
            self._said_s = now_s
            self._say(f"{self.count} {what}")
        ahead_s = self.count / self._rate - (now_s - self._begun_s)
        if ahead_s > 0:
            time.sleep(ahead_s)
