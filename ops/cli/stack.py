"""`delayline stack`: a local Kafka and ZooKeeper to try things on."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from ops.cli.output import Format, emit, output_option, say

if TYPE_CHECKING:
    from ops.stack.keeper import Keeper

COLUMNS = {"server": "server", "state": "state", "address": "address", "pid": "pid", "log": "log"}


def _default_folder() -> Path:
    home = os.environ.get("XDG_DATA_HOME")
    return (Path(home) if home else Path.home() / ".local" / "share") / "delayline" / "stack"


data_dir_option = click.option(
    "--data-dir",
    type=click.Path(path_type=Path, file_okay=False, resolve_path=True),
    default=_default_folder,
    show_default="delayline/stack in the user's data folder",
    help="Where its data, ports and logs are kept.",
)


@click.group("stack")
def stack_group() -> None:
    """A local Kafka and ZooKeeper to try things on."""


@stack_group.command(epilog="Example: delayline stack up --detach")
@click.option("--detach", is_flag=True, help="Return when it serves; it stays up until `stack down`.")
@click.option(
    "--zk-tick-ms",
    type=click.IntRange(min=50),
    default=200,
    show_default=True,
    help="ZooKeeper's unit of time: the shortest session is two of them.",
)
@data_dir_option
def up(data_dir: Path, zk_tick_ms: int, *, detach: bool) -> None:
    """Start it, and keep it up until Ctrl-C.

    The same data folder gives the same addresses and data again. The addresses are printed on stdout, ready
    for a shell's `export`.
    """
    from ops.stack import LocalStack, StackError, keeper

    running = keeper.find(data_dir)
    if running is not None:
        raise StackError(f"it is up already, kept by process {running.pid} (`delayline stack down` ends it)")
    say(f"starting Kafka and ZooKeeper in {data_dir}")
    if detach:
        _tell(keeper.keep_in_background(data_dir, zk_tick_ms=zk_tick_ms))
    else:
        keeper.keep(LocalStack(data_dir, zk_tick_ms=zk_tick_ms), _tell_and_stay)
        say("stopped")


@stack_group.command(epilog="Example: delayline stack down")
@data_dir_option
def down(data_dir: Path) -> None:
    """Stop it; the data stays."""
    from ops.stack import keeper

    say("stopped" if keeper.end(data_dir) else f"no stack is up in {data_dir}")


@stack_group.command(epilog="Example: delayline stack status -o json")
@output_option
@data_dir_option
def status(output: Format, data_dir: Path) -> int:
    """Show whether its servers answer. Exit code 1 if one does not."""
    from ops.stack import LocalStack, keeper

    running = keeper.find(data_dir)
    if running is None:
        emit(output, [], COLUMNS)
        say(f"no stack is up in {data_dir}")
        return 1
    stack = LocalStack(data_dir)
    pids = {"kafka": running.kafka_pid, "zookeeper": running.zookeeper_pid}
    rows: list[dict[str, Any]] = [
        {
            "server": server.name,
            "state": "serving" if server.serves() else "not answering",
            "address": server.address,
            "pid": pids[server.name],
            "log": str(server.log),
        }
        for server in stack.servers
    ]
    emit(output, rows, COLUMNS)
    return 0 if all(row["state"] == "serving" for row in rows) else 1


def _tell_and_stay(keeper: Keeper) -> None:
    _tell(keeper)
    say("it serves until Ctrl-C")


def _tell(keeper: Keeper) -> None:
    click.echo(f"DELAYLINE_BOOTSTRAP_SERVERS={keeper.bootstrap}")
    click.echo(f"DELAYLINE_ZOOKEEPER={keeper.zookeeper}")
