"""A node in a process of its own that kills or stops itself at a step of delivery, for the tests.

Takes one argument, JSON: `config`, the fields of a NodeConfig, and what no configuration of a node can say:
`step`, at which to die once SIGUSR1 has armed it; `signal`, SIGKILL or SIGSTOP; `delay_s`, how long after
the step; `acknowledged`, whether the brokers must have what its transaction has sent before that; `carried`,
how many messages a replay that is under way must have carried; `clock_offset_ms`, by which the process's
clock is wrong until SIGUSR2, and again from the next on; `brokers_too`, whether the brokers' is wrong with
it, as far as the process can see by its checkpoints; `prefers_after_s`, after how long it hands over by
preference, if that is to be soon; `cannot_lead`, whether it follows and makes no producer.
"""

from __future__ import annotations

import json
import signal
import sys
import threading
import time
from typing import Any

from node.config import NodeConfig
from node.core.ports import Unanswered
from node.core.steps import Step
from node.kafka.outbox import KafkaOutbox, KafkaTransaction
from node.node import Node
from ops import logs
from tests.support.hurry import hurry, prefer_after


class Trap:
    """Called at every step; once armed, sends this process the signal at the next one that is its own."""

    def __init__(self, given: dict[str, Any]) -> None:
        self.node: Node | None = None  # the one that calls it
        self._step = given["step"]
        self._signal = signal.Signals[given["signal"]]
        self._delay_s = given["delay_s"]
        self._is_acknowledged = given["acknowledged"]
        self._carried = given["carried"]
        self._armed = False

    def arm(self, *_: Any) -> None:
        self._armed = True

    def __call__(self, step: Step) -> None:
        if not self._armed or step != self._step or self._carried_by_now() < self._carried:
            return
        self._armed = False
        if self._is_acknowledged:
            outbox = self._parts.outbox
            outbox._last[1 - outbox._turn].flush()  # of the transaction under way
        if self._delay_s:
            time.sleep(self._delay_s)  # the commit runs on meanwhile, on its own thread
        # To this very thread: any other one might have to wait for a processor before it stops them all.
        signal.pthread_kill(threading.get_ident(), self._signal)

    @property
    def _parts(self) -> Any:
        assert self.node is not None, "it is told before the node starts"
        return self.node._progress.parts

    def _carried_by_now(self) -> int:
        replay = self._parts.view.tip.operation.replay
        return 0 if replay is None else int(replay.carried)


class Redated:
    """A record that was acknowledged, as by a broker whose clock is off."""

    def __init__(self, message: Any, offset_ms: int) -> None:
        self._message, self._offset_ms = message, offset_ms

    def timestamp(self) -> tuple[int, int]:
        kind, at_ms = self._message.timestamp()
        return kind, at_ms + self._offset_ms


def set_clock_wrong(offset_ms: int, *, brokers_too: bool) -> None:
    """Every clock that tells the time of day, in this process."""
    true_ns, offset_ns = time.time_ns, offset_ms * 1_000_000
    time.time_ns = lambda: true_ns() + offset_ns
    time.time = lambda: time.time_ns() / 1e9

    def other_way_round(*_: Any) -> None:
        nonlocal offset_ns
        offset_ns = 0 if offset_ns else offset_ms * 1_000_000

    signal.signal(signal.SIGUSR2, other_way_round)
    on_checkpoint: Any = KafkaTransaction._on_checkpoint

    def by_wrong_brokers(transaction: Any, error: Any, message: Any, sent_ms: int) -> None:
        on_checkpoint(transaction, error, Redated(message, offset_ns // 1_000_000), sent_ms)

    if brokers_too:
        setattr(KafkaTransaction, "_on_checkpoint", by_wrong_brokers)  # noqa: B010


def unanswered(_: KafkaOutbox) -> None:
    raise Unanswered("the coordinator of the lane's transactions is out of reach")


def main() -> int:
    given = json.loads(sys.argv[1])
    if given["clock_offset_ms"]:
        set_clock_wrong(given["clock_offset_ms"], brokers_too=given["brokers_too"])
    config = NodeConfig(**given["config"])
    hurry()
    if given["cannot_lead"]:
        setattr(KafkaOutbox, "open", unanswered)  # noqa: B010
    if given["prefers_after_s"]:
        prefer_after(given["prefers_after_s"])
    trap = Trap(given)
    signal.signal(signal.SIGUSR1, trap.arm)
    logs.configure(node=config.node_id, lane=config.lane)
    trap.node = Node(config, trap)
    return trap.node.run()
