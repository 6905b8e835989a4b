"""Stepping down because an operator wants it: who resigns, and when.

The queue for the leadership has its order from ZooKeeper, so a node is made leader by the others stepping
back behind it: first the candidates between the leader and the wanted node, then the leader itself.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Final

import structlog

from election.candidacy import Candidacy
from election.errors import ElectionError
from election.operators import Switchover
from election.registry import Registry
from node.lane import LaneWorker
from node.zookeeper.leadership import ZooKeeperElection

log = structlog.get_logger("delayline.switchover")

VALID_S: Final = 60.0


class SwitchoverRole:
    """What a node does about a switchover. Used by the operator role's thread."""

    def __init__(
        self,
        node: str,
        lane: int,
        registry: Registry,
        candidacy: Candidacy,
        election: ZooKeeperElection,
        worker: LaneWorker,
        stand: Callable[[], bool],
        epoch: Callable[[], int],
    ) -> None:
        """`stand`: stands for leader again. `epoch`: the last one that this node knows of."""
        self._node = node
        self._lane = lane
        self._registry = registry
        self._candidacy = candidacy
        self._election = election
        self._worker = worker
        self._stand = stand
        self._epoch = epoch
        self._wanted: Switchover | None = None
        self._until_s = 0.0

    def heed(self, wanted: Switchover) -> bool:
        """Steps back if it is this node's turn. False if the switchover is over: nobody would be glad of one
        that comes to pass much later.
        """
        if wanted != self._wanted:
            self._wanted, self._until_s = wanted, time.monotonic() + VALID_S
        if self._epoch() > wanted.epoch or time.monotonic() > self._until_s:
            return False
        if self._epoch() < wanted.epoch or wanted.to == self._node:
            return True
        try:
            queue = [candidate.node for candidate in self._registry.candidates(self._lane).values()]
        except ElectionError:
            return True
        if self._resigns_for(queue, wanted.to):
            log.info("candidacy-resigned", node=self._node, to=wanted.to, epoch=wanted.epoch)
            self._requeue()
        return True

    def _resigns_for(self, queue: list[str], to: str | None) -> bool:
        """A candidate that stands between, at once; the leader once the wanted one is next."""
        behind = queue[queue.index(self._node) + 1 :] if self._node in queue else []
        if self._worker.leading:
            return bool(behind) and to in {None, behind[0]}
        return to in behind and queue[0] != self._node

    def _requeue(self) -> None:
        """Finishes the transaction under way, leaves the queue, and enters it again at its end."""
        self._election.resign()
        self._worker.wake()
        self._worker.wait_idle()
        self._candidacy.resign()
        self._stand()
