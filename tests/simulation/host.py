"""What the simulated ports know of the process that they belong to, and of its world."""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import TYPE_CHECKING, Protocol

from delayline.names import ClusterNames
from delayline.settings_versions import SettingsVersions
from delayline.signing import Keyring
from node.core.ports import Records
from store.checkpoint import Checkpoint
from store.operations import OperatorRequest
from tests.simulation.coordinator import TransactionalId
from tests.simulation.log import Partition, Topics
from tests.simulation.setup import Setup

if TYPE_CHECKING:
    from tests.simulation.changes import Eras
    from tests.simulation.outcomes_topic import OutcomesTopic


class Killed(BaseException):
    """The process has died while the call was under way. Not an `Exception`: nothing may handle it."""


class Violation(Exception):
    """An invariant does not hold."""

    def __init__(self, invariant: str, detail: str) -> None:
        super().__init__(f"{invariant}: {detail}")
        self.invariant = invariant


class World(Protocol):
    """All that is shared: Kafka, ZooKeeper, time and chance."""

    setup: Setup
    rng: random.Random
    now_ms: int  # true time
    jump_ms: int  # all clocks are ahead by that
    calm: bool  # requests and faults are over
    names: ClusterNames
    topics: Topics
    checkpoints: Partition  # the lane's partition of the checkpoint topic
    lost: list[Partition]  # what that was before it was made anew
    target_topics: frozenset[str]
    leaderless: set[str]  # targets that take nothing for now
    asked: list[OperatorRequest]  # by operators, numbered from 1
    outcomes: OutcomesTopic | None  # as brokers have it; None: nothing of it is ever lost

    @property
    def versions(self) -> SettingsVersions:
        """Of the settings, as their topic has them."""

    @property
    def settings_topic(self) -> Partition:
        """Where they stand."""

    @property
    def eras(self) -> Eras:
        """The same, for the model."""

    def hears_of(self, host: Host) -> list[int]:
        """The partitions of which a process that starts has heard."""

    coordinator: tuple[TransactionalId, TransactionalId]
    key_count: int  # of those that were made

    def after(self, delay_ms: int, action: Callable[[], None]) -> None:
        """Does something later."""

    def network_delay_ms(self) -> int:
        """How long a request or an answer takes."""

    def broker_ms(self, partition: int) -> int:
        """The clock of the broker that leads a partition of the buffer."""

    def next_transaction(self) -> int:
        """A number for a new transaction."""

    def note(self, *what: object) -> None:
        """Adds to the trace."""

    def interleave(self, host: Host) -> None:
        """Lets others act, now and then."""

    def struck(self, host: Host, fault: str) -> None:
        """Counts a fault that has struck, by the step at which it did."""


class Host(Protocol):
    """A process."""

    name: str
    world: World
    dead: bool
    paused: bool

    @property
    def ring(self) -> Keyring:
        """The keys that it knows."""

    @property
    def where(self) -> str:
        """The step at which its delivery core stands."""

    def wake(self) -> None:
        """Wakes the delivery core, should it wait."""

    def vouch(self, timestamp_ms: int) -> None:
        """Raises `Violation` if a delivery at that time is early by the clock of I2."""

    def heeds(self, records: Records) -> None:
        """Raises `Violation` if an operator has paused what is sent, and the process knows it."""

    def inspect(self, checkpoint: Checkpoint) -> None:
        """Raises `Violation` if it was selected before all that was stable at the recovery was seen."""

    def meanwhile(self) -> None:
        """A call to Kafka or ZooKeeper takes its time: others act. Raises `Killed` if the process dies."""

    def fails(self, fault: str) -> bool:
        """Whether a fault of that kind waits for such a call; it strikes once."""

    def commit_fault(self) -> str | None:
        """The kind of fault that waits for a commit; it strikes once."""
