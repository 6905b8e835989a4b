"""`python -m bench`: measure, show, compare."""

from __future__ import annotations

import logging
import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import click
from rich.console import Console
from rich.text import Text

from bench import audits, bulk, forecast, ids, markdown, model, parts, pending, polls, profiles, table
from bench import record as records
from bench import run as runs
from bench.failure import PLAIN, reason
from bench.measured import Measured
from bench.page import bench_page
from bench.peers.run import PEERS, PROFILE, PeersRun
from bench.peers.shown import markdown as peers_markdown
from bench.peers.shown import peers_page
from bench.peers.shown import show as show_peers
from bench.peers.steps import Sizes
from bench.room import NoRoom
from ops import logs
from ops.demo.cluster import own_settings_only
from pipeline.page import Page, write

FOLDER: Final = Path(__file__).parent / "runs"
INTERRUPTED: Final = 130
FILE: Final = click.Path(exists=True, dir_okay=False, path_type=Path)


@click.group()
def main() -> None:
    """Measure delayline on a Kafka and a ZooKeeper of its own, on this machine."""


@main.command("run")
@click.option(
    "--profile",
    type=click.Choice(profiles.NAMES),
    default="quick",
    show_default=True,
)
@click.option("--only", multiple=True, metavar="NAME", help="Only the scenarios whose names begin so.")
@click.option("--rounds", type=click.IntRange(1), help=f"How often each is run (default: {runs.ROUNDS}).")
def run_command(profile: str, only: tuple[str, ...], rounds: int | None) -> None:
    """Run a profile, show it, and keep it in bench/runs.

    With two cores, quick takes half an hour, of which the failovers, which run once, are 10 minutes. Full
    has 10 million messages, too: over an hour (half of one with one round), and 24 GB on the disk of the
    folder for temporary files. Troubled is ten targets of which one is in trouble: five minutes. Scraped is
    a node whose metrics are read all the time, and by clients that hang: three minutes. Moved is one id
    that is moved again and again: three minutes. Lanes is a cluster of one, two and four of them: ten
    minutes. Snapshot is a new node that takes its view from a peer, with 1 and 10 million pending (--only
    snapshot-1m): two and ten minutes.

    Exit code 1: a scenario has failed; the others are kept. 130: interrupted; what had ended is kept.
    """
    try:
        chosen = profiles.profile(profile, rounds or runs.ROUNDS).only(only)
    except profiles.NoSuchScenario as error:
        raise click.UsageError(str(error)) from error
    own_settings_only()
    logs.configure(logging.ERROR)
    kept = Kept()
    try:
        runs.run(chosen, _say, kept)
    except KeyboardInterrupt:
        kept.show()
        click.echo("interrupted", err=True)
        sys.exit(INTERRUPTED)
    except PLAIN as error:
        raise click.ClickException(reason(error)) from error
    kept.show()
    if kept.record is not None and kept.record.failed:
        raise click.ClickException(f"failed: {', '.join(kept.record.failed)}; see above")


@dataclass(slots=True)
class Kept:
    """The record of a run under way, and its file: the latest state of both."""

    record: records.RunRecord | None = None
    file: Path | None = None

    def __call__(self, record: records.RunRecord) -> None:
        """Saves it."""
        FOLDER.mkdir(exist_ok=True)
        self.file = FOLDER / f"{record.begun.replace(':', '')[:17]}-{record.profile}.json"
        self.record = record
        record.save(self.file)

    def show(self, table_of: Callable[[Console, records.RunRecord], None] = table.show) -> None:
        """Shows it, if there is one, and writes its page."""
        if self.record is None or self.file is None:
            return
        page = self.file.with_suffix(".html")
        write(_page_of(self.record), page)
        console = table.console()
        table_of(console, self.record)
        console.print(f"kept in {self.file}; with plots: {page}", soft_wrap=True)


def _say(name: str, outcome: Measured | str) -> None:
    if isinstance(outcome, str):
        table.console().print(Text(f"{name}: FAILED, {outcome}"), soft_wrap=True)
        return
    shown = {figure: f"{value:,.1f}" for figure, value in outcome.figures.items()}
    shown |= {figure: f"{min(all_)} to {max(all_)}" for figure, all_ in outcome.samples.items()}
    figures = ", ".join(f"{figure} {value}" for figure, value in shown.items())
    table.console().print(f"{name}: {figures}", soft_wrap=True)


