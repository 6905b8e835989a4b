"""The transaction coordinator of the lane's two transactional ids.

What is kept of Kafka: initialising an id bumps its epoch, aborts what is open on it and completes what has
been decided, before it returns; a request with an older epoch is refused; a commit that has reached the
coordinator stands, though its markers may come much later and its answer never; a late EndTxn of the
*current* epoch hits whatever transaction is open by then; an open transaction is aborted after a timeout,
and its producer fenced.
"""

from __future__ import annotations

from collections.abc import Callable
from enum import Enum
from typing import Final, Protocol

from tests.simulation.log import Fate, Partition, Transaction

TRANSACTION_TIMEOUT_MS: Final = 1_200


class EndTxnAnswer(Enum):
    """What the coordinator answers to EndTxn."""

    DONE = "done"
    FENCED = "fenced"
    INVALID = "invalid"


class Timers(Protocol):
    """What the coordinator needs of the world."""

    def after(self, delay_ms: int, action: Callable[[], None]) -> None: ...
    def marker_delay_ms(self) -> int: ...
    def shuffle(self, items: list[Partition]) -> None: ...


class TransactionalId:
    """One id: its epoch and the transaction on it."""

    def __init__(self, timers: Timers) -> None:
        self.epoch = 0
        self.current: Transaction | None = None
        self._timers = timers
        self._begun = 0

    def initialise(self) -> int:
        """InitProducerId: fences every earlier producer; nothing is undecided when it returns."""
        self._resolve(Fate.ABORT)
        self.epoch += 1
        return self.epoch

    def join(self, epoch: int, number: Callable[[], int]) -> Transaction | None:
        """The open transaction for a producer of that epoch, begun if there is none; None: fenced."""
        if epoch != self.epoch:
            return None
        if self.current is None or self.current.fate is not Fate.OPEN:
            self._resolve(Fate.ABORT)  # markers of the one before: the producer would have to wait for them
            self.current = Transaction(number(), lane=True, producer=self)
            self._begun += 1
            begun = self._begun
            self._timers.after(TRANSACTION_TIMEOUT_MS, lambda: self._time_out(begun))
        return self.current

    def end(self, epoch: int) -> EndTxnAnswer:
        """EndTxn(commit) as it reaches the coordinator."""
        if epoch != self.epoch:
            return EndTxnAnswer.FENCED
        if self.current is None or self.current.fate is Fate.ABORT:
            return EndTxnAnswer.INVALID
        if self.current.fate is Fate.OPEN:
            self._decide(self.current, Fate.COMMIT)
        return EndTxnAnswer.DONE

    def complete(self) -> None:
        """Writes the markers of what has been decided."""
        if self.current is not None and self.current.fate is not Fate.OPEN:
            self.current.mark_all()

    def abort_in(self, partition: Partition, number: Callable[[], int]) -> None:
        """Aborts what is left open there, by a transaction that ends there and does nothing else; one that is
        open already is aborted with it.
        """
        transaction = self.join(self.epoch, number)
        assert transaction is not None, "it is of this epoch"
        partition.join(transaction)
        self.abort()

    def abort(self) -> None:
        """The coordinator gives the open transaction up and fences its producer, as after a timeout."""
        if self.current is not None and self.current.fate is Fate.OPEN:
            self.epoch += 1
            self._decide(self.current, Fate.ABORT)

    def _time_out(self, begun: int) -> None:
        if begun == self._begun:
            self.abort()

    def _resolve(self, fate: Fate) -> None:
        if self.current is None:
            return
        if self.current.fate is Fate.OPEN:
            self.current.decide(fate)
        self.current.mark_all()

    def _decide(self, transaction: Transaction, fate: Fate) -> None:
        """Decides; the markers follow one by one, in whatever order."""
        transaction.decide(fate)
        self._timers.shuffle(transaction.unmarked)
        self._timers.after(self._timers.marker_delay_ms(), lambda: self._mark_on(transaction))

    def _mark_on(self, transaction: Transaction) -> None:
        transaction.mark_next()
        if transaction.unmarked:
            self._timers.after(self._timers.marker_delay_ms(), lambda: self._mark_on(transaction))
