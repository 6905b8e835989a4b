"""Puts logging back as it was: the command line sets it up for its whole process."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from contextlib import contextmanager

import structlog

from ops import logs


@contextmanager
def restored_logging() -> Iterator[None]:
    """Undo on leaving whatever `ops.logs.configure` did inside."""
    root, ours = logging.getLogger(), logging.getLogger(logs.ROOT)
    handlers, level, our_level = root.handlers[:], root.level, ours.level
    try:
        yield
    finally:
        structlog.reset_defaults()
        root.handlers[:] = handlers
        root.setLevel(level)
        ours.setLevel(our_level)
