"""The ports of the delivery core (node/core/ports.py), each by a fake that does at once what it is asked."""

from __future__ import annotations

from collections.abc import Callable

from delayline.names import ClusterNames
from delayline.rejects import Code, RejectCode
from node.core.ports import TARGET_UNKNOWN, Offsets, Outgoing, Pauses, Records, SelectionTargets, Unconfirmed
from node.core.steps import StepDown
from node.refusal import Refusing
from store.checkpoint import Checkpoint, Lineage, Vector
from store.told import Look
from tests.support.keys import KEYRING

NAMES = ClusterNames("delay")
TOPIC = Lineage("topic", 3)


class Calls:
    """What was asked in recovery, in order. `unanswered`: what gets no answer, each once."""

    def __init__(self) -> None:
        self.made: list[str] = []
        self.unanswered: list[str] = []

    def note(self, name: str) -> None:
        self.made.append(name)
        if name in self.unanswered:
            self.unanswered.remove(name)
            raise Unconfirmed


class FakeClock:
    """A node's clock, which can be set, and one that cannot."""

    def __init__(self, now_ms: int) -> None:
        self.now = now_ms
        self.steady = 0

    def now_ms(self) -> int:
        return self.now

    def steady_ms(self) -> int:
        return self.steady

    def pass_by(self, by_ms: int) -> None:
        """The time passes."""
        self.now += by_ms
        self.steady += by_ms


class FakeKeys:
    ring = KEYRING


class FakeLogAge:
    """Nothing is carried, unless it is said what is old."""

    def __init__(self) -> None:
        self.offsets: Vector | None = None
        self.look: Look | None = None

    def old(self) -> Vector | None:
        return self.offsets

    def outcomes(self) -> Look | None:
        return self.look


class FakeElection:
    def __init__(self, calls: Calls) -> None:
        self.leads = True
        self.in_znode: Checkpoint | Refusing | None = None
        self.to_step_down: Callable[[], StepDown | None] = lambda: None
        self._calls = calls

    def confirm(self) -> bool:
        self._calls.note("confirm")
        return self.leads

    def steps_down(self) -> StepDown | None:
        return self.to_step_down()

    def mirrored(self) -> Checkpoint | None:
        self._calls.note("znode")
        if isinstance(self.in_znode, Refusing):
            raise self.in_znode
        return self.in_znode

    def mirror(self, checkpoint: Checkpoint) -> None:
        """Nobody reads it."""


class FakeLog:
    """`checkpoints`: the topic's, to which those that are committed are added."""

    def __init__(self, calls: Calls) -> None:
        self.checkpoints: list[Checkpoint] = []
        self.stands_on = TOPIC
        self.stable: Vector = {0: 0, 1: 0}
        self.while_read: Callable[[], None] = lambda: None
        self._calls = calls

    def last_checkpoint(self) -> Checkpoint | None:
        self._calls.note("topic")
        self.while_read()
        return self.checkpoints[-1] if self.checkpoints else None

    def lineage(self) -> Lineage:
        self._calls.note("lineage")
        return self.stands_on

    def last_stable_offsets(self) -> Vector:
        self._calls.note("stable")
        return self.stable

    def high_watermarks(self) -> Vector:
        self._calls.note("ends")
        return {0: 100, 1: 200}


class FakeOperator:
    """Asks for nothing but pauses."""

    def __init__(self, calls: Calls) -> None:
        self.paused = Pauses()
        self._calls = calls

    def refresh(self) -> None:
        self._calls.note("refresh")

    def asked(self) -> None:
        """Nothing."""

    def pauses(self) -> Pauses:
        return self.paused


class FakeTargets:
    """All targets are there, once they have been looked up so often; and what is known of them, too."""

    is_complete = True

    def __init__(self) -> None:
        self.buffer_takes_bytes = 1 << 20
        self.doubts = 0
        self.looks = self.knows_at_look = 0

    def learn(self, wanted: SelectionTargets, *, waits: bool) -> FakeTargets:
        self.looks += 1
        return self

    def require(self, topics: frozenset[str]) -> None:
        """All are there."""

    def invalidate(self) -> None:
        """They still are."""

    def ask_anew(self) -> None:
        """They still are."""
        self.doubts += 1

    def takes_any(self, topic: str, size_bytes: int) -> bool:
        return self.looks >= self.knows_at_look

    def problem(
        self, topic: str, partition: int, key: bytes | None, size_bytes: int
    ) -> tuple[Code, str] | None:
        if topic not in NAMES.own_topics and self.looks < self.knows_at_look:
            return TARGET_UNKNOWN, f"nobody has said what {topic} is"
        fits = topic != NAMES.buffer or size_bytes <= self.buffer_takes_bytes
        return None if fits else (RejectCode.TOO_LARGE, f"{topic} takes less")


class FakeOutbox:
    """Its transaction and its commit, too. `steps`: of the transactions. `off_ms`: how far the node's clock
    is ahead of the brokers', which the next commit shows.
    """

    def __init__(self, calls: Calls, committed: list[Checkpoint]) -> None:
        self.clock_offset_ms = 0
        self.off_ms = 0
        self.sent: list[Outgoing] = []
        self.steps: list[str] = []
        self.while_sent: Callable[[], None] = lambda: None
        self.while_flushed: Callable[[], None] = lambda: None
        self._calls = calls
        self._committed = committed
        self._shown_off_ms = 0

    def drop(self) -> None:
        self._calls.note("drop")

    def open(self) -> None:
        self._calls.note("open")

    def begin(self) -> FakeOutbox:
        return self

    def send(self, records: Records) -> None:
        self.steps.append("send")
        self.sent += records
        self.while_sent()

    def flush(self) -> Offsets:
        self.steps.append("flush")
        self.while_flushed()
        return {}

    def checkpoint(self, checkpoint: Checkpoint) -> None:
        self.steps.append("first checkpoint" if checkpoint.first else "checkpoint")
        self._shown_off_ms = self.off_ms
        self._committed.append(checkpoint)

    def commit(self) -> FakeOutbox:
        self.steps.append("commit")
        return self

    def done(self) -> bool:
        return True

    def result(self) -> None:
        self.clock_offset_ms = -self._shown_off_ms


class FakePorts:
    """One of each."""

    def __init__(self, now_ms: int) -> None:
        self.calls = Calls()
        self.clock = FakeClock(now_ms)
        self.keys = FakeKeys()
        self.age = FakeLogAge()
        self.election = FakeElection(self.calls)
        self.log = FakeLog(self.calls)
        self.operator = FakeOperator(self.calls)
        self.targets = FakeTargets()
        self.outbox = FakeOutbox(self.calls, self.log.checkpoints)

    def set_clock(self, by_ms: int, *, off_ms: int) -> None:
        """And how far ahead of the brokers' clock it is then, as the next checkpoint shows."""
        self.clock.now += by_ms
        self.outbox.off_ms = off_ms
