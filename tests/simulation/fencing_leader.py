"""One leader of tests/simulation/fencing.py: the real delivery core and outbox on a model of Kafka's client.

It runs from its beginning with the answers that its steps were given so far, up to the first step that has
none. So a leader between two steps needs no state but its answers, and any step can be answered in several
ways.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from collections.abc import Set as AbstractSet
from concurrent.futures import Future
from contextlib import suppress
from functools import cache
from typing import Any, Final, cast

from confluent_kafka import KafkaError, KafkaException

from delayline.names import ClusterNames
from delayline.settings import ClusterSettings
from delayline.settings_versions import SettingsVersions
from delayline.signing import Keyring
from node.core.delivery import Config, Delivery
from node.core.ports import Pauses, SelectionTargets
from node.core.steps import Wait
from node.kafka import outbox
from store.arrivals import Arrival, Kind
from store.checkpoint import Checkpoint, Lineage, Vector
from store.rows import ScheduledRow, encode
from store.selection import Limits
from store.view import View
from tests.simulation.stores import MemoryStore
from tests.support.keys import KEYRING, FixedKeys
from tests.support.settled import Settled
from tests.support.targets import Table

NAMES: Final = ClusterNames("delay")
ROWS: Final = 6  # due from the beginning, one to a transaction
NOW_MS: Final = 1_000
NOTHING_PAUSED: Final = Pauses()
MOST_OPENED: Final = 2  # leaderships of each leader
MOST_COMMITS: Final = 2  # transactions of each leadership
FENCED: Final = KafkaError._FENCED

Op = tuple[Any, ...]
Script = tuple[Any, ...]


class Pause(BaseException):
    """The leader's next step: nothing has answered it yet."""

    def __init__(self, *op: Any) -> None:
        super().__init__(op)
        self.op: Op = op


class Commits:
    """Stands for the outbox's commit threads: a commit runs when its answer is there."""

    def __init__(self) -> None:
        self.waiting: dict[int, tuple[Callable[[], None], Future[None]]] = {}
        self.number = 0

    def begin(self) -> None:
        """A new leadership waits for none of the commits before it."""
        self.waiting, self.number = {}, 0

    def submit(self, commit: Callable[[], None]) -> Future[None]:
        future: Future[None] = Future()
        try:
            commit()  # the model's producer hands the request over
        except _Issued:
            self.waiting[self.number] = commit, future
            self.number += 1
        return future

    def answer(self, number: int) -> None:
        commit, future = self.waiting.pop(number)
        try:
            commit()
            future.set_result(None)
        except Exception as error:
            future.set_exception(error)


class _Issued(BaseException):
    """A commit request is on its way."""


