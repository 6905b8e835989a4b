"""Which part of some topics is read."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from delayline.names import PartitionId


@dataclass(frozen=True, slots=True)
class TopicExtent:
    """The part of some topics that is read: of each partition the first offset and the end (exclusive)."""

    first: Mapping[PartitionId, int]
    end: Mapping[PartitionId, int]

    def of(self, topics: Iterable[str]) -> TopicExtent:
        """The same for some of the topics."""
        wanted = frozenset(topics)
        return TopicExtent(
            {
                partition_id: offset
                for partition_id, offset in self.first.items()
                if partition_id[0] in wanted
            },
            {partition_id: offset for partition_id, offset in self.end.items() if partition_id[0] in wanted},
        )

    @property
    def records(self) -> int:
        """How many it holds at the most: some offsets are of markers, or were compacted away."""
        return sum(max(0, end - self.first.get(partition_id, 0)) for partition_id, end in self.end.items())

    def filled(self) -> list[PartitionId]:
        """The partitions that hold anything."""
        return sorted(
            partition_id for partition_id, end in self.end.items() if end > self.first.get(partition_id, 0)
        )
