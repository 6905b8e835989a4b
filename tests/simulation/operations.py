"""What operators have asked for, as the plain model has it: which rows were delivered again in each
transaction, and which were skipped.

A request counts from the transaction on whose checkpoint has its number. A replay's rows are those that were
done then, and were not gone when the transaction that has to carry them was selected; and not deferred.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import NamedTuple

from store.checkpoint import Checkpoint
from store.operations import OperatorRequest, ReplayRequest, SkipRequest, StopReplay
from tests.simulation.model import Model, Row, RowKey
from tests.simulation.requests import Kind

LAST = (1 << 62, 1 << 62)  # partition and offset


class Carried(NamedTuple):
    """A part of a replay: the rows from one key up to, and without, another."""

    number: int  # of the transaction
    begin: RowKey
    end: RowKey
    applied: dict[int, int]
    target: str | None
    since: int  # the transaction that began it


class Operations:
    """What each transaction had to do."""

    def __init__(self, checkpoints: Sequence[Checkpoint], asked: Sequence[OperatorRequest]) -> None:
        self.carried: list[Carried] = []
        self._since = 0
        self._skipped_to: dict[int, RowKey] = {}  # by transaction
        for number, one in enumerate(checkpoints[1:], 1):
            before = checkpoints[number - 1]
            taken = None
            if one.operation.number > before.operation.number and one.operation.refused is None:
                taken = asked[one.operation.number - 1]
            self._skip(number, before, taken)
            self._replay(number, before, one, taken)

    def skipped(self, row: Row, model: Model) -> bool:
        """Whether its transaction skipped a row that it made done; none that was held before."""
        skipped_to = self._skipped_to.get(row.done_in) if row.passed_in == row.done_in else None
        return skipped_to is not None and row.key <= skipped_to and not model.late(row)

    def replayed(self, model: Model) -> Iterator[tuple[int, Row]]:
        """The messages that each transaction had to deliver again."""
        for part in self.carried:
            for row in model.rows.values():
                if part.begin <= row.key < part.end and _again(row, part, model):
                    yield part.number, row

    def _skip(self, number: int, before: Checkpoint, taken: OperatorRequest | None) -> None:
        if isinstance(taken, SkipRequest):
            self._skipped_to[number] = (taken.to_ms - 1, *LAST)
        elif before.operation.skip_to is not None:
            self._skipped_to[number] = before.operation.skip_to

    def _replay(
        self, number: int, before: Checkpoint, after: Checkpoint, taken: OperatorRequest | None
    ) -> None:
        begun, left = before.operation.replay, after.operation.replay
        if isinstance(taken, ReplayRequest):
            assert before.position is not None, "it would have been refused"
            self._since = number
            begin, applied, target = (taken.from_ms, 0, 0), before.applied, taken.target
            end = min((taken.to_ms, 0, 0), _behind(before.position))
        elif begun is not None and not isinstance(taken, StopReplay):
            begin, applied, target, end = begun.next, begun.applied, begun.target, _behind(begun.last)
        else:
            return
        self.carried.append(
            Carried(number, begin, end if left is None else left.next, applied, target, self._since)
        )


def _again(row: Row, part: Carried, model: Model) -> bool:
    if (
        row.request.kind is not Kind.SCHEDULE
        or row.dropped
        or row.place[1] >= part.applied.get(row.place[0], 0)
    ):
        return False
    if row.deferred or row.moved or row.done_in >= part.since:
        return False
    if row.request.repeat is not None and row.number is None:
        return False
    gone = row.removed_by is not None and model.seen_in((row.place[0], row.removed_by)) <= part.number
    return not gone and part.target in {None, row.request.target}


def _behind(key: RowKey) -> RowKey:
    return (*key[:2], key[2] + 1)
