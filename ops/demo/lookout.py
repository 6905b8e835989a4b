"""Looks at the cluster as an operator would: through what its nodes say of themselves in ZooKeeper."""

from __future__ import annotations

import contextlib
import threading
import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from types import TracebackType
from typing import Final, Self

import psutil

from election.errors import ElectionError
from election.registry import Registry
from election.session import Session
from election.znodes import Znodes
from node.config import ConnectionConfig
from node.core.delivery import HEARTBEAT_MS
from node.status import NodeState, NodeStatus

PERIOD_S: Final = 0.25
SESSION_TIMEOUT_S: Final = 10.0
BACKLOG_MS: Final = HEARTBEAT_MS + 500  # an idle leader says only once a second how far it has come
LANE: Final = 0


@dataclass(frozen=True, slots=True)
class ClusterView:
    """What stood in the znodes when they were last read."""

    leader: str | None = None
    members: Mapping[str, NodeStatus] = field(default_factory=dict)

    @property
    def leader_status(self) -> NodeStatus | None:
        """What the elected leader says of itself; None while it says something else."""
        status = self.members.get(self.leader or "")
        return status if status is not None and status.state == NodeState.LEADER else None

    def healthy(self, pids: Mapping[str, int], since_ms: float) -> bool:
        """Whether all these processes have said since then that they are up: one delivers and has nothing
        overdue, and the others, caught up, follow its epoch.
        """
        leader = self.leader_status
        if leader is None or leader.at_ms - leader.delivered_up_to_ms > BACKLOG_MS:
            return False
        fresh = [status for status in self.members.values() if status.at_ms >= since_ms]
        return {status.node: status.pid for status in fresh} == pids and all(
            status.epoch == leader.epoch and (status is leader or status.state == NodeState.FOLLOWER)
            for status in fresh
        )


class Lookout:
    """Reads the znodes a few times a second; as a context manager it starts and stops.

    `view` and `peak_bytes` may be read by any thread.
    """

    def __init__(self, config: ConnectionConfig) -> None:
        self.view = ClusterView()
        self.peak_bytes: dict[str, int] = {}  # by node: the most memory that was seen in use
        self._session = Session(config.kazoo_options(), timeout_s=SESSION_TIMEOUT_S)
        self._registry = Registry(self._session, Znodes(config.cluster))
        self._stopping = threading.Event()
        self._thread = threading.Thread(target=self._run, name="lookout", daemon=True)

    def __enter__(self) -> Self:
        self._session.start()
        self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._stopping.set()
        self._session.stop()
        self._thread.join()

    def leader(self) -> str | None:
        """Whom ZooKeeper has elected, asked now; None if nobody, or no answer."""
        with contextlib.suppress(ElectionError):
            return next((candidate.node for candidate in self._registry.candidates(LANE).values()), None)
        return None

    def _run(self) -> None:
        while not self._stopping.wait(PERIOD_S):
            with contextlib.suppress(ElectionError):  # ZooKeeper is away: what was seen last stands
                members = self._registry.members()
                decoded = {node: NodeStatus.decode(said) for node, said in members.items()}
                self.view = ClusterView(self.leader(), decoded)
            for status in self.view.members.values():
                self._weigh(status)

    def _weigh(self, status: NodeStatus) -> None:
        with contextlib.suppress(psutil.Error):
            used = psutil.Process(status.pid).memory_info().rss
            self.peak_bytes[status.node] = max(used, self.peak_bytes.get(status.node, 0))


def now_ms() -> float:
    """This machine's clock, epoch milliseconds."""
    return time.time_ns() / 1e6
