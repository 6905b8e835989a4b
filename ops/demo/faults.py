"""What is done to the cluster under load, one small class each: strike, endure, mend."""

from __future__ import annotations

import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import ClassVar, Final

from ops.demo.episode import Episode
from ops.demo.errors import DemoError
from ops.demo.lookout import Lookout, now_ms
from ops.demo.measure import ReceivedMessage
from ops.demo.processes import NodeProcess
from ops.stack import LocalStack

POLL_S: Final = 0.02
CARRY_ON_S: Final = 30.0
HEALTHY_S: Final = 60.0
AFTERMATH_MS: Final = 1_000


@dataclass(frozen=True, slots=True)
class Scene:
    """What a fault can lay hands on, and what it can see."""

    stack: LocalStack
    nodes: Mapping[str, NodeProcess]
    lookout: Lookout
    received: Sequence[ReceivedMessage]
    session_timeout_s: float

    def leader(self) -> NodeProcess:
        """The elected leader's process."""
        name = self.lookout.leader()
        if name is None:
            raise DemoError("no node is leader")
        return self.nodes[name]

    def pids(self) -> dict[str, int]:
        """The nodes that run."""
        return {name: node.pid for name, node in self.nodes.items() if node.pid is not None}

    def wait(self, what: str, condition: Callable[[], bool], timeout_s: float) -> None:
        """Wait until the condition holds. Raises DemoError if it does not in time."""
        deadline = time.monotonic() + timeout_s
        while not condition():
            if time.monotonic() > deadline:
                raise DemoError(f"{what}: waited {timeout_s:.0f} s for it in vain")
            time.sleep(POLL_S)

    def wait_healthy(self) -> None:
        """Wait until every node is there, one delivers, nothing is overdue, and the others follow it."""
        since_ms = now_ms()
        pids = {name: node.pid for name, node in self.nodes.items()}
        down = sorted(name for name, pid in pids.items() if pid is None)
        if down:
            raise DemoError(f"{', '.join(down)} ended by itself")
        self.wait(
            "every node up, one leader, nothing overdue",
            lambda: self.lookout.view.healthy(self.pids(), since_ms),
            HEALTHY_S,
        )

    def wait_carried_on(self, since_ms: float) -> None:
        """Wait until messages come that fell due a moment after `since_ms`."""
        self.wait(
            "somebody delivers again",
            lambda: bool(self.received) and self.received[-1].scheduled_for_ms > since_ms + AFTERMATH_MS,
            CARRY_ON_S,
        )


class Fault(ABC):
    """One way to trouble the cluster."""

    kind: ClassVar[str]

    @abstractmethod
    def strike(self, scene: Scene) -> None:
        """Do it, and return at once."""

    @abstractmethod
    def endure(self, scene: Scene, struck_ms: float) -> None:
        """Let the cluster cope: returns when messages are delivered again as if nothing had happened."""

    def mend(self, scene: Scene) -> None:
        """Bring back what the fault has cost, and wait until every node is there."""
        scene.wait_healthy()


class _Death(Fault):
    """The leader ends, others carry on, and then it is started again."""

    @abstractmethod
    def _end(self, victim: NodeProcess) -> None: ...

    def strike(self, scene: Scene) -> None:
        self._victim = scene.leader()
        self._end(self._victim)

    def endure(self, scene: Scene, struck_ms: float) -> None:
        scene.wait_carried_on(struck_ms)

    def mend(self, scene: Scene) -> None:
        self._victim.stop()  # one that was asked to end may still be about it
        self._victim.start()
        super().mend(scene)


class Kill(_Death):
    """The leader's process is gone from one moment to the next (SIGKILL)."""

    kind = "kill"

    def _end(self, victim: NodeProcess) -> None:
        victim.kill()


class Terminate(_Death):
    """A switchover: the leader is asked to end (SIGTERM)."""

    kind = "term"

    def _end(self, victim: NodeProcess) -> None:
        victim.terminate()


class Pause(Fault):
    """The leader stands still for longer than its session, and then goes on as if nothing had happened."""

    kind = "pause"

    def strike(self, scene: Scene) -> None:
        self._victim = scene.leader()
        self._victim.pause()

    def endure(self, scene: Scene, struck_ms: float) -> None:
        scene.wait_carried_on(struck_ms + scene.session_timeout_s * 1000)
        self._victim.resume()
        scene.wait_healthy()


class ZooKeeperAway(Fault):
    """All of ZooKeeper is gone for longer than a session, then back on the same data."""

    kind = "zookeeper"

    def strike(self, scene: Scene) -> None:
        scene.stack.zk.terminate()

    def endure(self, scene: Scene, struck_ms: float) -> None:
        scene.stack.zk.stop()  # it is ending: this waits for it
        away_ms = 2 * scene.session_timeout_s * 1000
        scene.wait("time passes", lambda: now_ms() > struck_ms + away_ms, CARRY_ON_S)
        scene.stack.zk.start()
        scene.wait_healthy()


def suffer(scene: Scene, fault: Fault) -> Episode:
    """One fault from beginning to end, until every node is up again and follows the leader."""
    before = scene.leader().name
    struck_ms = now_ms()
    fault.strike(scene)
    fault.endure(scene, struck_ms)
    over_ms = now_ms()
    fault.mend(scene)
    leader = scene.lookout.view.leader_status
    assert leader is not None, "healthy: one node leads"
    return Episode(fault.kind, struck_ms, over_ms, now_ms(), before, leader.node, leader.epoch)


FAULTS: Final[tuple[type[Fault], ...]] = (Kill, ZooKeeperAway, Terminate, Pause, Kill)
