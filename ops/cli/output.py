"""How commands speak: data on stdout as a table, JSON or YAML, everything else on stderr.

Tables stay readable without a terminal (full width, one row a line) and on a narrow one (where a table does
not fit, each row becomes a block of `name  value` lines).
"""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Literal

import click
from rich import box
from rich.console import Console
from rich.measure import Measurement
from rich.table import Table
from rich.text import Text

from ops.cli.options import Command

Format = Literal["table", "json", "yaml", "csv"]
TableRow = Mapping[str, Any]

# No table of ours is wider; a pipe has no width of its own, and a row cut there is a row lost.
_PIPE_WIDTH = 1000


def output_option(command: Command) -> Command:
    """Add `-o table|json|yaml`, passed as `output`."""
    return output_as("table", "json", "yaml")(command)


def output_as(*formats: Format) -> Callable[[Command], Command]:
    """Add `-o` with these formats, passed as `output`; the first is the default."""
    return click.option(
        "-o",
        "--output",
        type=click.Choice(formats),
        default=formats[0],
        show_default=True,
        help="How the data is written.",
    )


def emit(output: Format, rows: Sequence[TableRow], columns: Mapping[str, str], *, data: Any = None) -> None:
    """Write rows to stdout: a table of `columns` (key to heading), or `data` (None: the rows) as JSON or
    YAML, or the columns of the rows as CSV.
    """
    if output == "csv":
        _write_csv(rows, columns)
        return
    if output != "table":
        _write_data(output, list(rows) if data is None else data)
        return
    console = Console(file=sys.stdout, highlight=False)
    if not console.is_terminal:
        console.width = _PIPE_WIDTH
    table = _table(rows, columns)
    if Measurement.get(console, console.options, table).minimum <= console.width and _fits(console, table):
        console.print(table)
    else:
        _print_blocks(console, rows, columns)


def emit_one(output: Format, values: TableRow) -> None:
    """Write one thing to stdout: `name  value` lines, or an object in JSON or YAML."""
    if output != "table":
        _write_data(output, values)
    else:
        console = Console(file=sys.stdout, highlight=False, soft_wrap=True)
        _print_blocks(console, [values], {key: key.replace("_", " ") for key in values}, also="\n\t")


def _write_data(output: Format, data: Any) -> None:
    text = json.dumps(data, indent=2, default=str)
    if output == "yaml":
        import yaml  # only who asks for it waits for it

        text = yaml.safe_dump(json.loads(text), sort_keys=False, allow_unicode=True).rstrip("\n")
    click.echo(text)


def _write_csv(rows: Sequence[TableRow], columns: Mapping[str, str]) -> None:
    import csv

    writer = csv.writer(sys.stdout, lineterminator="\n")
    writer.writerow(columns)
    writer.writerows(["" if row.get(key) is None else row[key] for key in columns] for row in rows)


def say(text: str) -> None:
    """A word to whoever watches, on stderr."""
    click.echo(printable(text), err=True)


def printable(text: str, also: str = "") -> str:
    """What others have written, which must not write to the terminal by itself; `also`: what stays."""
    return "".join(c if c.isprintable() or c in also else repr(c)[1:-1] for c in text)


def _table(rows: Sequence[TableRow], columns: Mapping[str, str]) -> Table:
    table = Table(box=box.SIMPLE_HEAD, pad_edge=False, show_edge=False, header_style="")
    for key, heading in columns.items():
        numbers = all(isinstance(row.get(key), int | float) for row in rows)
        table.add_column(heading, justify="right" if numbers and rows else "left", no_wrap=True)
    for row in rows:
        table.add_row(*(_cell(row.get(key)) for key in columns))
    return table


def _fits(console: Console, table: Table) -> bool:
    return Measurement.get(console, console.options.update(width=_PIPE_WIDTH), table).maximum <= console.width


def _print_blocks(
    console: Console, rows: Sequence[TableRow], columns: Mapping[str, str], also: str = ""
) -> None:
    width = max(map(len, columns.values()), default=0)
    for number, row in enumerate(rows):
        if number:
            console.print()
        for key, heading in columns.items():
            console.print(Text(f"{heading:<{width}}  ") + _cell(row.get(key), also), soft_wrap=True)


def _cell(value: Any, also: str = "") -> Text:
    if value is None:
        return Text("-")
    if isinstance(value, bool):
        return Text("yes" if value else "no")
    if isinstance(value, Text):
        return Text(printable(value.plain, also), style=value.style)
    return Text(printable(str(value), also))


def age(epoch_ms: int, now_ms: int) -> str:
    """A time and how long ago it was, as `2026-01-01T00:00:00.000Z (3s ago)`."""
    from delayline.times import render_time

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


def size(count_bytes: int) -> str:
    """Bytes in the largest unit of which there is one, as `1.5 GiB`."""
    for power, unit in ((40, "TiB"), (30, "GiB"), (20, "MiB"), (10, "KiB")):
        if count_bytes >= 1 << power:
            return f"{count_bytes / (1 << power):.1f} {unit}"
    return f"{count_bytes} B"
