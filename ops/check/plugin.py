"""What makes a command a plugin of Nagios and its like: thresholds, a status, one line with performance data.

As the Monitoring Plugins' development guidelines have it.
"""

from __future__ import annotations

import math
import re
from collections.abc import Sequence
from dataclasses import dataclass
from enum import IntEnum
from typing import Final


class Status(IntEnum):
    """The number is the exit code."""

    OK = 0
    WARNING = 1
    CRITICAL = 2
    UNKNOWN = 3


_WORST_FIRST: Final = (Status.CRITICAL, Status.WARNING, Status.UNKNOWN)
_RANGE: Final = re.compile(r"(@?)(?:(~|-?\d+(?:\.\d+)?)?:)?(-?\d+(?:\.\d+)?)?")


@dataclass(frozen=True, slots=True)
class Range:
    """Values that are well: from `low` to `high`; with `inside`, the others. `text`: as it was written."""

    text: str
    low: float
    high: float
    inside: bool

    @classmethod
    def parse(cls, text: str) -> Range:
        """Raises ValueError."""
        found = _RANGE.fullmatch(text)
        if found is None or text in ("", "@"):
            raise ValueError(f"{text!r} is no range: write 10, 10:, ~:10, 5:10 or @5:10")
        at, begin, end = found.groups()
        low = -math.inf if begin == "~" else float(begin or 0)
        high = math.inf if end is None else float(end)
        if low > high:
            raise ValueError(f"{text!r} is no range: it ends before it begins")
        return cls(text, low, high, bool(at))

    def alarms(self, value: float) -> bool:
        """Whether the value is not well."""
        return (self.low <= value <= self.high) == self.inside


@dataclass(frozen=True, slots=True)
class Value:
    """Something that was measured: `says` in words. `unit`: `s`, or none for a count."""

    label: str
    value: float
    unit: str
    says: str


@dataclass(frozen=True, slots=True)
class PluginResult:
    """What is so whatever the thresholds are."""

    status: Status
    says: str


def judged(found: Sequence[Value | PluginResult], warning: Range, critical: Range) -> tuple[Status, str]:
    """The worst of it, and the line: that first, then the rest."""
    statuses = [(_status(one, warning, critical), one) for one in found]
    worst = next((status for status in _WORST_FIRST if status in [one for one, _ in statuses]), Status.OK)
    texts = [one.says for status, one in statuses if status == worst]
    texts += [one.says for status, one in statuses if status != worst]
    data = [_performance(one, warning, critical) for one in found if isinstance(one, Value)]
    return worst, line(worst, "; ".join(texts), data)


def line(status: Status, says: str, data: Sequence[str] = ()) -> str:
    """One line, whatever the text is."""
    plain = " ".join(says.replace("|", "/").split())
    return f"{status.name} - {plain}" + (f" | {' '.join(data)}" if data else "")


def _status(one: Value | PluginResult, warning: Range, critical: Range) -> Status:
    if isinstance(one, PluginResult):
        return one.status
    if critical.alarms(one.value):
        return Status.CRITICAL
    return Status.WARNING if warning.alarms(one.value) else Status.OK


def _performance(one: Value, warning: Range, critical: Range) -> str:
    label = one.label.replace("'", "").replace("=", "")
    return f"'{label}'={one.value:.15g}{one.unit};{warning.text};{critical.text};0"
