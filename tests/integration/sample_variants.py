"""The sample history, with something more: what strangers write, and faults that are rarer."""

from __future__ import annotations

from delayline.headers import H_PARENT, H_ROOT, H_TARGET_TOPIC
from delayline.requests import BufferRecord
from delayline.wire import Header
from tests.integration.histories import (
    Acknowledged,
    CopyOf,
    DeadLetter,
    Delivery,
    ForgedCheckpoints,
    Lane,
    Later,
    Outcome,
    Request,
    Step,
    Transaction,
)
from tests.integration.sample_history import SampleHistory


def _bad_parent(base_ms: int, strange: Request) -> Transaction:
    """The service makes a dead letter of it."""
    code, at_ms = "bad-parent", base_ms + 9_000
    return Transaction(
        buries=[DeadLetter(strange, code)],
        tells=[Outcome("dead-lettered", strange, message=strange, code=code, at_ms=at_ms)],
        epoch=2,
        node="n2",
    )


class ForgedHistory(SampleHistory):
    """Strangers forge and copy requests and checkpoints, and the service knows them."""

    @property
    def steps(self) -> list[Step]:
        copy = CopyOf(self.third_try)
        root = self.lane.source(0, 0).encode()
        forged: list[Header] = [(H_TARGET_TOPIC, b"orders"), (H_PARENT, b"0"), (H_ROOT, root)]
        made_up = Request(BufferRecord(b"k", b"made up", forged), 0)
        far_ahead = {"position": [self.base_ms + 4_000_000, 0, 0]}
        aborted = Transaction(claims=far_ahead, epoch=2, node="n2", aborted=True)
        forged_checkpoints = ForgedCheckpoints([b"{}", b"none"])
        ended = _bad_parent(self.base_ms, made_up)
        return [*super().steps, copy, made_up, ended, aborted, forged_checkpoints]


class _CopiedHistory(SampleHistory):
    """A transaction is aborted, and somebody sends a copy of what it wrote back."""

    def __init__(self, lane: Lane, base_ms: int) -> None:
        super().__init__(lane, base_ms)
        tried = Later(self.parked, base_ms + 9_000)
        self.aborted = Transaction(writes_back=[tried], epoch=2, node="n2", aborted=True)
        self.copy = CopyOf(tried)


class CopiedHistory(_CopiedHistory):
    """The service knows that it is a copy."""

    @property
    def steps(self) -> list[Step]:
        passed = Transaction(epoch=2, node="n2")
        return [*super().steps, self.aborted, self.copy, passed]


class FaultyCopied(_CopiedHistory):
    """The copy is believed, and another one is a dead letter."""

    def __init__(self, lane: Lane, base_ms: int) -> None:
        super().__init__(lane, base_ms)
        self.buried = CopyOf(self.third_try)

    @property
    def steps(self) -> list[Step]:
        believed = Transaction(delivers=[Delivery(self.parked)], epoch=2, node="n2")
        ended = _bad_parent(self.base_ms, self.buried)
        return [*super().steps, self.aborted, self.copy, believed, self.buried, ended]


class RarerFaults(SampleHistory):
    """It does wrong in eleven rarer ways."""

    def __init__(self, lane: Lane, base_ms: int) -> None:
        super().__init__(lane, base_ms)
        self.overdue = self._schedule("never delivered", 8.0)
        self.of_nothing = lane.source(0, 4711)
        self.not_there = lane.source(1, 4711)
        del self.answers.tells[0]  # the answer to the cancel that was carried out
        self.ending.delivers.append(Delivery(self.last, source=self.of_nothing))
        self.catching_up.buries[0].code = self.catching_up.tells[0].code = "bad-after"
        self.catching_up.tells[0].outcome = "dead-lettered"
        self.ending.early_ms = 501
        self.answers.buries[0].with_value = False
        self.catching_up.delivers.append(Delivery(self.second_try))
        self.failover.claims = {"delivered_up_to_ms": base_ms + 6_500}

    @property
    def steps(self) -> list[Step]:
        back = Transaction(epoch=2, node="n2", claims={"delivered_up_to_ms": self.base_ms})
        return [
            *super().steps,
            *(self.overdue, back, Transaction(epoch=1, node="n1")),
            Acknowledged(self.not_there, self.one.record),
        ]


class LyingLetter(SampleHistory):
    """A letter says that it is of a batch, which nodes would have read."""

    def __init__(self, lane: Lane, base_ms: int) -> None:
        super().__init__(lane, base_ms)
        self.sent = [self._schedule(f"in a batch {number}", 1.0) for number in range(3)]
        first, *_, last = self.sent
        told = Outcome("dead-lettered", first, message=first, code="undecodable", at_ms=base_ms + 9_000)
        buried = DeadLetter(first, "undecodable", to=last)
        self.lying = Transaction(buries=[buried], tells=[told], passes=[last], epoch=2, node="n2")

    @property
    def steps(self) -> list[Step]:
        return [*super().steps, *self.sent, self.lying]
