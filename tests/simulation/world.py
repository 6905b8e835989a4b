"""The world of one seed: time, Kafka, ZooKeeper, the nodes, the users, the faults, and who acts next.

Everything is drawn from one `random.Random(seed)`: no threads, no real time, nothing that depends on the
order of a set. So a seed is a complete history, and replays exactly.
"""

from __future__ import annotations

import heapq
import random
from collections import Counter
from collections.abc import Callable
from dataclasses import replace
from hashlib import blake2b
from itertools import accumulate
from typing import Final

from delayline.settings_versions import SettingsVersions
from node.core.ports import Pauses
from store.checkpoint import Checkpoint
from store.operations import OperatorRequest, ReplayRequest, SkipRequest, StopReplay
from tests.simulation import faults, forgeries
from tests.simulation.begins import may_begin
from tests.simulation.changes import Eras, Operator
from tests.simulation.coordinator import TransactionalId
from tests.simulation.host import Host
from tests.simulation.log import Fate, Partition, Topics, Transaction
from tests.simulation.model import row_of
from tests.simulation.outcomes_topic import OutcomesTopic
from tests.simulation.process import Node, Process
from tests.simulation.profile import Profile
from tests.simulation.requests import FAR_MS, TARGETS, Request, Users
from tests.simulation.retention import Retention
from tests.simulation.setup import LANE, UNREAD_MS, draw
from tests.simulation.stores import CrashableStore
from tests.simulation.zookeeper import Ensemble
from tests.support.keys import key_of

