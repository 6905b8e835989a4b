"""What was written back and cannot be read yet (docs/design.md, rules 1 to 3 and 5).

A transaction that a user leaves open hides what stands behind it in its partition. The checkpoint says of
what was written back meanwhile which row it follows, so that whoever is leader delivers all that does not
depend on it.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from typing import Final, NamedTuple, TypeVar

import msgspec

from store.keys import RecordId

MOST_LISTED: Final = 8_192
"""Of a lane, moved and others: so a checkpoint stays below what a topic takes by default, a megabyte."""

T = TypeVar("T")


class Successor(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """A request with an id that was written back: its own offset, and that of the user's reschedule if it
    moves the row that it follows. If not, that row is done: what follows is its next occurrence, or was put
    off.
    """

    offset: int
    moved_by: int | None = None


class Predecessor(NamedTuple):
    """What a request that is written back follows: a row with an id, by its offset, or, without one, the
    user's request behind it, of which there is one row at a time. `moved_by`: see `Successor`.
    """

    partition: int
    row: int
    has_id: bool
    moved_by: int | None = None


class Awaited(msgspec.Struct, frozen=True):
    """What is awaited, by partition: what has an id by the row that it follows, the rest (`unnamed`, the
    offsets) by the user's request behind it.

    Of each partition so many are listed of what was moved, and so many of the rest; of what is not,
    `unlisted` has the last offset + 1.
    """

    successors: dict[int, dict[int, Successor]] = {}
    unnamed: dict[int, dict[int, int]] = {}
    unlisted: dict[int, int] = {}

    @property
    def moved(self) -> frozenset[RecordId]:
        """The rows that are not where they are to be."""
        return frozenset(
            (partition, row)
            for partition, successors in self.successors.items()
            for row, successor in successors.items()
            if successor.moved_by is not None
        )

    def successor(self, partition: int, row: int) -> Successor | None:
        """What follows a row with an id, if it is awaited and listed."""
        return self.successors.get(partition, {}).get(row)

    def follows_source(self, partition: int, root: int) -> bool:
        """Whether what follows a user's request without an id is awaited and listed."""
        return root in self.unnamed.get(partition, {})

    def may_hide(self, partition: int, applied: Mapping[int, int]) -> bool:
        """Whether something is awaited there that is not listed."""
        return applied.get(partition, 0) < self.unlisted.get(partition, 0)

    def moved_offsets(self, partition: int, seen: Mapping[int, int]) -> list[int]:
        """Where the moved ones of a partition stand that are awaited once so much is seen."""
        successors, begin = self.successors.get(partition, {}).values(), seen.get(partition, 0)
        return [one.offset for one in successors if one.moved_by is not None and one.offset >= begin]

    def beyond(self, seen: Mapping[int, int]) -> Awaited:
        """What is awaited still once so much is seen. Not once it is *applied*: behind an answers-only
        transaction a new leader, which reads to seen, might not have read as far.
        """
        if self == NOTHING:
            return self
        return Awaited(
            _left(self.successors, lambda partition, one: one.offset >= seen.get(partition, 0)),
            _left(self.unnamed, lambda partition, offset: offset >= seen.get(partition, 0)),
            {partition: end for partition, end in self.unlisted.items() if end > seen.get(partition, 0)},
        )

    def with_written(self, written: Iterable[tuple[Predecessor, int]], most: int) -> Awaited:
        """The same, and what has been written back since, each with its offset.

        `most`: so many of a partition are listed, but for what was moved: of that no more comes than there is
        room for.
        """
        successors = {partition: dict(those) for partition, those in self.successors.items()}
        unnamed = {partition: dict(those) for partition, those in self.unnamed.items()}
        unlisted, counts = dict(self.unlisted), self._counts()
        for (partition, row, has_id, moved_by), offset in written:
            if moved_by is None:
                counts[partition] += 1
                if counts[partition] > most:
                    unlisted[partition] = max(offset + 1, unlisted.get(partition, 0))
                    continue
            if has_id:
                successors.setdefault(partition, {})[row] = Successor(offset, moved_by)
            else:
                unnamed.setdefault(partition, {})[row] = offset
        return Awaited(successors, unnamed, unlisted)

    def _counts(self) -> Counter[int]:
        """Of each partition, how much is listed but for what was moved."""
        counts = Counter({partition: len(those) for partition, those in self.unnamed.items()})
        for partition, those in self.successors.items():
            counts[partition] += sum(one.moved_by is None for one in those.values())
        return counts


def most_listed(partitions: int) -> int:
    """How much is listed of each of so many partitions, of each kind."""
    return max(1, MOST_LISTED // partitions)


def _left(listed: dict[int, dict[int, T]], stays: Callable[[int, T], bool]) -> dict[int, dict[int, T]]:
    left = {
        partition: {row: one for row, one in those.items() if stays(partition, one)}
        for partition, those in listed.items()
    }
    return {partition: those for partition, those in left.items() if those}


NOTHING = Awaited()
