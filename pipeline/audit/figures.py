"""The audit's figures: when messages were delivered, and how late."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import accumulate
from typing import Any, Final

import plotly.graph_objects as go

from delayline.times import render_time
from pipeline.audit.report import Lateness
from pipeline.audit.spread import Bucket
from pipeline.audit.timeline import Epoch, Timeline
from pipeline.page.figures import COLOURS, MARK, QUIET, axis, duration, figure, log_ms_axis, on_log

LABELS: Final = 12
"""Marks that get their label written; the others show it when one points at them."""
_FEW: Final = 8
_CALENDAR_MS: Final = 253_402_300_799_999  # the end of the year 9999
_APART: Final = 0.045
"""Of the figure's width: labels that are closer would cover each other, on a telephone as well."""


@dataclass(frozen=True, slots=True)
class FigureMark:
    """Something that happened at a time, with the pause that it caused, if any."""

    at_ms: float
    label: str
    gap_from_ms: float | None = None
    gap_ms: float | None = None


def failover_marks(epochs: Iterable[Epoch]) -> list[FigureMark]:
    """A mark for each change of the epoch."""
    return [
        FigureMark(
            one.from_ms,
            f"epoch {one.epoch}: {one.node}, gap {duration(one.gap_ms)}",
            one.gap_from_ms,
            one.gap_ms,
        )
        for one in epochs
        if one.gap_ms is not None
    ]


def timeline_figure(timeline: Timeline, epochs: Sequence[Epoch], marks: Sequence[FigureMark]) -> go.Figure:
    """Messages for each bucket of time, by leader; changes of the epoch as lines; marks with labels."""
    begin_ms = timeline.bars[0].at_ms
    end_ms = timeline.bars[-1].at_ms + timeline.bucket_ms
    marks = [mark for mark in marks if begin_ms <= mark.at_ms <= end_ms]
    changes = [one.from_ms for one in epochs if one.gap_ms is not None and begin_ms <= one.from_ms <= end_ms]
    labelled = _apart(marks, (end_ms - begin_ms) * _APART)
    return figure(
        [*_bars(timeline), *_points(marks, _top(timeline))],
        barmode="stack",
        bargap=0,
        height=460 if labelled else 340,
        margin={"l": 8, "r": 8, "t": 170 if labelled else 24, "b": 8},
        shapes=[
            *(_line(at_ms, QUIET, "dot") for at_ms in changes),
            *(_line(mark.at_ms, MARK, "solid") for mark in marks),
            *_bands(marks),
        ],
        annotations=[_annotation(mark) for mark in labelled],
        xaxis=axis("UTC", type="date", range=[_iso(begin_ms), _iso(end_ms)], showgrid=False),
        yaxis=_counts(f"messages in {duration(timeline.bucket_ms)}", _top(timeline)),
    )


def lateness_figure(steps: Sequence[Bucket], lateness: Lateness) -> go.Figure:
    """How many messages were how late, and the share that was no later; early ones are not in it."""
    late = [step for step in steps if step.from_ms >= 0]
    ends = [on_log(step.to_ms) for step in late]
    shares = [100 * count / sum(s.messages for s in late) for count in accumulate(s.messages for s in late)]
    most = max((step.messages for step in late), default=1)
    return figure(
        [
            _histogram(late),
            go.Scatter(
                x=[on_log(late[0].from_ms), *ends],
                y=[0, *shares],
                name="share that was no later",
                yaxis="y2",
                mode="lines",
                line={"color": COLOURS[1], "width": 2, "shape": "linear"},
                hovertemplate="%{y:.2f} % within %{x:.0f} ms<extra></extra>",
            ),
            *_percentiles(lateness, most),
        ],
        hovermode="closest",
        xaxis=log_ms_axis(late[0].from_ms, late[-1].to_ms, "late by"),
        yaxis=_counts("messages", most, showgrid=False),
        yaxis2=axis("share", overlaying="y", side="right", range=[0, 101], ticksuffix=" %"),
    )


def _counts(title: str, top: int, **more: Any) -> dict[str, Any]:
    """An axis of whole numbers."""
    return axis(title, rangemode="tozero", dtick=1 if top <= _FEW else None, **more)


