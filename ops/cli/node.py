"""`delayline node`: one node in the foreground, as a service manager wants it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click

from ops.cli.options import as_flags, connection_options


@click.group("node")
def node_group() -> None:
    """Run a delay node."""


@node_group.command(
    epilog="Example: delayline node run --lane 0 --data-dir /var/lib/delayline --config node.yaml"
)
@click.option("--lane", type=int, help="The lane to replicate (default: 0).")
@click.option("--node-id", help="The same after every restart (default: host name and lane).")
@click.option("--data-dir", type=click.Path(path_type=Path), help="Folder of the node's replica.")
@click.option("--peer-host", help="Where the lane's other nodes reach this one (default: host name).")
@click.option("--peer-port", type=int, help="Its port for them (default: 17400 + lane).")
@click.option("--http-host", help="Where `delayline message show` and `list` reach it (default: 127.0.0.1).")
@click.option("--http-port", type=int, help="Its port for them (default: any that is free).")
@connection_options
@click.pass_obj
def run(debug: bool, /, **options: Any) -> int:  # noqa: FBT001 - the object that the top command passes
    """Run a node until SIGTERM or Ctrl-C: it finishes its transaction and steps down.

    Logs go to stderr, as JSON lines unless that is a terminal. Other settings: environment and file, see
    docs/configuration.md.
    """
    import logging

    from node.config import NodeConfig
    from node.node import Node
    from ops import logs
    from ops.config import load

    config = load(NodeConfig, file=options.pop("file"), flags=as_flags(options))
    logs.configure(logging.DEBUG if debug else logging.INFO, node=config.node_id, lane=config.lane)
    return Node(config).run()
