"""What the delivery core needs of the world: Kafka, ZooKeeper and a clock in a node, a seeded model of
them in the simulation. The store is the fifth port (store/kv.py).
"""

from __future__ import annotations

from collections.abc import Iterator
from collections.abc import Set as AbstractSet
from typing import Protocol

import msgspec

from delayline.rejects import Code, ParkCode, RejectCode
from delayline.signing import Keyring
from delayline.wire import Header
from node.core.steps import StepDown
from store.checkpoint import Checkpoint, Lineage, Vector
from store.keys import RowKey
from store.operations import OperatorRequest
from store.told import Look

Offsets = dict[int, list[int]]
"""By partition of the buffer, in the order in which they were sent."""

ANY_PARTITION = -1
TARGET_UNAVAILABLE = RejectCode.TARGET_UNAVAILABLE
TARGET_UNKNOWN = ParkCode.TARGET_UNKNOWN


class Outgoing(msgspec.Struct, frozen=True, gc=False):
    """One record to produce. `row` is the key of the row that it comes from (None: of none alone)."""

    topic: str
    partition: int
    key: bytes | None
    value: bytes | None
    headers: list[Header]
    timestamp_ms: int
    row: RowKey | None


class Records(Protocol):
    """What one transaction sends, in order. Iterated over again, it gives the same."""

    @property
    def topics(self) -> AbstractSet[str]:
        """Where all of them go."""

    def __len__(self) -> int: ...

    def __iter__(self) -> Iterator[Outgoing]: ...


class Unanswered(Exception):
    """There is no answer yet to go on from, or not in time, or it could not be read: to be asked again."""


class OutboxError(Exception):
    """The root of what an outbox says of a transaction, or of its producers. After any of them these are of
    no use (rule 5). What it asks before, to open them, may be `Unanswered`.
    """


class Doubtful(OutboxError, Unanswered):
    """The transaction's fate is unknown, or it was aborted: recover."""


class Fenced(OutboxError):
    """Another producer has initialised this transactional id. A leader goes on in recovery, and steps down
    there if another node leads (node/core/recovery.py).
    """


class RecordRefused(OutboxError):
    """A record was refused for what it is, and will be again: the transaction is aborted.

    `codes` has the rows known to be the cause, each with its letter's code and detail; it is empty if
    the cause is somewhere among the rows that were sent. `code` is the one for that unknown row.
    """

    def __init__(
        self, message: str, codes: dict[RowKey, tuple[Code, str]], code: Code = RejectCode.UNDELIVERABLE
    ) -> None:
        super().__init__(message)
        self.codes = codes
        self.code = code


class Commit(Protocol):
    """A commit under way."""

    def done(self) -> bool:
        """Whether `result` would return or raise at once."""

    def result(self) -> None:
        """Waits until the commit is known. Raises `Doubtful` (also when slow), `Fenced`, and `RecordRefused`
        if it was a record that was not flushed before.
        """


class Transaction(Protocol):
    """A transaction under way on one of the two transactional ids."""

    def send(self, records: Records) -> None:
        """Hands records over, in order. Raises `RecordRefused`, `Doubtful`, `Fenced`."""

    def flush(self) -> Offsets:
        """Waits until all are acknowledged; the offsets of what was written back. Raises `RecordRefused`,
        `Doubtful`, `Fenced`.
        """

    def checkpoint(self, checkpoint: Checkpoint) -> None:
        """Produces the checkpoint record. Raises `Doubtful`, `Fenced`."""

    def commit(self) -> Commit:
        """Starts the commit of all that was sent, acknowledged or not."""


class Outbox(Protocol):
    """The lane's two transactional producers.

    `clock_offset_ms`: by how much the brokers' clock was ahead of the node's when they acknowledged the last
    checkpoint.
    """

    clock_offset_ms: int

    def drop(self) -> None:
        """Lets go of the producers, whatever they are doing. Never blocks."""

    def open(self) -> None:
        """Makes new producers and initialises their ids, a then b: whatever another node has open is
        aborted or known to be committed when it returns. Raises `Unanswered`, `Fenced`, and
        `node.refusal.Refusing` if the node may not use them.
        """

    def begin(self) -> Transaction:
        """Begins a transaction: the first after `open` on id a, then strictly in turn (rule 5).
        Raises `Doubtful`, `Fenced`.
        """


