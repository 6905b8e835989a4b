"""A snapshot of the cluster as its znodes show it: settings, lanes with their leaders, members, pauses."""

from __future__ import annotations

import time
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from delayline.names import ClusterNames
from delayline.settings import ClusterSettings
from election.candidates import preferred_of
from election.operators import PauseState
from election.registry import Registry
from node.config import ConnectionConfig
from ops.clients.kafka import KafkaAdmin
from ops.clients.members import BlockedStatus, Health, Member, members_of
from ops.clients.zookeeper import mirrored_checkpoint, registry
from ops.errors import OperatorError
from store import holds
from store.checkpoint import Checkpoint

_PATIENCE_S: Final = 2.0
MUCH_BEHIND: Final = 10_000
LONG_BLOCKED_MS: Final = 30_000


@dataclass(frozen=True, slots=True)
class LaneStatus:
    """A lane: who leads it, who would follow, in this order, and its checkpoint as the znode mirrors it.
    `lanes`: how many the cluster has.
    """

    lane: int
    candidates: tuple[str, ...]
    checkpoint: Checkpoint | None
    lanes: int = 1

    @property
    def preferred(self) -> str | None:
        """Which candidate is to lead if all are well; None in a cluster of one lane."""
        return preferred_of(self.candidates, self.lane, self.lanes)

    @property
    def leader(self) -> str | None:
        """The node that ZooKeeper has elected."""
        return self.candidates[0] if self.candidates else None

    @property
    def held(self) -> dict[str, holds.Held]:
        """What waits since its target was paused, by target."""
        return {} if self.checkpoint is None else holds.held_of(self.checkpoint.holds)


@dataclass(frozen=True, slots=True)
class ClusterStatus:
    """What stood in the znodes at `read_ms`, epoch time by the clock of who read them.

    `members` maps a node to what it says of itself; `buffer_ends` a partition of the buffer to the offset
    that its next record gets, None if Kafka did not say, for the reason in `no_ends`.
    """

    settings: ClusterSettings
    lanes: tuple[LaneStatus, ...]
    members: Mapping[str, Member]
    buffer_ends: Mapping[int, int] | None
    pauses: PauseState
    read_ms: int
    no_ends: str | None = None

    def silent_ms(self, node: str) -> int:
        """For how long nothing had been heard of it."""
        return self.members[node].silent_ms(self.read_ms)

    def health(self, node: str) -> Health:
        """The worst that there is to worry about."""
        member, lag = self.members[node], self.lag(node)
        worries = {
            Health.SILENT: member.is_silent(self.read_ms),
            Health.REFUSING: member.refuses,
            Health.UNREADABLE: member.status is None,
            Health.CLOCK: member.clock_is_wrong,
            Health.DISK: member.little_disk,
            Health.BEHIND: lag is not None and lag > MUCH_BEHIND,
            Health.BLOCKED: any(one.blocked_ms > LONG_BLOCKED_MS for one in self.blocked(member.lane)),
        }
        return next((worry for worry, is_so in worries.items() if is_so), Health.OK)

    @property
    def held(self) -> dict[str, holds.Held]:
        """What waits since its target was paused, by target."""
        return holds.held_together(lane.held for lane in self.lanes)

    def blocked(self, lane: int | None) -> list[BlockedStatus]:
        """What waits in a lane's partitions behind open transactions, the longest first, as its nodes say who
        live; of what several say, the word of whoever knows most.
        """
        found: dict[int, BlockedStatus] = {}
        for member in self.members.values():
            if member.lane != lane or member.is_silent(self.read_ms):
                continue
            for one in member.blocked():
                before = found.get(one.partition)
                if before is None or one.knows > before.knows:
                    found[one.partition] = one
        return sorted(found.values(), key=lambda one: -one.blocked_ms)

    def lag(self, node: str) -> int | None:
        """How many offsets of its lane's partitions a node has not applied yet; None if that is not known.

        Nearly 0 is as good as 0: the markers of the service's own transactions count, and no node reads them.
        """
        said = self.members[node].status
        if self.buffer_ends is None or said is None:
            return None
        behind = (
            end - said.applied.get(partition, 0)
            for partition, end in self.buffer_ends.items()
            if self.settings.lane_of(partition) == said.lane
        )
        return sum(max(0, count) for count in behind)


def status(config: ConnectionConfig) -> ClusterStatus:
    """Read the cluster's znodes, and the buffer's ends.

    Raises ZnodeMissing if the cluster was never created, Unavailable if ZooKeeper does not answer.
    """
    with registry(config) as znodes:
        return read(znodes, config)


def read(znodes: Registry, config: ConnectionConfig) -> ClusterStatus:
    """The same, in a session that is there."""
    settings = znodes.settings()
    lanes = tuple(_lane(znodes, lane, settings.lanes) for lane in range(settings.lanes))
    members, (pauses, _) = members_of(znodes), znodes.pauses()
    read_ms = time.time_ns() // 1_000_000  # before Kafka is asked, which may be away
    ends, no_ends = _buffer_ends(config)
    return ClusterStatus(settings, lanes, members, ends, pauses, read_ms, no_ends)


def _buffer_ends(config: ConnectionConfig) -> tuple[dict[int, int] | None, str | None]:
    """Or why there are none: what ZooKeeper says is worth showing without Kafka, then above all."""
    try:
        return KafkaAdmin(config, timeout_s=_PATIENCE_S).ends(ClusterNames(config.cluster).buffer), None
    except OperatorError as error:
        return None, str(error)


def _lane(znodes: Registry, lane: int, lanes: int) -> LaneStatus:
    candidates = tuple(candidate.node for candidate in znodes.candidates(lane).values())
    return LaneStatus(lane, candidates, mirrored_checkpoint(znodes, lane), lanes)
