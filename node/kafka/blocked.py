"""What waits behind the last stable offsets of the buffer: how much, since when, and whose transaction holds
it back.

Nothing behind a last stable offset is read by anybody (read_committed). So the position's word that all is
delivered up to a time is of what lies before; of what lies behind, this tells.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Final

from node.kafka.fetch.transactions import TransactionOwner
from node.status import BlockedPartition
from store.checkpoint import Vector

TOLD_AFTER_MS: Final = 3_000  # a usual transaction is over by then
MOST_TOLD: Final = 8  # partitions; the znode of a status is small
ASK_EVERY_MS: Final = 5_000


class LastStableOffsets:
    """Remembers since when each last stable offset has stood still. Used by one thread."""

    def __init__(self, ask: Callable[[Vector], Mapping[int, TransactionOwner]]) -> None:
        """`ask`: who holds these ends, as far as anybody says."""
        self._ask = ask
        self._stand: dict[int, tuple[int, int]] = {}  # the end, and since when
        self._owners: dict[tuple[int, int], TransactionOwner] = {}  # by partition and end
        self._asked_ms: int | None = None

    def sounded(self, high: Vector, stable: Vector, now_ms: int) -> list[BlockedPartition]:
        """What is blocked by now, the longest first."""
        self._stand = {
            partition: self._stood(partition, end, now_ms)
            for partition, end in stable.items()
            if high.get(partition, 0) > end
        }
        told = sorted(
            (since_ms, partition, end)
            for partition, (end, since_ms) in self._stand.items()
            if now_ms - since_ms >= TOLD_AFTER_MS
        )[:MOST_TOLD]
        self._learn({partition: end for _, partition, end in told}, now_ms)
        return [
            self._told(partition, end, high[partition] - end, since_ms) for since_ms, partition, end in told
        ]

    def _stood(self, partition: int, end: int, now_ms: int) -> tuple[int, int]:
        before = self._stand.get(partition)
        # A clock that was set back shows no time that has not been.
        return (end, min(now_ms, before[1])) if before is not None and before[0] == end else (end, now_ms)

    def _learn(self, ends: Vector, now_ms: int) -> None:
        """Whose they are is asked again and again: who answers may not have known."""
        partition_ids = set(ends.items())
        self._owners = {
            partition_id: owner
            for partition_id, owner in self._owners.items()
            if partition_id in partition_ids
        }
        unknown = {
            partition: end
            for partition, end in ends.items()
            if (owner := self._owners.get((partition, end))) is None or owner.transactional_id is None
        }
        is_early = self._asked_ms is not None and 0 <= now_ms - self._asked_ms < ASK_EVERY_MS
        if not unknown or is_early:
            return
        self._asked_ms = now_ms
        found = self._ask(unknown)
        self._owners |= {(partition, ends[partition]): owner for partition, owner in found.items()}

    def _told(self, partition: int, end: int, records: int, since_ms: int) -> BlockedPartition:
        owner = self._owners.get((partition, end))
        of = () if owner is None else owner
        return BlockedPartition(partition, end, records, since_ms, *of)
