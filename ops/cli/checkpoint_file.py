"""`delayline checkpoint export` and `import`: the checkpoints as JSON, for the day the topic is lost."""

from __future__ import annotations

import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from ops.cli.checkpoint_change import execute_options, who_executes
from ops.cli.operator import agree
from ops.cli.options import OutputFile, connect, connection_options
from ops.cli.output import Format, age, emit, output_option, say

if TYPE_CHECKING:
    from ops.checkpoint.export import LanePlan

_COLUMNS = {
    "lane": "lane",
    "epoch": "epoch",
    "delivered": "delivered up to",
    "records": "records",
}


@click.command(epilog="Example: delayline checkpoint export --to checkpoints.json")
@click.option("--lane", type=int, help="One lane (default: all).")
@click.option("--to", "path", type=OutputFile(), metavar="FILE", help="Where to write it (default: stdout).")
@connection_options
def export(lane: int | None, path: Path | None, **options: Any) -> None:
    """Write the last checkpoint of each lane, and its leaderships, as JSON.

    Running nodes deliver on, so it is out of date at once: what is delivered after it is delivered again if
    it is ever imported.
    """
    import msgspec

    from ops.checkpoint import export

    found = export.exported(connect(options), lane, time.time_ns() // 1_000_000)
    text = msgspec.json.format(msgspec.json.encode(found), indent=2).decode() + "\n"
    if path is None:
        click.echo(text, nl=False)
    else:
        path.write_text(text, encoding="utf-8")
        say(f"{path}: {len(found.lanes)} lane{'' if len(found.lanes) == 1 else 's'}")


@click.command(
    "import",
    epilog="Example: delayline checkpoint import checkpoints.json --execute --reason 'the topic was lost'",
)
@click.argument("path", metavar="FILE", type=click.Path(dir_okay=False, allow_dash=True, path_type=Path))
@click.option("--lane", type=int, help="One lane of the file (default: all that it has).")
@execute_options
@output_option
@connection_options
def import_(output: Format, path: Path, lane: int | None, **options: Any) -> None:
    """Write exported checkpoints into an EMPTY checkpoint topic, for nodes to go on from.

    For when the topic and the znode are both lost: where only the topic is, run 'delayline topics create',
    and the next leader goes on from the znode. What was delivered after the export is delivered again. Stop
    the nodes first. Without --execute it says what would be written. Lanes are written one after the other:
    if one fails, go on from there with --lane.

    Exit code 5 if a lane has a leader, its topic is not empty, the znode has a later checkpoint, or the
    export is of another cluster or buffer.
    """
    from ops.checkpoint import export

    by, confirm = who_executes(options)
    raw = _read(path)
    config = connect(options)
    if confirm is not None:
        agree(config.cluster, confirm, "")
    plans = export.plan(config, export.read_file(raw, str(path)), lane)
    _show(output, plans)
    say("what was delivered after the export is delivered again")
    if by is None:
        say("nothing was written; --execute does it")
        _emit(output, plans, executed=False)
        return
    if confirm is None:
        agree(config.cluster, None, f"the lanes go on from {path}")
    export.carry_out(config, plans, by, say)
    say("written: start the nodes")
    _emit(output, plans, executed=True)


def _read(path: Path) -> bytes:
    try:
        return sys.stdin.buffer.read() if str(path) == "-" else path.read_bytes()
    except OSError as error:
        raise click.BadParameter(f"{path}: {error.strerror}", param_hint="FILE") from error


def _show(output: Format, plans: list[LanePlan]) -> None:
    """To decide on, before it is done: a table is for whoever reads it."""
    if output != "table":
        return
    now_ms = time.time_ns() // 1_000_000
    rows = [
        {
            "lane": one.lane,
            "epoch": one.last.epoch,
            "delivered": age(one.last.delivered_up_to_ms, now_ms),
            "records": len(one.records),
        }
        for one in plans
    ]
    emit(output, rows, _COLUMNS)


def _emit(output: Format, plans: list[LanePlan], *, executed: bool) -> None:
    """What was written, once it is: for programs."""
    import msgspec

    if output != "table":
        lanes = [{"lane": one.lane, "records": msgspec.to_builtins(one.records)} for one in plans]
        emit(output, [], {}, data={"lanes": lanes, "executed": executed})
