"""`delayline cluster status`."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from dataclasses import asdict
from typing import TYPE_CHECKING, Any, Final

import click
from rich.text import Text

from ops.cli.options import connect, connection_options
from ops.cli.output import Format, age, emit, output_option, rough, say, size

if TYPE_CHECKING:
    from election.operators import PauseState
    from ops.clients.members import BlockedStatus, Member
    from ops.cluster.status import ClusterStatus, LaneStatus
    from store.holds import Held

WATCH_S: Final = 1.0

PAUSE_COLUMNS = {
    "paused": "paused",
    "since": "since",
    "by": "by",
    "reason": "reason",
    "waiting": "waiting",
    "oldest": "due since",
}
LANE_COLUMNS = {
    "lane": "lane",
    "leader": "leader",
    "preferred": "preferred",
    "epoch": "epoch",
    "delivered": "delivered up to",
    "blocked": "waits behind it",
    "followers": "followers",
}
MEMBER_COLUMNS = {
    "node": "node",
    "lane": "lane",
    "role": "role",
    "epoch": "epoch",
    "applied": "applied",
    "lag": "lag",
    "pending": "pending",
    "disk": "disk free",
    "version": "version",
    "clock": "clock",
    "seen": "seen",
    "health": "health",
}


@click.command(epilog="Example: delayline cluster status --watch")
@click.option("-W", "--watch", is_flag=True, help="Again every second, until it is interrupted.")
@output_option
@connection_options
def status(output: Format, *, watch: bool, **options: Any) -> None:
    """Show what is paused, each lane's leader, and how every node is.

    Applied: records of the buffer that the node has taken into its view; lag: those that it has not; it is
    not known while Kafka is away. Clock: how far the brokers' is ahead of a leader's. Health: ok, or the
    worst of silent (nothing heard of it for 5 s), refusing, clock, disk, behind, blocked. Where records wait
    behind an open transaction, "delivered up to" is of what lies before it; what waits behind it stands
    beside that. Preferred, in a cluster of several lanes: who is to lead in the leader's place; it gets the
    lane once it has been well for five minutes and nothing is overdue.
    """
    from ops.clients.zookeeper import registry
    from ops.cluster import status

    config = connect(options)
    if not watch:
        show(output, status.status(config))
        return
    with registry(config) as znodes:
        _watch(output, lambda: status.read(znodes, config))


def _watch(output: Format, read: Callable[[], ClusterStatus]) -> None:
    from election.errors import Unavailable

    while True:
        begun_s = time.monotonic()
        try:
            snapshot = read()
        except Unavailable as error:
            say(f"warning: {error}")
        else:
            click.clear()  # on a terminal alone
            show(output, snapshot)
            if output == "table":
                click.echo()
        time.sleep(max(0.0, begun_s + WATCH_S - time.monotonic()))


def show(output: Format, snapshot: ClusterStatus) -> None:
    """Write it to stdout, and what there is to worry about to stderr."""
    if output != "table":
        emit(output, [], {}, data=_as_data(snapshot))
    else:
        show_pauses(snapshot.pauses, snapshot.held, snapshot.read_ms)
        rows = [_lane_row(lane, snapshot) for lane in snapshot.lanes]
        without = {name for name in ("preferred", "blocked") if not any(row[name] for row in rows)}
        emit(output, rows, {name: says for name, says in LANE_COLUMNS.items() if name not in without})
        _emit_members(snapshot)
    if snapshot.no_ends is not None:
        say(f"warning: no lag is known: {snapshot.no_ends}")
    for node, member in snapshot.members.items():
        if member.status is not None and member.status.way_out:
            say(f"warning: {node} refuses to lead: {member.status.reason}; {member.status.way_out}")
    for lane in snapshot.lanes:
        if lane.leader is None:
            say(f"warning: lane {lane.lane} has no leader, so nothing of it is delivered")
        for blocked in snapshot.blocked(lane.lane):
            say(
                f"warning: {blocked.records:,} records of partition {blocked.partition} of the buffer wait"
                f" for {rough(blocked.blocked_ms)} behind {blocked.owner}: 'delayline doctor' says what to do"
            )


def show_pauses(pauses: PauseState, held: Mapping[str, Held], now_ms: int) -> None:
    """What operators have paused, in red, if there is anything; and what waits since then, or still does."""
    whole = [] if pauses.paused is None else [("the whole cluster", pauses.paused)]
    rows = [
        {
            "paused": Text(what, style="bold red"),
            "since": age(author.at_ms, now_ms),
            "by": author.by,
            "reason": Text(author.reason, style="red"),
            **_waiting(held.get(what), now_ms),
        }
        for what, author in (*whole, *sorted(pauses.paused_targets.items()))
    ]
    rows += [
        {"paused": f"{target} (resumed)", **_waiting(one, now_ms)}
        for target, one in held.items()
        if target not in pauses.paused_targets
    ]
    if rows:
        without = frozenset() if held else _OF_HOLDS
        emit("table", rows, {name: says for name, says in PAUSE_COLUMNS.items() if name not in without})
        click.echo()


_OF_HOLDS: Final = frozenset(("waiting", "oldest"))


def _waiting(held: Held | None, now_ms: int) -> dict[str, str | None]:
    if held is None:
        return {}
    return {
        "waiting": f"{held.rows:,}",
        "oldest": age(held.since_ms, now_ms) if held.rows and held.since_ms else None,
    }


def _emit_members(snapshot: ClusterStatus) -> None:
    if snapshot.members:
        click.echo()
        emit("table", [_member_row(snapshot, node) for node in snapshot.members], MEMBER_COLUMNS)
    else:
        say("no node is running")


def _member_row(snapshot: ClusterStatus, node: str) -> dict[str, Any]:
    from ops.clients.members import Health

    member, health = snapshot.members[node], snapshot.health(node)
    row = {
        "node": node,
        "role": _role(snapshot, node),
        "health": Text(health, style="" if health == Health.OK else "bold red"),
    }
    said, offset_ms = member.status, member.clock_offset_ms
    if said is None:
        return row
    return row | {
        "lane": said.lane,
        "epoch": said.epoch,
        "applied": sum(said.applied.values()),
        "lag": snapshot.lag(node),
        "pending": said.pending,
        "disk": size(said.disk_free_bytes) if said.disk_total_bytes else None,
        "version": said.version or None,
        "clock": None if offset_ms is None else f"{offset_ms:+d} ms",
        "seen": f"{rough(snapshot.silent_ms(node))} ago",
    }


def _role(snapshot: ClusterStatus, node: str) -> Text:
    from node.status import NodeState

    member = snapshot.members[node]
    leader = next((lane.leader for lane in snapshot.lanes if lane.lane == member.lane), None)
    if member.state == NodeState.LEADER and leader != node:
        return Text("was leader", style="yellow")  # its words outlive it by a session timeout
    styles: dict[str, str] = {
        NodeState.LEADER: "green",
        NodeState.FOLLOWER: "",
        NodeState.REFUSING: "bold red",
    }
    return Text(member.state, style=styles.get(member.state, "yellow"))


def _lane_row(lane: LaneStatus, snapshot: ClusterStatus) -> dict[str, Any]:
    checkpoint = lane.checkpoint
    return {
        "lane": lane.lane,
        "leader": lane.leader,
        "preferred": None if lane.preferred == lane.leader else lane.preferred,
        "epoch": checkpoint.epoch if checkpoint else None,
        "delivered": age(checkpoint.delivered_up_to_ms, snapshot.read_ms) if checkpoint else None,
        "followers": " ".join(lane.candidates[1:]) or None,
        "blocked": _waiting_behind(snapshot.blocked(lane.lane)),
    }


def _waiting_behind(blocked: list[BlockedStatus]) -> Text | None:
    if not blocked:
        return None
    records = sum(one.records for one in blocked)
    return Text(f"{records:,} for {rough(blocked[0].blocked_ms)}", style="bold red")


def _as_data(snapshot: ClusterStatus) -> dict[str, Any]:
    return {
        "settings": snapshot.settings.as_data(),
        **pauses_as_data(snapshot.pauses),
        "lanes": [
            {
                "lane": lane.lane,
                "leader": lane.leader,
                "preferred": lane.preferred,
                "followers": list(lane.candidates[1:]),
                "epoch": lane.checkpoint.epoch if lane.checkpoint else None,
                "delivered_up_to_ms": lane.checkpoint.delivered_up_to_ms if lane.checkpoint else None,
                "blocked": [asdict(blocked) for blocked in snapshot.blocked(lane.lane)],
                "held": _held_as_data(lane),
            }
            for lane in snapshot.lanes
        ],
        "members": [
            {
                **_member_as_data(node, member),
                "clock_offset_ms": member.clock_offset_ms,
                "lag": snapshot.lag(node),
                "health": snapshot.health(node),
            }
            for node, member in snapshot.members.items()
        ],
    }


def _member_as_data(node: str, member: Member) -> dict[str, Any]:
    import msgspec

    said = {"node": node, "state": member.state} if member.status is None else member.status
    return {**msgspec.to_builtins(said), "written_ms": member.written_ms}


def _held_as_data(lane: LaneStatus) -> dict[str, Any]:
    import msgspec

    held: dict[str, Any] = msgspec.to_builtins(lane.held)
    return held


def pauses_as_data(pauses: PauseState) -> dict[str, Any]:
    """What is paused, by whom and why."""
    import msgspec

    said: dict[str, Any] = msgspec.to_builtins(pauses)
    return said
