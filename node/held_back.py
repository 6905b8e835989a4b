"""What waits behind the stable ends of the buffer: how much, since when, and whose transaction holds it back.

Nothing behind a stable end is read by anybody (read_committed). So the position's word that all is delivered
up to a time is of what lies before; of what lies behind, this tells.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Final

import msgspec

from node.fetch.transactions import Holder
from store.checkpoint import Vector

TOLD_AFTER_MS: Final = 3_000  # a usual transaction is over by then
MOST_TOLD: Final = 8  # partitions; the znode of a status is small
ASK_EVERY_MS: Final = 5_000


class HeldBack(msgspec.Struct, frozen=True):
    """A partition whose stable end stands still with offsets behind it, committed ones or not.

    `end`: that end, where the transaction begins; `records`: how many offsets are behind it; `since_ms`:
    since when it has been seen to stand there. Of whose transaction it is, what is known (see `Holder`).
    """

    partition: int
    end: int
    records: int
    since_ms: int
    producer_id: int | None = None
    transactional_id: str | None = None
    open_since_ms: int | None = None
    timeout_ms: int | None = None


class StableEnds:
    """Remembers since when each stable end has stood still. Used by one thread."""

    def __init__(self, ask: Callable[[Vector], Mapping[int, Holder]]) -> None:
        """`ask`: who holds these ends, as far as anybody says."""
        self._ask = ask
        self._stand: dict[int, tuple[int, int]] = {}  # the end, and since when
        self._holders: dict[tuple[int, int], Holder] = {}  # by partition and end
        self._asked_ms: int | None = None

    def sounded(self, high: Vector, stable: Vector, now_ms: int) -> list[HeldBack]:
        """What is held back by now, the longest first."""
        self._stand = {
            partition: self._standing(partition, end, now_ms)
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

    def _standing(self, partition: int, end: int, now_ms: int) -> tuple[int, int]:
        before = self._stand.get(partition)
        # A clock that was set back shows no time that has not been.
        return (end, min(now_ms, before[1])) if before is not None and before[0] == end else (end, now_ms)

    def _learn(self, ends: Vector, now_ms: int) -> None:
        """Whose they are is asked again and again: who answers may not have known."""
        partition_ids = set(ends.items())
        self._holders = {
            partition_id: holder
            for partition_id, holder in self._holders.items()
            if partition_id in partition_ids
        }
        unknown = {
            partition: end
            for partition, end in ends.items()
            if (holder := self._holders.get((partition, end))) is None or holder.transactional_id is None
        }
        is_early = self._asked_ms is not None and 0 <= now_ms - self._asked_ms < ASK_EVERY_MS
        if not unknown or is_early:
            return
        self._asked_ms = now_ms
        found = self._ask(unknown)
        self._holders |= {(partition, ends[partition]): holder for partition, holder in found.items()}

    def _told(self, partition: int, end: int, records: int, since_ms: int) -> HeldBack:
        holder = self._holders.get((partition, end))
        of = () if holder is None else holder
        return HeldBack(partition, end, records, since_ms, *of)
