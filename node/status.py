"""What a node says of itself in its member znode: the node writes it, operators' commands read it."""

from __future__ import annotations

from enum import StrEnum

import msgspec

from node.kafka.blocked import BlockedPartition


class NodeState(StrEnum):
    """What a node is doing; operators see it in its member znode."""

    STARTING = "starting"
    CATCHING_UP = "catching-up"
    FOLLOWER = "follower"
    LEADER = "leader"
    REFUSING = "refusing"
    STOPPING = "stopping"


class NodeStatus(msgspec.Struct, frozen=True):
    """The member znode's content (JSON)."""

    node: str
    lane: int
    state: NodeState
    reason: str | None
    way_out: str | None
    epoch: int
    applied: dict[int, int]
    delivered_up_to_ms: int
    pending: int
    clock_offset_ms: int
    pid: int
    at_ms: int
    peer_host: str = ""
    http_host: str = ""
    http_port: int = 0
    run: str = ""  # with the next one: which process of two that are this node
    started_ms: int = 0
    version: str = ""
    paused: bool = False  # by an operator
    paused_targets: list[str] = []
    disk_free_bytes: int = 0  # where its data is; 0 of 0: not known
    disk_total_bytes: int = 0
    session_timeout_s: float = 0.0  # as it asks ZooKeeper for
    max_clock_skew_ms: int = 0
    open: bool = False  # its store, and so whatever asks what operators want
    settings: str = ""  # what its view was made with (JSON)
    strange_checkpoints: int = 0  # records of the checkpoint topic that it has passed over
    keys: list[str] = []  # the ids of those that it knows
    blocked: list[BlockedPartition] = []  # of its lane's partitions, those that open transactions hold back
    ahead: dict[int, int] = {}  # of those whose newest timestamp is ahead of the clock: that timestamp
