"""All orders of steps of two masters on two transactional ids: can both commit? (rule 5, docs/design.md)

Both masters believe that they were elected, whatever ZooKeeper says, and run the real `Delivery` on the real
`KafkaOutbox`; only the Kafka client under it is a model. Each initialisation, flush, commit request and
answer is one step, an answer may stay away, a master may recover; every order of the steps is tried, up to a
few masterships and commits. A state is what the brokers hold and what each master has been told so far: a
master's next step is a function of that, so it is found by running the master again with the same answers.

The search shows that every commit carries on from the last one (the two never interleave), and that without
"the first on -a, then strictly in turn" they do (tests/simulation/mutants.py).
"""

from __future__ import annotations

import sys
from collections import deque
from collections.abc import Callable
from concurrent.futures import Future
from functools import cache
from typing import Any, Final, NamedTuple, cast

import structlog
from confluent_kafka import KafkaError, KafkaException

from delayline.names import ClusterNames
from node import outbox
from node.delivery import Config, Delivery, Wait
from node.targets import BATCH_BYTES
from store.arrivals import Arrival, Kind
from store.checkpoint import Checkpoint, Vector
from store.records import ScheduledRow, encode
from store.selection import Limits
from store.view import View
from tests.simulation.host import Violation
from tests.simulation.invariants import check_epoch, check_progress
from tests.simulation.stores import MemoryStore

NAMES: Final = ClusterNames("delay")
ROWS: Final = 6
NOW_MS: Final = 1_000
MOST_OPENED: Final = 2  # masterships of each master
MOST_COMMITS: Final = 2  # transactions of each mastership
FENCED: Final = KafkaError._FENCED
ABANDONED: Final = -1  # no master waits for the answer any more

Op = tuple[Any, ...]
Script = tuple[Any, ...]


class Pause(BaseException):
    """The master's next step: nothing has answered it yet."""

    def __init__(self, *op: Any) -> None:
        super().__init__(op)
        self.op: Op = op


class EndTxn(NamedTuple):
    """A commit request on its way, or its answer."""

    master: str
    number: int
    which: int
    epoch: int
    checkpoint: bytes
    answer: str | None = None


class Commits:
    """Stands for the outbox's commit threads: a commit runs when its answer is there."""

    def __init__(self) -> None:
        self.waiting: dict[int, tuple[Callable[[], None], Future[None]]] = {}
        self.number = 0

    def begin(self) -> None:
        """A new mastership waits for none of the commits before it."""
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
    """One master, run from its beginning with the answers that it was given so far."""

    def __init__(self, name: str, script: Script) -> None:
        self.name = name
        self._script = script
        self._answers = deque(script)
        self.committing: str | None = None  # the answer of the commit that is being told
        self._commits = Commits()
        self._view = View(MemoryStore(), [0], 0)
        self._view.apply([_row(offset) for offset in range(ROWS)], {0: ROWS})
        self._opened = 0
        self._issued = 0
        self._taken = 0
        self.mark: Script = ()

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
        box = self._box = outbox.KafkaOutbox({}, NAMES, 0, 10_000, cast("Any", self), lambda: None)
        box._committers = cast("Any", self._commits)
        config = Config(self.name, 0, NAMES, Limits(1, 1_000), 0)
        here = cast("Any", self)
        self._delivery = Delivery(config, self._view, box, here, here, here, here)
        mastership = self._delivery.run()
        try:
            while True:
                step = next(mastership)
                if isinstance(step, Wait):
                    self._wait(step)
        except StopIteration:
            return ("end",)
        except Pause as pause:
            return pause.op
        finally:
            with _quietly():
                mastership.close()

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

    def batch_bytes(self) -> int:
        return BATCH_BYTES

    def learn(self, topics: set[str]) -> None:
        """Every target is there."""

    def doubt(self) -> None:
        """Every target still is."""

    def are_there(self, topics: set[str]) -> bool:
        return True

    def problem(self, topic: str, partition: int, size_bytes: int) -> None:
        """Every record is welcome."""

    def confirm(self) -> bool:
        """A mastership begins. Its future depends on what follows, and on this much of the past."""
        self._opened += 1
        self._issued = 0
        self._commits.begin()
        last = self._delivery._last
        self.mark = (self._taken, self._opened, last and last.encode(), self._box._turn)
        if self._opened > MOST_OPENED:
            raise Pause("end")
        return True

    def resigning(self) -> bool:
        return False

    def mirrored(self) -> None:
        """There is no mirror."""

    def mirror(self, checkpoint: Checkpoint) -> None:
        """There is no mirror."""

    def last_checkpoint(self) -> Checkpoint | None:
        raw = self.ask("read")
        return None if raw is None else Checkpoint.decode(raw)

    def stable_ends(self) -> Vector:
        return {0: ROWS}

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


class _quietly:  # noqa: N801 (a context manager, used like a function)
    """A master that is left where it stands has nothing more to say."""

    def __enter__(self) -> None:
        """Nothing to set up."""

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> bool:
        return kind is Pause


_run: Run


@cache
def next_step(name: str, script: Script) -> tuple[Op, Script]:
    """A master's next step after these answers, and what its future depends on."""
    global _run  # noqa: PLW0603 (the client's calls have no other way to it)
    _run = Run(name, script)
    return _run.next_step()


def _row(offset: int) -> Arrival:
    row = ScheduledRow(None, b"", [], None, "orders", 0, None, offset, None, None, None, 1, None)
    return Arrival(0, offset, offset, Kind.SCHEDULE, offset, None, None, None, encode(row))


# ---------------------------------------------------------------------- the search


