"""A short history in which everything happens once, and rightly so."""

from __future__ import annotations

from delayline.requests import BufferRecord
from tests.integration.histories import (
    LETTER_LIMIT_BYTES,
    DeadLetter,
    Delivery,
    History,
    Lane,
    Later,
    Outcome,
    Request,
    Row,
    Step,
    Transaction,
    WrittenBack,
)

USER_HEADERS = [("trace", b"\x00\x01"), ("trace", b"\x00\x01"), ("empty", b""), ("null", None)]
HOSTILE_ID = "<script>window.obeyed = true</script>"
AFTER_ALL_S = 9.2e15
"""So late that no calendar has it, and microseconds of it are more than 64 bits hold."""
CLASSES = {
    "delivered": 12,
    "cancelled": 2,  # the message, and the request that cancelled it
    "replaced": 1,
    "expired": 1,
    "dead-lettered": 3,  # one of them a reschedule
    "rescheduled": 1,
    "too-late": 1,
    "unknown": 1,
    "pending": 2,
}


class SampleHistory(History):
    """The steps, and names for those that tests change or speak of."""

    def __init__(self, lane: Lane, base_ms: int) -> None:
        super().__init__(lane, base_ms)
        self._make_requests()
        self._make_transactions()

    @property
    def steps(self) -> list[Step]:
        return [
            self.beginning,
            *self.timely,
            *(self.doomed, self.cancel, self.moved, self.move),
            *(self.old, self.new, self.reject, self.large, self.stale, self.pending, self.unknown),
            *(self.parked, self.stuck, self.refused),
            self.answers,
            self.in_time,
            self.late,
            self.catching_up,
            self.failover,
            self.too_late,
            self.last,
            self.ending,
        ]

    def _make_requests(self) -> None:
        self.one = self._schedule("one", 1.0, key="same", headers=USER_HEADERS)
        self.two = self._schedule("two", 2.0, key="same", headers=USER_HEADERS)
        self.three = self._schedule("three", 3.0, partition=1)
        self.four = self._schedule("four", 3.1, key="same")
        self.five = self._schedule("five", 3.2, key="same")
        self.six = self._schedule("six", 3.3)
        self.seven = self._schedule("seven", 3.4)
        self.doomed = self._schedule("doomed", 9.0, id="order-1")
        self.cancel = self._cancel("order-1")
        self.moved = self._schedule("moved", 500.0, id="order-2", key="same")
        self.move = self._move("order-2", 4.0)
        self.old = self._schedule("old", 9.0, id="order-3")
        self.new = self._schedule("new", 5.0, id="order-3")
        self.reject = Request(BufferRecord(b"k", b"no target", list(USER_HEADERS)), 0)
        self.large = Request(BufferRecord(b"k", bytes(LETTER_LIMIT_BYTES), list(USER_HEADERS)), 0)
        self.stale = self._schedule("stale", 6.0, expire_at_s=5.5)
        self.pending = self._schedule("pending", 3600.0)
        self.parked = self._schedule("parked", 3.5, headers=USER_HEADERS)
        self.stuck = self._schedule("stuck", 3600.0, id="order-5")
        self.refused = self._move("order-5", 8.0)
        self.unknown = self._cancel("order-9")
        self.late = self._schedule("late", 1.5, key="same")
        self.too_late = self._cancel("order-3")
        self.last = self._schedule("last", 7.0)

    @property
    def timely(self) -> list[Request]:
        """What the transaction `in_time` delivers."""
        return [self.one, self.two, self.three, self.four, self.five, self.six, self.seven]

    def _make_transactions(self) -> None:
        self.move_back = WrittenBack(self.moved, self.move)
        self.second_try = Later(self.parked, self._ms(4.5))
        self.third_try = Later(self.second_try, self._ms(6.5))
        self.beginning = Transaction(first=True)
        self.answers = Transaction(
            tells=[
                Outcome("cancelled", self.cancel, "cancel", self.doomed),
                Outcome("replaced", self.new, "schedule", self.old),
                Outcome("unknown", self.unknown, "cancel"),
                Outcome("rescheduled", self.move, "reschedule", self.moved),
                self._dead(self.reject, "no-target"),
                self._dead(self.large, "no-target"),
                self._dead(self.refused, "too-large", op="reschedule"),
            ],
            buries=[
                DeadLetter(self.reject, "no-target"),
                DeadLetter(self.large, "no-target", with_value=False),
                DeadLetter(self.refused, "too-large"),
            ],
            writes_back=[self.move_back],
            passes=[self.move, self.reject, self.large, self.refused],
        )
        self.in_time = Transaction(
            delivers=[Delivery(one) for one in self.timely],
            tells=[self._parked_outcome(self.parked)],
            writes_back=[self.second_try],
            passes=[self.parked],
        )
        self.catching_up = Transaction(
            delivers=[Delivery(self.late), Delivery(self.move_back), Delivery(self.new)],
            tells=[
                Outcome("expired", self.stale, message=self.stale, code="expired"),
                self._parked_outcome(self.second_try),
            ],
            buries=[DeadLetter(self.stale, "expired")],
            writes_back=[self.third_try],
            passes=[self.stale],
        )
        self.failover = Transaction(first=True, epoch=2, node="n2")
        self.ending = Transaction(
            delivers=[Delivery(self.third_try), Delivery(self.last)],
            tells=[Outcome("too-late", self.too_late, "cancel", self.new)],
            passes=[self.last],
            epoch=2,
            node="n2",
        )

    @staticmethod
    def _dead(request: Request, code: str, op: str = "schedule") -> Outcome:
        return Outcome("dead-lettered", request, op, request, code)

    @staticmethod
    def _parked_outcome(row: Row) -> Outcome:
        return Outcome("parked", row, message=row, code="target-unavailable")


class FaultySample(SampleHistory):
    """It does wrong in ten ways: what the audit's page is looked at with."""

    def __init__(self, lane: Lane, base_ms: int) -> None:
        super().__init__(lane, base_ms)
        self.hostile = self._schedule("never delivered", 8.0, id=HOSTILE_ID, expire_at_s=AFTER_ALL_S)
        self.goes_back = Transaction(passes=[self.one], epoch=2, node="n2")
        one, two, three, four, five, _, seven = self.in_time.delivers
        one.headers = [("trace", b"\x00\x01"), ("trace", b"\x00\x00"), *USER_HEADERS[2:]]
        three.early_ms = 1
        self.in_time.delivers = [one, two, three, five, four, seven]
        self.ending.delivers.append(Delivery(self.seven, early_ms=-3_600))  # with the last one
        self.ending.tells[0].outcome = "cancelled"
        self.catching_up.writes_back.remove(self.third_try)
        self.ending.delivers = [*self.ending.delivers[1:], Delivery(self.doomed)]
        self.ending.passes = [self.doomed]

    @property
    def steps(self) -> list[Step]:
        return [*super().steps, self.goes_back, self.hostile]
