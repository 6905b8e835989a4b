"""`delayline node`: one node in the foreground, for a service manager; and cold copies of its view."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from ops.cli.options import as_flags, connect, connection_options
from ops.cli.output import Format, emit_one, output_option, say
from ops.cli.private import files_of_its_own

if TYPE_CHECKING:
    from node.snapshot.manifest import Manifest


@click.group("node")
def node_group() -> None:
    """Run a delay node, or copy its view."""


@node_group.command(
    epilog="Example: delayline node run --lane 0 --data-dir /var/lib/delayline --config node.yaml"
)
@click.option("--lane", type=int, help="The lane to replicate (default: 0).")
@click.option(
    "--lanes",
    metavar="0-3|0,2|...",
    help="Several in place of one: a process for each, and one HTTP port. Node id: host name or --node-id,"
    " and the lane; folder: below --data-dir; --peer-port is that of lane 0.",
)
@click.option("--supervised", is_flag=True, hidden=True, help="One of several: told by its standard input.")
@click.option("--node-id", help="The same after every restart (default: host name and lane).")
@click.option("--data-dir", type=click.Path(path_type=Path), help="Folder of the node's replica.")
@click.option("--peer-host", help="Where the lane's other nodes reach this one (default: host name).")
@click.option("--peer-port", type=int, help="Its port for them (default: 17400 + lane).")
@click.option("--http-host", help="Where other nodes and commands reach it (default: 127.0.0.1).")
@click.option("--http-port", type=int, help="Its port for them (default: any that is free).")
@connection_options
@click.pass_obj
def run(debug: bool, /, *, supervised: bool, **options: Any) -> int:  # noqa: FBT001 - of the top command
    """Run a node until SIGTERM or Ctrl-C: it finishes its transaction and steps down.

    Logs go to stderr, as JSON lines unless that is a terminal. Other settings: environment and file, see
    docs/configuration.md.
    """
    import logging

    from node.config import NodeConfig
    from ops import logs
    from ops.config import load

    level = logging.DEBUG if debug else logging.INFO
    if supervised:
        from ops.lanes.child import config_and_server

        config, http = config_and_server()
    else:
        config, http = load(NodeConfig, file=options.pop("file"), flags=as_flags(options)), None
    with files_of_its_own():
        if config.lanes is not None:
            from ops.lanes.supervisor import supervise

            logs.configure(level, lanes=config.lanes)
            return supervise(config, debug=debug)
        from node.node import Node

        logs.configure(level, node=config.node_id, lane=config.lane)
        return Node(config, http=http).run()


@node_group.command(epilog="Example: delayline node snapshot --to s3://copies/delay/2026-11-23")
@click.option("--to", "url", required=True, metavar="URL", help="An empty folder, or one of an object store.")
@click.option("--lane", type=int, default=0, show_default=True, help="The lane whose view it is.")
@click.option("--node", help="Of this node (default: of a follower, or the leader if there is none).")
@output_option
@connection_options
def snapshot(output: Format, url: str, lane: int, node: str | None, **options: Any) -> None:
    """Write the view of a running node as a cold copy, to restore a node from.

    What is written is sealed with a secret of the cluster's: only a cluster with the same keys can use it. A
    node that is restored from it reads the log from where the copy was made, so a copy is of use for as long
    as the log reaches back to it. URL: a folder, or what fsspec knows (s3:// needs the package s3fs).

    Exit code 5 if something is there already, 6 if no node gives its view.
    """
    from ops.node.snapshot import snapshot

    with files_of_its_own():
        done = snapshot(connect(options), url, lane, node)
    say(f"{url}: the view of {done.manifest.node}")
    _show(output, done.manifest, done.seconds)


@node_group.command(epilog="Example: delayline node restore --from s3://copies/delay/1123 --data /data/n1")
@click.option("--from", "url", required=True, metavar="URL", help="Where the cold copy is.")
@click.option(
    "--data",
    "data_dir",
    required=True,
    metavar="DIR",
    type=click.Path(file_okay=False, path_type=Path),
    help="The data folder of the node to be; nothing may be in it.",
)
@output_option
@connection_options
def restore(output: Format, url: str, data_dir: Path, **options: Any) -> None:
    """Make a node's data folder from a cold copy. Start the node then, with any node id.

    A copy is used only if it is of this cluster, its buffer topic and its settings, if the log still reaches
    back to it, and if this version knows its format.

    Exit code 3 if there is no copy, 5 if it cannot be used, or something is in the folder.
    """
    from ops.node.restore import restore

    with files_of_its_own():
        done = restore(connect(options), url, data_dir)
    say(f"{data_dir}: restored; start a node of lane {done.manifest.identity.lane} with it")
    _show(output, done.manifest, done.seconds)


def _show(output: Format, manifest: Manifest, seconds: float) -> None:
    said = {
        "node": manifest.node,
        "lane": manifest.identity.lane,
        "made_ms": manifest.made_ms,
        "replay_window_ms": manifest.replay_window_ms,
        "bytes": manifest.size,
        "files": len(manifest.files),
        "seconds": seconds,
    }
    if output == "table":
        from delayline.times import render_time

        said["made_ms"] = render_time(manifest.made_ms)
    emit_one(output, said | {"applied": manifest.applied})
