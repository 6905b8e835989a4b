"""Handing the lane over to its preferred candidate: what the leader asks ZooKeeper for, and writes there.

Whom to, and when: node/preference.py. It is done by the znode that an operator's switchover is done by
(node/switchover.py), so that nodes of every version heed it.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from typing import Final

import structlog

from election.candidacy import Candidacy, ElectionState
from election.candidates import MOST_CANDIDACIES
from election.errors import ElectionError, Unavailable
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
from node.zookeeper.operator_watch import READ_TIMEOUT_S
from store.checkpoint import Checkpoint
from store.view import View

log = structlog.get_logger("delayline.switchover")

LOOK_EVERY_S: Final = 10.0


class Handovers:
    """What a leader does about another one's being preferred. Used by the operator watch's thread: who waits
    here for ZooKeeper is who has just heard of it. Operators' pauses wait for that thread, and so does the
    node's end: so a look has few round trips, each of them is short, and it is over once the node ends.
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
        self._led: tuple[str | None, int] | None = None  # by which candidacy, and epoch, when it looked last
        self._is_chosen = False  # by an operator, for that leadership
        self._has_said_so = False
        self._trouble = ""  # why it has not looked to the end: said once

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
                self._trouble = ""
        except ElectionError as error:
            self._preference.forget()
            self._complain(error)

    def _complain(self, error: ElectionError) -> None:
        """Of what does not pass by itself."""
        if isinstance(error, Unavailable):
            log.debug("preference-unknown", node=self._node, detail=str(error))
        elif str(error) != self._trouble:
            self._trouble = str(error)
            log.warning(
                "preference-unknown",
                node=self._node,
                detail=str(error),
                consequence="this node hands its lane over to no preferred leader",
                way_out="mend what is said, or delete that znode with zkCli.sh, if it cannot be read",
            )

    def _end(self, over: Switchover) -> None:
        """Takes away what has come to pass, or has not in time. Any leader does, and whoever wrote it."""
        if not self._contender.has_begun and over.author.by != self._node:
            return
        self._registry.take_back(self._lane, over)
        checkpoint = self._view.checkpoint
        if over.author.by == self._node and checkpoint is not None and checkpoint.epoch == over.epoch:
            log.warning("switchover-failed", node=self._node, to=over.to, epoch=over.epoch)

    def _look(self, state: ElectionState) -> None:
        checkpoint = self._view.checkpoint
        if checkpoint is None or checkpoint.node != self._node:
            self._preference.forget()
            return
        self._note_leadership(state, checkpoint.epoch)
        found = self._registry.few_candidates(self._lane, MOST_CANDIDACIES, READ_TIMEOUT_S)
        queue = {name: one.node for name, one in found.items()}
        to = self._preference.preferred(queue)
        if to is None or next(iter(queue)) != state.znode:
            self._preference.forget()
        else:
            self._consider(to, queue, checkpoint)

    def _consider(self, to: str, queue: dict[str, str], checkpoint: Checkpoint) -> None:
        own = Standing(self._view.reached().applied, checkpoint.epoch, checkpoint.delivered_up_to_ms)
        said, now_ms, now_s = self._said(to), time.time_ns() // 1_000_000, time.monotonic()
        sight = Sight(queue, said, own, self._business(), now_ms, now_s)
        if self._preference.hand_over_to(sight) is not None and not self._is_to_stay(to, now_ms):
            self._hand_over(to, checkpoint.epoch, now_ms)

    def _said(self, node: str) -> tuple[NodeStatus, int] | None:
        written = self._registry.written_member(node, READ_TIMEOUT_S)
        if written is None:
            return None
        data, written_ms = written
        try:
            return NodeStatus.decode(data), written_ms
        except UnreadableStatus:
            return None

    def _note_leadership(self, state: ElectionState, epoch: int) -> None:
        """A leadership goes on through the loss of its session, in another candidacy, and through a recovery,
        in the next epoch. Who has led meanwhile has had an epoch, too.
        """
        if self._led is None or (self._led[0] != state.znode and epoch > self._led[1] + 1):
            self._learn_choice(state.since_ms, epoch)
        self._led = state.znode, epoch

    def _learn_choice(self, since_ms: int, epoch: int) -> None:
        """At the beginning of a leadership, when its reason is among the last entries of the history. They
        have the time of ZooKeeper's server: how far this node's is off that, its own status shows.
        """
        said = self._said(self._node)
        if said is None:
            raise Unavailable(f"{self._node} has not told of itself yet")
        led_since_ms = since_ms - (said[0].at_ms - said[1])
        entries = self._history_since(led_since_ms - OF_A_SWITCHOVER_MS - APART_MS)
        self._is_chosen = is_operators_choice(entries, self._lane, self._node, epoch, led_since_ms)
        self._has_said_so = False

    def _history_since(self, since_ms: int) -> Iterator[tuple[HistoryEntry, int]]:
        for one in self._registry.history_since(since_ms, READ_TIMEOUT_S):
            if self._contender.has_withdrawn:
                raise Unavailable("this node ends")
            yield one

    def _is_to_stay(self, to: str, now_ms: int) -> bool:
        """Asked once a while: who is to stay, does for all of another."""
        if self._is_chosen:
            is_to_stay = True
            if not self._has_said_so:
                log.info("preference-waived", node=self._node, why="an operator has made this node leader")
            self._has_said_so = True
        else:
            entries = self._history_since(now_ms - DAY_MS)
            is_to_stay = is_too_soon(entries, self._lane, to, now_ms, self._fit_s, self._again_s)
        if is_to_stay:
            self._preference.forget()
        return is_to_stay

    def _hand_over(self, to: str, epoch: int, now_ms: int) -> None:
        author = Author(self._node, f"{to} is the preferred leader of lane {self._lane}", now_ms)
        entry = HistoryEntry(
            what=BY_PREFERENCE, author=author, lane=self._lane, before=self._node, after=to, epoch=epoch
        )
        self._preference.forget()
        if self._registry.hand_over(self._lane, Switchover(epoch, to, author, by_preference=True), entry):
            log.info(
                "switchover-wanted", node=self._node, to=to, epoch=epoch, why="it is the preferred leader"
            )
