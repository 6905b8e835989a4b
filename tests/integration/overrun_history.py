"""A short history of a lane whose clocks were ahead: what is delivered by them, and in time after that."""

from __future__ import annotations

from tests.integration.histories import Delivery, History, Holding, Lane, Step, Transaction

CLASSES = {"delivered": 4}


class OverrunHistory(History):
    """One message is delivered by clocks that are ahead; then they are right, and others come in time."""

    def __init__(self, lane: Lane, base_ms: int) -> None:
        super().__init__(lane, base_ms)
        self.ahead = self._schedule("ahead", 300)
        self.late, self.next, self.last = (self._schedule(f"at {second}", second) for second in (1, 30, 400))
        self.by_clocks_ahead = Transaction(delivers=self._each(self.ahead), passes=[self.ahead])
        self.rewind = Transaction(rewinds_to_ms=self._ms(10))
        self.of_late = Transaction(delivers=self._each(self.late))
        self.of_next = Transaction(delivers=self._each(self.next), passes=[self.next])
        self.of_last = Transaction(delivers=self._each(self.last), passes=[self.last])

    @property
    def steps(self) -> list[Step]:
        return [
            Transaction(first=True),
            *(self.ahead, self.by_clocks_ahead, self.rewind),
            *(self.late, self.next, self.last),
            *(self.of_late, self.of_next, self.of_last),
        ]


class HeldOverrun(OverrunHistory):
    """After the rewind the target is paused, until what is held is due behind the clock."""

    @property
    def steps(self) -> list[Step]:
        waits = [Holding(self.late, self.late)]
        return [
            Transaction(first=True),
            *(self.ahead, self.by_clocks_ahead, self.rewind),
            *(self.late, self.next, self.last, self.of_late),
            Transaction(passes=[self.next], holds=waits),
            Transaction(delivers=[Delivery(self.next, early_ms=-1_000)]),
            self.of_last,
        ]


class FaultyOverrun(OverrunHistory):
    """The rewind is not told, and a message is lost."""

    def __init__(self, lane: Lane, base_ms: int) -> None:
        super().__init__(lane, base_ms)
        self.rewind.claims = {"overruns": []}
        self.of_next.delivers = []
