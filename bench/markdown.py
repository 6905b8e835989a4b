"""A run as a table in Markdown, and that table's place in docs/benchmarks.md."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Final

from bench.figures import GOALS, KINDS, FigureKind, kind, offered_only
from bench.record import RunRecord
from bench.table import goal_text, number

DOCS: Final = Path(__file__).parents[1] / "docs"
PAGE: Final = DOCS / "benchmarks.md"
BEFORE: Final = DOCS / "benchmarks" / "before.json"
"""What the code before the work on its speed came to."""
COMMON_PROFILES: Final = ("quick", "full")
"""Their figures are the page's first table; every other profile has one of its own."""


class NoPlace(Exception):
    """The page has no place for the table; one line."""


def rendered(record: RunRecord, earlier: RunRecord | None = None) -> str:
    """The run's figures by their kinds, `earlier` medians beside them; then what failed."""
    known = {} if earlier is None else earlier.medians()
    lines = [row("figure", *([] if earlier is None else ["before"]), "median", "least", "most", "goal")]
    lines.append("|---|" + "---:|" * (3 if earlier is None else 4) + "---|")
    for one in KINDS:
        names = [name for name in record.figures if kind(name) is one]
        if names:
            lines.append(_heading(one, lines[0]))
        lines += [_figure(name, record, None if earlier is None else known) for name in names]
    lines += [f"\n{scenario} failed: {_plain(why)}" for scenario, why in record.failed.items()]
    return "\n".join(lines) + "\n"


def replaced(page: str, table: str, profile: str) -> str:
    """The page with the table between its profile's markers. Raises `NoPlace`."""
    name = "figures" if profile in COMMON_PROFILES else profile
    first, last = f"<!-- {name} -->", f"<!-- /{name} -->"
    head, begin, rest = page.partition(first)
    _, end, tail = rest.partition(last)
    if not begin or not end:
        raise NoPlace(f"the page lacks {first} or, behind it, {last}: put them where the table belongs")
    return f"{head}{first}\n{table}{last}{tail}"


def _heading(of_kind: FigureKind, first_line: str) -> str:
    unit = f", {of_kind.unit}" if of_kind.unit else ""
    return row(f"*{of_kind.says}{unit}*", *[""] * (first_line.count("|") - 2))


def _figure(name: str, record: RunRecord, earlier: Mapping[str, float] | None) -> str:
    values, offered = record.figures[name], offered_only(name, record.figures)
    medians = record.medians()
    goals = [goal_text(goal, record) for goal in GOALS if goal.figure == name and goal.measured(medians)]
    if not goals and offered is not None:
        goals = [f"offered only {number(offered)}/s"]
    numbers = [number(value) for value in (medians[name], min(values), max(values))]
    was = [] if earlier is None else [number(earlier[name]) if name in earlier else ""]
    return row(f"`{name}`", *was, *numbers, "; ".join(goals))


def row(*cells: str) -> str:
    """A table's row."""
    return f"| {' | '.join(cells)} |"


def _plain(text: str) -> str:
    return text.replace("|", "\\|").replace("<", "&lt;")
