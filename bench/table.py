"""A run as a table for people: medians, spread, goals; and two runs side by side."""

from __future__ import annotations

import statistics
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from rich.console import Console, JustifyMethod
from rich.measure import Measurement
from rich.table import Table
from rich.text import Text

from bench.figures import GOALS, Goal, kind, offered_only
from bench.ids import Round
from bench.parts import PartCost
from bench.pending import Moved
from bench.polls import Polls
from bench.record import RunRecord

if TYPE_CHECKING:
    from bench import audits, bulk, forecast

WIDTH: Final = 200
"""Where stdout is no terminal: everything fits."""


@dataclass(frozen=True, slots=True)
class TerminalColumn:
    """A column. Where the terminal is too narrow, the one with the highest `drop` goes first; 0 stays."""

    name: str
    number: bool = False
    drop: int = 0


SHOWN: Final = (
    TerminalColumn("figure"),
    TerminalColumn("what", drop=5),
    TerminalColumn("median", number=True),
    TerminalColumn("least", number=True, drop=4),
    TerminalColumn("most", number=True, drop=3),
    TerminalColumn("unit", drop=1),
    TerminalColumn("goal", drop=2),
)
COMPARED: Final = (
    TerminalColumn("figure"),
    TerminalColumn("first", number=True),
    TerminalColumn("second", number=True),
    TerminalColumn("second / first", number=True),
    TerminalColumn("unit", drop=2),
    TerminalColumn("", drop=1),
)
PARTS: Final = (
    TerminalColumn("part, us a message"),
    TerminalColumn("its thread", number=True),
    TerminalColumn("the process", number=True),
)
POLLS: Final = (
    TerminalColumn("sent a second", number=True),
    TerminalColumn("came", number=True),
    TerminalColumn("polls", number=True),
    TerminalColumn("its thread, ms", number=True),
    TerminalColumn("late p50, ms", number=True),
    TerminalColumn("late p99, ms", number=True),
)
IDS: Final = (
    TerminalColumn("applied"),
    TerminalColumn("msgs/s", number=True),
    TerminalColumn("its thread, us", number=True),
    TerminalColumn("the process, us", number=True),
    TerminalColumn("view locked at most, ms", number=True),
)
BULK: Final = (
    TerminalColumn("rounds"),
    TerminalColumn("Spark's sink, plain, s", number=True),
    TerminalColumn("Spark's sink, s", number=True),
    TerminalColumn("checked, s", number=True),
    TerminalColumn("sent, s", number=True),
)
FORECAST: Final = (
    TerminalColumn("weeks"),
    TerminalColumn("hours, %", number=True),
    TerminalColumn("a week before, %", number=True),
    TerminalColumn("known alone, %", number=True),
    TerminalColumn("minutes, %", number=True),
    TerminalColumn("a week before, %", number=True),
    TerminalColumn("hours in the band, %", number=True),
    TerminalColumn("minutes in it, %", number=True),
    TerminalColumn("busiest hour, %", number=True),
    TerminalColumn("a week before, %", number=True),
    TerminalColumn("seconds each", number=True, drop=1),
)


def console() -> Console:
    """For stdout."""
    return Console() if sys.stdout.isatty() else Console(width=WIDTH)


def show(console: Console, record: RunRecord) -> None:
    """Where and how it was measured, every figure of the run, and what failed."""
    _say_run(console, record)
    for name, value in record.settings.items():
        console.print(f"{name}: {value}", soft_wrap=True, highlight=False)
    medians = record.medians()
    rows: list[tuple[str | Text, ...]] = []
    for name, values in record.figures.items():
        of_kind = kind(name)
        numbers = [number(value) for value in (medians[name], min(values), max(values))]
        rows.append((name, of_kind.says, *numbers, of_kind.unit, _goal(name, record, medians)))
    console.print(fitted(console, SHOWN, rows))
    for scenario, why in record.failed.items():
        console.print(Text(f"FAILED {scenario}: {why}", style="bold red"), soft_wrap=True)


def compare(console: Console, first: RunRecord, second: RunRecord) -> None:
    """The second run's medians as multiples of the first one's; better or worse is said only where the rounds
    of one lie all above those of the other. A single value says nothing of that.
    """
    for record in (first, second):
        _say_run(console, record)
    for what in _differences(first, second):
        console.print(Text(f"not the same: {what}", style="bold yellow"), soft_wrap=True)
    both = [name for name in first.figures if name in second.figures]
    alone = [name for name in (first.figures | second.figures) if name not in both]
    rows = [_compared(name, first, second) for name in both]
    rows += [_alone(name, first, second) for name in alone]
    console.print(fitted(console, COMPARED, rows))


