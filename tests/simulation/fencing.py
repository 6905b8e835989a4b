"""All orders of steps of two leaders on two transactional ids: can both commit? (rule 5, docs/design.md)

Both leaders believe that they were elected, whatever ZooKeeper says, and run the real `Delivery` on the real
`KafkaOutbox`; only the Kafka client under it is a model. Each initialisation, flush, commit request and
answer is one step, an answer may stay away, a leader may recover; every order of the steps is tried, up to a
few leaderships and commits. A state is what the brokers hold and what each leader has been told so far: a
leader's next step is a function of that, so it is found by running the leader again with the same answers.

The search shows that every commit carries on from the last one (the two never interleave), and that without
"the first on -a, then strictly in turn" they do (tests/simulation/mutants.py).
"""

from __future__ import annotations

import sys
from collections import deque
from typing import Any, Final, NamedTuple, cast

import structlog

from store.checkpoint import Checkpoint
from tests.simulation.fencing_leader import Op, Script, next_step, use_model_client
from tests.simulation.host import Violation
from tests.simulation.invariants import check_epoch, check_progress

ABANDONED: Final = -1  # no leader waits for the answer any more


class EndTxn(NamedTuple):
    """A commit request on its way, or its answer."""

    leader: str
    number: int
    which: int
    epoch: int
    checkpoint: bytes
    answer: str | None = None


class State(NamedTuple):
    """What the brokers hold, and what each leader has been told."""

    epochs: tuple[int, int]  # of the ids a and b
    last: bytes | None  # the checkpoint last committed
    committed: frozenset[str]  # the leaders that have
    requests: tuple[EndTxn, ...]
    scripts: tuple[Script, Script]

    @property
    def identity(self) -> tuple[Any, ...]:
        """What the future depends on."""
        pasts = tuple(next_step(name, script)[1] for name, script in zip(LEADERS, self.scripts, strict=True))
        return (*self[:4], pasts)


LEADERS: Final = ("A", "B")


History = tuple[str, Any] | None


class Searched(NamedTuple):
    """What the search has seen."""

    states: int
    both: int  # states in which both leaders have committed, one after the other
    violation: str | None
    history: tuple[str, ...]


def search() -> Searched:
    """Tries every order of steps; stops at the first violation. Spoils the process for real producers."""
    structlog.configure(wrapper_class=structlog.make_filtering_bound_logger(50))
    use_model_client()
    begin = State((0, 0), None, frozenset(), (), ((), ()))
    known = {begin.identity}
    ahead: deque[tuple[State, History]] = deque([(begin, None)])
    both = 0
    while ahead:
        state, history = ahead.popleft()
        both += len(state.committed) == len(LEADERS)
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
            f"{request.leader} EndTxn {request.number} on {'ab'[request.which]} arrives",
            _arrived(state, request),
        )
        for request in state.requests
        if request.answer is None
    ]
    for number, name in enumerate(LEADERS):
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
    """What a leader can be answered, and the state after that."""
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
        one._replace(number=ABANDONED) if one.leader == name else one
        for one in state.requests
        if one.leader != name or one.answer is None
    ]
    kept = tuple(one for one in requests if one.number != ABANDONED or one.epoch == epochs[one.which])
    return "ok", epochs[which], state._replace(epochs=(epochs[0], epochs[1]), requests=kept)


def _commit_answers(state: State, name: str, waiting: tuple[int, ...]) -> list[tuple[str, Any, State]]:
    """The answer of a commit arrives, or the leader no longer waits for it."""
    answers = []
    for request in state.requests:
        if request.leader != name or request.number not in waiting:
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
