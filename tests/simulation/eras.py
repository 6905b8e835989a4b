"""The eras of a history: what was committed while each leader went on from the last commit before it.

A new era begins where one did not, since the checkpoint topic was lost, or its end, and it did not know of
that commit. Then it has gone on from one before.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from store.checkpoint import Checkpoint
from tests.simulation.host import Violation
from tests.simulation.log import Partition, Transaction


class Committed(NamedTuple):
    """A checkpoint, and the transaction that has committed it."""

    transaction: Transaction
    checkpoint: Checkpoint


class Era(NamedTuple):
    """All that it goes on from, which are so many, and its own."""

    before: int
    all: list[Committed]

    @property
    def own(self) -> list[Checkpoint]:
        return [one.checkpoint for one in self.all[self.before :]]


def repeats(first: Checkpoint, last: Checkpoint) -> bool:
    """Whether the first checkpoint of an epoch says what this one of an epoch before says."""
    says_the_same = (first.frontier, first.write_back) == (last.frontier, last.write_back)
    return first.epoch > last.epoch and first.number == last.number and says_the_same


def eras(partitions: Sequence[Partition]) -> list[Era]:
    """`partitions`: what the checkpoint topic has ever been, in order. Raises `Violation` where a leader has
    gone on from what was never committed.
    """
    found: list[Era] = []
    for partition in partitions:
        for entry in partition.own_ever():
            assert entry.record is not None, "markers are not read"
            assert entry.transaction is not None, "it is the service's own"
            one = Committed(entry.transaction, Checkpoint.decode(entry.record.value or b""))
            if not found:
                found.append(Era(0, []))
            elif one.checkpoint.first and not repeats(one.checkpoint, found[-1].all[-1].checkpoint):
                found.append(_before(found, one.checkpoint))
            found[-1].all.append(one)
    return found


def _before(found: list[Era], first: Checkpoint) -> Era:
    for era in reversed(found):
        for count in range(len(era.all), 0, -1):
            if repeats(first, era.all[count - 1].checkpoint):
                return Era(count, era.all[:count])
    if first.position is not None or any(first.seen.values()):
        raise Violation("I6", f"nothing was committed that {first} repeats")
    return Era(0, [])


def latest(partitions: Sequence[Partition], known: list[Checkpoint]) -> Checkpoint | None:
    """What a new leader that knows of these has to go on from: the latest one of the last era of which it
    knows anything.
    """
    for era in reversed(eras(partitions)):
        own = era.own
        places = [own.index(one) for one in known if one in own]
        if places:
            return own[max(places)]
    return None
