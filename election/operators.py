"""What operators write into ZooKeeper, for the nodes to heed, or for themselves (docs/design.md, "Znodes").

It is JSON. A field that this version does not know is passed over: what must not be passed over belongs to a
newer format. What says nothing of its `format` is of the first.
"""

from __future__ import annotations

from typing import Final

import msgspec

from election.decoding import UNDECODABLE, decoded
from election.errors import Newer

PAUSES_FORMAT: Final = 1
SWITCHOVER_FORMAT: Final = 1
GAP_FORMAT: Final = 1
KAFKA_FORMAT: Final = 1
HISTORY_FORMAT: Final = 1
BULK_FORMAT: Final = 1
REQUEST_FORMAT: Final = 1

SWITCHOVER: Final = "switchover"
BY_PREFERENCE: Final = "switchover by preference"
"""What the history calls an operator's, and a leader's own: each of them begins with the first."""
VALID_S: Final = 60.0
"""For how long a node heeds a switchover that it has heard of."""


class Author(msgspec.Struct, frozen=True):
    """Who wants it, why, and since when (epoch time)."""

    by: str
    reason: str
    at_ms: int


class PauseState(msgspec.Struct, frozen=True):
    """What is to stand still: the whole cluster, and single target topics."""

    paused: Author | None = None
    paused_targets: dict[str, Author] = {}


class Switchover(msgspec.Struct, frozen=True):
    """The leader of `epoch`, and no other one, is to step down: to a node, or to whoever is next.

    `by_preference`: no operator wants it, but that leader itself, since another node is the preferred one.
    """

    epoch: int
    to: str | None
    author: Author
    by_preference: bool = False


class Gap(msgspec.Struct, frozen=True):
    """What retention has taken and an operator has given up: in each of these partitions the log goes on at
    `begin`, for who has applied what was below `read`, and nothing else (node/kafka/applier.py).
    """

    read: dict[int, int]
    begin: dict[int, int]
    author: Author


class KafkaIds(msgspec.Struct, frozen=True):
    """Where a cluster is: the id of the Kafka cluster, and that of the buffer topic there."""

    cluster: str
    buffer: str


class BulkJob(msgspec.Struct, frozen=True):
    """A load of many requests: all that it has sent is in this buffer topic, by its id, at these offsets or
    behind them, by partition. One that is not there: from its beginning on. `words`: a digest of what it was
    asked to make of its rows.
    """

    buffer: str
    begins: dict[int, int]
    words: str
    author: Author


class UnderWay(msgspec.Struct, frozen=True):
    """A run of a bulk job or of an export of tables: `run` tells it from all others, `where` is its process
    and machine.
    """

    run: str
    where: str
    author: Author


class HistoryEntry(msgspec.Struct, frozen=True, kw_only=True):
    """What an operator, or a node by itself, has changed, for the history; `lane` None: all of them.
    `epoch`: of a switchover, whose leader was to step down; versions before 0.2.0 do not say.
    """

    what: str
    author: Author
    lane: int | None = None
    before: str | None = None
    after: str | None = None
    epoch: int | None = None


def encode(said: PauseState | Switchover | Gap | KafkaIds | BulkJob | UnderWay | HistoryEntry) -> bytes:
    """As JSON."""
    return msgspec.json.encode(said)


def decode_pauses(data: bytes, path: str) -> PauseState:
    """Reads `encode`'s bytes; Malformed, Newer."""
    expect_known(data, PAUSES_FORMAT, path)
    return decoded(data, PauseState, f"{path} does not say what is paused")


def decode_switchover(data: bytes, path: str) -> Switchover:
    """Reads `encode`'s bytes; Malformed, Newer."""
    expect_known(data, SWITCHOVER_FORMAT, path)
    return decoded(data, Switchover, f"{path} is no switchover")


def decode_gap(data: bytes, path: str) -> Gap:
    """Reads `encode`'s bytes; Malformed, Newer."""
    expect_known(data, GAP_FORMAT, path)
    return decoded(data, Gap, f"{path} is no accepted gap")


def decode_kafka(data: bytes, path: str) -> KafkaIds:
    """Reads `encode`'s bytes; Malformed, Newer."""
    expect_known(data, KAFKA_FORMAT, path)
    return decoded(data, KafkaIds, f"{path} does not say which Kafka it is")


def decode_bulk(data: bytes, path: str) -> BulkJob:
    """Reads `encode`'s bytes; Malformed, Newer."""
    expect_known(data, BULK_FORMAT, path)
    return decoded(data, BulkJob, f"{path} does not say when a bulk job began")


def decode_under_way(data: bytes, path: str) -> UnderWay:
    """Reads `encode`'s bytes; Malformed, Newer."""
    expect_known(data, BULK_FORMAT, path)
    return decoded(data, UnderWay, f"{path} does not say which run it is of")


def decode_entry(data: bytes, path: str) -> HistoryEntry:
    """Reads `encode`'s bytes; Malformed, Newer."""
    expect_known(data, HISTORY_FORMAT, path)
    return decoded(data, HistoryEntry, f"{path} is no entry of the history")


def expect_known(data: bytes, known: int, path: str) -> None:
    """Raises Newer if what stands in a znode has a format above the one that is known."""
    try:
        of = msgspec.json.decode(data, type=_Format).format
    except UNDECODABLE:
        return  # whoever decodes it says what it is
    if of > known:
        raise Newer(
            f"{path} is of a newer version: it has format {of}, this version reads {known}: upgrade it"
        )


class _Format(msgspec.Struct, frozen=True):
    format: int = 1
