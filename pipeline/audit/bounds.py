"""What a verdict depends on beside the records: times, and how far back the topics still go."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from pyspark.sql import Column
from pyspark.sql import functions as F


@dataclass(frozen=True, slots=True)
class Bounds:
    """Times in epoch ms.

    An *edge* is a time up to which what was settled may have left no trace that is still there, because
    retention or compaction has taken it; 0 where a topic is whole.
    """

    due_before_ms: int  # nothing due before this may be outstanding
    clock_skew_ms: int
    buffer: str  # its topic
    buffer_first: Mapping[int, int]  # its first offset in each partition
    outcomes_edge_ms: int
    letters_edge_ms: int
    letter_limit_bytes: int  # what is larger the dead-letter topic may have had no room for
    target_edges_ms: Mapping[str, int]

    @property
    def has_lost_any(self) -> bool:
        """Whether the buffer has lost its beginning anywhere."""
        return any(self.buffer_first.values())

    def edge_ms(self, target: Column) -> Column:
        """The edge for a message to `target`, whichever way it has ended."""
        own = max(self.outcomes_edge_ms, self.letters_edge_ms)
        return F.greatest(F.lit(own), looked_up(self.target_edges_ms, target, 0))

    def before_buffer(self, source: Column) -> Column:
        """Whether `source` was in the buffer once: it lies before the first offset there is."""
        if not self.has_lost_any:
            return F.lit(False)
        partition, offset = place_in(source)
        is_in = source.startswith(f"{self.buffer}/") & (offset >= 0)
        return F.coalesce(is_in & (offset < looked_up(self.buffer_first, partition, 0)), F.lit(False))


def place_in(source: Column) -> tuple[Column, Column]:
    """The partition and the offset that a source names; null where it is none."""
    parts = F.split(source, "/")
    return F.get(parts, 1).try_cast("int"), F.get(parts, 2).try_cast("long")


def looked_up(mapping: Mapping[str, int] | Mapping[int, int], key: Column, default: int) -> Column:
    """What a small mapping has for each row's key."""
    if not mapping:
        return F.lit(default)
    pairs = [F.lit(item) for pair in mapping.items() for item in pair]
    return F.coalesce(F.create_map(*pairs)[key], F.lit(default))
