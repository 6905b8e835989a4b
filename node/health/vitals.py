"""What a node tells whoever watches it: a glance at what its parts know already, without waiting for any."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import NamedTuple

from node.core.ports import Pauses
from node.health.meter import Meter
from node.kafka.targets import Counts
from node.refusal import Refusal
from node.snapshot.giver import Counts as GivenCounts
from node.status import BlockedPartition, NearPartition, NodeState, TakenSnapshot
from store.holds import Holds
from store.overdue import Overdue
from store.rocks import Figures


class Nameplate(NamedTuple):
    """Which node it is."""

    cluster: str
    node: str
    lane: int
    version: str


class Vitals(NamedTuple):
    """What is not known is None: nothing is before the node has opened its store.

    `refusal`: why it cannot be leader; `waits_for`: what keeps it from going on, in words. `dead`: threads
    that should run and do not. `leads`: whether it is leader, and be it one that has begun to refuse;
    `leader`: the lane's, as ZooKeeper last said. `lag`, `unstable` and `blocked`: of the buffer, see
    `node.health.soundings`. `rejected_checkpoints`: by kind, what was passed over in the checkpoint topic,
    see `node.kafka.own_checkpoints`. `holds`: the aligned checkpoint's. `near`: where retention is, see
    `node.kafka.log_age`. `snapshot`: the view of a peer with which this process has begun; `passed_over`:
    those that it could not use; `given`: what it has handed out.
    """

    nameplate: Nameplate
    state: NodeState
    refusal: Refusal | None
    waits_for: str | None
    dead: list[str]
    zookeeper: bool
    pauses: Pauses
    leads: bool = False
    leader: str | None = None
    epoch: int | None = None
    delivered_up_to_ms: int | None = None
    clock_offset_ms: int | None = None
    lag: int | None = None
    unstable: int | None = None
    blocked: Sequence[BlockedPartition] | None = None
    near: Sequence[NearPartition] | None = None
    dated_by_clients: bool | None = None
    pending: int | None = None
    overdue: Overdue | None = None
    figures: Figures | None = None
    free_bytes: int | None = None
    targets: Counts | None = None
    meter: Meter | None = None
    rejected_checkpoints: Mapping[str, int] | None = None
    holds: Holds = ()
    snapshot: TakenSnapshot | None = None
    passed_over: int = 0
    given: GivenCounts | None = None
