"""`delayline tables`: what became of everything, as tables of files."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Any

import click

from ops.cli.operator import someone
from ops.cli.options import ParquetFolder, connect, connection_options, round_options
from ops.cli.output import Format, emit, output_option, say

if TYPE_CHECKING:
    from pipeline.tables.marker import Done

_COLUMNS = {"table": "table", "new": "new", "closed": "closed", "open": "open"}


@click.group("tables")
def tables_group() -> None:
    """Write what became of everything into tables of Parquet, to be asked with SQL.

    There are four: requests, messages, masterships, checkpoints (docs/tables.md).
    """


@tables_group.command(
    "export",
    epilog="Example: delayline tables export --to parquet:/data/delay --bootstrap localhost:9092"
    " --zookeeper localhost:2181",
)
@click.option(
    "--to",
    "path",
    required=True,
    type=ParquetFolder(),
    metavar="parquet:PATH",
    help="Where the tables are: an empty folder at first; a path, or a URI.",
)
@round_options
@output_option
@connection_options
def export_command(
    output: Format,
    *,
    path: str,
    grace_ms: int,
    replay_window_s: int,
    master: str,
    **connection: Any,
) -> None:
    """Bring the tables up to date: what is new since the last run, and what is still open.

    The first run begins with what there is. A run may be killed at any moment: the next one goes on, and no
    row is there twice.
    """
    import time

    from ops.spark import spark_errors, stopped_after, tables_session
    from ops.tables.export import export_into
    from ops.topics.audited import watch_config

    begun_s, config = time.monotonic(), connect(connection)
    author = someone("tables export")

    wanted = partial(watch_config, config, grace_ms=grace_ms, replay_window_ms=1000 * replay_window_s)
    wanted()  # what is wrong with the cluster is said before Spark starts
    say("starting Spark")
    with stopped_after(tables_session(master)) as spark, spark_errors(config.bootstrap_servers):
        done = export_into(spark, config, wanted, path, author)
    _show(output, done)
    say(_told(done, time.monotonic() - begun_s))


def _show(output: Format, done: Done) -> None:
    rows = [
        {"table": name, "new": one.new, "closed": one.closed, "open": one.open}
        for name, one in done.rows.items()
    ]
    if output == "table":
        emit(output, rows, _COLUMNS)
        return
    data = {"run": done.number, "proven_up_to_ms": done.proven_up_to_ms, "tables": rows}
    emit(output, [], {}, data=data)


def _told(done: Done, took_s: float) -> str:
    from delayline.times import render_time

    rows = ", ".join(f"{name} +{one.new:,} ({one.open:,} open)" for name, one in done.rows.items())
    up_to = f"all is accounted for that was due before {render_time(done.proven_up_to_ms)}"
    return f"run {done.number}: {rows}; {up_to}; {took_s:.1f} s"
