"""What a node answers over HTTP, as JSON: who serves it and who asks share these.

The first ones are of messages (`node.http.messages`), the last of the node itself (`node.http.watch`).
"""

from __future__ import annotations

from enum import StrEnum
from typing import Literal

import msgspec
from msgspec import UNSET, UnsetType

from delayline.outcome_kinds import OutcomeKind
from node.status import NodeState
from store.due import Due
from store.keys import RowKey
from store.lookup import Total

Extent = Literal["recent", "all", "none"]


class Failed(msgspec.Struct, frozen=True):
    """In place of any answer: what is wrong with the question, or why this node cannot tell."""

    error: str


class AnsweringNode(msgspec.Struct, frozen=True):
    """Who answers, and how far it had read. `lag`: offsets of its lane that it had not read, of those that
    were committed when it was asked; None if Kafka did not say. `read`: where it stood, behind the markers
    after the last message; an older version does not say.
    """

    node: str
    lane: int
    state: NodeState
    applied: dict[int, int]
    lag: int | None
    delivered_up_to_ms: int
    read: dict[int, int] | None = None


class NodeAnswer(msgspec.Struct, frozen=True):
    """Each says whose it is."""

    node: AnsweringNode


class MessageState(StrEnum):
    """Where a message stands, as a node tells it: docs/lookup.md has this as a table."""

    PENDING = "pending"
    PARKED = OutcomeKind.PARKED
    MOVING = "moving"
    DELIVERED = OutcomeKind.DELIVERED
    EXPIRED = OutcomeKind.EXPIRED
    DEAD_LETTERED = OutcomeKind.DEAD_LETTERED
    SKIPPED = OutcomeKind.SKIPPED
    CANCELLED = OutcomeKind.CANCELLED
    CANCELLING = "cancelling"
    DONE = "done"
    UNKNOWN = OutcomeKind.UNKNOWN


class Message(msgspec.Struct, frozen=True, kw_only=True):
    """One message, or another request that waits. What is not known, or does not apply, is None.

    `state`: `pending`, `parked` (the `code` says why; with that of a pause it waits for the end of that, at
    its place), `moving` (a reschedule has moved it, and what it is now cannot be read yet), `delivered`,
    `expired`, `dead-lettered`, `skipped`, `cancelling` (the cancel is taken, its answer not yet written),
    `cancelled`, `done` (what it came to cannot be told) or `unknown`; or an outcome that only a newer node
    knows.
    `at_ms` and `epoch`: of the transaction that made it so, by the clock of its leader; `by`: the request
    that did. `source`: where the request is that this row was made from; `root`: the user's own one behind
    it.
    """

    state: str
    op: str = "schedule"
    id: str | None
    due_ms: int | None = None
    scheduled_for_ms: int | None = None
    target_topic: str | None = None
    target_partition: int | None = None
    attempt: int | None = None
    occurrence: int | None = None
    expire_at_ms: int | None = None
    source: str | None = None
    root: str | None = None
    at_ms: int | None = None
    epoch: int | None = None
    by: str | None = None
    code: str | None = None
    detail: str | None = None


class OutcomeEvent(msgspec.Struct, frozen=True):
    """One outcome of an id, as the outcomes topic has it; `request`: what was decided on."""

    at_ms: int
    epoch: int
    outcome: str
    op: str
    request: str
    message: str | None
    code: str | None
    detail: str | None


class OutcomeHistory(msgspec.Struct, frozen=True):
    """The outcomes of an id since a time, in order. `left_out`: so many records would have had to be read."""

    since_ms: int
    events: list[OutcomeEvent]
    left_out: int = 0
    trouble: str | None = None


class Shown(NodeAnswer, frozen=True):
    """The answer to `show`; without a history of what has no id."""

    message: Message
    history: OutcomeHistory | None


class Listed(NodeAnswer, frozen=True):
    """The answer to `list`, in key order; `next`: the cursor behind which more may be, None at the end."""

    messages: list[Message]
    next: str | None
    total: Total | None


class Forecast(NodeAnswer, frozen=True):
    """The answer to `due`. It has no `lag`: Kafka is not asked, for the answer is to come at once."""

    due: Due


class Foreseen(NodeAnswer, frozen=True):
    """What would come of a replay or a skip: why nothing (`refused`), or how many messages by their targets;
    `at_least` if there may be more.
    """

    refused: str | None
    targets: dict[str, int]
    at_least: bool

    @property
    def messages(self) -> int:
        """How many in all."""
        return sum(self.targets.values())


class ProbedPartition(msgspec.Struct, frozen=True):
    """A partition of the buffer that an open transaction blocks."""

    partition: int
    records: int
    since_ms: int


class Probed(msgspec.Struct, frozen=True, kw_only=True):
    """The answer to whoever watches the node. `blocked` is there if anything is, `leader`, `epoch` and `lag`
    where they were asked for, `reason` and `way_out` where the answer is no.
    """

    cluster: str
    node: str
    lane: int
    state: NodeState
    blocked: list[ProbedPartition] | UnsetType = UNSET
    leader: str | UnsetType | None = UNSET
    epoch: int | UnsetType | None = UNSET
    lag: int | UnsetType | None = UNSET
    reason: str | UnsetType = UNSET
    way_out: str | UnsetType = UNSET


def cursor(key: RowKey) -> str:
    """A page's end, for who asks for the next one."""
    return "-".join(map(str, key))


def parse_cursor(text: str) -> RowKey:
    """ValueError if it is none."""
    parts = text.split("-")
    if len(parts) != 3 or not all(part.isascii() and part.isdigit() and len(part) < 20 for part in parts):
        raise ValueError(f"{text[:100]!r} is no cursor: take it from the answer before")
    due_ms, partition, offset = map(int, parts)
    if max(due_ms, offset) >= 1 << 63 or partition >= 1 << 31:
        raise ValueError(f"{text[:100]!r} is no cursor: take it from the answer before")
    return due_ms, partition, offset
