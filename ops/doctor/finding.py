"""One thing that was looked at, and what came of it."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum


class Level(StrEnum):
    """`note`: worth knowing, or not to be found out from here; a cluster that has nothing else is well."""

    OK = "ok"
    NOTE = "note"
    PROBLEM = "problem"


@dataclass(frozen=True, slots=True)
class Finding:
    """`check`: what was looked at; `found`: what there is; `mend`: what to do, empty if nothing."""

    check: str
    level: Level
    found: str
    mend: str = ""


def ok(check: str, found: str) -> Finding:
    """All is well."""
    return Finding(check, Level.OK, found)


def note(check: str, found: str, mend: str = "") -> Finding:
    """Worth knowing."""
    return Finding(check, Level.NOTE, found, mend)


def problem(check: str, found: str, mend: str) -> Finding:
    """To be mended."""
    return Finding(check, Level.PROBLEM, found, mend)
