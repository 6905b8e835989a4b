"""What operators ask for and what they pause, as a process knows it: late, and late again after an outage."""

from __future__ import annotations

from node.core.ports import Pauses, Records, Unconfirmed
from store.operations import OperatorRequest
from tests.simulation.host import Violation
from tests.simulation.zookeeper import NOTICE_MS, RETRY_MS, Candidate, Ensemble


class SimulatedOperator:
    """Implements `node.core.ports.Operator`, and sees that the leader heeds it."""

    def __init__(self, candidate: Candidate, ensemble: Ensemble) -> None:
        self._candidate = candidate
        self._ensemble = ensemble
        self._pauses = Pauses()
        self._to_heed = Pauses()
        self._planned_before = 0  # transactions that may have been planned before the pause was known
        self._shown = Pauses()  # to the leader
        self.has_resumed = False  # something that was shown to it, since it has last doubted what it knows

    def refresh(self) -> None:
        if not self._ensemble.reaches(self._candidate):
            raise Unconfirmed("ZooKeeper does not answer")
        self._pauses = self._ensemble.pauses
        self.confirmed()
        self._candidate.meanwhile()

    def asked(self) -> OperatorRequest | None:
        """The server asked may lag."""
        world = self._candidate.world
        lags = len(world.asked) > 1 and not world.calm and world.rng.random() < 0.1
        return world.asked[-2 if lags else -1] if world.asked else None

    def pauses(self) -> Pauses:
        shown, self._shown = self._shown, self._pauses
        if shown.everything > self._shown.everything or shown.targets - self._shown.targets:
            self.has_resumed = True
        return self._shown

    @property
    def told(self) -> Pauses:
        """What the process has heard, though it may not have asked for it yet."""
        return self._pauses

    def begin(self) -> None:
        """A leadership does."""
        self._shown, self.has_resumed = Pauses(), False

    def tell_soon(self) -> None:
        """Something was paused or resumed: the process hears of it later."""
        world = self._candidate.world
        world.after(world.rng.randint(*NOTICE_MS), self._told)

    def _told(self) -> None:
        candidate = self._candidate
        if candidate.dead:
            return
        if candidate.paused or not self._ensemble.reaches(candidate):
            candidate.world.after(RETRY_MS, self._told)
            return
        if self._pauses != self._ensemble.pauses:
            self._pauses = self._to_heed = self._ensemble.pauses
            self._planned_before = 1
            candidate.wake()

    def confirmed(self) -> None:
        """The process is told that it is leader: what is paused by then, it has to know."""
        self._to_heed, self._planned_before = self._ensemble.pauses, 0

    def heeds(self, records: Records) -> None:
        """Raises `Violation` if the leader sends what it has to know to be paused; what was planned before it
        was told may still go.
        """
        pauses, world = self._to_heed, self._candidate.world
        targets = world.target_topics
        # No pause is about its own, nor, where nothing is delivered, about answers and carries.
        sent_to = {record.topic for record in records} - {
            world.names.checkpoint,
            world.names.outcomes,
            world.names.buffer,
        }
        if (pauses.everything and sent_to) or sent_to & targets & pauses.targets:
            self._planned_before -= 1
            if self._planned_before < 0:
                raise Violation("pause", f"{self._candidate.name} sends to {sent_to}: {pauses}")
