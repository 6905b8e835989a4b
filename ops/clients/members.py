"""The nodes by what they say of themselves in their member znodes (node/status.py)."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from enum import StrEnum
from typing import Final, Literal

import msgspec

from election.registry import Registry
from node.status import LARGEST_CLOCK_OFFSET_MS, STALE_MS, NodeState, NodeStatus, UnreadableStatus

LITTLE_DISK_BYTES: Final = 1 << 30
LARGEST_SKEW_MS: Final = 500


class Health(StrEnum):
    """What there is to worry about in a node, the worst first; `ok` if there is nothing."""

    SILENT = "silent"
    REFUSING = "refusing"
    UNREADABLE = "unreadable"
    CLOCK = "clock"
    DISK = "disk"
    BEHIND = "behind"
    BLOCKED = "blocked"
    OK = "ok"


@dataclass(frozen=True, slots=True)
class BlockedStatus:
    """A partition of the buffer that an open transaction blocks, and whose that is as far as it is known.

    `blocked_ms`: for how long it has been open, or a node has seen the partition stand still. See
    `node.status.BlockedPartition`.
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


class _Http(msgspec.Struct):
    """What every version has said of its HTTP interface."""

    http_host: str = ""
    http_port: int = 0


def _http_of(data: bytes) -> tuple[str, int]:
    try:
        said = msgspec.json.decode(data, type=_Http)
    except (msgspec.MsgspecError, UnicodeError, RecursionError):
        return "", 0
    return said.http_host, said.http_port


@dataclass(frozen=True, slots=True)
class Member:
    """A member znode. `status`: None if it holds none that this version can read; `written_ms`: when it was
    written, by the clock of ZooKeeper's server: the node's own may be wrong. `http`: host and port of its
    HTTP interface, of whatever version it is; no host if it does not say.
    """

    status: NodeStatus | None
    written_ms: int
    http: tuple[str, int] = ("", 0)

    @classmethod
    def decode(cls, data: bytes, written_ms: int) -> Member:
        """Of another version, or of no node: it is a member all the same."""
        try:
            status = NodeStatus.decode(data)
            return cls(status, written_ms, (status.http_host, status.http_port))
        except UnreadableStatus:
            return cls(None, written_ms, _http_of(data))

    @property
    def lane(self) -> int | None:
        """None: it does not say."""
        return None if self.status is None else self.status.lane

    @property
    def state(self) -> NodeState | Literal[Health.UNREADABLE]:
        """What it is doing, as it says."""
        return Health.UNREADABLE if self.status is None else self.status.state

    @property
    def refuses(self) -> bool:
        """Whether it says that it cannot be leader."""
        return self.state == NodeState.REFUSING

    @property
    def is_closed(self) -> bool:
        """Whether its store is not open yet: it asks what operators want before it takes anything in."""
        return self.status is not None and not self.status.open

    def silent_ms(self, now_ms: int) -> int:
        """For how long nothing has been heard of it."""
        return now_ms - self.written_ms

    def is_silent(self, now_ms: int) -> bool:
        """Whether that is too long for a node that lives."""
        return self.silent_ms(now_ms) > STALE_MS

    @property
    def wrong_clock_ms(self) -> int | None:
        """How far its clock is ahead of that of ZooKeeper's server, if that is far; None if not."""
        if self.status is None or not self.status.at_ms:
            return None
        ahead_ms = self.status.at_ms - self.written_ms
        return ahead_ms if abs(ahead_ms) > LARGEST_CLOCK_OFFSET_MS else None

    @property
    def clock_offset_ms(self) -> int | None:
        """How far the brokers' clock is ahead of a leader's; what another node says is of when it was one."""
        if self.status is None or self.status.state != NodeState.LEADER:
            return None
        return self.status.clock_offset_ms

    @property
    def allowed_skew_ms(self) -> int:
        """How far a leader's clock may be off the brokers'."""
        return (self.status and self.status.max_clock_skew_ms) or LARGEST_SKEW_MS

    @property
    def clock_is_wrong(self) -> bool:
        """By the one or by the other."""
        offset_ms = self.clock_offset_ms
        is_off = offset_ms is not None and abs(offset_ms) > self.allowed_skew_ms
        return is_off or self.wrong_clock_ms is not None

    @property
    def little_disk(self) -> bool:
        """Whether its disk is nearly full, if it says so."""
        said = self.status
        return said is not None and said.disk_total_bytes > 0 and said.disk_free_bytes < LITTLE_DISK_BYTES

    def blocked(self) -> Iterator[BlockedStatus]:
        """What it says of open transactions. For how long: since it saw one, or, where a broker has said,
        since that was begun.
        """
        if self.status is None:
            return
        for one in self.status.blocked:
            since_ms = one.since_ms if one.open_since_ms is None else one.open_since_ms
            blocked_ms = max(0, self.status.at_ms - since_ms)
            known = (one.producer_id, one.transactional_id, one.timeout_ms)
            yield BlockedStatus(one.partition, one.end, one.records, blocked_ms, *known)


def members_of(znodes: Registry) -> dict[str, Member]:
    """The members that are there, by the names of their znodes."""
    found = znodes.written_members()
    return {node: Member.decode(data, written_ms) for node, (data, written_ms) in found.items()}
