"""Whether a snapshot comes on. No time bounds all of it: who knows how fast a path is?"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

SLOWEST_BYTES_PER_S: Final = 256 << 10
"""A slower path is not waited for: a node at its end could not keep up with a busy log either, which has more
than that from 700 requests a second on. No pace that may be set is as slow by far.
"""
WINDOW_S: Final = 60.0
"""So long it may come more slowly: until one of its parts has come that was asked for three times."""


class Progress:
    """For one thread."""

    def __init__(self, slowest_bytes_per_s: int, clock_s: Callable[[], float]) -> None:
        """`slowest_bytes_per_s`: 0 if it may be as slow as it is."""
        self._slowest_bytes_per_s = slowest_bytes_per_s
        self._clock_s = clock_s
        self._since_s = clock_s()
        self._bytes = 0

    def come(self, count: int) -> bool:
        """So many bytes more; whether it comes on, as each whole window says anew."""
        self._bytes += count
        now_s = self._clock_s()
        lasted_s = now_s - self._since_s
        if lasted_s < WINDOW_S:
            return True
        is_fast = self._bytes >= lasted_s * self._slowest_bytes_per_s
        self._since_s, self._bytes = now_s, 0
        return is_fast
