"""How commands speak: data on stdout as a table or JSON, everything else on stderr.

Tables stay readable without a terminal (full width, one row a line) and on a narrow one (where a table does
not fit, each row becomes a block of `name  value` lines).
"""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Literal, TypeVar

import click
from rich import box
from rich.console import Console
from rich.measure import Measurement
from rich.table import Table
from rich.text import Text

Format = Literal["table", "json"]
Row = Mapping[str, Any]
Command = TypeVar("Command", bound=Callable[..., Any])

# No table of ours is wider; a pipe has no width of its own, and a row cut there is a row lost.
_PIPE_WIDTH = 1000


def output_option(command: Command) -> Command:
    """Add `-o table|json`, passed as `output`."""
    option = click.option(
        "-o",
        "--output",
        type=click.Choice(["table", "json"]),
        default="table",
        show_default=True,
        help="How the data is written.",
    )
    return option(command)


def emit(output: Format, rows: Sequence[Row], columns: Mapping[str, str], *, data: Any = None) -> None:
    """Write rows to stdout: a table of `columns` (key to heading), or `data` (None: the rows) as JSON."""
    if output == "json":
        click.echo(json.dumps(list(rows) if data is None else data, indent=2, default=str))
        return
    console = Console(file=sys.stdout, highlight=False)
    if not console.is_terminal:
        console.width = _PIPE_WIDTH
    table = _table(rows, columns)
    if Measurement.get(console, console.options, table).minimum <= console.width and _fits(console, table):
        console.print(table)
    else:
        _print_blocks(console, rows, columns)


def emit_one(output: Format, values: Row) -> None:
    """Write one thing to stdout: `name  value` lines, or a JSON object."""
    if output == "json":
        click.echo(json.dumps(values, indent=2, default=str))
    else:
        console = Console(file=sys.stdout, highlight=False, soft_wrap=True)
        _print_blocks(console, [values], {key: key.replace("_", " ") for key in values})


def say(text: str) -> None:
    """A word to whoever watches, on stderr."""
    click.echo(text, err=True)


def _table(rows: Sequence[Row], columns: Mapping[str, str]) -> Table:
    table = Table(box=box.SIMPLE_HEAD, pad_edge=False, show_edge=False, header_style="")
    for key, heading in columns.items():
        numbers = all(isinstance(row.get(key), int | float) for row in rows)
        table.add_column(heading, justify="right" if numbers and rows else "left", no_wrap=True)
    for row in rows:
        table.add_row(*(_cell(row.get(key)) for key in columns))
    return table


def _fits(console: Console, table: Table) -> bool:
    return Measurement.get(console, console.options.update(width=_PIPE_WIDTH), table).maximum <= console.width


def _print_blocks(console: Console, rows: Sequence[Row], columns: Mapping[str, str]) -> None:
    width = max(map(len, columns.values()), default=0)
    for number, row in enumerate(rows):
        if number:
            console.print()
        for key, heading in columns.items():
            console.print(Text(f"{heading:<{width}}  ") + _cell(row.get(key)), soft_wrap=True)


def _cell(value: Any) -> Text:
    if value is None:
        return Text("-")
    if isinstance(value, bool):
        return Text("yes" if value else "no")
    return value if isinstance(value, Text) else Text(str(value))


def age(epoch_ms: int, now_ms: int) -> str:
    """A time and how long ago it was, as `2026-01-01T00:00:00.000Z (3s ago)`."""
    from delayline.times import render_time  # noqa: PLC0415

    if epoch_ms <= 0:
        return "-"
    when = render_time(epoch_ms)
    return f"{when} ({rough(now_ms - epoch_ms)} ago)" if epoch_ms <= now_ms else when


def rough(duration_ms: int) -> str:
    """A duration in its largest unit; below a second in milliseconds, below zero (clocks differ) as none."""
    for size_ms, unit in ((86_400_000, "d"), (3_600_000, "h"), (60_000, "m"), (1000, "s")):
        if duration_ms >= size_ms:
            return f"{duration_ms // size_ms}{unit}"
    return f"{max(0, duration_ms)}ms"