class Log(Protocol):
    """The buffer and checkpoint topics, as the core reads them in recovery."""

    def last_checkpoint(self) -> Checkpoint | None:
        """The last committed checkpoint of the lane, None if there is none. Raises `Unanswered`, and
        `Refusing` where only an operator can help: the topic is missing.
        """

    def lineage(self) -> Lineage:
        """The checkpoint topic and the leader epoch of the lane's partition, as they are now. Raises what
        `last_checkpoint` does.
        """

    def last_stable_offsets(self) -> Vector:
        """The last stable offset of the lane's partitions, as it is now. Raises `Unanswered`."""

    def high_watermarks(self) -> Vector:
        """The ends of the lane's partitions, open transactions and all. Raises `Unanswered`."""


class KeyringSource(Protocol):
    """What the service signs with."""

    @property
    def ring(self) -> Keyring:
        """The keys, as they are now."""


class LogAge(Protocol):
    """How old the lane's log is."""

    def old(self) -> Vector | None:
        """Per partition, the offset below which its records are older than half of the retention, as far as
        that is known; what waits there is to be carried (rule 12). None: nothing is carried. Never blocks.
        """

    def outcomes(self) -> Look | None:
        """What the last look at the lane's outcomes has found, if there was one. Never blocks."""


class LeaderElection(Protocol):
    """What the core needs of the election."""

    def confirm(self) -> bool:
        """A ZooKeeper round trip that says whether this node is leader. Raises `Unconfirmed`."""

    def steps_down(self) -> StepDown | None:
        """Why this node is to step down after the transaction under way: it is asked to resign, or another
        node leads. None if it may go on.
        """

    def mirrored(self) -> Checkpoint | None:
        """The checkpoint in the lane's znode. Raises `Unconfirmed`, and `Refusing` if it cannot be read."""

    def mirror(self, checkpoint: Checkpoint) -> None:
        """Hands a committed checkpoint over for the lane's znode. Never blocks."""


class Pauses(msgspec.Struct, frozen=True):
    """What operators want to stand still: all of the cluster, or what goes to some targets."""

    everything: bool = False
    targets: frozenset[str] = frozenset()


class Operator(Protocol):
    """What operators ask of the lane."""

    def refresh(self) -> None:
        """Asks ZooKeeper, so that what was said before is known. Raises `Unconfirmed`."""

    def asked(self) -> OperatorRequest | None:
        """The last request that is known of, taken up already or not. Never blocks."""

    def pauses(self) -> Pauses:
        """What is to stand still, as far as it is known. Never blocks."""


class Unconfirmed(Exception):
    """ZooKeeper did not answer: nobody knows who is leader."""


class SelectionTargets(msgspec.Struct, frozen=True):
    """The targets of a selection. `due_ms`: when the last of their messages fell due. `replayed`: those of
    what is carried again, and when the last of that fell due.
    """

    topics: AbstractSet[str]
    due_ms: int
    replayed: AbstractSet[str] = frozenset()
    replayed_due_ms: int = 0


class TargetSnapshot(Protocol):
    """What was known of the targets of one selection, and of the service's own topics, at one moment. It does
    not change, and asks nobody.
    """

    @property
    def is_complete(self) -> bool:
        """Whether all of the selection's were known."""

    def takes_any(self, topic: str, size_bytes: int) -> bool:
        """Whether every record of that size can go there, with a key or without, to any partition."""

    def problem(
        self, topic: str, partition: int, key: bytes | None, size_bytes: int
    ) -> tuple[Code, str] | None:
        """The code and detail if a record of that size, with that key, cannot go there. With
        `TARGET_UNAVAILABLE` it may later: the partition is unavailable. With `TARGET_UNKNOWN` it may, too:
        the topic has not been looked up yet.
        """


class Targets(Protocol):
    """What is known of the target topics before anything is sent to them."""

    def learn(self, wanted: SelectionTargets, *, waits: bool) -> TargetSnapshot:
        """Has looked up what is not known of them, and if it waits, waits for that, but a bounded share of
        the time: what is not known then is `TARGET_UNKNOWN`. But what is replayed it waits for until all is
        known, and raises `Unanswered` if that takes seconds. If it does not wait, it never blocks.
        """

    def require(self, topics: frozenset[str]) -> None:
        """Learns the service's own topics. Raises `Refusing` if one is missing or may not be written to, and
        `Unanswered`.
        """

    def invalidate(self) -> None:
        """A transaction has failed, and what was known of its topics may be the reason: one that was deleted,
        a limit that was lowered. Whatever is needed next is looked up anew. Until then it counts as it did,
        but none is missing by an older answer.
        """

    def ask_anew(self) -> None:
        """A pause is over, in which whatever was in the way may have gone: by no older answer is anything
        refused.
        """


class Clock(Protocol):
    """The time."""

    def now_ms(self) -> int:
        """The node's own clock, in epoch ms."""

    def steady_ms(self) -> int:
        """The time since some moment, by a clock that nobody sets."""
