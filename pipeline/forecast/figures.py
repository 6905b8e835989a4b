"""The forecast's figures: what is due by hour and in the busiest minutes, and what the disks still take."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

import plotly.graph_objects as go

from pipeline.forecast.counts import Target
from pipeline.forecast.disk import Disk
from pipeline.forecast.forecast import Forecast
from pipeline.forecast.model import by_hour
from pipeline.forecast.report import hour_at, minute_at, name_of
from pipeline.page.figures import COLOURS, MARK, QUIET, axis, figure

_SHADE: Final = "rgba(138, 148, 158, 0.28)"
_MOST_TARGETS: Final = 7
_GIB: Final = 1 << 30


def hours_figure(forecast: Forecast) -> go.Figure:
    """What is due in each hour: what is known, what is expected, and the band."""
    hours = range(forecast.horizon.hours)
    at = [_iso(hour_at(forecast, hour)) for hour in hours]
    known, chains = (by_hour(part, forecast.horizon) for part in (forecast.known, forecast.chains))
    plain = [one - other for one, other in zip(known, chains, strict=True)]
    return figure(
        [
            *_band(at, forecast.hours.low, forecast.hours.high),
            _bars(at, plain, "waits already", COLOURS[0]),
            _bars(at, chains, "recurring", COLOURS[2]),
            _line(at, forecast.hours.expected, "expected, with what is still to come", COLOURS[1]),
        ],
        barmode="stack",
        bargap=0,
        xaxis=axis("UTC", type="date", showgrid=False),
        yaxis=axis("messages in an hour", rangemode="tozero"),
    )


def minutes_figure(forecast: Forecast) -> go.Figure:
    """What is due in each minute, the band, and what the lanes can do."""
    minutes = range(forecast.horizon.minutes)
    at = [_iso(minute_at(forecast, minute)) for minute in minutes]
    lines = [
        _line(at, list(forecast.known), "known", COLOURS[0]),
        _line(at, forecast.minutes.expected, "expected, with what is still to come", COLOURS[1]),
    ]
    capacity = forecast.capacity
    if capacity is not None and max(forecast.minutes.high) * 20 > capacity.per_s * 60:
        name = "what the lanes can do" if capacity.given else "the most that the lanes were seen to do"
        level = {"color": MARK, "width": 1.5, "dash": "dash"}
        ends = [at[0], at[-1]]
        lines.append(go.Scatter(x=ends, y=[capacity.per_s * 60] * 2, name=name, mode="lines", line=level))
    return figure(
        [*_band(at, forecast.minutes.low, forecast.minutes.high), *lines],
        xaxis=axis("UTC", type="date", showgrid=False),
        yaxis=axis("messages in a minute", rangemode="tozero"),
    )


def targets_figure(forecast: Forecast) -> go.Figure:
    """Who is behind each hour: the largest targets, and all others together."""
    sums: dict[Target, float] = {}
    for (_, target), count in forecast.targets.items():
        sums[target] = sums.get(target, 0.0) + count
    ranked = sorted((one for one in sums if one is not None), key=lambda one: (-sums[one], one))
    shown = ranked[:_MOST_TARGETS]
    hours = range(forecast.horizon.hours)
    at = [_iso(hour_at(forecast, hour)) for hour in hours]

    def of(*targets: Target) -> list[float]:
        return [sum(forecast.targets.get((hour, target), 0.0) for target in targets) for hour in hours]

    bars = [_bars(at, of(target), _cut(name_of(target)), COLOURS[n]) for n, target in enumerate(shown)]
    rest = [one for one in sums if one not in shown]
    if rest:
        bars.append(_bars(at, of(*rest), "all others", QUIET))
    return figure(
        bars,
        barmode="stack",
        bargap=0,
        xaxis=axis("UTC", type="date", showgrid=False),
        yaxis=axis("messages in an hour", rangemode="tozero"),
    )


def disk_figure(forecast: Forecast, disks: Sequence[Disk]) -> go.Figure:
    """What is left free of each disk."""
    at = [_iso(hour_at(forecast, hour)) for hour in range(forecast.horizon.hours)]
    lines = [
        _line(
            at,
            [(disk.free_bytes - more) / _GIB for more in disk.added_bytes],
            _cut(f"{disk.part}: {disk.where}"),
            COLOURS[number % len(COLOURS)],
            "%{y:,.2f} GiB",
        )
        for number, disk in enumerate(disks)
    ]
    return figure(
        lines,
        xaxis=axis("UTC", type="date", showgrid=False),
        yaxis=axis("GiB free", rangemode="tozero"),
    )


def _band(at: Sequence[str], low: Sequence[float], high: Sequence[float]) -> list[go.Scatter]:
    line = {"width": 0, "shape": "hv"}
    edge: dict[str, Any] = {"mode": "lines", "line": line, "hovertemplate": "%{y:,.0f}"}
    return [
        go.Scatter(x=at, y=_short(low), name="8 of 10 lie above", showlegend=False, **edge),
        go.Scatter(
            x=at, y=_short(high), name="8 of 10 lie in this band", fill="tonexty", fillcolor=_SHADE, **edge
        ),
    ]


def _bars(at: Sequence[str], values: Sequence[float], name: str, colour: str) -> go.Bar:
    marker = {"color": colour, "line": {"width": 0}}
    return go.Bar(
        x=at, y=_short(values), name=name, marker=marker, offset=0, width=3_600_000,
        hovertemplate="%{y:,.0f}<br>%{x}",
    )  # fmt: skip


def _line(
    at: Sequence[str], values: Sequence[float], name: str, colour: str, shown: str = "%{y:,.0f}"
) -> go.Scatter:
    line = {"color": colour, "width": 1.5, "shape": "hv"}
    return go.Scatter(
        x=at, y=_short(values), name=name, mode="lines", line=line, hovertemplate=f"{shown}<br>%{{x}}"
    )


def _short(values: Sequence[float]) -> list[float]:
    """A page of two weeks' minutes is to stay small."""
    return [round(value, 2) for value in values]


def _iso(at: str) -> str:
    """Without an offset: plotly shows times as they are written."""
    return at.removesuffix("Z")


def _cut(name: str) -> str:
    """Plotly reads a few tags in texts; a target's name is its user's."""
    short = name if len(name) <= 40 else f"{name[:39]}…"
    return short.replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;")