def show_parts(console: Console, parts: Sequence[PartCost]) -> None:
    """What the parts of a message's way cost, and all of them together."""
    whole = PartCost("all", sum(part.own_us for part in parts), sum(part.process_us for part in parts))
    rows = [(part.name, f"{part.own_us:.2f}", f"{part.process_us:.2f}") for part in (*parts, whole)]
    console.print(fitted(console, PARTS, rows))


def show_polls(console: Console, polls: Mapping[int, Polls]) -> None:
    """What a reader does in a second at each rate, and how late it is."""
    rows = [(number(rate), *(number(value) for value in found)) for rate, found in polls.items()]
    console.print(fitted(console, POLLS, rows))


def show_ids(console: Console, rounds: Mapping[str, Sequence[Round]]) -> None:
    """Medians of the rounds, the least and the most in brackets; then the share that is left with ids."""
    rows = [
        (name, *(_spread(values) for values in zip(*found, strict=True))) for name, found in rounds.items()
    ]
    console.print(fitted(console, IDS, rows))
    without, with_ids = (statistics.median(one.per_s for one in found) for found in rounds.values())
    console.print(f"with ids {with_ids / without:.2f} of the rate without")


def show_bulk(console: Console, rows: int, rounds: Sequence[bulk.Round]) -> None:
    """The first round, then medians of the others, the least and the most in brackets; in seconds."""
    cold, *warm = rounds
    found = {"first": [cold], "others": warm}
    shown = [(name, *(_spread(values) for values in zip(*of, strict=True))) for name, of in found.items()]
    console.print(fitted(console, BULK, shown))
    sink_s = statistics.median(one.sink_s for one in warm)
    send_s = statistics.median(one.send_s for one in warm)
    console.print(f"{number(rows / send_s)} a second; {sink_s / send_s:.2f} of the rate of Spark's sink")


def show_pending(console: Console, moved: Moved) -> None:
    """What each of the two commands took, and what has become of the messages."""
    for name, took in (("export", moved.exported), ("import", moved.imported)):
        per_s, peak_mb = moved.messages / took.seconds, took.peak_bytes / 2**20
        console.print(f"{name}: {took.seconds:.1f} s, {number(per_s)} a second, {peak_mb:.0f} MB at its peak")
    console.print(
        f"file: {moved.file_bytes / 1e6:.1f} MB, {moved.file_bytes / moved.messages:.0f} bytes a message"
    )
    console.print(
        f"of {moved.messages:,}: {moved.waiting:,} wait in the new cluster, {moved.left:,} in the old one,"
        f" which has delivered {moved.delivered:,}; {moved.lost:,} lost, {moved.doubled:,} doubled,"
        f" {moved.altered:,} altered"
    )


def show_audits(console: Console, messages: int, rounds: Sequence[audits.Round]) -> None:
    """Medians; of what was found, the worst."""
    for name, took in (
        ("audit", [one.audited for one in rounds]),
        ("read", [one.read for one in rounds]),
    ):
        seconds, peak_mb = _spread([one.seconds for one in took]), max(one.peak_bytes for one in took) / 2**20
        shuffled_mb = max(one.shuffled_bytes for one in took) / 2**20
        console.print(f"{name}: {seconds} s, {peak_mb:,.0f} MB at its peak, {shuffled_mb:,.0f} MB shuffled")
    requests, wrong = min(one.audited.requests for one in rounds), max(one.audited.wrong for one in rounds)
    console.print(f"of {messages:,} messages {requests:,} accounted for, {wrong:,} violations")


def show_forecast(console: Console, found: Mapping[str, forecast.Errors]) -> None:
    """In per cent, each seed for itself."""
    rows = []
    for name, one in found.items():
        *shares, seconds = one
        rows.append((name, *(f"{100 * share:.1f}" for share in shares), f"{seconds:.1f}"))
    console.print(fitted(console, FORECAST, rows))


def _spread(values: Sequence[float]) -> str:
    return f"{number(statistics.median(values))} ({number(min(values))} to {number(max(values))})"


