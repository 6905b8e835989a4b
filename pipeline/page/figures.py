"""What all figures have in common, so that they look alike and fit the page in any light and width."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any, Final

import plotly.graph_objects as go

COLOURS: Final = ("#3b82c4", "#e0912f", "#2f9e77", "#c0679a", "#8577d1", "#a3892c", "#54a9c9", "#b5654a")
"""For one thing each (Okabe and Ito's, made to be told apart by everybody, toned for both backgrounds)."""
MARK: Final = "#d64550"
"""For what stands out."""
QUIET: Final = "#8a949e"
HEIGHT: Final = 380

_S, _MIN, _H, _DAY = 1_000, 60_000, 3_600_000, 86_400_000
_TICKS_MS: Final = (
    *(0, 1, 2, 5, 10, 20, 50, 100, 200, 500, _S, 2 * _S, 5 * _S, 10 * _S, 30 * _S, _MIN, 2 * _MIN),
    *(5 * _MIN, 10 * _MIN, 30 * _MIN, _H, 2 * _H, 6 * _H, 12 * _H, _DAY, 2 * _DAY, 7 * _DAY, 30 * _DAY),
    *(365 * _DAY,),
)
_MOST_TICKS: Final = 9
_PAD: Final = 0.03


def figure(traces: Sequence[Any], **layout: Any) -> go.Figure:
    """A figure with the page's layout; `layout` goes over it. Its colours are the page's (`page.css`)."""
    frame = {
        "template": None,
        "height": HEIGHT,
        "margin": {"l": 8, "r": 8, "t": 24, "b": 8},
        "paper_bgcolor": "rgba(0,0,0,0)",
        "plot_bgcolor": "rgba(0,0,0,0)",
        "font": {"family": "system-ui, sans-serif", "size": 12},
        "legend": {"orientation": "h", "yref": "container", "y": 0, "yanchor": "bottom", "x": 0}
        | {"traceorder": "normal"},
        "hoverlabel": {"bgcolor": "#22272e", "bordercolor": "#22272e", "font": {"color": "#f3f5f7"}},
        "modebar": {"bgcolor": "rgba(0,0,0,0)", "color": QUIET, "activecolor": COLOURS[0]},
        "xaxis": axis(),
        "yaxis": axis(),
    }
    return go.Figure(traces, go.Layout(**(frame | layout)))


def axis(title: str = "", **more: Any) -> dict[str, Any]:
    """An axis that makes room for its own labels."""
    return {"title": {"text": title}, "automargin": True, "zeroline": False, **more}


def duration(ms: float) -> str:
    """A duration in its largest unit that makes it a short number: `250 ms`, `1.5 s`, `2 h`."""
    for size_ms, unit in ((_DAY, "d"), (_H, "h"), (_MIN, "min"), (_S, "s")):
        if ms >= size_ms:
            return f"{ms / size_ms:.3g} {unit}"
    return f"{ms:.3g} ms"


def log_ms_axis(least_ms: float, most_ms: float, title: str) -> dict[str, Any]:
    """A logarithmic axis of durations, with ticks where people count; place values with `on_log`."""
    ticks = [ms for ms in _TICKS_MS if least_ms <= ms <= most_ms] or [round(least_ms)]
    ticks = ticks[:: 1 + (len(ticks) - 1) // _MOST_TICKS]
    return axis(
        title,
        type="log",
        # Given: where plotly has yet to find it, no tick is in it, and the title is placed at -Infinity.
        range=[math.log10(on_log(least_ms)) - _PAD, math.log10(on_log(most_ms)) + _PAD],
        tickvals=[on_log(ms) for ms in ticks],
        ticktext=[duration(ms) for ms in ticks],
    )


def on_log(ms: float) -> float:
    """Where a duration stands on a logarithmic axis: 0, which has no place there, before 1 ms."""
    return max(ms, 0.5)
