"""This node in the election of its lane: whether it stands for leader, leads, or sits out."""

from __future__ import annotations

import threading

import structlog

from election.candidacy import Candidacy
from node.refusal import SIT_OUT_S, Refusal, clock_skewed, log_refusal
from node.worker import Bell
from node.zookeeper.leadership import ZooKeeperElection

log = structlog.get_logger("delayline.node")


class Contender:
    """May be used by any thread."""

    def __init__(
        self, candidacy: Candidacy, election: ZooKeeperElection, lane: Bell, max_clock_skew_ms: int
    ) -> None:
        """`lane`: wakes the lane's thread."""
        self.refusal: Refusal | None = None  # why it sits out
        self._candidacy = candidacy
        self._election = election
        self._lane = lane
        self._max_clock_skew_ms = max_clock_skew_ms
        self._changing = threading.Lock()
        self._withdrawn = threading.Event()
        self._idle = threading.Event()
        self._idle.set()

    # -- the lane's thread

    def leadership_begun(self) -> None:
        """It has committed the first checkpoint of its epoch."""
        self._idle.clear()

    def leadership_ended(self) -> None:
        """It has stepped down, or failed to begin."""
        self._idle.set()

    def judge_clock(self, offset_ms: int) -> None:
        """A leader with a wrong clock steps down, and stands again after a while: only a leader's checkpoints
        show the brokers' clock. `offset_ms`: by how much that is ahead.
        """
        if abs(offset_ms) <= self._max_clock_skew_ms or self.refusal is not None:
            return
        why = clock_skewed(offset_ms, self._max_clock_skew_ms)
        log_refusal(log, why)
        with self._changing:  # `stand` would take the resignation back
            self.refusal = why
            self._election.resign()
        threading.Thread(target=self._sit_out, name="sits-out", daemon=True).start()

    def _sit_out(self) -> None:
        self._idle.wait()
        self._candidacy.leave()
        self._withdrawn.wait(SIT_OUT_S)
        self.refusal = None
        self.stand()

    # -- any thread

    @property
    def has_withdrawn(self) -> bool:
        """Whether it stands no more: the node ends."""
        return self._withdrawn.is_set()

    @property
    def has_begun(self) -> bool:
        """Whether its leadership has begun: it has committed the first checkpoint of its epoch."""
        return not self._idle.is_set()

    def known_offset(self, offset_ms: int) -> int | None:
        """By how much the brokers' clock is ahead of a leader's; of a wrong one, until it leads again."""
        return offset_ms if self.has_begun or abs(offset_ms) > self._max_clock_skew_ms else None

    def stand(self) -> bool:
        """Stands for leader; False if the node has withdrawn: it would lead, and deliver nothing. Nor does it
        while its clock is wrong.
        """
        with self._changing:
            if self._withdrawn.is_set() or self.refusal is not None:
                return False
            self._election.withdraw_resignation()
            self._candidacy.enter()
            return True

    def requeue(self) -> None:
        """Finishes the transaction under way, leaves the queue, and enters it again at its end."""
        self._election.resign()
        self._lane.ring()
        self._idle.wait()
        self._candidacy.leave()
        self.stand()

    def withdraw(self) -> None:
        """Resigns, and stands no more. The lane's thread is to be ended, then `leave` to be called."""
        with self._changing:
            self._withdrawn.set()
        self._election.resign()

    def leave(self) -> None:
        """Leaves the queue; if this node led, who is next leads."""
        self._candidacy.leave()
