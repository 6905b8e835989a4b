"""`python -m bench`: measure, show, compare."""

from __future__ import annotations

import logging
import sys
from pathlib import Path
from typing import Final

import click
import msgspec
from rich.console import Console

from bench import record as records
from bench import run as runs
from bench import table
from bench.measured import Measured
from bench.page import bench_page
from ops import logs
from ops.demo.cluster import own_settings_only
from ops.page import write

FOLDER: Final = Path(__file__).parent / "runs"


@click.group()
def main() -> None:
    """Measure delayline on a Kafka and a ZooKeeper of its own, on this machine."""


@main.command("run")
@click.option("--profile", type=click.Choice(["quick", "full"]), default="quick", show_default=True)
@click.option("--only", multiple=True, metavar="NAME", help="Only the scenarios whose names begin so.")
@click.option("--rounds", type=click.IntRange(1), help="How often each is run (default: 3).")
def run_command(profile: str, only: tuple[str, ...], rounds: int | None) -> None:
    """Run a profile, show it, and keep it in bench/runs."""
    own_settings_only()
    logs.configure(logging.ERROR)
    console = Console()
    chosen = runs.profile(profile, rounds or runs.ROUNDS)

    def say(name: str, measured: Measured) -> None:
        figures = ", ".join(f"{figure} {value:,.1f}" for figure, value in measured.figures.items())
        console.print(f"{name}: {figures}", soft_wrap=True)

    record = runs.run(chosen, only, say)
    FOLDER.mkdir(exist_ok=True)
    file = FOLDER / f"{record.begun.replace(':', '')[:17]}-{profile}.json"
    record.save(file)
    page = file.with_suffix(".html")
    write(bench_page(record), page)
    table.show(console, record)
    console.print(f"kept in {file}; with plots: {page}", soft_wrap=True)


@main.command("show")
@click.argument("run", type=click.Path(exists=True, dir_okay=False, path_type=Path))
@click.option("--html", type=click.Path(dir_okay=False, path_type=Path), help="Write the page with plots.")
def show_command(run: Path, html: Path | None) -> None:
    """Show a run that was kept."""
    record = _load(run)
    if html is not None:
        write(bench_page(record), html)
    table.show(Console(), record)


@main.command("compare")
@click.argument("first", type=click.Path(exists=True, dir_okay=False, path_type=Path))
@click.argument("second", type=click.Path(exists=True, dir_okay=False, path_type=Path))
def compare_command(first: Path, second: Path) -> None:
    """The medians of two runs, and the second's as multiples of the first's."""
    table.compare(Console(), _load(first), _load(second))


def _load(file: Path) -> records.Record:
    try:
        return records.load(file)
    except msgspec.MsgspecError as error:
        raise click.ClickException(f"{file} is no run of the benchmark: {error}") from error


if __name__ == "__main__":
    sys.exit(main())