def _bars(timeline: Timeline) -> list[go.Bar]:
    nodes = sorted({bar.node or "" for bar in timeline.bars})
    return [
        go.Bar(
            x=[_iso(bar.at_ms) for bar in timeline.bars if (bar.node or "") == node],
            y=[bar.messages for bar in timeline.bars if (bar.node or "") == node],
            width=timeline.bucket_ms,
            offset=0,
            name=f"delivered by {node}" if node else "delivered, leader not known",
            marker={"color": COLOURS[number % len(COLOURS)] if node else QUIET, "line": {"width": 0}},
            hovertemplate="%{y:,} messages<br>%{x}",
        )
        for number, node in enumerate(nodes)
    ]


def _points(marks: Sequence[FigureMark], top: int) -> list[go.Scatter]:
    """Something to point at for each mark."""
    if not marks:
        return []
    return [
        go.Scatter(
            x=[_iso(mark.at_ms) for mark in marks],
            y=[top] * len(marks),
            text=[_escaped(mark.label) for mark in marks],
            mode="markers",
            marker={"symbol": "triangle-down", "size": 9, "color": MARK},
            showlegend=False,
            hovertemplate="%{text}<br>%{x}<extra></extra>",
        )
    ]


def _top(timeline: Timeline) -> int:
    sums: dict[int, int] = {}
    for bar in timeline.bars:
        sums[bar.at_ms] = sums.get(bar.at_ms, 0) + bar.messages
    return max(sums.values())


def _apart(marks: Sequence[FigureMark], least_ms: float) -> list[FigureMark]:
    """Those with the longest gaps first, as long as their labels do not meet."""
    chosen: list[FigureMark] = []
    for mark in sorted(marks, key=lambda mark: -(mark.gap_ms or 0)):
        if len(chosen) < LABELS and all(abs(mark.at_ms - other.at_ms) >= least_ms for other in chosen):
            chosen.append(mark)
    return chosen


def _line(at_ms: float, colour: str, dash: str) -> dict[str, Any]:
    line = {"color": colour, "width": 1, "dash": dash}
    return {
        "type": "line", "x0": _iso(at_ms), "x1": _iso(at_ms), "yref": "paper", "y0": 0, "y1": 1, "line": line,
    }  # fmt: skip


def _bands(marks: Iterable[FigureMark]) -> list[dict[str, Any]]:
    return [
        {
            "type": "rect", "x0": _iso(mark.gap_from_ms), "x1": _iso(mark.gap_from_ms + mark.gap_ms),
            "yref": "paper", "y0": 0, "y1": 1, "fillcolor": MARK, "opacity": 0.25, "line": {"width": 0},
        }
        for mark in marks
        if mark.gap_from_ms is not None and mark.gap_ms is not None
    ]  # fmt: skip


def _annotation(mark: FigureMark) -> dict[str, Any]:
    return {
        "x": _iso(mark.at_ms), "yref": "paper", "y": 1.02, "yanchor": "bottom", "text": _escaped(mark.label),
        "textangle": -90, "showarrow": False,
    }  # fmt: skip


def _histogram(steps: Sequence[Bucket]) -> go.Scatter:
    """Steps as an area; where none is, it lies on the ground."""
    x: list[float] = []
    y: list[int] = []
    for step in steps:
        begin = on_log(step.from_ms)
        if x and begin > x[-1]:
            x += [x[-1], begin]
            y += [0, 0]
        x += [begin, on_log(step.to_ms)]
        y += [step.messages, step.messages]
    return go.Scatter(
        x=[x[0], *x, x[-1]],
        y=[0, *y, 0],
        name="messages",
        mode="lines",
        line={"color": COLOURS[0], "width": 1},
        fill="tozeroy",
        hovertemplate="%{y:,} messages<extra></extra>",
    )


def _percentiles(lateness: Lateness, top: int) -> list[go.Scatter]:
    """In the legend, where they cannot cover each other."""
    values = (
        ("p50", lateness.p50, COLOURS[2]),
        ("p99", lateness.p99, COLOURS[4]),
        ("max", lateness.max, MARK),
    )
    return [
        go.Scatter(
            x=[on_log(value), on_log(value)],
            y=[0, top],
            name=f"{name} {duration(value)}",
            mode="lines",
            line={"color": colour, "width": 2, "dash": "dash"},
            hovertemplate=f"{name} {duration(value)}<extra></extra>",
        )
        for name, value, colour in values
        if value is not None and value >= 0
    ]


def _iso(at_ms: float) -> str:
    """Without an offset: plotly shows times as they are written. What no calendar has is at its end."""
    return render_time(min(max(round(at_ms), 0), _CALENDAR_MS)).removesuffix("Z")


def _escaped(text: str) -> str:
    """Plotly reads a few tags in texts; a node's name is its user's."""
    return text.replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;")
