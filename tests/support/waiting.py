"""Waiting for a condition, with a deadline."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import TypeVar

PATIENCE_S = 40.0
"""Far longer than anything takes on an idle machine: only a failure waits so long."""

LOOK_EVERY_S = 0.01

T = TypeVar("T")


def eventually(ask: Callable[[], T], what: str, timeout_s: float = PATIENCE_S) -> T:
    """The first true answer; AssertionError with `what` should have come true if there is none in time."""
    deadline_s = time.monotonic() + timeout_s
    while not (answer := ask()):
        assert time.monotonic() < deadline_s, f"not within {timeout_s} s: {what}; the last answer: {answer!r}"
        time.sleep(LOOK_EVERY_S)  # between two looks; nothing tells us
    return answer


def becomes(ask: Callable[[], object], expected: object, timeout_s: float = PATIENCE_S) -> None:
    """Waits until the answer is the expected one."""
    deadline_s = time.monotonic() + timeout_s
    while (answer := ask()) != expected:
        assert time.monotonic() < deadline_s, f"not {expected!r} within {timeout_s} s, but {answer!r}"
        time.sleep(LOOK_EVERY_S)  # between two looks; nothing tells us
