"""`delayline demo`: watch a cluster deliver through failures, then have Spark audit it."""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import signal
import sys
import tempfile
import threading
from pathlib import Path
from typing import TYPE_CHECKING, TextIO

import click
from rich.console import Console

from ops.cli.options import OutputFile
from ops.cli.output import say

if TYPE_CHECKING:
    from node.config import ConnectionConfig
    from ops.demo.verdict import Verdict


@click.command("demo", epilog="Example: delayline demo --messages 50000 --json verdict.json")
@click.option(
    "--messages",
    type=click.IntRange(1_000),
    default=36_000,
    show_default=True,
    help="Messages to schedule at least, due over about a minute.",
)
@click.option("--nodes", type=click.IntRange(2, 9), default=3, show_default=True, help="Delay nodes.")
@click.option(
    "--keep", is_flag=True, help="Leave everything up for a look around, until Ctrl-C; keep the data."
)
@click.option("--json", "json_file", type=OutputFile(), help="Write the verdict there, too.")
@click.option(
    "--html",
    type=OutputFile(),
    default="delayline-demo.html",
    show_default=True,
    help="Where to write the page to look at: one file, no server.",
)
def demo_command(messages: int, nodes: int, json_file: Path | None, html: Path, *, keep: bool) -> int:
    """Watch a cluster deliver through failures, then have Spark audit it.

    Brings up Kafka, ZooKeeper and the nodes on this machine, schedules messages of every kind, kills the
    leader twice, switches over once, pauses it once, takes ZooKeeper away once, and lets Spark prove that
    nothing was lost, doubled, early or altered: round after round meanwhile, and all of it at the end. Exit
    code 0 only if that is so. Nothing is left running.
    """
    from ops.demo.cluster import own_settings_only  # Spark and the clients are slow to import
    from ops.demo.page import demo_page
    from ops.demo.run import Demo, Options
    from ops.setup.java import find_java
    from pipeline.page import write

    find_java()  # before there is a folder to keep
    own_settings_only()
    for number in (signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, signal.default_int_handler)  # as Ctrl-C: everything is stopped in order
    folder = Path(tempfile.mkdtemp(prefix="delayline-demo-"))
    ok, needed = False, True
    try:
        with _own_stderr() as stderr:
            demo = Demo(Options(messages, nodes, folder), Console(file=stderr))
            with demo.play() as (verdict, picture):
                ok = verdict.holds
                needed = keep or not ok
                _report(verdict, json_file)
                write(demo_page(verdict, picture), html)
                say(f"the page to look at: {html.absolute()}")
                if keep:
                    _stay(folder, demo.connection)
    except KeyboardInterrupt:
        needed = keep
        raise
    finally:
        if not needed:
            shutil.rmtree(folder, ignore_errors=True)
        else:
            say(f"data and logs are kept in {folder}: logs/, stack/logs/; delete it when done")
    return 0 if ok else 1


def _own_stderr() -> TextIO:
    """While Spark starts, the process's own is turned to a file (ops/spark.py)."""
    fd = os.dup(sys.stderr.fileno())
    return os.fdopen(fd, "w", encoding=sys.stderr.encoding, errors="backslashreplace")


def _report(verdict: Verdict, json_file: Path | None) -> None:
    verdict.show(Console(file=sys.stdout, highlight=False))
    if json_file is not None:
        json_file.write_text(json.dumps(verdict.as_dict(), indent=2) + "\n")


def _stay(folder: Path, connection: ConnectionConfig) -> None:
    click.echo(f"\nDELAYLINE_BOOTSTRAP_SERVERS={connection.bootstrap_servers}")
    click.echo(f"DELAYLINE_ZOOKEEPER={connection.zookeeper}")
    say("everything is up until Ctrl-C; afterwards, the same Kafka and ZooKeeper again with")
    say(f"  delayline stack up --data-dir {folder / 'stack'}")
    with contextlib.suppress(KeyboardInterrupt):
        threading.Event().wait()
