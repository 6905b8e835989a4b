"""A pace: so many bytes a second, and no burst for what was not used before."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable


class Pace:
    """For any thread."""

    def __init__(self, bytes_per_s: int, clock_s: Callable[[], float] = time.monotonic) -> None:
        self._bytes_per_s = bytes_per_s
        self._clock_s = clock_s
        self._changing = threading.Lock()
        self._next_s = 0.0

    def take(self, count: int) -> float:
        """Takes so many bytes; for how many seconds to wait before they go."""
        with self._changing:
            now_s = self._clock_s()
            begin_s = max(now_s, self._next_s)
            self._next_s = begin_s + count / self._bytes_per_s
            return begin_s - now_s
