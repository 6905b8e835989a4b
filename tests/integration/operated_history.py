"""A short history in which operators pause a target, have a range delivered again, and skip ahead."""

from __future__ import annotations

from typing import Any

from delayline import requests
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
)

CLASSES = {"delivered": 10, "recurring": 1, "skipped": 2, "pending": 2}
OCCURRENCES = {"delivered": 1, "skipped": 1}


class OperatedHistory(History):
    """The steps, and names for those that tests change or speak of."""

    def __init__(self, lane: Lane, base_ms: int) -> None:
        super().__init__(lane, base_ms)
        self.plain = [self._schedule(f"plain {second}", second) for second in range(1, 7)]
        self.parked = self._schedule("parked", 2.2)
        self.tried_again = Later(self.parked, self._ms(5.5), paused=True)
        self.replaced = self._schedule("replaced", 3.3, id="order-1")
        self.replacing = self._schedule("replacing", 3_600.0, id="order-1")
        self.early = self._schedule("early", 1.2, id="order-2")  # before the range
        self.replacing_early = self._schedule("replacing", 3_600.0, id="order-2")
        self.skipped = self._schedule("skipped", 7.0)
        self.refused = self._schedule("refused", 8.0)
        self.daily = self._schedule("daily", 7.2, repeat=requests.every("10s", times=2))
        self.daily_2 = Next(self.daily, self._ms(17.2), 2)
        self.late = self._schedule("late", 7.5)
        self._make_transactions()

    @property
    def steps(self) -> list[Step]:
        return [
            Transaction(first=True),
            *(*self.plain, self.parked, self.replaced, self.early, self.skipped, self.refused, self.daily),
            self.in_time,
            *(self.replacing, self.replacing_early),
            *(self.replay, self.failover, self.replay_ends, self.skip),
            self.late,
            *(self.of_late, self.of_skipped),
        ]

    def _make_transactions(self) -> None:
        one, two, three, four, five, six = self.plain
        self.in_time = Transaction(
            delivers=self._each(one, self.early, two, three, self.replaced, four),
            tells=[Outcome("parked", self.parked, message=self.parked, code="target-paused")],
            writes_back=[self.tried_again],
            passes=[four],
        )
        asked = self._asked("replay", from_ms=self._ms(1.5), to_ms=self._ms(4.5), target=self.lane.target)
        under_way = {"number": 1, "request": asked, "replay": {"number": 1, "next": [self._ms(4.0), 0, 0]}}
        self.replay = Transaction(
            delivers=[*self._each(five, self.tried_again, six), *self._again(two, three)],
            passes=[six],
            claims={"operation": under_way},
        )
        self.failover = Transaction(first=True, claims={"operation": under_way}, **_SECOND)
        self.replay_ends = Transaction(
            delivers=self._again(four), claims={"operation": {"number": 1, "request": asked}}, **_SECOND
        )
        skipping = self._asked("skip", to_ms=self._ms(8.0) + 1)
        self.skip = Transaction(
            tells=[Outcome("skipped", row, message=row) for row in (self.skipped, self.daily, self.refused)],
            writes_back=[self.daily_2],
            passes=[self.refused],
            claims={"operation": {"number": 2, "request": skipping}},
            **_SECOND,
        )
        self.of_late = Transaction(
            delivers=self._each(self.late),
            claims={"operation": {"number": 2, "request": skipping}},
            **_SECOND,
        )
        again = self._asked("replay", from_ms=self._ms(7.0), to_ms=self._ms(90.0))
        self.of_skipped = Transaction(
            delivers=[*self._each(self.daily_2), *self._again(self.skipped, self.daily, self.late)],
            tells=[Outcome("dead-lettered", self.refused, message=self.refused, code="target-missing")],
            buries=[DeadLetter(self.refused, "target-missing")],
            passes=[self.daily_2],
            claims={"operation": {"number": 3, "request": again}},
            **_SECOND,
        )

    @staticmethod
    def _asked(kind: str, **what: Any) -> dict[str, Any]:
        return {"type": kind, "number": 1, **what}

    @staticmethod
    def _again(*rows: Row) -> list[Delivery]:
        return [Delivery(row, again=True) for row in rows]


class FaultyOperated(OperatedHistory):
    """It does wrong in seven ways."""

    def __init__(self, lane: Lane, base_ms: int) -> None:
        super().__init__(lane, base_ms)
        one, two, three, four, _, six = self.plain
        self.replay.delivers = [one for one in self.replay.delivers if one.of not in (two, six)]
        self.replay.tells.append(Outcome("skipped", six, message=six))
        self.replay.delivers += self._again(one, self.parked)
        self.replay_ends.delivers = [Delivery(four, value=b"another", again=True), *self._again(three)]
        self.skip.delivers.append(Delivery(self.skipped))


_SECOND: dict[str, Any] = {"epoch": 2, "node": "n2"}
