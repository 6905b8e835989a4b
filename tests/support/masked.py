"""What a command has shown, without what is another in each run."""

from __future__ import annotations

import re
from typing import Final

from tests.support.commands import Done

_PASSING: Final = {
    r"\bt-[a-z0-9-]*[0-9a-f]{8}": "CLUSTER",
    r"127\.0\.0\.1:\d{2,5}": "HOST:PORT",
    r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}Z": "TIME",
    r"\b\d{13}\b": "EPOCH_MS",
    r" \(\d+(ms|s|m|h|d) ago\)": " (AGE)",
    r" {2,}": "  ",
    "─+": "─",
}


def masked(done: Done) -> Done:
    """With the names of tests' clusters, addresses, times and ages as words of their own, and no column's
    width, which is theirs.
    """
    return Done(done.code, _masked(done.out), _masked(done.err))


def _masked(words: str) -> str:
    for pattern, mask in _PASSING.items():
        words = re.sub(pattern, mask, words)
    return words