def fitted(
    console: Console, columns: Sequence[TerminalColumn], rows: Sequence[Sequence[str | Text]]
) -> Table:
    """The table without as many of its columns as do not fit; none is cut."""
    left = list(range(len(columns)))
    while True:
        table = Table(box=None, pad_edge=False)
        for at in left:
            justify: JustifyMethod = "right" if columns[at].number else "left"
            table.add_column(columns[at].name, justify=justify, no_wrap=True)
        for row in rows:
            table.add_row(*(row[at] for at in left))
        widest = max(left, key=lambda at: columns[at].drop)
        unbounded = console.options.update(width=10 * WIDTH)
        if Measurement.get(console, unbounded, table).maximum <= console.width or not columns[widest].drop:
            return table
        left.remove(widest)


def number(value: float) -> str:
    """As many digits as say something."""
    return f"{value:,.0f}" if value >= 100 else f"{value:,.1f}"


def goal_text(goal: Goal, record: RunRecord) -> str:
    """What was to be reached, and what was; a load that was not offered reaches nothing."""
    sign, offered = ">=" if goal.at_least else "<=", offered_only(goal.figure, record.figures)
    medians = record.medians()
    reached = f"{goal.reached(medians):.2f} of {goal.of.removesuffix('.produce')}, " if goal.of else ""
    if offered is not None:
        return f"{sign} {goal.bound:g}, offered only {number(offered)}/s"
    return f"{reached}{sign} {goal.bound:g}{'' if goal.met(medians) else ' MISSED'}"


def _goal(name: str, record: RunRecord, medians: dict[str, float]) -> Text:
    """The figure's goal; of one without, that its load was not what its name says."""
    offered = offered_only(name, record.figures)
    found = [goal for goal in GOALS if goal.figure == name and goal.measured(medians)]
    if not found:
        return Text("") if offered is None else Text(f"offered only {number(offered)}/s", style="bold red")
    met = all(goal.met(medians) for goal in found) and offered is None
    return Text("; ".join(goal_text(goal, record) for goal in found), style="green" if met else "bold red")


def _say_run(console: Console, record: RunRecord) -> None:
    machine = record.machine
    versions = ", ".join(f"{name} {version}" for name, version in machine.versions.items())
    console.print(
        f"{record.profile} profile, {record.begun}, {record.minutes} min: {machine.processor}, "
        f"{machine.cores} cores, {machine.memory_gb} GB, {machine.system}\n{versions}",
        soft_wrap=True,
        highlight=False,
    )


def _differences(first: RunRecord, second: RunRecord) -> list[str]:
    """What makes the runs hard to compare."""
    named = {
        "profile": (first.profile, second.profile),
        "rounds": (first.settings.get("rounds", "?"), second.settings.get("rounds", "?")),
        "processor": (first.machine.processor, second.machine.processor),
        "cores": (str(first.machine.cores), str(second.machine.cores)),
        "memory, GB": (str(first.machine.memory_gb), str(second.machine.memory_gb)),
        "system": (first.machine.system, second.machine.system),
    }
    return [f"{name}: {one} | {other}" for name, (one, other) in named.items() if one != other]


def _compared(name: str, first: RunRecord, second: RunRecord) -> tuple[str | Text, ...]:
    before, after = first.medians()[name], second.medians()[name]
    verdict, style = _verdict(name, first.figures[name], second.figures[name])
    ratio = Text(f"{after / before:.2f}" if before else "-", style=style)
    notes = [verdict] if verdict else []
    for which, record in (("first", first), ("second", second)):
        offered = offered_only(name, record.figures)
        notes += [] if offered is None else [f"{which} offered only {number(offered)}/s"]
    return name, number(before), number(after), ratio, kind(name).unit, Text(", ".join(notes), style=style)


def _verdict(name: str, before: Sequence[float], after: Sequence[float]) -> tuple[str, str]:
    """Better, worse, or nothing that could be told from chance; and its colour."""
    more, less = min(after) > max(before), max(after) < min(before)
    if min(len(before), len(after)) == 1 or not (more or less):
        return "", ""
    return ("better", "green") if more == kind(name).more_is_better else ("worse", "red")


def _alone(name: str, first: RunRecord, second: RunRecord) -> tuple[str, ...]:
    before, after = first.medians().get(name), second.medians().get(name)
    shown = ["-" if value is None else number(value) for value in (before, after)]
    return name, *shown, "", kind(name).unit, f"only in the {'second' if before is None else 'first'}"
