"""A run of the comparison, shown: as a table in a terminal and in Markdown, and as a page with plots."""

from __future__ import annotations

import statistics
from collections.abc import Sequence

import plotly.graph_objects as go
from rich.console import Console
from rich.table import Table as TerminalTable

from bench.markdown import row
from bench.peers.compared import IN_TWO, LINES, OURS, YARDSTICK, Line
from bench.peers.run import PEERS
from bench.record import RunRecord
from pipeline.page import Column, Facts, Figure, Headline, Page, Section, Table
from pipeline.page.figures import COLOURS, axis, figure

_SHORT = {
    "delayline": "delayline",
    "lanes2": "two lanes",
    "rocketmq": "RocketMQ",
    "pulsar": "Pulsar",
    "redis": "Redis",
    "postgres": "PostgreSQL",
}


def show(console: Console, record: RunRecord) -> None:
    """The table."""
    table = TerminalTable()
    for number, heading in enumerate(_headings(record)):
        table.add_column(heading, justify="right" if number else "left")
    for cells in _rows(record):
        table.add_row(*cells)
    console.print(table)
    for name, why in record.failed.items():
        console.print(f"{_SHORT[name]} failed, {why}", soft_wrap=True)


def markdown(record: RunRecord) -> str:
    """The table, where it was measured, how each was set, and what each does not do."""
    machine = record.machine
    headings = _headings(record)
    where = f"{machine.cores} cores ({machine.processor}), {machine.memory_gb:g} GB"
    rounds = f"rounds: {record.settings['rounds']}"
    lines = [
        f"{record.begun[:10]}, {where}, {rounds}. Medians; in brackets the least and the most.\n",
        row(*headings),
        "|---|" + "---:|" * (len(headings) - 1),
        *(row(*cells) for cells in _rows(record)),
        "",
        *(f"{_SHORT[name]} failed, {why}\n" for name, why in record.failed.items()),
        row("", "set to", "does not do"),
        "|---|---|---|",
        *(
            row(peer.title, record.settings.get(peer.name, peer.settings), peer.lacks)
            for peer in PEERS
            if peer.name in _names(record)
        ),
    ]
    return "\n".join(lines) + "\n"


def peers_page(record: RunRecord) -> Page:
    """The page."""
    machine = record.machine
    where = {
        "processor": f"{machine.processor}, {machine.cores} cores",
        "memory": f"{machine.memory_gb} GB",
        "system": machine.system,
        **machine.versions,
        **record.settings,
    }
    columns = [Column(heading, number=number > 0) for number, heading in enumerate(_headings(record))]
    lacks = {peer.title: peer.lacks for peer in PEERS if peer.name in _names(record)}
    sections = [
        Section("Side by side", [Table(columns, _rows(record))]),
        Section("Plots", [_plot(line, record) for line in LINES if line.goal is not None]),
        Section("What each does not do", [Facts(lacks)]),
        Section("Failed", [Facts(record.failed)] if record.failed else []),
        Section("Where, and how each was set", [Facts(where)]),
    ]
    return Page(
        "delayline and its peers",
        f"{record.begun}, {record.minutes} minutes",
        _headline(record),
        [section for section in sections if section.parts],
    )


def _headline(record: RunRecord) -> Headline:
    """Of the lines that have a goal: in how many it is reached."""
    reached = [
        (line.goal, times)
        for line in LINES
        if line.goal is not None and (times := line.times(record, YARDSTICK)) is not None
    ]
    if not reached:
        return Headline("Nothing that has a goal was measured", "plain")
    met = sum(times >= goal for goal, times in reached)
    text = f"As far ahead of {_SHORT[YARDSTICK]} as it should be in {met} of {len(reached)} lines"
    return Headline(text, "good" if met == len(reached) else "bad")


def _names(record: RunRecord) -> list[str]:
    """The peers of the run, in their order."""
    known = {name.rpartition(".")[2] for name in record.figures} | record.failed.keys()
    return [peer.name for peer in PEERS if peer.name in known]


def _headings(record: RunRecord) -> list[str]:
    return [
        "",
        *(_SHORT[name] for name in _names(record)),
        f"times {_SHORT[YARDSTICK]}",
        "times the best other",
        "goal",
    ]


def _rows(record: RunRecord) -> list[list[str]]:
    return [_row_of(line, record) for line in LINES if any(line.of(record, name) for name in _names(record))]


def _row_of(line: Line, record: RunRecord) -> list[str]:
    names = _names(record)
    best = line.best_other(record, names)
    by_best = None if best is None else line.times(record, best)
    return [
        f"{line.says}, {line.unit}",
        *(_spread(line.of(record, name)) for name in names),
        _times(line.times(record, YARDSTICK)),
        "" if best is None or by_best is None else f"{_times(by_best)} ({_SHORT[best]})",
        "" if line.goal is None else f"≥ {line.goal:g}",
    ]


def _spread(values: Sequence[float]) -> str:
    if not values:
        return ""
    median, least, most = statistics.median(values), min(values), max(values)
    return _number(median) if least == most else f"{_number(median)} ({_number(least)} to {_number(most)})"


def _number(value: float) -> str:
    return f"{value:,.0f}" if value >= 100 or value == int(value) else f"{value:,.1f}"


def _times(value: float | None) -> str:
    return "" if value is None else f"{value:.2g}" if value < 10 else f"{value:,.0f}"


def _plot(line: Line, record: RunRecord) -> Figure:
    names = [name for name in _names(record) if line.of(record, name)]
    medians = [statistics.median(line.of(record, name)) for name in names]
    bar = go.Bar(
        x=[_SHORT[name] for name in names],
        y=medians,
        error_y={
            "type": "data",
            "symmetric": False,
            "array": [max(line.of(record, name)) - at for name, at in zip(names, medians, strict=True)],
            "arrayminus": [at - min(line.of(record, name)) for name, at in zip(names, medians, strict=True)],
        },
        marker={"color": [COLOURS[name not in {OURS, IN_TWO}] for name in names]},
        hovertemplate="%{x}: %{y:,.1f}<extra></extra>",
    )
    better = "more" if line.more_is_better else "less"
    words = f"{line.says}, {line.unit}: {better} is better."
    title = {"text": words, "font": {"size": 13}}
    margin = {"l": 8, "r": 8, "t": 48, "b": 8}
    layout = {"title": title, "margin": margin, "showlegend": False}
    return Figure(figure([bar], yaxis=axis(line.unit, rangemode="tozero"), **layout), words)