@main.command("show")
@click.argument("run", type=FILE)
@click.option("--html", type=click.Path(dir_okay=False, path_type=Path), help="Write the page with plots.")
@click.option("--markdown", "as_markdown", is_flag=True, help="As a table in Markdown.")
def show_command(run: Path, html: Path | None, *, as_markdown: bool) -> None:
    """Show a run that was kept."""
    record = _load(run)
    if html is not None:
        write(_page_of(record), html)
    if as_markdown:
        click.echo(_markdown_of(record), nl=False)
    elif record.profile == PROFILE:
        show_peers(table.console(), record)
    else:
        table.show(table.console(), record)


@main.command("docs")
@click.argument("run", type=FILE)
@click.option(
    "--before",
    type=FILE,
    default=markdown.BEFORE,
    show_default=True,
    help="A run whose medians stand beside.",
)
@click.option("--page", type=FILE, default=markdown.PAGE, show_default=True, help="The page.")
def docs_command(run: Path, before: Path, page: Path) -> None:
    """Put the figures of a run into a page of docs/, between the markers of its profile."""
    record = _load(run)
    tables = _markdown_of(record, _load(before) if record.profile in markdown.COMMON_PROFILES else None)
    try:
        page.write_text(markdown.replaced(page.read_text(), tables, record.profile))
    except markdown.NoPlace as error:
        raise click.ClickException(f"{page}: {error}") from error


@main.command("compare")
@click.argument("first", type=FILE)
@click.argument("second", type=FILE)
def compare_command(first: Path, second: Path) -> None:
    """The medians of two runs, and the second's as multiples of the first's."""
    table.compare(table.console(), _load(first), _load(second))


@main.command("model")
@click.argument("run", type=FILE)
def model_command(run: Path) -> None:
    """What lanes would carry on more cores, by the costs that a run of the profile lanes has measured."""
    record = _load(run)
    try:
        click.echo(model.rendered(record), nl=False)
    except model.NoCosts as error:
        raise click.ClickException(f"{run}: {error}") from error


@main.command("parts")
@click.option("--messages", type=click.IntRange(1), default=200_000, show_default=True)
def parts_command(messages: int) -> None:
    """What each part of a message's way costs: CPU time a message, us, of its thread and of all threads."""
    own_settings_only()
    logs.configure(logging.ERROR)
    try:
        timed = parts.measure(messages)
    except Exception as error:
        raise click.ClickException(reason(error)) from error
    table.show_parts(table.console(), timed)


@main.command("polls")
@click.option(
    "--rate", "rates", type=click.IntRange(0), multiple=True, default=(0, 1_000, 5_000), show_default=True
)
@click.option("--seconds", type=click.FloatRange(1), default=10.0, show_default=True, help="At each rate.")
def polls_command(rates: tuple[int, ...], seconds: float) -> None:
    """What reading costs while little comes, and how late it is: a reader alone, at each rate."""
    own_settings_only()
    logs.configure(logging.ERROR)
    try:
        table.show_polls(table.console(), dict(polls.measure(rates, seconds)))
    except Exception as error:
        raise click.ClickException(reason(error)) from error


@main.command("ids")
@click.option("--pending", type=click.IntRange(1), default=1_000_000, show_default=True)
@click.option("--rounds", type=click.IntRange(1), default=5, show_default=True)
@click.option("--messages", type=click.IntRange(1), default=50_000, show_default=True, help="In a round.")
def ids_command(pending: int, rounds: int, messages: int) -> None:
    """What ids cost at intake, once so many are known: the view alone, with and without ids in turn."""
    try:
        table.show_ids(table.console(), ids.measure(pending, rounds, messages))
    except Exception as error:
        raise click.ClickException(reason(error)) from error


@main.command("bulk")
@click.option("--rows", type=click.IntRange(1), default=1_000_000, show_default=True)
@click.option("--rounds", type=click.IntRange(1), default=3, show_default=True)
def bulk_command(rows: int, rounds: int) -> None:
    """How fast rows are loaded from Parquet, beside Spark's own Kafka sink."""
    own_settings_only()
    logs.configure(logging.ERROR)
    try:
        table.show_bulk(table.console(), rows, list(bulk.measure(rows, rounds)))
    except Exception as error:
        raise click.ClickException(reason(error)) from error


