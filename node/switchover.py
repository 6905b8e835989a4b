"""Stepping down because an operator wants it: who leaves the queue, and when.

The queue for the leadership has its order from ZooKeeper, so a node is made leader by the others stepping
back behind it: first the candidates between the leader and the wanted node, then the leader itself.
"""

from __future__ import annotations

import time

import structlog

from election.errors import ElectionError
from election.operators import VALID_S, Switchover
from election.registry import Registry
from node.contender import Contender
from store.view import View

log = structlog.get_logger("delayline.switchover")


class Switchovers:
    """What a node does about a switchover. Used by the operator watch's thread."""

    def __init__(self, node: str, lane: int, registry: Registry, contender: Contender, view: View) -> None:
        self._node = node
        self._lane = lane
        self._registry = registry
        self._contender = contender
        self._view = view
        self._wanted: Switchover | None = None
        self._until_s = 0.0

    def heed(self, wanted: Switchover) -> bool:
        """Leaves the queue if it is this node's turn. False if the switchover is over: nobody would be glad
        of one that comes to pass much later.
        """
        if wanted != self._wanted:
            self._wanted, self._until_s = wanted, time.monotonic() + VALID_S
        checkpoint = self._view.checkpoint
        epoch = 0 if checkpoint is None else checkpoint.epoch
        if epoch > wanted.epoch or time.monotonic() > self._until_s:
            return False
        if epoch < wanted.epoch or wanted.to == self._node:
            return True
        try:
            queue = [candidate.node for candidate in self._registry.candidates(self._lane).values()]
        except ElectionError:
            return True
        if self._leaves_for(queue, wanted.to):
            log.info("candidacy-resigned", node=self._node, to=wanted.to, epoch=wanted.epoch)
            self._contender.requeue()
        return True

    def _leaves_for(self, queue: list[str], to: str | None) -> bool:
        """A candidate that stands between, at once; the leader once the wanted one is next."""
        behind = queue[queue.index(self._node) + 1 :] if self._node in queue else []
        if self._contender.has_begun:
            return bool(behind) and to in {None, behind[0]}
        return to in behind and queue[0] != self._node
