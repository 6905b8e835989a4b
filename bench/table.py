"""A run as a table for people: medians, spread, goals; and two runs side by side."""

from __future__ import annotations

from rich.console import Console
from rich.table import Table
from rich.text import Text

from bench.figures import GOALS, Goal, kind
from bench.record import Record


def show(console: Console, record: Record) -> None:
    """Every figure of the run, and the machine."""
    machine = record.machine
    console.print(
        f"{record.profile} profile, {record.begun}, {record.minutes} min: {machine.processor}, "
        f"{machine.cores} cores, {machine.memory_gb} GB, {machine.system}",
        soft_wrap=True,
    )
    console.print(
        ", ".join(f"{name} {version}" for name, version in machine.versions.items()), soft_wrap=True
    )
    table = Table("figure", "what", box=None, pad_edge=False)
    for name in ("median", "least", "most"):
        table.add_column(name, justify="right")
    table.add_column("unit")
    table.add_column("goal")
    medians = record.medians()
    for name, values in record.figures.items():
        of_kind = kind(name)
        numbers = [
            f"{number:,.0f}" if number >= 100 else f"{number:,.1f}"
            for number in (medians[name], min(values), max(values))
        ]
        table.add_row(name, of_kind.says, *numbers, of_kind.unit, _goal(name, medians))
    console.print(table)


def compare(console: Console, first: Record, second: Record) -> None:
    """The second run's medians as multiples of the first one's."""
    table = Table("figure", box=None, pad_edge=False)
    for name in ("first", "second", "second / first"):
        table.add_column(name, justify="right")
    table.add_column("unit")
    before, after = first.medians(), second.medians()
    for name in [name for name in before if name in after]:
        ratio = after[name] / before[name] if before[name] else float("nan")
        better = (ratio > 1) == kind(name).more_is_better
        table.add_row(
            name,
            f"{before[name]:,.1f}",
            f"{after[name]:,.1f}",
            Text(f"{ratio:.2f}", style="green" if better else "red"),
            kind(name).unit,
        )
    console.print(table)


def _goal(name: str, medians: dict[str, float]) -> Text:
    found = [goal for goal in GOALS if goal.figure == name and goal.measured(medians)]
    return Text("; ").join(_said(goal, medians) for goal in found)


def _said(goal: Goal, medians: dict[str, float]) -> Text:
    sign = ">=" if goal.at_least else "<="
    reached = f"{goal.reached(medians):.2f} of {goal.of}, " if goal.of else ""
    met = goal.met(medians)
    return Text(
        f"{reached}{sign} {goal.bound:g}{'' if met else ' MISSED'}", style="green" if met else "bold red"
    )
