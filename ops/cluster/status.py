"""A snapshot of the cluster as its znodes show it: settings, lanes with their leaders, members, pauses."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from delayline.names import ClusterNames
from delayline.settings import ClusterSettings
from election.operators import PauseState
from election.registry import Registry
from node.config import ConnectionConfig
from ops.clients.kafka import KafkaAdmin
from ops.clients.zookeeper import registry
from ops.errors import OperatorError
from store import holds
from store.checkpoint import Checkpoint, UnreadableCheckpoint

_PATIENCE_S = 2.0
STALE_MS = 5_000
"""A node that lives tells of itself once a second."""
MUCH_BEHIND = 10_000
LITTLE_DISK_BYTES = 1 << 30
LONG_BLOCKED_MS = 30_000
LARGEST_SKEW_MS = 500
LARGEST_CLOCK_OFFSET_MS = 2_000
"""Between a status and the time at which ZooKeeper's server took it lies the way of the one to the other."""


@dataclass(frozen=True, slots=True)
class LaneStatus:
    """A lane: who leads it, who would follow, in this order, and its checkpoint as the znode mirrors it."""

    lane: int
    candidates: tuple[str, ...]
    checkpoint: Checkpoint | None

    @property
    def leader(self) -> str | None:
        """The node that ZooKeeper has elected."""
        return self.candidates[0] if self.candidates else None

    @property
    def held(self) -> dict[str, holds.Held]:
        """What waits since its target was paused, by target."""
        return {} if self.checkpoint is None else holds.held_of(self.checkpoint.holds)


@dataclass(frozen=True, slots=True)
class BlockedStatus:
    """A partition of the buffer that an open transaction holds back, and whose that is as far as it is known.

    `blocked_ms`: for how long it has been open, or a node has seen the partition stand still. See
    `node.kafka.blocked.BlockedPartition`.
    """

    partition: int
    end: int
    records: int
    blocked_ms: int
    producer_id: int | None
    transactional_id: str | None
    timeout_ms: int | None

    @property
    def knows(self) -> tuple[bool, bool, int]:
        """How much is known: more compares greater."""
        return self.transactional_id is not None, self.producer_id is not None, self.blocked_ms

    @property
    def owner(self) -> str:
        """Whose transaction it is, in words."""
        if self.producer_id is None:
            return "a transaction of a producer that Kafka does not name"
        if self.transactional_id is None:
            return f"a transaction of producer {self.producer_id} that no broker says to coordinate"
        return f"the open transaction of {self.transactional_id!r} (producer {self.producer_id})"


@dataclass(frozen=True, slots=True)
class ClusterStatus:
    """What stood in the znodes at `read_ms`, epoch time by the clock of who read them.

    `members` maps a node to its own words about itself; `buffer_ends` a partition of the buffer to the offset
    that its next record gets, None if Kafka did not say, for the reason in `no_ends`.
    """

    settings: ClusterSettings
    lanes: tuple[LaneStatus, ...]
    members: Mapping[str, Mapping[str, Any]]
    buffer_ends: Mapping[int, int] | None
    pauses: PauseState
    read_ms: int
    no_ends: str | None = None

    def silent_ms(self, node: str) -> int:
        """For how long nothing had been heard of it."""
        return silent_ms(self.members[node], self.read_ms)

    def health(self, node: str) -> str:
        """What there is to worry about, the worst first; `ok` if there is nothing."""
        said, lag = self.members[node], self.lag(node)
        state = str(said.get("state"))
        worries = {
            "silent": self.silent_ms(node) > STALE_MS,
            state: state in {"refusing", "unreadable"},
            "clock": _clock_is_wrong(said),
            "disk": little_disk(said),
            "behind": lag is not None and lag > MUCH_BEHIND,
            "blocked": any(one.blocked_ms > LONG_BLOCKED_MS for one in self.blocked(said.get("lane"))),
        }
        return next((worry for worry, is_so in worries.items() if is_so), "ok")

    @property
    def held(self) -> dict[str, holds.Held]:
        """What waits since its target was paused, by target."""
        return holds.held_together(lane.held for lane in self.lanes)

    def blocked(self, lane: Any) -> list[BlockedStatus]:
        """What waits in a lane's partitions behind open transactions, the longest first, as its nodes say who
        live; of what several say, the word of whoever knows most.
        """
        found: dict[int, BlockedStatus] = {}
        for said in self.members.values():
            if said.get("lane") != lane or silent_ms(said, self.read_ms) > STALE_MS:
                continue
            for one in _blocked(said):
                before = found.get(one.partition)
                if before is None or one.knows > before.knows:
                    found[one.partition] = one
        return sorted(found.values(), key=lambda one: -one.blocked_ms)

    def lag(self, node: str) -> int | None:
        """How many offsets of its lane's partitions a node has not taken in yet; None if that is not known.

        Nearly 0 is as good as 0: the markers of the service's own transactions count, and no node reads them.
        """
        lane, applied = self.members[node].get("lane"), self.members[node].get("applied")
        if self.buffer_ends is None or not isinstance(lane, int) or not isinstance(applied, dict):
            return None
        behind = (
            end - int(applied.get(str(partition), 0))
            for partition, end in self.buffer_ends.items()
            if self.settings.lane_of(partition) == lane
        )
        return sum(max(0, count) for count in behind)


