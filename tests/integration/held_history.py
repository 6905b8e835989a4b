"""A short history in which operators pause the target twice: what waits is held, and let go in two parts."""

from __future__ import annotations

from tests.integration.histories import (
    Delivery,
    History,
    Holding,
    Lane,
    Outcome,
    Row,
    Step,
    Transaction,
    WrittenBack,
)

CLASSES = {"delivered": 8, "cancelled": 2, "rescheduled": 1, "pending": 2}


class HeldHistory(History):
    """The steps, and names for those that tests change or speak of. All is in one partition."""

    ID_PARTITIONS = 1

    def __init__(self, lane: Lane, base_ms: int) -> None:
        super().__init__(lane, base_ms)
        self.before = self._schedule("delivered before the pause", 1.0)
        self.waits = [self._schedule(f"waits {number}", 2.0 + number) for number in range(4)]
        self.cancelled = self._schedule("cancelled while it waits", 6.1, id="cancelled")
        self.cancel = self._cancel("cancelled")
        self.moved = self._schedule("moved while it waits", 6.2, id="moved")
        self.move = self._move("moved", 40.0)
        self.moved_back = WrittenBack(self.moved, self.move)
        self.late = self._schedule("late, and waits", 3.5)
        self.after = self._schedule("behind the pause", 31.0)
        self.again = [self._schedule(f"waits again {number}", 50.0 + number) for number in range(2)]
        self._make_transactions()

    @property
    def steps(self) -> list[Step]:
        return [
            Transaction(first=True),
            *(self.before, *self.waits, self.cancelled, self.moved, self.after, *self.again),
            *(self.begins, self.passes, self.late, self.passes_late),
            *(self.cancel, self.move, self.answers),
            *(self.lets_go, self.lets_go_of_the_rest, self.all_gone, self.pauses_again, self.passes_again),
        ]

    def _make_transactions(self) -> None:
        one, two, three, four = self.waits
        goes_on = Holding(self.before, self.before)
        self.begins = Transaction(delivers=self._each(self.before), passes=[self.before])
        self.passes = Transaction(passes=[self.moved], holds=[goes_on])
        self.passes_late = Transaction(passes=[self.moved], holds=[goes_on])
        self.answers = Transaction(
            tells=[
                Outcome("cancelled", self.cancel, "cancel", self.cancelled),
                Outcome("rescheduled", self.move, "reschedule", self.moved),
            ],
            writes_back=[self.moved_back],
            passes=[self.moved],
            holds=[goes_on],
        )
        self.lets_go = Transaction(
            delivers=[*self._late(one, two, self.late), Delivery(self.after)],
            passes=[self.after],
            holds=[Holding(self.before, self.late, self.moved)],
        )
        self.lets_go_of_the_rest = Transaction(
            delivers=self._late(three, four),
            holds=[Holding(self.before, four, self.moved)],
        )
        self.all_gone = Transaction(delivers=self._each(self.moved_back), passes=[self.moved_back])
        self.pauses_again = Transaction(holds=[Holding(self.moved_back, self.moved_back)])
        self.passes_again = Transaction(
            passes=[*self.again], holds=[Holding(self.moved_back, self.moved_back)]
        )

    @staticmethod
    def _late(*rows: Row) -> list[Delivery]:
        """Delivered half a minute after they were due."""
        return [Delivery(row, early_ms=-30_000) for row in rows]


class DisorderedHeld(HeldHistory):
    """Of what waited one is let go behind a later one."""

    def __init__(self, lane: Lane, base_ms: int) -> None:
        super().__init__(lane, base_ms)
        one, two, three, four = self.waits
        self.disordered = two
        self.lets_go.delivers = [*self._late(one, self.late), Delivery(self.after)]
        self.lets_go_of_the_rest.delivers = self._late(two, three, four)


class FaultyHeld(HeldHistory):
    """It does wrong in four ways."""

    def __init__(self, lane: Lane, base_ms: int) -> None:
        super().__init__(lane, base_ms)
        one, two, three, _ = self.waits
        self.lets_go.delivers = [*self._late(one, self.late), Delivery(self.after)]
        self.lets_go_of_the_rest.delivers = [
            *self._late(two, three, self.late),
            Delivery(self.cancelled),
        ]
