"""A short history of cancels that name sources."""

from __future__ import annotations

from delayline import requests
from delayline.requests import BufferRecord
from tests.integration.histories import (
    DeadLetter,
    History,
    Lane,
    Next,
    Outcome,
    Request,
    Step,
    Transaction,
    WrittenBack,
)

CLASSES = {
    "delivered": 2,
    "recurring": 2,
    "cancelled": 6,  # a message without an id, one with, and the cancels of these and of two chains
    "replaced": 1,
    "dead-lettered": 1,
    "rescheduled": 1,
    "too-late": 1,
    "unknown": 3,
}
OCCURRENCES = {"delivered": 2, "cancelled": 1}


class SourceHistory(History):
    """The steps, and names for those that tests change or speak of."""

    def __init__(self, lane: Lane, base_ms: int) -> None:
        super().__init__(lane, base_ms)
        self._make_requests()
        self._make_transactions()

    @property
    def steps(self) -> list[Step]:
        return [
            *(self.plain, self.chain, self.raced, self.named, self.move, self.old, self.new),
            *(self.late, self.reject),
            *(self.beginning, self.first),
            *(self.cancel_plain, self.cancel_again, self.cancel_chain, self.cancel_named),
            *(self.cancel_old, self.cancel_late, self.cancel_reject),
            *(self.answers, self.second),
        ]

    def _make_requests(self) -> None:
        ten_s = requests.every("10s", times=3)
        self.plain = self._schedule("plain", 500.0)
        self.chain = self._schedule("chain", 10.5, repeat=ten_s)
        self.raced = self._schedule("raced", 10.3, repeat=ten_s)
        self.named = self._schedule("named", 500.0, id="n-1")
        self.move = self._move("n-1", 400.0)
        self.old = self._schedule("old", 500.0, id="n-2")
        self.new = self._schedule("new", 30.0, id="n-2")
        self.late = self._schedule("late", 10.0)
        self.reject = Request(BufferRecord(b"k", b"no target", []), 0)
        self.cancel_plain, self.cancel_again = (
            self._cancel_source(self.plain),
            self._cancel_source(self.plain),
        )
        self.cancel_chain, self.race = self._cancel_source(self.chain), self._cancel_source(self.raced)
        self.cancel_named, self.cancel_old = self._cancel_source(self.named), self._cancel_source(self.old)
        self.cancel_late, self.cancel_reject = (
            self._cancel_source(self.late),
            self._cancel_source(self.reject),
        )
        self.chain_2 = Next(self.chain, self._ms(20.5), 2)
        self.raced_2 = Next(self.raced, self._ms(20.3), 2)
        self.named_1 = WrittenBack(self.named, self.move)

    @staticmethod
    def _cancel_source(of: Request) -> Request:
        return Request(BufferRecord(None, None, []), 0, cancels=of)

    def _make_transactions(self) -> None:
        self.beginning = Transaction(
            tells=[
                Outcome("replaced", self.new, "schedule", self.old),
                Outcome("rescheduled", self.move, "reschedule", self.named),
                Outcome("dead-lettered", self.reject, message=self.reject, code="no-target"),
            ],
            buries=[DeadLetter(self.reject, "no-target")],
            writes_back=[self.named_1],
            passes=[self.move, self.reject],
        )
        self.first = Transaction(
            delivers=self._each(self.late, self.raced, self.chain),
            meanwhile=[self.race],
            writes_back=[self.chain_2, self.raced_2],
            passes=[self.chain],
        )
        self.answers = Transaction(
            tells=[
                Outcome("cancelled", self.race, "cancel", self.raced),
                Outcome("cancelled", self.cancel_plain, "cancel", self.plain),
                Outcome("unknown", self.cancel_again, "cancel"),
                Outcome("cancelled", self.cancel_chain, "cancel", self.chain_2),
                Outcome("cancelled", self.cancel_named, "cancel", self.named_1),
                Outcome("unknown", self.cancel_old, "cancel"),
                Outcome("too-late", self.cancel_late, "cancel", self.late),
                Outcome("unknown", self.cancel_reject, "cancel"),
            ]
        )
        self.second = Transaction(delivers=self._each(self.new), passes=[self.new])


class FaultySource(SourceHistory):
    """It does wrong in five ways."""

    def __init__(self, lane: Lane, base_ms: int) -> None:
        super().__init__(lane, base_ms)
        *_, again, _, _, old, late, _ = self.answers.tells
        again.outcome, again.message = "too-late", self.plain
        old.outcome, old.message = "cancelled", self.new
        late.outcome = "cancelled"
        self.second.delivers = [*self._each(self.raced_2, self.chain_2), *self.second.delivers]