def silent_ms(said: Mapping[str, Any], now_ms: int) -> int:
    """For how long nothing had been heard of a node, by the time at which ZooKeeper took its last words: its
    own clock may be wrong.
    """
    return now_ms - int(said.get("written_ms", said.get("at_ms", now_ms)))


def wrong_clock_ms(said: Mapping[str, Any]) -> int | None:
    """How far a node's clock is ahead of that of ZooKeeper's server, if that is far; None if not."""
    at_ms, written_ms = said.get("at_ms"), said.get("written_ms")
    if not isinstance(at_ms, int) or not isinstance(written_ms, int):
        return None
    return at_ms - written_ms if abs(at_ms - written_ms) > LARGEST_CLOCK_OFFSET_MS else None


def _clock_is_wrong(said: Mapping[str, Any]) -> bool:
    offset_ms, allowed_ms = clock_offset_ms(said), int(said.get("max_clock_skew_ms") or LARGEST_SKEW_MS)
    return wrong_clock_ms(said) is not None or (offset_ms is not None and abs(offset_ms) > allowed_ms)


def _blocked(said: Mapping[str, Any]) -> Iterator[BlockedStatus]:
    """What one node says. For how long: since it saw it, or, where a broker has said, since it was begun."""
    now_ms = int(said.get("at_ms", 0))
    for one in said.get("blocked") or ():
        since_ms = one["since_ms"] if one.get("open_since_ms") is None else one["open_since_ms"]
        blocked_ms = max(0, now_ms - since_ms)
        known = (one.get("producer_id"), one.get("transactional_id"), one.get("timeout_ms"))
        yield BlockedStatus(one["partition"], one["end"], one["records"], blocked_ms, *known)


def clock_offset_ms(said: Mapping[str, Any]) -> int | None:
    """How far the brokers' clock is ahead of a leader's; what another node says is of when it was one."""
    return int(said.get("clock_offset_ms", 0)) if said.get("state") == "leader" else None


def little_disk(said: Mapping[str, Any]) -> bool:
    """Whether a node's disk is nearly full, if it says so."""
    known = int(said.get("disk_total_bytes", 0)) > 0
    return known and int(said.get("disk_free_bytes", 0)) < LITTLE_DISK_BYTES


def status(config: ConnectionConfig) -> ClusterStatus:
    """Read the cluster's znodes, and the buffer's ends.

    Raises ZnodeMissing if the cluster was never created, Unavailable if ZooKeeper does not answer.
    """
    with registry(config) as znodes:
        return read(znodes, config)


def read(znodes: Registry, config: ConnectionConfig) -> ClusterStatus:
    """The same, in a session that is there."""
    settings = znodes.settings()
    lanes = tuple(_lane(znodes, lane) for lane in range(settings.lanes))
    members, (control, _) = members_of(znodes), znodes.pauses()
    read_ms = time.time_ns() // 1_000_000  # before Kafka is asked, which may be away
    ends, no_ends = _buffer_ends(config)
    return ClusterStatus(settings, lanes, members, ends, control, read_ms, no_ends)


def members_of(znodes: Registry) -> dict[str, dict[str, Any]]:
    """What each node says of itself; `written_ms`: when, by the clock of ZooKeeper's server."""
    found = znodes.written_members()
    return {node: member(node, data) | {"written_ms": at_ms} for node, (data, at_ms) in found.items()}


def _buffer_ends(config: ConnectionConfig) -> tuple[dict[int, int] | None, str | None]:
    """Or why there are none: what ZooKeeper says is worth showing without Kafka, then above all."""
    try:
        return KafkaAdmin(config, timeout_s=_PATIENCE_S).ends(ClusterNames(config.cluster).buffer), None
    except OperatorError as error:
        return None, str(error)


def mirrored_checkpoint(znodes: Registry, lane: int) -> Checkpoint | None:
    """The checkpoint znode of a lane; None if no leader has written one. Raises `UnreadableCheckpoint`."""
    mirror = znodes.mirror(lane)
    data = mirror.read()
    try:
        return None if data is None else Checkpoint.decode(data)
    except UnreadableCheckpoint as error:
        raise UnreadableCheckpoint(f"{mirror.path}: {error}") from error


def _lane(znodes: Registry, lane: int) -> LaneStatus:
    candidates = tuple(candidate.node for candidate in znodes.candidates(lane).values())
    return LaneStatus(lane, candidates, mirrored_checkpoint(znodes, lane))


def member(node: str, data: bytes) -> dict[str, Any]:
    """A member of another version may say more or less than this one knows; only JSON is asked for."""
    try:
        said = json.loads(data)
    except ValueError:
        said = None
    return said if isinstance(said, dict) else {"node": node, "state": "unreadable"}