START_MS: Final = 1_700_000_000_000
DEEPEST: Final = 2  # calls within which others act, within which others act
LONGEST_PAUSE: Final = 400  # turns of the others
AWAIT_MS: Final = 200
HASTE_MS: Final = 5
CARRIED_WITHIN_MS: Final = 6_000


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
        self.leaderless: set[str] = set()  # targets that take nothing for now
        self.asked: list[OperatorRequest] = []  # by operators, numbered from 1
        settings = self.setup.settings
        self.topics = Topics(
            {
                self.names.buffer: settings.partitions + profile.added,
                self.names.checkpoint: settings.lanes,
                self.names.outcomes: settings.lanes,
                self.names.dead_letter: 1,
                **TARGETS,
            }
        )
        self.checkpoints = self.topics[self.names.checkpoint][LANE]
        self.lost: list[Partition] = []  # what the checkpoint topic was before it was made anew
        self.coordinator = (TransactionalId(self), TransactionalId(self))
        self.ensemble = Ensemble(self.setup.keyring)
        self.key_count = len(self.setup.keyring.keys)
        self.calm = False
        self.faults_left = self.setup.fault_count
        self.requests_left = self.setup.request_count
        self._turns = list(accumulate(profile.turns))
        self._trace = trace
        self._digest = blake2b(digest_size=8)
        self._events: list[tuple[int, int, Callable[[], None]]] = []
        self._sequence = 0
        self._transactions = 0
        self._depth = 0
        self.jump_ms = 0  # all clocks are ahead by that
        self.broker_skew_ms = dict.fromkeys(range(settings.partitions + profile.added), 0)
        self.users = Users(self.rng, profile, settings.partitions, self.setup.partitions)
        self.foreign: list[Transaction] = []
        self.foreign_ends_ms: dict[Transaction, int] = {}  # before that an application does not end its own
        self._wanted_version: list[tuple[int, int]] = []
        self._wanted_known: tuple[dict[int, int], int] = ({}, 0)
        self.settings_operator = Operator(self)
        self.outcomes = OutcomesTopic(self) if profile.faults.get("outcomes-lost") else None
        names = [f"n{number}" for number in range(self.setup.nodes)]
        self.nodes = [Node(name, new_store(name), self.draw_skew_ms(), self.setup.keyring) for name in names]
        self.retention = Retention(self) if profile.by_age else None
        for node in self.nodes:
            self.start(node)

    @property
    def versions(self) -> SettingsVersions:
        """See the protocol."""
        return self.settings_operator.versions

    @property
    def settings_topic(self) -> Partition:
        """See the protocol."""
        return self.settings_operator.topic

    @property
    def eras(self) -> Eras:
        """See the protocol."""
        return self.settings_operator.eras

    # ------------------------------------------------------------------ what the ports use

    def after(self, delay_ms: int, action: Callable[[], None]) -> None:
        """See the protocol."""
        self._sequence += 1
        heapq.heappush(self._events, (self.now_ms + delay_ms, self._sequence, action))

    def network_delay_ms(self) -> int:
        """See the protocol."""
        return int(self.rng.random() ** 3 * 25)

    def marker_delay_ms(self) -> int:
        """How long the coordinator takes from one partition's marker to the next."""
        return int(self.rng.random() ** 6 * 120)

    def shuffle(self, items: list[Partition]) -> None:
        """The order in which a transaction's markers are written."""
        self.rng.shuffle(items)

    def broker_ms(self, partition: int) -> int:
        """See the protocol."""
        return self.now_ms + self.jump_ms + self.broker_skew_ms[partition]

    def next_transaction(self) -> int:
        """See the protocol."""
        self._transactions += 1
        return self._transactions

    def note(self, *what: object) -> None:
        """See the protocol."""
        line = f"{self.now_ms - START_MS} {' '.join(map(str, what))}"
        self._digest.update(line.encode())
        if self._trace is not None:
            self._trace(line)

    def struck(self, host: Host, fault: str) -> None:
        """See the protocol."""
        self.faults_left -= 1
        self.coverage[host.where, fault] += 1
        self.note("fault", fault, host.name, host.where)

    def struck_shared(self, fault: str) -> None:
        """Counts a fault by the step at which each leadership stood."""
        self.faults_left -= 1
        self.note("fault", fault)
        for node in self.nodes:
            if node.process is not None and node.process.leadership is not None:
                self.coverage[node.process.where, fault] += 1

    def draw_skew_ms(self) -> int:
        """A difference from true time."""
        return self.rng.randint(-self.setup.skew_ms, self.setup.skew_ms)

    def digest(self) -> str:
        """The hash of the trace so far."""
        return self._digest.hexdigest()

    # ------------------------------------------------------------------ nodes

    def start(self, node: Node) -> None:
        """Starts a node's next process."""
        if self.retention is not None and not self.retention.lets_start(node.store):
            self.after(AWAIT_MS, lambda: self.start(node))  # it refuses until what waits has been carried
        elif node.process is None and not may_begin(node.store, self):
            node.store.empty()  # where it has died on the way, an operator takes what it has
            if not self.calm:  # then it is asked all the time
                self.after(AWAIT_MS, lambda: self.start(node))
        elif node.process is None:
            node.process = Process(node, self, self.ensemble)
            self.note("start", node.name)

    def hears_of(self, host: Host) -> list[int]:
        """See the protocol. One that has not heard of all begins anew once it does."""
        setup = self.setup
        if not setup.profile.added or self.calm or self.rng.random() < 0.5:
            return setup.partitions

        def begin_anew() -> None:
            for node in self.nodes:
                if node.process is host and node.process.lacks:
                    faults.crash(self, node, emptied=False)

        self.after(self.rng.choice((0, 50, 500, 2_000)), begin_anew)
        return setup.settings.partitions_of(LANE)

    def jump(self, ahead_ms: int) -> None:
        """All clocks are set: the brokers' and the nodes'."""
        self.jump_ms = ahead_ms
        self.note("jump", ahead_ms)

    def restore_zookeeper(self) -> None:
        """The servers are back."""
        self.ensemble.up = True

    def pause(self, pauses: Pauses) -> None:
        """Operators pause some of it, and nothing else."""
        self.ensemble.pauses = pauses
        self.note("pauses", pauses.everything, sorted(pauses.targets))
        for process in self._processes():
            process.operator.tell_soon()

    def change_key(self) -> None:
        """The service signs with a new key, which all know that ZooKeeper sees (ops/key/rotate.py)."""
        if not self.ensemble.up:
            return
        self.key_count += 1
        key = key_of(f"{0xC0DE0000 + self.key_count:08x}", b"%032d" % self.key_count, self.now_ms)
        ring = self.ensemble.ring
        self.ensemble.ring = replace(ring, keys=(*ring.keys, key), signs=key.id)
        for process in self._processes():
            if not process.cut_off:
                process.renew_keys()

    def lose_keys(self) -> None:
        """ZooKeeper has lost the keys, and perhaps the checkpoint; some node has put back what it has. That
        may be one that was away for long.
        """
        some = self.rng.sample(self.nodes, self.rng.randint(1, len(self.nodes)))
        self.ensemble.ring = min((node.ring for node in some), key=lambda ring: len(ring.keys))
        if self.rng.random() < 0.5:
            self.ensemble.mirrored = None

    def last_carried(self) -> dict[int, int]:
        """By partition, below what a node may begin."""
        last = self.checkpoints.last_own()
        if last is None or last.record is None:
            return {}
        return Checkpoint.decode(last.record.value or b"").carried

    def spares(self, node: Node) -> bool:
        """Whether a node that dies may lose what it has: else nobody might have it."""
        if self.retention is not None:
            return self.retention.spares(node)
        others = [one.process.view for one in self.nodes if one is not node and one.process is not None]
        whole = [
            view for view in others if view.lacks_duplicates() is None and any(view.reached().read.values())
        ]
        return self.outcomes is None or bool(whole)

    def lose_outcomes(self) -> None:
        """Something of the outcomes topic is gone, or its leader: maybe before anybody has looked at it."""
        assert self.outcomes is not None, "the profile has it"
        looks = [one.look for one in self._processes() if one.look is not None]
        last = (self.checkpoints.last_own(), self.checkpoints.last_own(hidden=True))
        known = [Checkpoint.decode(one.record.value or b"").told for one in last if one and one.record]
        self.outcomes.lose([one for one in known if one is not None], looks)

    def forge_checkpoint(self) -> None:
        """A stranger writes to the checkpoint topic."""
        record = forgeries.checkpoint(self.rng, self.checkpoints, self.names.checkpoint)
        if record is not None:
            self.checkpoints.append(self.now_ms, *record)

    def lose_checkpoints(self) -> None:
        """The checkpoint topic is gone, with what was open in it, and made anew: empty."""
        for producer in self.coordinator:
            producer.abort()
            producer.complete()
        self.lost.append(self.checkpoints)
        self.checkpoints = Partition(self.names.checkpoint, LANE)

    def lose_end_of_checkpoints(self) -> None:
        """Another broker leads the checkpoint topic, which may have had less of it."""
        end = self.checkpoints.end
        self.checkpoints.lose_end(self.rng.choice((0, 1, 4, self.rng.randint(0, end), end)))

    def hold_checkpoints(self, lasts_ms: int) -> None:
        """A stranger leaves a transaction open in the checkpoint topic."""
        transaction = Transaction(self.next_transaction(), lane=False)
        self.checkpoints.append(self.now_ms, None, b"a stranger's", [], transaction)
        self.checkpoints.was_held = True

        def end() -> None:
            transaction.decide(self.rng.choice((Fate.COMMIT, Fate.ABORT)))
            transaction.mark_all()

        self.after(lasts_ms, end)

    def _processes(self) -> list[Process]:
        return [node.process for node in self.nodes if node.process is not None]

    # ------------------------------------------------------------------ users

    def request(self) -> None:
        """A user makes a request, in an application's transaction or outside."""
        self.requests_left -= 1
        if self.rng.random() < self.setup.profile.operator_share:
            self._operate()
            return
        transaction = None
        if self.rng.random() < self.setup.profile.transactional_share:
            if not self.foreign or self.rng.random() < 0.3:
                self.open_foreign()
            transaction = self.rng.choice(self.foreign) if self.foreign else None
        self._append(transaction)

    def _append(self, transaction: Transaction | None) -> None:
        buffer = self.topics[self.names.buffer]
        ends = {number: buffer[number].end for number in self.setup.partitions}
        request = self._draw(ends)
        number = request.partition
        offset = buffer[number].append(
            self.broker_ms(number), request.key, request.value, request.headers, transaction, request
        )
        self.users.sent(request, offset)
        self.note("request", request.kind.value, number, offset, request.id, request.source)

    def _draw(self, ends: dict[int, int]) -> Request:
        kind, now_ms = self.users.kind(), self.now_ms + max(0, self.jump_ms)
        partitions = [self.topics[self.names.buffer][number] for number in self.setup.partitions]
        if kind == "copied":
            marks = self.settings_operator.aborted_marks
            if marks and self.rng.random() < 0.3:
                return replace(self.rng.choice(marks))
            copy = forgeries.copied(self.rng, partitions)
            if copy is not None:
                return copy
            kind = "now"  # there is nothing to copy yet
        if kind == "forged":
            pretended = self.users.pretended(now_ms)
            return forgeries.forged(self.rng, partitions, self.users.ids, pretended)
        return self.users.draw(kind, now_ms, ends)

    def _operate(self) -> None:
        """An operator asks for something, with a range that is not always one."""
        number, rng = len(self.asked) + 1, self.rng
        kind, begin_ms = rng.choice(("replay", "replay", "skip", "stop")), self.now_ms - rng.randint(0, 2_500)
        if kind == "replay":
            target = rng.choice((None, None, *TARGETS))
            self.asked.append(ReplayRequest(number, begin_ms, begin_ms + rng.randint(-20, 3_000), target))
        elif kind == "skip":
            self.asked.append(SkipRequest(number, self.now_ms - rng.randint(-50, 300)))
        else:
            self.asked.append(StopReplay(number))
        self.note("operator", self.asked[-1])
        for process in self._processes():
            self.after(self.network_delay_ms(), process.wake)

    def open_foreign(self, lasts_ms: int = 0) -> None:
        """An application opens a transaction; it stands in the buffer with its first request."""
        if len(self.foreign) < 3 and self.requests_left > 0:
            self.foreign.append(Transaction(self.next_transaction(), lane=False))
            self.foreign_ends_ms[self.foreign[-1]] = self.now_ms + lasts_ms
            self.requests_left -= 1
            self._append(self.foreign[-1])

    def end_foreign(self) -> None:
        """An application commits or aborts."""
        ready = [one for one in self.foreign if self.calm or self.now_ms >= self.foreign_ends_ms[one]]
        if ready:
            transaction = self.rng.choice(ready)
            self.foreign.remove(transaction)
            aborts = self.rng.random() < self.setup.profile.foreign_abort_share
            transaction.decide(Fate.ABORT if aborts else Fate.COMMIT)
            transaction.mark_all()
            self.note("foreign", transaction.number, transaction.fate.value)

    # ------------------------------------------------------------------ who acts next

    def run(self) -> None:
        """Requests and faults until both are used up; then calm, until nothing is left to do."""
        while self.requests_left > 0 or self.faults_left > 0:
            self._act()
        self._calm_down()

    def interleave(self, host: Host) -> None:
        """See the protocol."""
        if self.calm or self._depth >= DEEPEST or self.rng.random() >= self.setup.profile.interleave:
            return
        self._depth += 1
        try:
            turns = self.rng.randint(1, 12)
            while not host.dead and (turns > 0 or (host.paused and turns > -LONGEST_PAUSE)):
                turns -= 1
                self._act()
        finally:
            self._depth -= 1

    def _act(self) -> None:
        chance = self.rng.random() * 100
        if chance < 66:
            self._turn()
        elif chance < 90:
            self.tick(int(self.rng.random() ** 4 * 60))
        elif chance < 96:
            if self.requests_left > 0 and not self._is_quiet():
                self.request()
        elif chance < 97.5:
            self.end_foreign()
        elif not self._is_quiet() and self.rng.random() * self.requests_left < 3 * self.faults_left:
            faults.strike(self)

    def _is_quiet(self) -> bool:
        quiet = self.setup.profile.quiet
        return quiet > 0 and self.rng.random() < quiet

    def _turn(self) -> None:
        """One turn of one task of one process."""
        process = self.rng.choice(self.nodes).process
        if process is None or process.paused:
            return
        chance = self.rng.random() * self._turns[3]
        if chance < self._turns[0]:
            process.drive()
        elif chance < self._turns[1]:
            process.apply()
        elif chance < self._turns[2]:
            process.follow()
        else:
            process.keep_house()

    def tick(self, elapsed_ms: int) -> None:
        """Time passes."""
        until_ms = self.now_ms + elapsed_ms
        while self._events and self._events[0][0] <= until_ms:
            at_ms, _, action = heapq.heappop(self._events)
            self.now_ms = max(self.now_ms, at_ms)
            action()
        self.now_ms = max(self.now_ms, until_ms)

    # ------------------------------------------------------------------ the end

    def _calm_down(self) -> None:
        self.calm = True
        self.note("calm")
        self.jump(0)
        self.ensemble.up = True
        self.leaderless.clear()
        self.pause(Pauses())
        while self.foreign:
            self.end_foreign()
        self.settings_operator.end()
        limit_ms = self.now_ms + self.setup.profile.calm_ms
        while self.now_ms < limit_ms and not self._finished():
            for node in self.nodes:
                self.start(node)
            for process in self._processes():
                process.armed.clear()
                process.recover()
                process.renew_keys()
                self._exhaust(process)
            self.tick(self._next_event_ms())
        for producer in self.coordinator:
            producer.complete()
        for process in self._processes():
            self._catch_up(process)
            while process.reads_on():
                self._catch_up(process)

    def _catch_up(self, process: Process) -> None:
        while process.apply() or process.follow():
            pass

    def _exhaust(self, process: Process) -> None:
        """Runs a process's tasks until each of them waits."""
        self._catch_up(process)
        if self.rng.random() < 0.3:
            process.keep_house()
        for _ in range(100):
            if not process.drive():
                break

    def _finished(self) -> bool:
        """Whether the last checkpoint covers all that falls due soon, and no later one is on its way."""
        last = self.checkpoints.last_own()
        busy = any(one.commits or one.lacks or one.released() for one in self._processes())
        if last is None or last.record is None or busy:
            return False
        checkpoint = Checkpoint.decode(last.record.value or b"")
        operation = checkpoint.operation
        if operation.number < len(self.asked) or operation.replay or operation.skip_to:
            return False
        buffer = self.topics[self.names.buffer]
        if any(buffer[number].stable_end < buffer[number].end for number in self.setup.partitions):
            return False
        ends, up_to_ms = self._wanted()
        covered = all(
            min(checkpoint.applied.get(number, 0), checkpoint.seen.get(number, 0)) >= end
            for number, end in ends.items()
        )
        held = any(hold.rows and (hold.last or hold.next)[0] <= self.now_ms for hold in checkpoint.holds)
        left = held or any(one.has_left(up_to_ms) for one in self._processes())
        left = left or bool(self.needed_for_long(checkpoint))
        return covered and not left and checkpoint.delivered_up_to_ms >= up_to_ms

    def needed_for_long(self, checkpoint: Checkpoint) -> list[int]:
        """The partitions whose log is needed for longer than carrying takes, once nobody disturbs it."""
        setup = self.setup
        if setup.settings.retention_ms is None:
            return []
        windows_ms = setup.replay_window_ms + self.eras.longest_window_ms
        long_ms = setup.settings.retention_ms + windows_ms + 2 * setup.skew_ms + CARRIED_WITHIN_MS + UNREAD_MS
        buffer = self.topics[self.names.buffer]
        return [
            number
            for number in setup.partitions
            if checkpoint.carried.get(number, 0) < buffer[number].first_from(self.now_ms - long_ms, 0)
        ]

    def _wanted(self) -> tuple[dict[int, int], int]:
        """The end of the committed requests, and the last time soon that one of them asks for."""
        buffer = [self.topics[self.names.buffer][number] for number in self.setup.partitions]
        version = [(partition.end, partition.stable_end) for partition in buffer]
        if version != self._wanted_version:
            self._wanted_version = version
            ends: dict[int, int] = {}
            times_ms = [0]
            for partition in buffer:
                for entry in partition.committed(0, partition.stable_end):
                    assert entry.record is not None, "markers are not read"
                    headers = dict(entry.record.headers)
                    if entry.request is None and headers.get("delay-op") == b"carry":
                        continue  # what waits is carried again and again
                    ends[partition.number] = entry.record.offset + 1
                    timestamp_ms = entry.record.timestamp_ms
                    times_ms.append(timestamp_ms)
                    if entry.request is not None:
                        place = partition.number, entry.record.offset
                        entry.request.settle(self.eras, *place)
                        times_ms.append(row_of(place, entry.request, timestamp_ms).due_ms)
                    elif "delay-op" not in headers:  # a reschedule is due at once
                        times_ms.append(int(headers["delay-deliver-at"] or b""))
            soon_ms = self.now_ms + FAR_MS // 2
            self._wanted_known = ends, max(at_ms for at_ms in times_ms if at_ms < soon_ms)
        return self._wanted_known

    def _next_event_ms(self) -> int:
        """How long nothing will happen by itself; a few milliseconds at least, to make haste."""
        times_ms = [self._events[0][0]] if self._events else []
        for process in self._processes():
            wake_ms = process.next_wake_ms()
            if wake_ms is not None:
                times_ms.append(wake_ms)
        return max(HASTE_MS, min(times_ms, default=self.now_ms) - self.now_ms)
