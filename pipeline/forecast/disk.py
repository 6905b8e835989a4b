"""When a disk is full: what comes is added, what retention lets go is taken away, hour by hour."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Disk:
    """A disk. `part`: log or view. `where`: whose, in words. `free_bytes` now; `added_bytes`: by the end of
    each hour, against now; `full_at_ms`: None: not within the horizon.
    """

    part: str
    where: str
    free_bytes: int
    added_bytes: Sequence[float]
    full_at_ms: int | None


def log_growth(written: Sequence[float], kept: Sequence[float], retention_hours: int | None) -> list[float]:
    """What the log has more than now at the end of each hour to come, in whatever unit is given.

    `written`: in each hour to come. `kept`: in each hour that has been, the last one last. `retention_hours`:
    None: nothing is ever let go.
    """
    grown, sums = 0.0, []
    both = [*kept, *written]
    for hour, value in enumerate(written):
        grown += value
        if retention_hours is not None:
            goes = len(kept) + hour - retention_hours
            grown -= both[goes] if goes >= 0 else 0.0
        sums.append(grown)
    return sums


def view_growth(asked: Sequence[float], delivered: Sequence[float]) -> list[float]:
    """How many messages more than now wait at the end of each hour."""
    grown, sums = 0.0, []
    for more, less in zip(asked, delivered, strict=True):
        grown += more - less
        sums.append(grown)
    return sums


def full_hour(added: Sequence[float], free: float) -> int | None:
    """The hour at whose end there is no room any more."""
    return next((hour for hour, more in enumerate(added) if more >= free), None)
