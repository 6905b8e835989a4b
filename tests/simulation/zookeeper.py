"""ZooKeeper as the election uses it: candidacies in order, sessions, a mirror of the checkpoint.

What is kept: the candidacy that came first leads; a node learns of changes later than they happen, and not
at all while it is cut off, so it may believe that it leads long after another one does; `confirm` is a round
trip to the truth, whose answer may be old when it arrives.
"""

from __future__ import annotations

from typing import Protocol

from delayline.signing import Keyring
from node.core.ports import Pauses, Unconfirmed
from node.core.steps import StepDown
from store.checkpoint import Checkpoint
from tests.simulation.host import Host

NOTICE_MS = (0, 60)
MIRROR_MS = (0, 120)
RETRY_MS = 50


class Confirmed(Protocol):
    """Hears of it when its process is confirmed as leader."""

    def confirmed(self) -> None:
        """From now on the process has to know what is paused."""


class Candidate(Host, Protocol):
    """A process as a candidate."""

    cut_off: bool
    role: str  # what it was last told: none, follower or leader
    resign_asked: bool
    mirror_read: Checkpoint | None  # the mirror, as it was when the process was confirmed or read it

    def renew_keys(self) -> None:
        """Learns what ZooKeeper has of the keys, and puts back what it lacks."""

    @property
    def operator(self) -> Confirmed:
        """What knows what operators have paused."""


class Ensemble:
    """The servers' state."""

    def __init__(self, ring: Keyring) -> None:
        self.up = True
        self.mirrored: Checkpoint | None = None
        self.pauses = Pauses()  # by operators
        self.ring = ring
        self._queue: list[Candidate] = []

    @property
    def leader(self) -> Candidate | None:
        """Whose candidacy is the lowest."""
        return self._queue[0] if self._queue else None

    def stands(self, candidate: Candidate) -> bool:
        """Whether the process has a candidacy."""
        return candidate in self._queue

    def enter(self, candidate: Candidate) -> None:
        """Adds a candidacy, unless the process has one; as soon as it reaches the servers."""
        if candidate.dead or candidate in self._queue:
            return
        if candidate.paused or not self.reaches(candidate):
            candidate.world.after(RETRY_MS, lambda: self.enter(candidate))
            return
        self._queue.append(candidate)
        self._tell()

    def remove(self, candidate: Candidate) -> None:
        """Ends a candidacy: resigned, its session expired, or its znode deleted by another."""
        if candidate in self._queue:
            self._queue.remove(candidate)
            self._tell_one(candidate)
            self._tell()

    def reaches(self, candidate: Candidate) -> bool:
        """Whether a request of the process is answered."""
        return self.up and not candidate.cut_off

    def write_mirror(self, candidate: Candidate, checkpoint: Checkpoint) -> None:
        """Takes a checkpoint, unless the one there is later."""
        if self.reaches(candidate) and (self.mirrored is None or checkpoint.order >= self.mirrored.order):
            self.mirrored = checkpoint

    def _tell(self) -> None:
        for candidate in self._queue:
            self._tell_one(candidate)

    def _tell_one(self, candidate: Candidate) -> None:
        delay_ms = candidate.world.rng.randint(*NOTICE_MS)
        candidate.world.after(delay_ms, lambda: self.refresh(candidate))

    def refresh(self, candidate: Candidate) -> None:
        """The process looks who leads; once it is reachable, if it is not."""
        if candidate.dead:
            return
        if candidate.paused or not self.reaches(candidate):
            candidate.world.after(RETRY_MS, lambda: self.refresh(candidate))
            return
        if candidate not in self._queue:
            role = "none"
        else:
            role = "leader" if self._queue[0] is candidate else "follower"
        if role != candidate.role:
            candidate.role = role
            candidate.wake()
        if role == "none":
            candidate.world.after(candidate.world.rng.randint(0, 200), lambda: self.enter(candidate))


class SimulatedElection:
    """Implements `node.core.ports.LeaderElection`."""

    def __init__(self, candidate: Candidate, ensemble: Ensemble) -> None:
        self._candidate = candidate
        self._ensemble = ensemble

    def confirm(self) -> bool:
        self._candidate.meanwhile()
        if not self._ensemble.reaches(self._candidate):
            raise Unconfirmed("ZooKeeper does not answer")
        leads = self._ensemble.leader is self._candidate
        if leads:
            self._candidate.renew_keys()
            self._candidate.operator.confirmed()
            self._candidate.mirror_read = self._ensemble.mirrored
        self._candidate.world.note("confirm", self._candidate.name, leads)
        self._candidate.meanwhile()
        return leads

    def steps_down(self) -> StepDown | None:
        if self._candidate.role == "follower":
            return StepDown.SUPERSEDED
        return StepDown.RESIGNED if self._candidate.resign_asked else None

    def mirrored(self) -> Checkpoint | None:
        self._candidate.meanwhile()
        if not self._ensemble.reaches(self._candidate):
            raise Unconfirmed("ZooKeeper does not answer")
        self._candidate.mirror_read = self._ensemble.mirrored
        return self._ensemble.mirrored

    def mirror(self, checkpoint: Checkpoint) -> None:
        candidate = self._candidate
        delay_ms = candidate.world.rng.randint(*MIRROR_MS)
        candidate.world.after(delay_ms, lambda: self._ensemble.write_mirror(candidate, checkpoint))