class Run:
    """One leader, run from its beginning with the answers that it was given so far."""

    def __init__(self, name: str, script: Script) -> None:
        self.name = name
        self._script = script
        self._answers = deque(script)
        self.committing: str | None = None  # the answer of the commit that is being told
        self._commits = Commits()
        self._view = View(MemoryStore(), [0], 0, SettingsVersions.of(ClusterSettings(dedup_window_ms=0)))
        self._view.apply([_row(offset) for offset in range(ROWS)], {0: ROWS})
        self._opened = 0
        self._issued = 0
        self._taken = 0
        self.mark: Script = ()

    def old(self) -> None:
        """See `LogAge`: nothing is carried."""

    def outcomes(self) -> None:
        """See `LogAge`."""

    def ask(self, *op: Any) -> Any:
        """The answer to a step, if it has been given; `Pause` if not."""
        if not self._answers:
            raise Pause(*op)
        self._taken += 1
        return self._answers.popleft()

    def next_step(self) -> tuple[Op, Script]:
        """Runs to the first step that has no answer; returns it, and what the future depends on."""
        step = self._next_step()
        return step, (*self.mark[1:], self._script[self.mark[0] :] if self.mark else self._script)

    def _next_step(self) -> Op:
        box = self._box = outbox.KafkaOutbox(
            {}, NAMES, 0, 10_000, Table(), lambda: None, lambda: False, FixedKeys(KEYRING)
        )
        box._committers = cast("Any", self._commits)
        config = Config(self.name, 0, NAMES, Limits(1, 1_000), 0, 0, self, self)
        self._delivery = Delivery(config, self._view, box, self, self, self, self, self)
        leadership = self._delivery.run()
        try:
            while True:
                step = next(leadership)
                if isinstance(step, Wait):
                    self._wait(step)
        except StopIteration:
            return ("end",)
        except Pause as pause:
            return pause.op
        finally:
            with suppress(Pause):  # a leader left where it stands has nothing more to say
                leadership.close()

    def _wait(self, wait: Wait) -> None:
        if not self._commits.waiting:
            assert wait.until_ms is not None, "nothing to wait for"
            return
        number, self.committing = self.ask("wait", *self._commits.waiting)
        self._commits.answer(number)
        self.committing = None

    # ------------------------------------------------------------------ the ports

    def now_ms(self) -> int:
        return NOW_MS

    def steady_ms(self) -> int:
        return NOW_MS

    is_complete = True

    def learn(self, wanted: SelectionTargets, *, waits: bool) -> Run:
        return self

    def require(self, topics: frozenset[str]) -> None:
        """All are there."""

    def invalidate(self) -> None:
        """Every target still is."""

    def ask_anew(self) -> None:
        """None is."""

    def takes_any(self, topic: str, size_bytes: int) -> bool:
        return True

    def problem(self, topic: str, partition: int, key: bytes | None, size_bytes: int) -> None:
        """Every record is welcome."""

    def learn_all(self, topics: AbstractSet[str], due_ms: int) -> None:
        """All are there."""

    def refresh(self) -> None:
        """ZooKeeper has nothing to say."""

    def asked(self) -> None:
        """No operator asks for anything."""

    def pauses(self) -> Pauses:
        return NOTHING_PAUSED

    def confirm(self) -> bool:
        """A leadership begins. Its future depends on what follows, and on this much of the past."""
        self._opened += 1
        self._issued = 0
        self._commits.begin()
        last = self._delivery._last
        self.mark = (self._taken, self._opened, last and last.encode(), self._box._turn)
        if self._opened > MOST_OPENED:
            raise Pause("end")
        return True

    def steps_down(self) -> None:
        """Nobody asks it to."""

    def mirrored(self) -> None:
        """There is no mirror."""

    def mirror(self, checkpoint: Checkpoint) -> None:
        """There is no mirror."""

    def last_checkpoint(self) -> Checkpoint | None:
        raw = self.ask("read")
        return None if raw is None else Checkpoint.decode(raw)

    def lineage(self) -> Lineage:
        return Lineage("checkpoints", 0)

    def last_stable_offsets(self) -> Vector:
        return {0: ROWS}

    def high_watermarks(self) -> Vector:
        return {0: ROWS}

    @property
    def ring(self) -> Keyring:
        return KEYRING

    # ------------------------------------------------------------------ the client

    def initialise(self, which: int) -> int:
        return cast("int", self.ask("init", which))

    def flush(self, which: int, epoch: int) -> str:
        return cast("str", self.ask("flush", which, epoch))

    def commit(self, which: int, epoch: int, checkpoint: bytes) -> None:
        self._issued += 1
        if self._issued > MOST_COMMITS:
            raise Pause("end")
        self.ask("commit", self._commits.number, which, epoch, checkpoint)
        raise _Issued


class ModelProducer:
    """Stands for confluent_kafka.Producer. What it asks goes to the run that is under way."""

    def __init__(self, config: dict[str, Any]) -> None:
        self._which = "ab".index(config["transactional.id"][-1])
        self._epoch = -1
        self._records = 0
        self._checkpoint = b""

    def list_topics(self, topic: str, timeout: float) -> None:
        """Connects."""

    def init_transactions(self, timeout: float) -> None:
        self._epoch = _run.initialise(self._which)

    def begin_transaction(self) -> None:
        self._records = 0

    def produce(self, topic: str, value: bytes, *_: object, **__: object) -> None:
        self._records += 1
        if topic == NAMES.checkpoint:
            self._checkpoint = value

    def flush(self, timeout: float) -> int:
        if self._records and _run.flush(self._which, self._epoch) == "fenced":
            raise KafkaException(KafkaError(FENCED))
        return 0

    def commit_transaction(self, timeout: float) -> None:
        if _run.committing is None:
            _run.commit(self._which, self._epoch, self._checkpoint)
        if _run.committing == "fenced":
            raise KafkaException(KafkaError(FENCED))
        if _run.committing == "doubt":
            raise KafkaException(KafkaError(KafkaError._TIMED_OUT))


_run: Run


@cache
def next_step(name: str, script: Script) -> tuple[Op, Script]:
    """A leader's next step after these answers, and what its future depends on."""
    global _run  # noqa: PLW0603 (the client's calls have no other way to it)
    _run = Run(name, script)
    return _run.next_step()


def _row(offset: int) -> Arrival:
    row = ScheduledRow(None, b"", [], None, "orders", 0, None, offset, None, None, None, 1, None)
    return Arrival(0, offset, offset, Kind.SCHEDULE, offset, None, None, None, encode(row))


def use_model_client() -> None:
    """From now on, and for the rest of this process, the outbox makes producers of the model."""
    module = cast("Any", outbox)
    module.OwnTransactions = Settled  # it only fences, or commits no record
    module.Producer = ModelProducer
    module._discard = lambda _: None
