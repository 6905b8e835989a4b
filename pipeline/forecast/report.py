"""A forecast as data: what `-o json` shows, and the rows of its CSV file."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Final

from delayline.times import MINUTE_MS, render_time
from pipeline.forecast.counts import Target
from pipeline.forecast.forecast import Forecast, behind
from pipeline.forecast.horizon import HOUR_MS

OTHERS: Final = "(other)"
"""All targets that are not counted apart. No topic has such a name."""

CSV_COLUMNS: Final = (
    *("scale", "at", "target", "known", "chains", "fresh", "expected", "low", "high"),
    *("late_s", "late_at_most_s"),
)
"""See docs/forecast.md."""


def name_of(target: Target) -> str:
    """As it is shown."""
    return OTHERS if target is None else target


def minute_at(forecast: Forecast, minute: int) -> str:
    """When a minute of the horizon begins."""
    return render_time((forecast.horizon.first_minute + minute) * MINUTE_MS)


def hour_at(forecast: Forecast, hour: int) -> str:
    """When a clock hour of the horizon begins."""
    return render_time((forecast.horizon.first_hour + hour) * HOUR_MS)


def as_dict(forecast: Forecast) -> dict[str, Any]:
    """All of it but the minutes, which the CSV file has."""
    counts, capacity, back = forecast.counts, forecast.capacity, forecast.counts.shifts
    return {
        "cluster": forecast.cluster,
        "now_ms": forecast.horizon.now_ms,
        "until_ms": forecast.horizon.end_ms,
        "basis": forecast.basis,
        "stretches": 0 if back is None else back.count,
        "history_since_ms": counts.since_ms,
        "overdue": counts.waiting.overdue,
        "held": counts.waiting.held,
        "pending": counts.waiting.messages,
        "known": sum(forecast.known),
        "chains": sum(forecast.chains),
        "fresh": _round(sum(forecast.fresh)),
        "expected": _round(sum(forecast.minutes.expected)),
        "came": [round(share, 4) for share in forecast.came],
        "capacity_per_s": None if capacity is None else capacity.per_s,
        "capacity_given": None if capacity is None else capacity.given,
        "minutes_over": len(forecast.over),
        "first_over_ms": _first_over_ms(forecast),
        "late_s": _most(forecast.late),
        "late_at_most_s": _most(forecast.late_at_most),
        "peaks": [_peak(forecast, number) for number in range(len(forecast.peaks))],
        "hours": [_hour(forecast, hour) for hour in range(forecast.horizon.hours)],
        "disks": [
            {
                "part": disk.part,
                "where": disk.where,
                "free_bytes": disk.free_bytes,
                "added_bytes": round(disk.added_bytes[-1]),
                "full_at_ms": disk.full_at_ms,
            }
            for disk in forecast.disks
        ],
    }


def csv_rows(forecast: Forecast) -> Iterator[dict[str, Any]]:
    """One for each minute, each hour, and each target of each hour."""
    late, most = forecast.late, forecast.late_at_most
    for minute in range(forecast.horizon.minutes):
        yield {
            "scale": "minute",
            "at": minute_at(forecast, minute),
            "known": forecast.known[minute],
            "chains": forecast.chains[minute],
            "fresh": _round(forecast.fresh[minute]),
            "expected": _round(forecast.minutes.expected[minute]),
            "low": _round(forecast.minutes.low[minute]),
            "high": _round(forecast.minutes.high[minute]),
            "late_s": None if late is None else _round(late.late_s[minute]),
            "late_at_most_s": None if most is None else _round(most.late_s[minute]),
        }
    for hour in range(forecast.horizon.hours):
        data = _hour(forecast, hour)
        yield {"scale": "hour", "at": hour_at(forecast, hour), **{name: data[name] for name in _OF_HOUR}}
        for target, count in behind(forecast.targets, hour):
            yield {
                "scale": "target", "at": hour_at(forecast, hour), "target": name_of(target),
                "expected": _round(count),
            }  # fmt: skip


_OF_HOUR: Final = ("expected", "low", "high")


def _hour(forecast: Forecast, hour: int) -> dict[str, Any]:
    return {
        "at_ms": (forecast.horizon.first_hour + hour) * HOUR_MS,
        "expected": _round(forecast.hours.expected[hour]),
        "low": _round(forecast.hours.low[hour]),
        "high": _round(forecast.hours.high[hour]),
    }


def _peak(forecast: Forecast, number: int) -> dict[str, Any]:
    peak = forecast.peaks[number]
    most = forecast.late_at_most
    return {
        **_hour(forecast, peak.hour),
        "busiest_ms": (forecast.horizon.first_minute + peak.minute) * MINUTE_MS,
        "busiest_known": forecast.known[peak.minute],
        "busiest_expected": _round(forecast.minutes.expected[peak.minute]),
        "busiest_high": _round(forecast.minutes.high[peak.minute]),
        "late_at_most_s": None if most is None else _round(most.late_s[peak.minute]),
        "targets": [{"target": name_of(target), "expected": _round(count)} for target, count in peak.targets],
    }


def _first_over_ms(forecast: Forecast) -> int | None:
    return (forecast.horizon.first_minute + forecast.over[0]) * MINUTE_MS if forecast.over else None


def _most(late: Any) -> float | None:
    return None if late is None else _round(max(late.late_s, default=0.0))


def _round(value: float) -> float:
    return round(value, 1)
