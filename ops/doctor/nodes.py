"""The nodes by what they say of themselves, the lanes, and what operators have paused: pure functions."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

from delayline.names import ClusterNames
from delayline.times import render_time
from node.kafka.log_age import too_long
from node.status import NodeState
from ops.clients.members import LITTLE_DISK_BYTES, BlockedStatus, Member
from ops.cluster.status import LONG_BLOCKED_MS, MUCH_BEHIND, ClusterStatus
from ops.doctor.finding import Finding, note, ok, problem

OVERDUE_MS: Final = 60_000
TRAILS_MS: Final = 15_000
AHEAD_MS: Final = 5_000


def judge_cluster(status: ClusterStatus) -> list[Finding]:
    """Everything that the znodes tell."""
    return [
        *_paused(status),
        *_lanes(status),
        *_blocked(status),
        *_near_retention(status),
        *_windows(status),
        *_ahead(status),
        *_trailing(status),
        *_versions(status),
        *(finding for node in status.members for finding in _node(status, node)),
    ]


def _paused(status: ClusterStatus) -> list[Finding]:
    pauses = status.pauses
    found = [] if pauses.paused is None else [("the whole cluster", "", pauses.paused)]
    found += [(name, f" --target {name}", by) for name, by in sorted(pauses.paused_targets.items())]
    if not found:
        return [ok("paused", "nothing is")]
    return [
        problem(
            "paused",
            f"{what} is paused, by {author.by}: {author.reason}{_waiting(status, what)}",
            f"delayline cluster resume{option} --reason ...",
        )
        for what, option, author in found
    ]


def _waiting(status: ClusterStatus, target: str) -> str:
    held = status.held.get(target)
    return f"; {held.rows:,} messages at most wait for it" if held and held.rows else ""


def _lanes(status: ClusterStatus) -> Iterable[Finding]:
    for lane in status.lanes:
        name = f"lane {lane.lane}"
        if lane.leader is None:
            yield problem(name, "it has no leader: nothing of it is delivered", "delayline node run")
            continue
        if len(lane.candidates) == 1:
            yield problem(name, f"no follower: {lane.leader} alone can be leader", "start another node")
        if lane.checkpoint is None or lane.checkpoint.delivered_up_to_ms == 0:
            yield note(
                name, f"{lane.leader} has only begun: nothing is delivered yet", "see its log if it stays so"
            )
            continue
        behind_ms = status.read_ms - lane.checkpoint.delivered_up_to_ms
        if behind_ms > OVERDUE_MS and status.pauses.paused is None:
            found = f"all is delivered only up to {behind_ms // 1000} s ago"
            yield problem(name, found, f"see the log of {lane.leader}, and 'delayline due'")
        elif len(lane.candidates) > 1:
            yield ok(name, f"{lane.leader} is leader, {len(lane.candidates) - 1} follow")


def _ahead(status: ClusterStatus) -> Iterable[Finding]:
    """What clocks that were ahead have left: a position, and records that bear their times."""
    for lane in status.lanes:
        checkpoint, name = lane.checkpoint, f"lane {lane.lane}"
        if checkpoint is None or checkpoint.position is None:
            continue
        ahead_ms = checkpoint.position[0] - status.read_ms
        if ahead_ms > AHEAD_MS:
            found = f"it stands {ahead_ms // 1000} s ahead of the clock: until then nothing is delivered"
            yield problem(name, found, "have the clocks of its nodes and of the brokers set right")
        up_to_ms = max((one.position[0] for one in checkpoint.overruns), default=0)
        if up_to_ms > status.read_ms:
            found = (
                "the clocks of the brokers and its leader were ahead together: of what it had then, all"
                f" that is due up to {render_time(up_to_ms)} was delivered early; the rest comes in its time"
            )
            yield note(name, found, "see who has set those clocks, and whom what came early concerns")
    buffer = ClusterNames(status.settings.cluster).buffer
    for partition, newest_ms in sorted(_newest_ahead(status).items()):
        yield problem(
            f"{buffer}/{partition}",
            f"its records bear times up to {render_time(newest_ms)}, ahead of the clock: what was sent then"
            " is not due before",
            "set the clock of the broker that leads it, or did; see what waits: delayline due",
        )


def _newest_ahead(status: ClusterStatus) -> dict[int, int]:
    """By partition, as nodes say that live."""
    found: dict[int, int] = {}
    for member in status.members.values():
        if member.status is not None and not member.is_silent(status.read_ms):
            for partition, newest_ms in member.status.ahead.items():
                found[partition] = max(newest_ms, found.get(partition, 0))
    return {partition: at_ms for partition, at_ms in found.items() if at_ms > status.read_ms}


def _trailing(status: ClusterStatus) -> Iterable[Finding]:
    """A follower knows what was delivered by the checkpoint topic; the znode says what it should know."""
    for lane in status.lanes:
        for node in lane.candidates[1:]:
            said = status.members[node].status if node in status.members else None
            if said is None or said.delivered_up_to_ms == 0 or lane.checkpoint is None:
                continue
            trails_ms = lane.checkpoint.delivered_up_to_ms - said.delivered_up_to_ms
            if trails_ms > TRAILS_MS:
                topic = f"{ClusterNames(status.settings.cluster).checkpoint}/{lane.lane}"
                yield problem(
                    node,
                    f"it has read {topic} only up to {trails_ms // 1000} s before the last checkpoint",
                    f"end the transaction that somebody has open in {topic} (kafka-transactions.sh"
                    " find-hanging): the node waits for it before it leads",
                )


def _blocked(status: ClusterStatus) -> Iterable[Finding]:
    """Nobody reads behind an open transaction: what is committed there waits, and is no node's to deliver."""
    for lane in status.lanes:
        for blocked in status.blocked(lane.lane):
            buffer = ClusterNames(status.settings.cluster).buffer
            found = (
                f"{blocked.records:,} records of {buffer}/{blocked.partition} have waited for"
                f" {blocked.blocked_ms // 1000} s behind {blocked.owner}"
            )
            tell = problem if blocked.blocked_ms > LONG_BLOCKED_MS else note
            yield tell(f"lane {lane.lane}", found, _end_of(blocked, buffer))


