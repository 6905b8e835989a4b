"""Handing the lane over to its preferred candidate: what the leader asks ZooKeeper for, and writes there.

Whom to, and when: node/preference.py. It is done by the znode that an operator's switchover is done by
(node/switchover.py), so that nodes of every version heed it.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Final

import structlog

from election.candidacy import Candidacy, ElectionState
from election.errors import ElectionError
from election.operators import BY_PREFERENCE, Author, HistoryEntry, Switchover
from election.registry import Registry
from node import preference
from node.contender import Contender
from node.preference import (
    APART_MS,
    DAY_MS,
    OF_A_SWITCHOVER_MS,
    Business,
    Preference,
    Sight,
    Standing,
    is_operators_choice,
    is_too_soon,
)
from node.status import NodeStatus, UnreadableStatus
from store.view import View

log = structlog.get_logger("delayline.switchover")

LOOK_EVERY_S: Final = 10.0


class Handovers:
    """What a leader does about another one's being preferred. Used by the operator watch's thread: who waits
    here for ZooKeeper is who has just heard of it, and nobody waits for that thread.
    """

    def __init__(
        self,
        node: str,
        lane: int,
        lanes: int,
        registry: Registry,
        candidacy: Candidacy,
        contender: Contender,
        view: View,
        business: Callable[[], Business],
    ) -> None:
        self._node = node
        self._lane = lane
        self._lanes = lanes
        self._registry = registry
        self._candidacy = candidacy
        self._contender = contender
        self._view = view
        self._business = business
        self._fit_s, self._again_s = preference.FIT_S, preference.AGAIN_S
        self._preference = Preference(lane, lanes, self._fit_s)
        self._look_at_s = 0.0
        self._leadership: str | None = None  # the candidacy by which the node led when it looked last
        self._is_chosen = False  # by an operator, for that leadership
        self._has_said_so = False

    def look(self, wanted: Switchover | None) -> None:
        """Now and then: hands over, if it is time. `wanted`: what stands there and is of no account."""
        if self._lanes == 1:
            return
        try:
            if wanted is not None and wanted.by_preference:
                self._end(wanted)
            state = self._candidacy.state
            if state.role != "leader" or not self._contender.has_begun:
                self._preference.forget()
            elif time.monotonic() >= self._look_at_s:
                self._look_at_s = time.monotonic() + LOOK_EVERY_S
                self._look(state)
        except ElectionError as error:
            self._preference.forget()
            log.debug("preference-unknown", node=self._node, detail=str(error))

    def _end(self, over: Switchover) -> None:
        """Takes away what has come to pass, or has not in time. Any leader does, and whoever wrote it."""
        if not self._contender.has_begun and over.author.by != self._node:
            return
        self._registry.take_back(self._lane, over)
        checkpoint = self._view.checkpoint
        if over.author.by == self._node and checkpoint is not None and checkpoint.epoch == over.epoch:
            log.warning("switchover-failed", node=self._node, to=over.to, epoch=over.epoch)

    def _look(self, state: ElectionState) -> None:
        if self._leadership != state.znode:
            self._learn_choice(state)
        queue = {name: one.node for name, one in self._registry.candidates(self._lane).items()}
        to = self._preference.preferred(queue)
        checkpoint = self._view.checkpoint
        if (
            to is None
            or checkpoint is None
            or checkpoint.node != self._node
            or next(iter(queue)) != state.znode
        ):
            self._preference.forget()
            return
        own = Standing(self._view.reached().applied, checkpoint.epoch, checkpoint.delivered_up_to_ms)
        said, now_ms, now_s = self._said(to), time.time_ns() // 1_000_000, time.monotonic()
        sight = Sight(queue, said, own, self._business(), now_ms, now_s)
        if self._preference.hand_over_to(sight) is not None and not self._is_to_stay(to, now_ms):
            self._hand_over(to, checkpoint.epoch, now_ms)

    def _said(self, node: str) -> tuple[NodeStatus, int] | None:
        written = self._registry.written_member(node)
        if written is None:
            return None
        data, written_ms = written
        try:
            return NodeStatus.decode(data), written_ms
        except UnreadableStatus:
            return None

    def _learn_choice(self, state: ElectionState) -> None:
        """At the beginning of a leadership, when its reason is among the last entries of the history."""
        entries = self._registry.history_since(state.since_ms - OF_A_SWITCHOVER_MS - APART_MS)
        self._is_chosen = is_operators_choice(entries, self._lane, self._node, state.since_ms)
        self._has_said_so = False
        self._leadership = state.znode

    def _is_to_stay(self, to: str, now_ms: int) -> bool:
        """Asked once a while: who is to stay, does for all of another."""
        if self._is_chosen:
            is_to_stay = True
            if not self._has_said_so:
                log.info("preference-waived", node=self._node, why="an operator has made this node leader")
            self._has_said_so = True
        else:
            entries = self._registry.history_since(now_ms - DAY_MS)
            is_to_stay = is_too_soon(entries, self._lane, to, now_ms, self._fit_s, self._again_s)
        if is_to_stay:
            self._preference.forget()
        return is_to_stay

    def _hand_over(self, to: str, epoch: int, now_ms: int) -> None:
        author = Author(self._node, f"{to} is the preferred leader of lane {self._lane}", now_ms)
        entry = HistoryEntry(what=BY_PREFERENCE, author=author, lane=self._lane, before=self._node, after=to)
        self._preference.forget()
        if self._registry.hand_over(self._lane, Switchover(epoch, to, author, by_preference=True), entry):
            log.info(
                "switchover-wanted", node=self._node, to=to, epoch=epoch, why="it is the preferred leader"
            )
