"""`delayline forecast`: what the lanes have to deliver in the next days."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeAlias

import click

from ops.cli.options import OutputFile, connect, connection_options, spark_option
from ops.cli.output import Format, emit, output_option, say

if TYPE_CHECKING:
    from pipeline.forecast import Forecast

    Writer: TypeAlias = Callable[[Forecast], None]

_PEAKS = {
    "at": "busiest minute",
    "known": "known",
    "expected": "expected",
    "high": "at most",
    "late": "late by, at most",
    "targets": "targets behind its hour",
}
_DISKS = {"where": "disk", "part": "of", "free": "free now", "more": "more by the end", "full": "when"}


@click.command("forecast", epilog="Example: delayline forecast --days 7 --capacity 20000 --html week.html")
@click.option(
    "--days",
    type=click.FloatRange(0.05, 14),
    default=3.0,
    show_default=True,
    help="How far it reaches, 14 at most.",
)
@click.option(
    "--capacity",
    type=click.FloatRange(0, min_open=True),
    metavar="PER_SECOND",
    help="What all lanes together deliver in a second (default: the most that they were seen to do).",
)
@click.option(
    "--disk-bytes",
    type=click.IntRange(0),
    metavar="BYTES",
    help="What is free for the log (default: as the brokers say).",
)
@click.option("--html", type=OutputFile(), help="Write a page to look at, too: one file, no server.")
@click.option("--csv", type=OutputFile(), help="Write all minutes, hours and targets into a file, too.")
@spark_option
@output_option
@connection_options
def forecast_command(
    output: Format,
    days: float,
    capacity: float | None,
    disk_bytes: int | None,
    html: Path | None,
    csv: Path | None,
    master: str,
    **options: Any,
) -> None:
    """Forecast the next days: what falls due, against what the lanes and the disks can take.

    Spark reads the buffer and the checkpoints: what waits, what follows from recurring messages, and from the
    history of requests what is still to come.
    """
    from ops.forecast.made import Wish, made
    from pipeline.forecast.report import as_dict

    writers = [*([_csv_writer(csv)] if csv else []), *([_page_writer(html)] if html else [])]
    found = made(connect(options), Wish(days, capacity, disk_bytes), master, say)
    if output == "table":
        _show(found.forecast)
    else:
        emit(output, [], {}, data=as_dict(found.forecast))
    for sentence in found.unknown:
        say(sentence)
    for write in writers:
        write(found.forecast)


def _show(forecast: Forecast) -> None:
    from pipeline.forecast import words

    text, _ = words.verdict(forecast)
    click.echo(text)
    click.echo()
    click.echo(words.in_all(forecast))
    for sentence in (words.basis(forecast), words.thinned(forecast), words.measured(forecast)):
        if sentence is not None:
            click.echo(sentence)
    if forecast.peaks:
        click.echo()
        emit("table", _peaks(forecast), _PEAKS)
    if forecast.disks:
        click.echo()
        emit("table", _disks(forecast), _DISKS)


def _peaks(forecast: Forecast) -> list[dict[str, Any]]:
    from pipeline.forecast import words
    from pipeline.forecast.report import minute_at

    late = forecast.late_at_most
    return [
        {
            "at": minute_at(forecast, peak.minute),
            "known": forecast.known[peak.minute],
            "expected": words.count(forecast.minutes.expected[peak.minute]),
            "high": words.count(forecast.minutes.high[peak.minute]),
            "late": None if late is None else words.lateness(late.late_s[peak.minute]),
            "targets": words.behind(peak),
        }
        for peak in forecast.peaks
    ]


def _disks(forecast: Forecast) -> list[dict[str, Any]]:
    from pipeline.forecast import words

    return [
        {
            "where": disk.where,
            "part": disk.part,
            "free": words.size(disk.free_bytes),
            "more": words.size(disk.added_bytes[-1]),
            "full": words.when_full(disk),
        }
        for disk in forecast.disks
    ]


def _csv_writer(file: Path) -> Writer:
    from csv import DictWriter

    from pipeline.forecast.report import CSV_COLUMNS, csv_rows

    def write_csv(forecast: Forecast) -> None:
        with file.open("w", encoding="utf-8", newline="") as out:
            writer = DictWriter(out, CSV_COLUMNS, lineterminator="\n")
            writer.writeheader()
            writer.writerows(csv_rows(forecast))
        say(f"all minutes, hours and targets: {file}")

    return write_csv


def _page_writer(file: Path) -> Writer:
    """Imports what a page takes: a package that is not installed is missed now, not after the forecast."""
    from pipeline.forecast.page import forecast_page
    from pipeline.page import write

    def write_page(forecast: Forecast) -> None:
        write(forecast_page(forecast), file)
        say(f"the page to look at: {file}")

    return write_page
