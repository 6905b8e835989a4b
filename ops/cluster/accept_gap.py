"""Giving up what retention has taken from the log before any node had read it (node/kafka/applier.py,
`open`).
"""

from __future__ import annotations

import time
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from delayline.names import ClusterNames
from election.operators import Author, Gap, HistoryEntry
from election.registry import Registry
from node.config import ConnectionConfig
from node.kafka.checkpoints import read_last
from node.refusal import RETENTION_GAP
from node.status import NodeStatus
from ops.clients.kafka import KafkaAdmin
from ops.clients.members import Member, members_of
from ops.clients.zookeeper import read_keys, registry
from ops.errors import ConflictError, NotFoundError, UnavailableError
from store.checkpoint import Vector

LOOK_S: Final = 0.2


@dataclass(frozen=True, slots=True)
class PartitionGap:
    """A partition in which something is missing: what was read of it, and where it begins now."""

    partition: int
    read: int
    begin: int

    @property
    def lost(self) -> int:
        """Offsets that nobody can read any more: markers are of them, and what was delivered all the same."""
        return self.begin - self.read


@dataclass(frozen=True, slots=True)
class GapSurvey:
    """Who would go on, as they all have applied the same, and who could not; what would be given up.
    `begins`: these have no view, and begin where the last checkpoint says: then `parts` has all partitions.
    """

    lane: int
    goes_on: tuple[str, ...]
    left: tuple[str, ...]
    parts: tuple[PartitionGap, ...]
    begins: bool = False

    @property
    def lost(self) -> int:
        """In all partitions."""
        return sum(part.lost for part in self.parts)


def survey(config: ConnectionConfig, lane: int, node: str | None) -> GapSurvey:
    """What is missing. Raises NotFoundError if there is no such lane or refusing node, ConflictError if
    nobody refuses for a gap, or a node of the lane does not: it may have read what is gone; and what
    `_carried` raises.
    """
    with registry(config) as znodes:
        settings = znodes.settings()
        if not 0 <= lane < settings.lanes:
            raise NotFoundError(f"cluster {config.cluster} has no lane {lane}")
        # One that cannot be read may be of this lane, and have read what is gone.
        members = {name: one for name, one in members_of(znodes).items() if one.lane in (lane, None)}
    refusing = _refusing(lane, members, node)
    begins = KafkaAdmin(config).begins(ClusterNames(config.cluster).buffer)
    read = {name: _read(said, settings.partitions_of(lane)) for name, said in refusing.items()}
    empty = [name for name, applied in read.items() if settings.carries and not any(applied.values())]
    carried = _carried(config, lane) if empty else {}
    if not any(carried.values()):
        empty = []  # they begin at the log's beginning
    read |= {name: {one: carried.get(one, 0) for one in read[name]} for name in empty}
    # With one that has no view, what is pending on another would be lost.
    first = node or max(read, key=lambda name: (name not in empty, sum(read[name].values()), name))
    parts = tuple(
        PartitionGap(partition, offset, max(offset, begins[partition]))
        for partition, offset in sorted(read[first].items())
        if begins[partition] > offset or first in empty
    )
    if not parts:
        raise ConflictError(f"nothing is missing for {first}: start it again, it goes on by itself")
    alike = tuple(name for name in refusing if read[name] == read[first])
    left = tuple(name for name in refusing if name not in alike)
    return GapSurvey(lane, alike, left, parts, first in empty)


def accept(config: ConnectionConfig, found: GapSurvey, author: Author, timeout_s: float) -> None:
    """Give it up, and wait until the nodes go on. Raises UnavailableError if one does not in time."""
    gap = Gap(
        {part.partition: part.read for part in found.parts},
        {part.partition: part.begin for part in found.parts},
        author,
    )
    entry = HistoryEntry(
        what="accept-gap",
        author=author,
        lane=found.lane,
        before=", ".join(f"{part.partition}:{part.read}" for part in found.parts),
        after=", ".join(f"{part.partition}:{part.begin}" for part in found.parts),
    )
    with registry(config) as znodes:
        znodes.accept_gap(found.lane, gap, entry)
        _wait_going(znodes, found, timeout_s)


def _wait_going(znodes: Registry, found: GapSurvey, timeout_s: float) -> None:
    until_s = time.monotonic() + timeout_s
    while True:
        members = members_of(znodes)
        refusing = [node for node in found.goes_on if _gap_of(members.get(node)) is not None]
        if not refusing:
            return
        if time.monotonic() > until_s:
            raise UnavailableError(
                f"the gap is accepted, but {', '.join(refusing)} still refuses: start it again; where nothing"
                " is carried, a node that was running when retention passed it looks only when it starts"
            )
        time.sleep(LOOK_S)


def _refusing(lane: int, members: Mapping[str, Member], node: str | None) -> dict[str, NodeStatus]:
    refusing = {name: said for name, one in members.items() if (said := _gap_of(one)) is not None}
    others = [name for name in members if name not in refusing]
    if others:
        raise ConflictError(
            f"{others[0]} is {members[others[0]].state}, and not for a gap: it may have read what lane"
            f" {lane} lacks; let it lead, or stop it if it cannot"
        )
    if not refusing:
        raise ConflictError(f"no node of lane {lane} refuses for a retention gap: there is nothing to accept")
    if node is not None and node not in refusing:
        raise NotFoundError(f"{node} does not refuse for a retention gap: {', '.join(refusing)} does")
    return refusing


def _gap_of(member: Member | None) -> NodeStatus | None:
    """What it says, if it refuses for a gap."""
    said = None if member is None else member.status
    return said if said is not None and said.refusal_code == RETENTION_GAP else None


def _carried(config: ConnectionConfig, lane: int) -> Vector:
    """What a node without a view has as good as read. Whoever has committed a later checkpoint would be
    there, and not refuse. Raises Unanswered, UnreadableCheckpoint, ZnodeMissing.
    """
    topic = ClusterNames(config.cluster).checkpoint
    last = read_last(config.client_config() | {"log_level": 0}, topic, lane, read_keys(config))
    return {} if last is None else last.beginning(last.carried).applied


def _read(said: NodeStatus, partitions: list[int]) -> dict[int, int]:
    """Of partitions that were added to the buffer later, too."""
    return {partition: said.applied.get(partition, 0) for partition in {*partitions, *said.applied}}
