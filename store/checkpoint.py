"""The checkpoint: what the lane has delivered, exactly. One record of the checkpoint topic, written
in the same Kafka transaction as the messages it covers (docs/design.md, "Exactly-once: the rule").
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Self

import msgspec

from store.keys import Key
from store.operations import Operation

Vector = dict[int, int]
"""Per partition of the lane, an offset + 1."""


class UnreadableCheckpoint(ValueError):
    """What stands where a checkpoint should be is none, or of a newer format."""


class Frontier(msgspec.Struct, frozen=True):
    """How far a selection reaches: the part of a checkpoint that decides which rows are done.

    `read` decides nothing: it is where the reader stood, behind the markers that follow the last message. It
    tells whether what retention has removed was all ingested (node/ingest.py).
    """

    position: Key | None
    ingested: Vector
    seen: Vector
    read: Vector
    delivered_up_to_ms: int
    operation: Operation = Operation()

    def done(self, key: Key) -> bool:
        """A row is done iff key <= position and offset < ingested[partition]."""
        return self.position is not None and key <= self.position and key[2] < self.ingested.get(key[1], 0)


def nothing(partitions: Sequence[int]) -> Frontier:
    """The frontier before the first checkpoint."""
    nowhere = dict.fromkeys(partitions, 0)
    return Frontier(position=None, ingested=nowhere, seen=nowhere, read=nowhere, delivered_up_to_ms=0)


class Checkpoint(msgspec.Struct, frozen=True, kw_only=True):
    """One lane's checkpoint. Times in epoch ms; vectors hold the lane's partitions."""

    format: int = 1
    lane: int
    epoch: int
    position: Key | None
    ingested: Vector
    seen: Vector
    read: Vector
    written_back: Vector
    delivered_up_to_ms: int
    operation: Operation = Operation()
    node: str
    at_ms: int
    first: bool = False

    @property
    def frontier(self) -> Frontier:
        return Frontier(
            self.position, self.ingested, self.seen, self.read, self.delivered_up_to_ms, self.operation
        )

    @property
    def record_key(self) -> bytes:
        """The lane; the first checkpoint of an epoch has a key of its own and so outlives compaction."""
        return b"%d/%d" % (self.lane, self.epoch) if self.first else b"%d" % self.lane

    @property
    def order(self) -> tuple[int, Key, int, int, int, tuple[int, bool, Key]]:
        """Later checkpoints of a lane compare greater: within an epoch no part of it ever moves back."""
        position = self.position or (-1, -1, -1)
        seen, ingested = sum(self.seen.values()), sum(self.ingested.values())
        return self.epoch, position, seen, ingested, self.delivered_up_to_ms, self.operation.order

    def encode(self) -> bytes:
        return _encode(self)

    @classmethod
    def decode(cls, raw: bytes | str) -> Self:
        """Raises `UnreadableCheckpoint`."""
        try:
            checkpoint = _decode(raw)
        except (msgspec.MsgspecError, UnicodeError, RecursionError) as error:
            raise UnreadableCheckpoint(f"this is no checkpoint: {error}") from error
        if checkpoint.format != 1:
            raise UnreadableCheckpoint(
                f"checkpoint has format {checkpoint.format}; this version reads format 1"
            )
        return checkpoint  # type: ignore[return-value]


_encode = msgspec.json.Encoder().encode
_decode = msgspec.json.Decoder(Checkpoint).decode
