"""The world of one seed: time, Kafka, ZooKeeper, the nodes, the users, the faults, and who acts next.

Everything is drawn from one `random.Random(seed)`: no threads, no real time, nothing that depends on the
order of a set. So a seed is a complete history, and replays exactly.
"""

from __future__ import annotations

import heapq
import random
from collections import Counter
from collections.abc import Callable
from hashlib import blake2b
from typing import Final

from tests.simulation.coordinator import TransactionalId
from tests.simulation.host import Host
from tests.simulation.log import Fate, Partition, Topics, Transaction
from tests.simulation.process import Process
from tests.simulation.profile import Profile
from tests.simulation.requests import TARGETS, Users
from tests.simulation.setup import draw
from tests.simulation.stores import CrashableStore
from tests.simulation.zookeeper import Ensemble

START_MS: Final = 1_700_000_000_000
DEEPEST: Final = 2
CALM_LIMIT_MS: Final = 30_000


class Node:
    """A node: its store outlives its processes."""

    def __init__(self, name: str, store: CrashableStore, skew_ms: int) -> None:
        self.name = name
        self.store = store
        self.skew_ms = skew_ms
        self.process: Process | None = None


class World:
    """One seed's history. `run` makes it; what came of it is in `topics`."""

    def __init__(
        self,
        seed: int,
        profile: Profile,
        new_store: Callable[[str], CrashableStore],
        trace: Callable[[str], None] | None = None,
    ) -> None:
        self.rng = random.Random(seed)
        self.setup = draw(self.rng, profile)
        self.names = self.setup.names
        self.now_ms = START_MS
        self.coverage: Counter[tuple[str, str]] = Counter()
        self.target_topics = frozenset(TARGETS)
        settings = self.setup.settings
        self.topics = Topics(
            {
                self.names.buffer: settings.partitions,
                self.names.checkpoint: settings.lanes,
                self.names.outcomes: settings.lanes,
                self.names.dead_letter: 1,
                **TARGETS,
            }
        )
        self.coordinator = (TransactionalId(self), TransactionalId(self))
        self.ensemble = Ensemble()
        self.calm = False
        self.faults_left = self.setup.fault_count
        self.requests_left = self.setup.request_count
        self._trace = trace
        self._digest = blake2b(digest_size=8)
        self._events: list[tuple[int, int, Callable[[], None]]] = []
        self._sequence = 0
        self._transactions = 0
        self._depth = 0
        self.broker_skew_ms = dict.fromkeys(range(settings.partitions), 0)
        self.users = Users(self.rng, profile, settings.partitions, self.setup.partitions)
        self.foreign: list[Transaction] = []
        names = [f"n{number}" for number in range(self.setup.nodes)]
        self.nodes = [Node(name, new_store(name), self.draw_skew_ms()) for name in names]
        for node in self.nodes:
            self.start(node)
