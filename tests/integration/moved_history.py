"""A short history of reschedules that meet each other, and what nobody can read yet."""

from __future__ import annotations

from delayline import requests
from tests.integration.histories import (
    Deferred,
    Delivery,
    History,
    Lane,
    Next,
    Outcome,
    Row,
    Step,
    Transaction,
    WrittenBack,
)

CLASSES = {
    "delivered": 6,
    "recurring": 1,
    "cancelled": 4,  # two messages, and the requests that cancelled them
    "rescheduled": 9,
    "too-late": 1,
    "overtaken": 4,
}
OCCURRENCES = {"delivered": 2, "rescheduled": 1}


class MovedHistory(History):
    """The steps, and names for those that tests change or speak of. All is in one partition."""

    ID_PARTITIONS = 1

    def __init__(self, lane: Lane, base_ms: int) -> None:
        super().__init__(lane, base_ms)
        self._make_requests()
        self._make_what_is_written_back()
        self._make_transactions()

    @property
    def steps(self) -> list[Step]:
        return [
            Transaction(first=True),
            *(self.twice, self.again, self.raced),
            *(self.twice_first, self.twice_last, self.again_first, self.raced_first),
            *(self.first, self.second, self.third),
            *(self.due, self.ended, self.done, self.dropped, self.every, self.kept),
            *(self.due_first, self.ended_first, self.every_first),
            *(self.passing, self.putting_off, self.deciding),
            *(self.delivering, self.last),
        ]

    def _make_requests(self) -> None:
        self.twice = self._schedule("moved by the last word of two", 500.0, id="twice")
        self.twice_first, self.twice_last = self._move("twice", 400.0), self._move("twice", 5.0)
        self.again = self._schedule("moved, and again before that can be read", 500.0, id="again")
        self.again_first, self.again_last = self._move("again", 450.0), self._move("again", 7.0)
        self.again_middle = self._move("again", 440.0)
        self.raced = self._schedule("moved by a later word than what was deferred", 500.0, id="raced")
        self.raced_first, self.raced_last = self._move("raced", 420.0), self._move("raced", 6.0)
        self.due = self._schedule("moved when it is due", 3.0, id="due")
        self.due_first, self.due_last = self._move("due", 5.4), self._move("due", 5.5)
        self.ended = self._schedule("moved when it is due, and cancelled", 3.1, id="ended")
        self.ended_first = self._move("ended", 460.0)
        self.cancel_ended = self._cancel("ended")
        self.done = self._schedule("delivered", 1.0, id="done")
        self.done_first = self._move("done", 8.5)
        self.dropped = self._schedule("cancelled, with what was deferred", 500.0, id="dropped")
        self.dropped_first = self._move("dropped", 8.6)
        self.cancel_dropped = self._cancel("dropped")
        ten_s = requests.every("10s", times=2)
        self.every = self._schedule("recurs, moved when it is due", 3.2, id="every", repeat=ten_s)
        self.every_first = self._move("every", 8.0)
        self.kept = self._schedule("deferred, and moved", 9.2, id="kept")
        self.kept_first = self._move("kept", 9.5)

    def _make_what_is_written_back(self) -> None:
        self.twice_moved = WrittenBack(self.twice, self.twice_last)
        self.again_moved = WrittenBack(self.again, self.again_first)
        self.again_deferred = Deferred(self.again_last)
        self.again_moved_again = WrittenBack(self.again_moved, self.again_deferred)
        self.raced_deferred = Deferred(self.raced_first)
        self.raced_moved = WrittenBack(self.raced, self.raced_last)
        self.due_moved = WrittenBack(self.due, self.due_first)
        self.due_deferred = Deferred(self.due_last)
        self.due_moved_again = WrittenBack(self.due_moved, self.due_deferred)
        self.ended_moved = WrittenBack(self.ended, self.ended_first)
        self.done_deferred = Deferred(self.done_first)
        self.dropped_deferred = Deferred(self.dropped_first)
        self.every_moved = WrittenBack(self.every, self.every_first)
        self.every_2 = Next(self.every_moved, self._ms(18.0), 2)
        self.kept_deferred = Deferred(self.kept_first)
        self.kept_deferred_again = Deferred(self.kept_deferred)
        self.kept_moved = WrittenBack(self.kept, self.kept_deferred_again)

    def _make_transactions(self) -> None:
        self.first = Transaction(
            tells=[
                self._answer("overtaken", self.twice_first),
                self._answer("rescheduled", self.twice_last, self.twice),
                self._answer("rescheduled", self.again_first, self.again),
            ],
            meanwhile=[self.again_middle, self.again_last, self.raced_last],
            writes_back=[self.twice_moved, self.again_moved, self.raced_deferred],
            passes=[self.raced_first],
        )
        self.second = Transaction(
            hidden=self.twice_moved,
            tells=[
                self._answer("rescheduled", self.raced_last, self.raced),
                self._answer("overtaken", self.again_middle),
            ],
            writes_back=[self.again_deferred, self.raced_moved],
            passes=[self.raced_last],
        )
        self.third = Transaction(
            hidden=self.raced_moved,
            tells=[
                self._answer("rescheduled", self.again_deferred, self.again_moved),
                self._answer("overtaken", self.raced_deferred),
            ],
            writes_back=[self.again_moved_again],
            passes=[self.again_deferred],
        )
        self.passing = Transaction(
            delivers=self._each(self.done),
            tells=[
                self._answer("rescheduled", self.due_first, self.due),
                self._answer("rescheduled", self.ended_first, self.ended),
                self._answer("rescheduled", self.every_first, self.every),
            ],
            meanwhile=[
                *(self.due_last, self.cancel_ended, self.done_first, self.dropped_first, self.kept_first),
            ],
            writes_back=[self.due_moved, self.ended_moved, self.every_moved],
            passes=[self.every],
        )
        self.putting_off = Transaction(
            hidden=self.due_moved,
            tells=[Outcome("cancelled", self.cancel_ended, "cancel", self.ended)],
            meanwhile=[self.cancel_dropped],
            writes_back=[self.due_deferred, self.done_deferred, self.dropped_deferred, self.kept_deferred],
        )
        self.deciding = Transaction(
            tells=[
                self._answer("rescheduled", self.due_deferred, self.due_moved),
                self._answer("too-late", self.done_deferred, self.done),
                Outcome("cancelled", self.cancel_dropped, "cancel", self.dropped),
                self._answer("overtaken", self.dropped_deferred),
            ],
            writes_back=[self.due_moved_again, self.kept_deferred_again],
        )
        self.delivering = Transaction(
            delivers=self._each(
                *(self.twice_moved, self.due_moved_again, self.raced_moved),
                *(self.again_moved_again, self.every_moved),
            ),
            tells=[self._answer("rescheduled", self.kept_deferred_again, self.kept)],
            writes_back=[self.every_2, self.kept_moved],
            passes=[self.every_moved],
        )
        self.last = Transaction(delivers=self._each(self.kept_moved, self.every_2), passes=[self.every_2])

    @staticmethod
    def _answer(outcome: str, reschedule: Row, message: Row | None = None) -> Outcome:
        return Outcome(outcome, reschedule, "reschedule", message)