@main.command("audit")
@click.option("--messages", type=click.IntRange(1), default=1_000_000, show_default=True)
@click.option("--rounds", type=click.IntRange(1), default=3, show_default=True)
def audit_command(messages: int, rounds: int) -> None:
    """What an audit takes of messages with ids, all delivered, beside Spark's reading of the same topics."""
    own_settings_only()
    logs.configure(logging.ERROR)
    try:
        table.show_audits(table.console(), messages, list(audits.measure(messages, rounds)))
    except Exception as error:
        raise click.ClickException(reason(error)) from error


@main.command("pending")
@click.option("--messages", type=click.IntRange(1), default=1_000_000, show_default=True)
@click.option(
    "--rate", type=click.FloatRange(min=1), default=1_000_000, show_default=True, help="Of both commands."
)
def pending_command(messages: int, rate: float) -> None:
    """How long it takes to move what waits into a cluster in another Kafka, and whether all of it is there.

    Exit code 1: something is lost, doubled or altered, or is in the old cluster still.
    """
    own_settings_only()
    logs.configure(logging.ERROR)
    try:
        moved = pending.measure(messages, rate)
    except Exception as error:
        raise click.ClickException(reason(error)) from error
    table.show_pending(table.console(), moved)
    if not moved.is_whole:
        raise click.ClickException("not each message has moved, once and as it was")


@main.command("forecast")
@click.option("--seed", "seeds", type=int, multiple=True, default=(1, 2, 3), show_default=True)
@click.option("--weeks", type=click.IntRange(2), default=6, show_default=True, help="Of history and tries.")
@click.option(
    "--days", type=click.IntRange(1, 7), default=1, show_default=True, help="That each try forecasts."
)
@click.option("--per-minute", type=click.FloatRange(1), default=20.0, show_default=True, help="Requests.")
@click.option(
    "--history-days", type=click.IntRange(1), help="What the log has left at each try (default: all)."
)
def forecast_command(
    seeds: tuple[int, ...], weeks: int, days: int, per_minute: float, history_days: int | None
) -> None:
    """How far off the forecast is, on generated weeks: what it said on each of the last seven days."""
    logs.configure(logging.ERROR)
    trial = forecast.Trial(weeks, days, per_minute, history_days)
    try:
        found = {f"seed {seed}": one for seed, one in zip(seeds, forecast.measure(seeds, trial), strict=True)}
    except Exception as error:
        raise click.ClickException(reason(error)) from error
    table.show_forecast(table.console(), found)


@main.command("peers")
@click.option("--rounds", type=click.IntRange(1), default=runs.ROUNDS, show_default=True)
@click.option("--only", multiple=True, type=click.Choice([peer.name for peer in PEERS]), help="Only these.")
@click.option("--scale", type=click.FloatRange(0.01), default=1.0, show_default=True, help="Of all sizes.")
def peers_command(rounds: int, only: tuple[str, ...], scale: float) -> None:
    """The same work on RocketMQ, Pulsar, Redis and PostgreSQL, in turn with ours: over an hour on two cores.

    RocketMQ and Pulsar are fetched from the Java registry once (340 MB, minutes); they need a JDK. Redis and
    PostgreSQL are those of the system: install them, or name the others with --only. The run is kept
    in bench/runs, with a page.

    Exit code 1: one of them has failed; the others are kept. 130: interrupted; what had ended is kept.
    """
    own_settings_only()
    logs.configure(logging.ERROR)
    chosen = [peer for peer in PEERS if not only or peer.name in only]
    kept = Kept()
    under_way = PeersRun(chosen, rounds, Sizes().scaled(scale))
    try:
        under_way.run(_say_peer, kept)
    except KeyboardInterrupt:
        click.echo("interrupted", err=True)
        sys.exit(INTERRUPTED)
    except NoRoom as error:
        raise click.ClickException(str(error)) from error
    finally:
        kept.show(show_peers)
    if under_way.record().failed:
        raise click.ClickException(f"failed: {', '.join(under_way.record().failed)}; see above")


def _say_peer(name: str, outcome: dict[str, float] | str) -> None:
    _say(name, outcome if isinstance(outcome, str) else Measured(outcome))


def _page_of(record: records.RunRecord) -> Page:
    return peers_page(record) if record.profile == PROFILE else bench_page(record)


def _markdown_of(record: records.RunRecord, earlier: records.RunRecord | None = None) -> str:
    return peers_markdown(record) if record.profile == PROFILE else markdown.rendered(record, earlier)


def _load(file: Path) -> records.RunRecord:
    try:
        return records.load(file)
    except records.NoRecord as error:
        raise click.ClickException(str(error)) from error


if __name__ == "__main__":
    sys.exit(main())
