"""What a node says of itself in its member znode: the node writes it, operators' commands read it.

It is JSON. Who reads passes over fields that it does not know, and takes those that are not there for their
defaults; what has no node, lane and state that this version knows, is no status of it.
"""

from __future__ import annotations

from enum import StrEnum
from typing import Final, Self

import msgspec

STALE_MS: Final = 5_000
"""A node that lives tells of itself once a second."""
LARGEST_CLOCK_OFFSET_MS: Final = 2_000
"""Between a status and the time at which ZooKeeper's server took it lies the way of the one to the other."""


class NodeState(StrEnum):
    """What a node is doing."""

    STARTING = "starting"
    CATCHING_UP = "catching-up"
    FOLLOWER = "follower"
    LEADER = "leader"
    REFUSING = "refusing"
    STOPPING = "stopping"


CAUGHT_UP: Final = frozenset({NodeState.FOLLOWER, NodeState.LEADER})


class BlockedPartition(msgspec.Struct, frozen=True):
    """A partition whose last stable offset stands still with offsets behind it, committed ones or not.

    `end`: that end, where the transaction begins; `records`: how many offsets are behind it; `since_ms`:
    since when it has been seen to stand there. Of whose transaction it is, what is known (see
    `node.kafka.fetch.transactions.TransactionOwner`).
    """

    partition: int
    end: int
    records: int
    since_ms: int
    producer_id: int | None = None
    transactional_id: str | None = None
    open_since_ms: int | None = None
    timeout_ms: int | None = None


class NearPartition(msgspec.Struct, frozen=True):
    """A partition in which retention comes near what is still needed: the log has to reach back to `carried`,
    and below `old` its records have been there for so long that they will soon be gone.
    """

    partition: int
    carried: int
    old: int


class TakenSnapshot(msgspec.Struct, frozen=True):
    """The view of a peer with which a process of a node has begun: whose, how large, and how long it took."""

    giver: str
    bytes: int
    seconds: float
    at_ms: int


class UnreadableStatus(Exception):
    """It is not JSON, or that of another version."""


class NodeStatus(msgspec.Struct, frozen=True):
    """The member znode's content. What is not known, or not said, is 0, empty or None."""

    node: str
    lane: int
    state: NodeState
    reason: str | None = None  # of a refusal: its code, a colon, and the detail
    way_out: str | None = None
    epoch: int = 0
    applied: dict[int, int] = {}
    delivered_up_to_ms: int = 0
    pending: int = 0
    clock_offset_ms: int = 0
    pid: int = 0
    at_ms: int = 0
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
    replay_window_ms: int = 0
    open: bool = True  # its store, and so whatever asks what operators want; who does not say may be
    settings: str = ""  # what its view was made with (JSON); empty, too, if that is long
    settings_digest: str = (
        ""  # also of those that are long; empty: nothing is known of them, or who says so is old
    )
    settings_version: int = 0  # how often they were changed, and one
    meaning: int = 1  # up to which one of the wire format its version knows
    rejected_checkpoints: int = 0  # records of the checkpoint topic that it has passed over
    keys: list[str] = []  # the ids of those that it knows
    blocked: list[BlockedPartition] = []  # of its lane's partitions, those that open transactions block
    near: list[NearPartition] = []  # of its lane's partitions, those where retention is
    ahead: dict[int, int] = {}  # of those whose newest timestamp is ahead of the clock: that timestamp
    snapshot: TakenSnapshot | None = None  # that it has begun with, if this process has
    http_path: str = ""  # before each path at its HTTP port, where several lanes share one: /lanes/0

    @classmethod
    def decode(cls, data: bytes) -> Self:
        """Raises UnreadableStatus."""
        try:
            return msgspec.json.decode(data, type=cls)
        except (msgspec.MsgspecError, UnicodeError, RecursionError) as error:
            raise UnreadableStatus(str(error)) from error

    def encode(self) -> bytes:
        """As it stands in the znode."""
        return msgspec.json.encode(self)

    @property
    def refusal_code(self) -> str | None:
        """Why it refuses, for programs."""
        return None if self.reason is None else self.reason.partition(": ")[0]
