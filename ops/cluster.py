"""A snapshot of the cluster as its znodes show it: settings, lanes with their masters, members."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from delayline.names import ClusterNames
from delayline.settings import ClusterSettings
from election.registry import Registry
from node.config import ConnectionConfig
from ops.errors import NotFoundError, UnavailableError
from ops.kafka import KafkaAdmin
from ops.zookeeper import registry
from store.checkpoint import Checkpoint, UnreadableCheckpoint

_PATIENCE_S = 2.0


@dataclass(frozen=True, slots=True)
class LaneStatus:
    """A lane: who leads it, who would follow, in this order, and its checkpoint as the znode mirrors it."""

    lane: int
    candidates: tuple[str, ...]
    checkpoint: Checkpoint | None

    @property
    def master(self) -> str | None:
        """The node that ZooKeeper has elected."""
        return self.candidates[0] if self.candidates else None


@dataclass(frozen=True, slots=True)
class ClusterStatus:
    """What stood in the znodes when they were read.

    `members` maps a node to its own words about itself; `buffer_ends` a partition of the buffer to the offset
    that its next record gets, None if Kafka did not say.
    """

    settings: ClusterSettings
    lanes: tuple[LaneStatus, ...]
    members: Mapping[str, Mapping[str, Any]]
    buffer_ends: Mapping[int, int] | None

    def lag(self, node: str) -> int | None:
        """How many offsets of its lane's partitions a node has not taken in yet; None if that is not known.

        Nearly 0 is as good as 0: the markers of the service's own transactions count, and no node reads them.
        """
        lane, ingested = self.members[node].get("lane"), self.members[node].get("ingested")
        if self.buffer_ends is None or not isinstance(lane, int) or not isinstance(ingested, dict):
            return None
        behind = (
            self.buffer_ends.get(partition, 0) - int(ingested.get(str(partition), 0))
            for partition in self.settings.partitions_of(lane)
        )
        return sum(max(0, count) for count in behind)


def status(config: ConnectionConfig) -> ClusterStatus:
    """Read the cluster's znodes, and the buffer's ends.

    Raises ZnodeMissing if the cluster was never created, Unavailable if ZooKeeper does not answer.
    """
    with registry(config) as znodes:
        settings = znodes.settings()
        lanes = tuple(_lane(znodes, lane) for lane in range(settings.lanes))
        members = {node: _decoded(node, data) for node, data in znodes.members().items()}
    return ClusterStatus(settings, lanes, members, _buffer_ends(config))


def _buffer_ends(config: ConnectionConfig) -> dict[int, int] | None:
    try:
        return KafkaAdmin(config, timeout_s=_PATIENCE_S).ends(ClusterNames(config.cluster).buffer)
    except (UnavailableError, NotFoundError):
        return None  # what ZooKeeper says is worth showing without Kafka, then above all


def mirrored_checkpoint(znodes: Registry, lane: int) -> Checkpoint | None:
    """The checkpoint znode of a lane; None if no master has written one. Raises `UnreadableCheckpoint`."""
    mirror = znodes.mirror(lane)
    data = mirror.read()
    try:
        return None if data is None else Checkpoint.decode(data)
    except UnreadableCheckpoint as error:
        raise UnreadableCheckpoint(f"{mirror.path}: {error}") from error


def _lane(znodes: Registry, lane: int) -> LaneStatus:
    candidates = tuple(candidate.node for candidate in znodes.candidates(lane).values())
    return LaneStatus(lane, candidates, mirrored_checkpoint(znodes, lane))


def _decoded(node: str, data: bytes) -> dict[str, Any]:
    """A member of another version may say more or less than this one knows; only JSON is asked for."""
    try:
        said = json.loads(data)
    except ValueError:
        said = None
    return said if isinstance(said, dict) else {"node": node, "state": "unreadable"}