def _near_retention(status: ClusterStatus) -> Iterable[Finding]:
    """What waits there is carried by a leader, long before; so something keeps it from that."""
    names = ClusterNames(status.settings.cluster)
    buffer = names.buffer
    said = (one.status for one in status.members.values() if not one.is_silent(status.read_ms))
    near = {one.partition: one for known in said if known is not None for one in known.near}
    for partition, one in sorted(near.items()):
        yield problem(
            f"lane {status.settings.lane_of(partition)}",
            f"retention will soon remove records of {buffer}/{partition} that are needed from offset"
            f" {one.carried} on",
            f"raise retention.ms of {buffer} and {names.outcomes} (kafka-configs.sh) until a leader has"
            " carried what waits there:"
            " a lane without a leader, an open transaction, a message too large to be written again or a"
            " replay_window_s of nearly half of the retention is why",
        )


def _windows(status: ClusterStatus) -> Iterable[Finding]:
    """Of a cluster that carries: each node's own is known to that node alone."""
    retention_ms = status.settings.retention_ms
    for node, member in status.members.items():
        if retention_ms is None or member.status is None:
            continue
        found = too_long(member.status.replay_window_ms, retention_ms)
        if found is not None:
            yield problem(
                node,
                f"its {found}; a node without a view may find that the log does not reach back far enough",
                "set it lower, and start the node again; or keep the log for longer: delayline settings"
                " change --retention",
            )


def _end_of(blocked: BlockedStatus, buffer: str) -> str:
    """How the transaction ends."""
    if blocked.transactional_id is None:
        return (
            "if kafka-transactions.sh find-hanging finds it, too: kafka-transactions.sh abort --topic"
            f" {buffer} --partition {blocked.partition} --start-offset {blocked.end}"
        )
    itself = (
        ""
        if blocked.timeout_ms is None
        else f"; by itself it ends {blocked.timeout_ms // 1000} s after its start"
    )
    return f"have that producer commit or abort, or start it again{itself}"


def _versions(status: ClusterStatus) -> Iterable[Finding]:
    said = (member.status for member in status.members.values())
    versions = {one.version for one in said if one is not None and one.version}
    if len(versions) > 1:
        yield problem(
            "versions", f"nodes run {', '.join(sorted(versions))}", "upgrade the others, one by one"
        )
    elif versions:
        yield ok("versions", f"every node runs {versions.pop()}")


def _node(status: ClusterStatus, node: str) -> Iterable[Finding]:
    member = status.members[node]
    found = [finding for judge in _JUDGES for finding in judge(node, member)]
    if member.is_silent(status.read_ms):
        mend = f"see its machine; if it is dead: delayline cluster remove {node} --reason ..."
        silent_s = member.silent_ms(status.read_ms) // 1000
        found.append(problem(node, f"nothing heard of it for {silent_s} s", mend))
    lag = status.lag(node)
    if lag is not None and lag > MUCH_BEHIND:
        mend = "it catches up by itself; if the lag grows, its disk or network is too slow"
        found.append(problem(node, f"{lag:,} records behind the log's end", mend))
    return found or [ok(node, f"{member.state}, all well")]


def _state(node: str, member: Member) -> Iterable[Finding]:
    said = member.status
    if said is None:
        yield problem(node, "its member znode holds no status", "see which program writes it")
    elif member.refuses:
        yield problem(node, f"refuses to lead: {said.reason}", str(said.way_out))
    elif said.state in {NodeState.STARTING, NodeState.CATCHING_UP}:
        yield note(node, f"{said.state}: no candidate yet", "see its log if it stays so")


def _clock(node: str, member: Member) -> Iterable[Finding]:
    """Only a leader's checkpoints show the brokers' clock."""
    offset_ms, allowed_ms = member.clock_offset_ms, member.allowed_skew_ms
    if offset_ms is not None and abs(offset_ms) > allowed_ms / 2:
        found = f"its clock is {-offset_ms:+d} ms off the brokers'; {allowed_ms} ms are allowed"
        yield problem(node, found, "set the clocks, for example with `chronyc makestep`")


def _disk(node: str, member: Member) -> Iterable[Finding]:
    if member.status is not None and member.little_disk:
        free_mib, least_mib = member.status.disk_free_bytes >> 20, LITTLE_DISK_BYTES >> 20
        yield problem(node, f"{free_mib} MiB of its disk are free, less than {least_mib}", "make room there")


def _strangers(node: str, member: Member) -> Iterable[Finding]:
    if member.status is not None and (count := member.status.rejected_checkpoints):
        found = f"{count:,} records of the checkpoint topic are not the service's; they were passed over"
        mend = "see who may write to that topic: only the nodes have to; the node's log names one"
        yield problem(node, found, mend)


_JUDGES: Final = (_state, _clock, _disk, _strangers)
