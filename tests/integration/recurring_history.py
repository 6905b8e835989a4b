"""A short history of recurring messages, and of requests that ask whether their id is known."""

from __future__ import annotations

from delayline import requests
from delayline.recurrence import Recurrence
from tests.integration.histories import (
    DeadLetter,
    Delivery,
    History,
    Lane,
    Later,
    Next,
    Outcome,
    Row,
    Step,
    Transaction,
    WrittenBack,
)

CLASSES = {
    "delivered": 2,
    "recurring": 10,
    "duplicate": 1,
    "cancelled": 2,  # the requests that cancelled: what they cancelled was an occurrence
    "dead-lettered": 1,  # a cron expression that does not fire
    "rescheduled": 1,
}
OCCURRENCES = {
    "delivered": 16,
    "parked": 1,
    "skipped": 1,
    "cancelled": 1,
    "rescheduled": 1,
    "dead-lettered": 2,
}


class RecurringHistory(History):
    """The steps, and names for those that tests change or speak of."""

    def __init__(self, lane: Lane, base_ms: int) -> None:
        super().__init__(lane, base_ms)
        self._make_requests()
        self._make_occurrences()
        self._make_transactions()

    @property
    def steps(self) -> list[Step]:
        return [
            Transaction(first=True),
            *(self.every, self.cron, self.latest, self.skipping, self.cancelled, self.raced, self.moved),
            *(
                self.move,
                self.parked,
                self.dead,
                self.far,
                self.never,
                self.known,
                self.duplicate,
                self.fresh,
            ),
            *(self.beginning, self.first, self.cancel, self.answers, self.second, self.third),
            *(self.overtaken, self.fourth),
        ]

    def _make_requests(self) -> None:
        ten_s = requests.every("10s")
        self.every = self._schedule("every", 10.5, repeat=ten_s._replace(times=3))
        self.cron = self._schedule("cron", 15.0, repeat=requests.cron("*/10 * * * * *", until=self._ms(30.0)))
        self.latest = self._schedule("latest", 40.0, repeat=self._missed("latest", until_s=70.0))
        self.skipping = self._schedule("skipping", 40.1, repeat=self._missed("skip", until_s=70.0))
        self.cancelled = self._schedule("cancelled", 10.1, id="r-1", repeat=ten_s)
        self.cancel = self._cancel("r-1")
        self.raced = self._schedule("raced", 10.3, id="r-2", repeat=ten_s)
        self.race = self._cancel("r-2")
        self.moved = self._schedule("moved", 500.0, id="r-3", repeat=ten_s._replace(times=2))
        self.move = self._move("r-3", 12.0)
        self.parked = self._schedule("parked", 10.4, repeat=ten_s._replace(times=2))
        self.dead = self._schedule("dead", 10.2, repeat=ten_s._replace(times=2))
        self.far = self._schedule("far", 10.6, repeat=requests.every("2d", times=2))
        self.never = self._schedule("never", 1.0, repeat=requests.cron("0 0 1 1 *", until=self._ms(2.0)))
        self.known = self._schedule("known", 11.0, id="k-1")
        self.duplicate = self._schedule("duplicate", 11.05, id="k-1", if_exists="keep")
        self.fresh = self._schedule("fresh", 11.1, id="k-2", if_exists="keep")

    def _make_occurrences(self) -> None:
        self.cron_1 = self._next(self.cron, 20.0, 1)
        self.cron_2 = self._next(self.cron_1, 30.0, 2)
        self.every_2 = self._next(self.every, 20.5, 2)
        self.every_3 = self._next(self.every_2, 30.5, 3)
        self.cancelled_2 = self._next(self.cancelled, 20.1, 2)
        self.raced_2 = self._next(self.raced, 20.3, 2)
        self.moved_1 = WrittenBack(self.moved, self.move)
        self.moved_2 = self._next(self.moved_1, 22.0, 2)
        self.parked_again = Later(self.parked, self._ms(21.0))
        self.parked_2 = self._next(self.parked_again, 20.4, 2)
        self.dead_2 = self._next(self.dead, 20.2, 2)
        self.far_2 = self._next(self.far, 10.6 + 2 * 86_400, 2)
        self.latest_2 = self._next(self.latest, 70.0, 2)
        self.unskipped = self._next(self.skipping, 60.1, 1)

    def _make_transactions(self) -> None:
        self.beginning = Transaction(
            tells=[
                Outcome("dead-lettered", self.never, message=self.never, code="no-occurrence"),
                Outcome("rescheduled", self.move, "reschedule", self.moved),
                Outcome("duplicate", self.duplicate, "schedule", self.known),
            ],
            buries=[DeadLetter(self.never, "no-occurrence")],
            writes_back=[self.cron_1, self.moved_1],
            passes=[self.cron, self.never, self.move],
        )
        self.first = Transaction(
            delivers=self._each(
                self.cancelled, self.raced, self.every, self.far, self.known, self.fresh, self.moved_1
            ),
            tells=[
                Outcome("dead-lettered", self.dead, message=self.dead, code="target-missing"),
                Outcome("parked", self.parked, message=self.parked, code="target-unavailable"),
            ],
            buries=[DeadLetter(self.dead, "target-missing")],
            meanwhile=[self.race],
            writes_back=[
                self.cancelled_2,
                self.raced_2,
                self.every_2,
                self.dead_2,
                self.far_2,
                self.moved_2,
                self.parked_again,
            ],
            passes=[self.moved_1],
        )
        self.answers = Transaction(
            tells=[
                Outcome("cancelled", self.cancel, "cancel", self.cancelled_2),
                Outcome("cancelled", self.race, "cancel", self.raced),
            ]
        )
        self.second = Transaction(
            delivers=self._each(self.cron_1, self.dead_2, self.every_2, self.parked_again, self.moved_2),
            tells=[Outcome("dead-lettered", self.far_2, message=self.far_2, code="delay-too-long")],
            buries=[DeadLetter(self.far_2, "delay-too-long")],
            writes_back=[self.cron_2, self.every_3, self.parked_2],
            passes=[self.moved_2],
        )
        self.third = Transaction(
            delivers=self._each(self.parked_2, self.cron_2, self.every_3), passes=[self.every_3]
        )
        taken_ms = self._ms(65.0)
        self.overtaken = Transaction(
            delivers=[Delivery(self.latest, early_ms=self._ms(40.0) - taken_ms, as_ms=self._ms(60.0))],
            tells=[Outcome("skipped", self.skipping, message=self.skipping, at_ms=taken_ms)],
            writes_back=[self.latest_2, self.unskipped],
            passes=[self.skipping],
        )
        self.fourth = Transaction(delivers=self._each(self.unskipped, self.latest_2), passes=[self.latest_2])

    def _missed(self, missed: str, until_s: float) -> Recurrence:
        return requests.every("10s", until=self._ms(until_s), missed=missed)

    def _next(self, of: Row, at_s: float, number: int) -> Next:
        return Next(of, self._ms(at_s), number)


class FaultyRecurring(RecurringHistory):
    """It does wrong in nine ways."""

    def __init__(self, lane: Lane, base_ms: int) -> None:
        super().__init__(lane, base_ms)
        cron_1, dead_2, every_2, parked_again, moved_2 = self.second.delivers
        self.second.writes_back.remove(self.every_3)
        self.third = Transaction(delivers=self._each(self.parked_2, self.cron_2), passes=[self.cron_2])
        self.fourth.delivers.append(Delivery(self.cron_1))
        self.dead_2.at_ms += 50
        dropped = Delivery(self.raced_2)
        self.second.delivers = [cron_1, Delivery(self.cancelled_2), dead_2, dropped, every_2]
        self.second.delivers += [parked_again, moved_2]
        self.first.delivers.insert(5, Delivery(self.duplicate))
        self.first.delivers.insert(2, Delivery(self.parked))
        self.first.delivers = [one for one in self.first.delivers if one.of is not self.fresh]
        self.latest_2.value = self.fourth.delivers[1].value = b"another"
        self.beginning.tells.append(Outcome("duplicate", self.fresh, "schedule", self.known))
