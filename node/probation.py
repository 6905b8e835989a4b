"""A node that leads by preference and cannot: it gives the lane back.

That it follows does not say that it could lead: it may lack the right to produce as the lane, or be cut off
from the transactions' coordinator. It would be elected, try for ever, and be leader to all who ask ZooKeeper.
Where a leader has died nobody is better off without it; but this lane had one that was well.
"""

from __future__ import annotations

import time
from typing import Final

import structlog

from election.candidacy import Candidacy
from election.errors import ElectionError, Malformed
from election.operators import Switchover
from election.registry import Registry
from node.contender import Contender
from store.view import View

log = structlog.get_logger("delayline.switchover")

BEGINS_WITHIN_S: Final = 15.0


class Probation:
    """Used by the operator watch's thread: the lane's tries all the while."""

    def __init__(
        self,
        node: str,
        lane: int,
        registry: Registry,
        candidacy: Candidacy,
        contender: Contender,
        view: View,
    ) -> None:
        self._node = node
        self._lane = lane
        self._registry = registry
        self._candidacy = candidacy
        self._contender = contender
        self._view = view
        self._wish: Switchover | None = None  # the last one to this node, a while longer than it stands there
        self._stood_s = 0.0
        self._failed: tuple[Switchover, str] | None = None  # by which, and which candidacy, it has given back
        self._elected: str | None = None  # the candidacy by which it is, and has not begun
        self._since_s = 0.0

    def watch(self, wanted: Switchover | None) -> None:
        """Gives the candidacy back if it is time. `wanted`: what stands there."""
        now_s = time.monotonic()
        if wanted is not None and wanted.to == self._node:
            self._wish = wanted if wanted.by_preference else None  # an operator's own takes its place
            self._stood_s = now_s
        elected = self._tries_by()
        if elected != self._elected:
            self._elected, self._since_s = elected, now_s
        if elected is None and now_s - self._stood_s > BEGINS_WITHIN_S:
            self._wish = None  # who is elected later is not elected by it
        if elected is None or now_s - self._since_s < BEGINS_WITHIN_S:
            return
        try:
            self._give_back(elected)
        except ElectionError as error:
            self._since_s = time.monotonic()  # nobody can begin while ZooKeeper does not answer
            log.debug("candidacy-kept", node=self._node, detail=str(error))

    def _tries_by(self) -> str | None:
        """By which candidacy it leads, by that wish, and has not begun to: nobody has since."""
        wish, state, checkpoint = self._wish, self._candidacy.state, self._view.checkpoint
        if wish is None or self._contender.has_begun:
            return None
        if self._failed is not None and self._failed[0] == wish and self._failed[1] != state.znode:
            return None
        has_come_to_pass = checkpoint is not None and checkpoint.epoch > wish.epoch
        return state.znode if state.role == "leader" and not has_come_to_pass else None

    def _give_back(self, elected: str) -> None:
        """The wish first: it would make others step back again. Once for each, as nobody else may be there; a
        candidacy that could not be left is given back again.
        """
        assert self._wish is not None, "it leads by it"
        try:
            self._registry.take_back(self._lane, self._wish)
        except Malformed as error:
            log.debug("switchover-unreadable", node=self._node, detail=str(error))
        if self._tries_by() != elected:
            return  # it has begun meanwhile
        self._failed = self._wish, elected
        self._since_s = time.monotonic()
        log.warning(
            "candidacy-given-back",
            node=self._node,
            consequence="who is next leads the lane",
            way_out="see above why it could not begin to lead",
        )
        self._contender.requeue()
