"""What is asked for again where a connection breaks: what has come before stays."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Final, TypeVar

from node.snapshot.errors import Broken

TRIES: Final = 3
RETRY_S: Final = 0.5

Answer = TypeVar("Answer")


def asked_again(ask: Callable[[], Answer], expect_wanted: Callable[[], None]) -> Answer:
    """Asks, `TRIES` times at most. `expect_wanted` raises where nobody waits for it any more; each try begins
    with it. Raises what it raises, and what `ask` does: `Broken` after the last try alone.
    """
    for attempt in range(1, TRIES + 1):
        expect_wanted()
        try:
            return ask()
        except Broken:
            if attempt == TRIES:
                raise
            time.sleep(RETRY_S * attempt)
    raise AssertionError("the last attempt returns or raises")
