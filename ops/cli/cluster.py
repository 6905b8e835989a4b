"""`delayline cluster`: who is there, who leads, how far everybody is."""

from __future__ import annotations

import time
from dataclasses import asdict
from typing import TYPE_CHECKING, Any

import click
from rich.text import Text

from ops.cli.options import connect, connection_options
from ops.cli.output import Format, age, emit, output_option, rough, say

if TYPE_CHECKING:
    from ops.cluster import ClusterStatus, LaneStatus


@click.group("cluster")
def cluster_group() -> None:
    """Show the nodes, their lanes and masters."""


LANE_COLUMNS = {
    "lane": "lane",
    "master": "master",
    "epoch": "epoch",
    "delivered": "delivered up to",
    "standbys": "standbys",
}
MEMBER_COLUMNS = {
    "node": "node",
    "lane": "lane",
    "state": "state",
    "seen": "seen",
    "epoch": "epoch",
    "lag": "lag",
    "pending": "pending",
    "reason": "reason",
}


@cluster_group.command(epilog="Example: delayline cluster status --cluster delay -o json")
@output_option
@connection_options
def status(output: Format, **options: Any) -> None:
    """Show each lane's master, and the state, epoch and lag of each node.

    Lag: records of the buffer that the node has not taken in yet; not known while Kafka is away.
    """
    from ops import cluster  # noqa: PLC0415

    snapshot = cluster.status(connect(options))
    if output == "json":
        emit(output, [], {}, data=_as_data(snapshot))
    else:
        now_ms = time.time_ns() // 1_000_000
        emit(output, [_lane_row(lane, now_ms) for lane in snapshot.lanes], LANE_COLUMNS)
        _emit_members(snapshot, now_ms)
    for node, said in snapshot.members.items():
        if said.get("way_out"):
            say(f"warning: {node} refuses to lead: {said['reason']}; {said['way_out']}")
    for lane in snapshot.lanes:
        if lane.master is None:
            say(f"warning: lane {lane.lane} has no master, so nothing of it is delivered")


def _emit_members(snapshot: ClusterStatus, now_ms: int) -> None:
    if snapshot.members:
        click.echo()
        masters = {lane.lane: lane.master for lane in snapshot.lanes}
        rows = [_member_row(said, masters, now_ms) for said in _members(snapshot)]
        emit("table", rows, MEMBER_COLUMNS)
    else:
        say("no node is running")


def _members(snapshot: ClusterStatus) -> list[dict[str, Any]]:
    return [{**said, "lag": snapshot.lag(node)} for node, said in snapshot.members.items()]


def _member_row(said: dict[str, Any], masters: dict[int, str | None], now_ms: int) -> dict[str, Any]:
    state = str(said.get("state"))
    if state == "master" and masters.get(said.get("lane", -1)) != said.get("node"):
        state = "was master"  # its words outlive it by a session timeout
    at_ms = said.get("at_ms")
    return {
        **said,
        "state": Text(state, style=_STATE_STYLES.get(state, "yellow")),
        "seen": None if at_ms is None else f"{rough(now_ms - at_ms)} ago",
    }


_STATE_STYLES = {"master": "green", "follower": "", "refusing": "bold red"}


def _lane_row(lane: LaneStatus, now_ms: int) -> dict[str, Any]:
    checkpoint = lane.checkpoint
    return {
        "lane": lane.lane,
        "master": lane.master,
        "epoch": checkpoint.epoch if checkpoint else None,
        "delivered": age(checkpoint.delivered_up_to_ms, now_ms) if checkpoint else None,
        "standbys": " ".join(lane.candidates[1:]) or None,
    }


def _as_data(snapshot: ClusterStatus) -> dict[str, Any]:
    return {
        "settings": asdict(snapshot.settings),
        "lanes": [
            {
                "lane": lane.lane,
                "master": lane.master,
                "standbys": list(lane.candidates[1:]),
                "epoch": lane.checkpoint.epoch if lane.checkpoint else None,
                "delivered_up_to_ms": lane.checkpoint.delivered_up_to_ms if lane.checkpoint else None,
            }
            for lane in snapshot.lanes
        ],
        "members": _members(snapshot),
    }