class State(NamedTuple):
    """What the brokers hold, and what each master has been told."""

    epochs: tuple[int, int]  # of the ids a and b
    last: bytes | None  # the checkpoint last committed
    committed: frozenset[str]  # the masters that have
    requests: tuple[EndTxn, ...]
    scripts: tuple[Script, Script]

    @property
    def identity(self) -> tuple[Any, ...]:
        """What the future depends on."""
        pasts = tuple(next_step(name, script)[1] for name, script in zip(MASTERS, self.scripts, strict=True))
        return (*self[:4], pasts)


MASTERS: Final = ("A", "B")


History = tuple[str, Any] | None


class Searched(NamedTuple):
    """What the search has seen."""

    states: int
    both: int  # states in which both masters have committed, one after the other
    violation: str | None
    history: tuple[str, ...]


def search() -> Searched:
    """Tries every order of steps; stops at the first violation."""
    structlog.configure(wrapper_class=structlog.make_filtering_bound_logger(50))
    module = cast("Any", outbox)
    module.Producer = ModelProducer
    module._discard = lambda _: None
    begin = State((0, 0), None, frozenset(), (), ((), ()))
    known = {begin.identity}
    ahead: deque[tuple[State, History]] = deque([(begin, None)])
    both = 0
    while ahead:
        state, history = ahead.popleft()
        both += len(state.committed) == len(MASTERS)
        for label, after in _steps(state):
            if (identity := after.identity) in known:
                continue
            known.add(identity)
            ahead.append((after, (label, history)))
            try:
                _check(state.last, after.last)
            except Violation as violation:
                return Searched(len(known), both, str(violation), _labels((label, history)))
    return Searched(len(known), both, None, ())


def _check(before: bytes | None, after: bytes | None) -> None:
    if after is not None and after is not before:
        last = None if before is None else Checkpoint.decode(before)
        check_progress(last, Checkpoint.decode(after))
        check_epoch(last, Checkpoint.decode(after))


def _labels(history: History) -> tuple[str, ...]:
    labels: list[str] = []
    while history is not None:
        label, history = history
        labels.append(label)
    return tuple(reversed(labels))


def _steps(state: State) -> list[tuple[str, State]]:
    """Every step that can be the next one."""
    steps = [
        (
            f"{request.master} EndTxn {request.number} on {'ab'[request.which]} arrives",
            _arrived(state, request),
        )
        for request in state.requests
        if request.answer is None
    ]
    for number, name in enumerate(MASTERS):
        op, _ = next_step(name, state.scripts[number])
        for what, answer, after in _answers(state, name, op):
            scripts = tuple(
                (*script, answer) if index == number else script for index, script in enumerate(state.scripts)
            )
            label = f"{name} {' '.join(str(part) for part in op[:3])}: {what}"
            steps.append((label, after._replace(scripts=cast("tuple[Script, Script]", scripts))))
    return steps


def _arrived(state: State, request: EndTxn) -> State:
    """EndTxn reaches the coordinator: the transaction is committed, or its producer was fenced."""
    fenced = state.epochs[request.which] != request.epoch
    requests = tuple(
        one._replace(answer="fenced" if fenced else "ok") if one is request else one
        for one in state.requests
        if one is not request or one.number != ABANDONED
    )
    if fenced:
        return state._replace(requests=requests)
    committed = state.committed | {Checkpoint.decode(request.checkpoint).node}
    return state._replace(requests=requests, last=request.checkpoint, committed=committed)


def _answers(state: State, name: str, op: Op) -> list[tuple[str, Any, State]]:
    """What a master can be answered, and the state after that."""
    if op[0] == "init":
        return [_initialised(state, name, op[1])]
    if op[0] == "read":
        epoch = Checkpoint.decode(state.last).epoch if state.last else None
        return [(f"epoch {epoch}", state.last, state)]
    if op[0] == "flush":
        answer = "ok" if state.epochs[op[1]] == op[2] else "fenced"
        return [(answer, answer, state)]
    if op[0] == "commit":
        request = EndTxn(name, *op[1:])
        return [("issued", "issued", state._replace(requests=(*state.requests, request)))]
    if op[0] == "wait":
        return _commit_answers(state, name, op[1:])
    return []


def _initialised(state: State, name: str, which: int) -> tuple[str, int, State]:
    """A new epoch. Requests that nobody waits for, and that are now fenced, can be forgotten."""
    epochs = list(state.epochs)
    epochs[which] += 1
    requests = [
        one._replace(number=ABANDONED) if one.master == name else one
        for one in state.requests
        if one.master != name or one.answer is None
    ]
    kept = tuple(one for one in requests if one.number != ABANDONED or one.epoch == epochs[one.which])
    return "ok", epochs[which], state._replace(epochs=(epochs[0], epochs[1]), requests=kept)


def _commit_answers(state: State, name: str, waiting: tuple[int, ...]) -> list[tuple[str, Any, State]]:
    """The answer of a commit arrives, or the master no longer waits for it."""
    answers = []
    for request in state.requests:
        if request.master != name or request.number not in waiting:
            continue
        rest = tuple(one for one in state.requests if one is not request)
        if request.answer is not None:
            answers.append((request.answer, (request.number, request.answer), state._replace(requests=rest)))
        else:
            rest = (*rest, request._replace(number=ABANDONED))
        answers.append(("doubt", (request.number, "doubt"), state._replace(requests=rest)))
    return answers


def main() -> int:
    """Returns the exit code: 0 if no order of steps lets both commit."""
    searched = search()
    print(f"{searched.states} states; in {searched.both} of them both have committed, one after the other")
    if searched.violation is None:
        print("CLEAN every commit carries on from the last one")
        return 0
    print("\n".join(searched.history))
    print(f"VIOLATION {searched.violation}")
    return 1


if __name__ == "__main__":
    sys.exit(main())