class FaultyMoved(MovedHistory):
    """It does wrong in nine ways."""

    def __init__(self, lane: Lane, base_ms: int) -> None:
        super().__init__(lane, base_ms)
        # The first word of two is carried out, and not the last one.
        self.twice_moved.reschedule = self.twice_first
        self.first.tells[0] = self._answer("rescheduled", self.twice_first, self.twice)
        self.first.tells[1] = self._answer("overtaken", self.twice_last)
        # What has been moved and cannot be read yet is moved once more, without waiting for that.
        self.again_moved_again = WrittenBack(self.again, self.again_last)
        self.second.tells.append(self._answer("rescheduled", self.again_last, self.again))
        self.second.writes_back[0] = self.again_moved_again
        # It is delivered where it was, too. What was written back as it was has an answer of its own.
        self.last.delivers.append(Delivery(self.raced))
        of_copy = Outcome("overtaken", self.raced_deferred, "reschedule", keyed_by=self.raced_deferred)
        self.third = Transaction(hidden=self.raced_moved, tells=[self.third.tells[1], of_copy])
        # It is said to be moved, and is not.
        self.deciding.writes_back.remove(self.due_moved_again)
        self.delivering.delivers[1] = Delivery(self.due_moved)
        self.delivering.delivers[3] = Delivery(self.again_moved_again)
        # What was deferred is never answered, answered twice, made another one, and overtaken by nothing.
        del self.deciding.tells[1]
        self.putting_off.tells.append(self._answer("overtaken", self.dropped_first))
        self.kept_deferred_again.to_ms = self._ms(9.6)
        self.delivering.tells = [self._answer("overtaken", self.kept_deferred_again)]
        self.delivering.writes_back.remove(self.kept_moved)
        self.last.delivers[0] = Delivery(self.kept)
