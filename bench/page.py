"""A run of the benchmark as a page: the goals first, then plots, then every figure of every round."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import accumulate
from typing import Any

import plotly.graph_objects as go

from bench.figures import GOALS, Goal, kind, offered_only
from bench.reader import BUCKETS_MS
from bench.record import RunRecord
from pipeline.page import Cell, Column, Facts, Figure, Headline, Page, Section, Table
from pipeline.page.figures import COLOURS, axis, figure, log_ms_axis, on_log

_RATES = ("ingest.", "rebuild.", "delivery", "both.")
_LONGEST_MS = 2 * BUCKETS_MS[-1]  # where the bucket of all that is later ends in the plot


def bench_page(record: RunRecord) -> Page:
    """The page of a run."""
    medians = record.medians()
    title = f"delayline benchmark, {record.profile} profile"
    return Page(
        title,
        f"{record.begun}, {record.minutes} minutes",
        _headline(record, medians),
        _sections(record, medians),
    )


def _headline(record: RunRecord, medians: dict[str, float]) -> Headline:
    goals = [goal for goal in GOALS if goal.measured(medians)]
    met = sum(_met(goal, record, medians) for goal in goals)
    text = f"{met} of {len(goals)} goals met" if goals else "No figure that has a goal was measured"
    if record.failed:
        text += f"; failed: {', '.join(record.failed)}"
    all_well = met == len(goals) and not record.failed
    return Headline(text, ("good" if goals else "plain") if all_well else "bad")


def _met(goal: Goal, record: RunRecord, medians: dict[str, float]) -> bool:
    """Whether it is, under the load that it speaks of."""
    return goal.met(medians) and offered_only(goal.figure, record.figures) is None


def _sections(record: RunRecord, medians: dict[str, float]) -> list[Section]:
    sections = [
        Section("Where", [_where(record)]),
        Section("Failed", [Facts(record.failed)] if record.failed else []),
        Section("Goals", [_goals(record, medians)]),
        Section("Throughput", _throughput(record, medians)),
        Section("Lateness", _lateness(record)),
        Section("Memory", _bars(record, "memory.", "MB")),
        Section("All figures", [_figures(record, medians)]),
    ]
    return [section for section in sections if section.parts]


def _where(record: RunRecord) -> Facts:
    machine = record.machine
    return Facts(
        {
            "processor": f"{machine.processor}, {machine.cores} cores",
            "memory": f"{machine.memory_gb} GB",
            "system": machine.system,
            **machine.versions,
            **record.settings,
        }
    )


def _goals(record: RunRecord, medians: dict[str, float]) -> Table:
    columns = [Column("figure"), Column("measured", number=True), Column("goal", number=True), Column("of")]
    rows = [
        (
            goal.figure,
            Cell(f"{goal.reached(medians):,.2f}", "good" if _met(goal, record, medians) else "bad"),
            f"{'≥' if goal.at_least else '≤'} {goal.bound:g}",
            (goal.of or kind(goal.figure).unit) + _offered(goal.figure, record),
        )
        for goal in GOALS
        if goal.measured(medians)
    ]
    return Table(columns, rows)


def _throughput(record: RunRecord, medians: dict[str, float]) -> list[Figure]:
    """Rates beside the plain producer's, which is the line."""
    bars = [_bar(record, prefix, COLOURS[number]) for number, prefix in enumerate(_RATES)]
    drawn = [bar for bar in bars if bar is not None]
    if not drawn:
        return []
    plain = medians.get("plain.produce")
    line: dict[str, Any] = {} if plain is None else {"shapes": [_line(plain)]}
    plot = figure(drawn, yaxis=axis("messages a second", rangemode="tozero"), **line)
    return [Figure(plot, "Messages a second of each scenario; the line is what a plain producer sends.")]


def _line(y: float) -> dict[str, Any]:
    return {"type": "line", "xref": "paper", "x0": 0, "x1": 1, "y0": y, "y1": y, "line": {"dash": "dot"}}


def _bar(record: RunRecord, prefix: str, colour: str) -> go.Bar | None:
    names = [name for name in record.figures if name.startswith(prefix)]
    if not names:
        return None
    medians = record.medians()
    return go.Bar(
        x=names,
        y=[medians[name] for name in names],
        error_y={
            "type": "data",
            "symmetric": False,
            "array": [max(record.figures[name]) - medians[name] for name in names],
            "arrayminus": [medians[name] - min(record.figures[name]) for name in names],
        },
        name=kind(names[0]).says,
        marker={"color": colour},
        hovertemplate="%{x}: %{y:,.0f}<extra></extra>",
    )


def _bars(record: RunRecord, prefix: str, title: str) -> list[Figure]:
    bar = _bar(record, prefix, COLOURS[0])
    if bar is None:
        return []
    return [Figure(figure([bar], yaxis=axis(title, rangemode="tozero")), f"{bar.name}, {title}.")]


def _lateness(record: RunRecord) -> list[Figure]:
    """For each rate, the share of messages that were no later than so much."""
    if not record.histograms:
        return []
    ends_ms = [on_log(ms) for ms in (*BUCKETS_MS, _LONGEST_MS)]
    lines = [
        go.Scatter(
            x=ends_ms,
            y=_shares(counts),
            name=name,
            mode="lines+markers",
            line={"color": COLOURS[number], "width": 2},
            hovertemplate="%{y:.2f} % within %{x:.0f} ms<extra></extra>",
        )
        for number, (name, counts) in enumerate(record.histograms.items())
    ]
    plot = figure(
        lines, xaxis=log_ms_axis(BUCKETS_MS[0], _LONGEST_MS, "late by"), yaxis=axis("share", ticksuffix=" %")
    )
    return [Figure(plot, "The share of messages that came no later than so many milliseconds.")]


def _shares(counts: Sequence[int]) -> list[float]:
    return [100 * seen / sum(counts) for seen in accumulate(counts)]


def _figures(record: RunRecord, medians: dict[str, float]) -> Table:
    numbers = [Column(name, number=True) for name in ("median", "least", "most")]
    rows = [_row(name, record, medians[name]) for name in record.figures]
    return Table([Column("figure"), Column("what"), *numbers, Column("unit")], rows)


def _row(name: str, record: RunRecord, median: float) -> tuple[str | float, ...]:
    of_kind, values = kind(name), record.figures[name]
    says = of_kind.says + _offered(name, record)
    return (name, says, round(median, 1), min(values), max(values), of_kind.unit)


def _offered(name: str, record: RunRecord) -> str:
    offered = offered_only(name, record.figures)
    return "" if offered is None else f"; offered only {offered:,.0f}/s"
