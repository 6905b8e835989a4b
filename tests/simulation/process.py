"""One node's process: the real view and delivery core, and what drives them.

In a node these are threads (node/kafka/applier.py, node/lane.py, node/housekeeping.py); here each is a task
that the scheduler runs one turn of. A process dies as a whole; the next one of its node has the store alone.
"""

from __future__ import annotations

from collections.abc import Generator, Iterable
from collections.abc import Set as AbstractSet
from functools import partial
from itertools import islice
from typing import Final

from delayline.outcome_kinds import OutcomeKind
from delayline.rejects import Code, RejectCode
from delayline.settings_versions import SettingsVersions
from delayline.signing import Keyring
from delayline.wire import SettingsMark
from node.core.delivery import Config, Delivery
from node.core.ports import (
    ANY_PARTITION,
    TARGET_UNAVAILABLE,
    TARGET_UNKNOWN,
    Records,
    SelectionTargets,
    Unanswered,
)
from node.core.steps import Step, StepDown, Wait
from node.core.unread import HIDDEN_MS
from node.kafka.applier import arrivals_of
from node.kafka.fetch.records import ABORTED
from node.kafka.own_checkpoints import KeysBehind, OwnCheckpoints, own_checkpoint
from store import keys
from store.arrivals import Arrival
from store.awaited import Awaited
from store.checkpoint import Checkpoint, Frontier, Lineage, Vector
from store.forgetting import Expired
from store.holds import Hold, may_go_to
from store.keys import RowKey
from store.late import late_keys
from store.overrun import MOST_OVERRUNS
from store.rows import message_target
from store.selection import Paused, next_due_ms, select
from store.taking import MOST_WALKED
from store.told import Look
from tests.simulation.begins import lacks_records, open_view
from tests.simulation.changes import KnownSettings
from tests.simulation.eras import latest, repeats
from tests.simulation.host import Killed, Violation, World
from tests.simulation.kept import check_kept
from tests.simulation.log import Entry
from tests.simulation.operator import SimulatedOperator
from tests.simulation.outbox import SimulatedCommit, SimulatedOutbox
from tests.simulation.pending import check_pending
from tests.simulation.setup import LANE
from tests.simulation.stores import CrashableStore
from tests.simulation.zookeeper import Ensemble, SimulatedElection

MOST_EXPIRED: Final = 20
MOST_UNFLUSHED: Final = 60
IN_TIME: Final = 0.6
"""How often a target is looked up while delivery waits for it."""
KEYS_ASKED: Final = 0.05
"""How often a turn of housekeeping asks for the keys, where they are others."""
LOOKED_UP_MS: Final = (5, 2_500)
TOLD_ANEW: Final = 0.1
"""How often the brokers have been asked since which offsets are how old."""
LOOKED_ANEW: Final = 0.03
"""How often it looks anew at the outcomes, where some of them may be lost."""
MOST_HELD: Final = 3
"""Checkpoints at which a leadership may wait for its position: a jump is seen, and proven, by a heartbeat."""


class Node:
    """A node: its store and its clock outlive its processes."""

    def __init__(self, name: str, store: CrashableStore, skew_ms: int, ring: Keyring) -> None:
        self.name = name
        self.store = store
        self.skew_ms = skew_ms
        self.ring = ring  # even if the store is emptied: none is lost for good
        self.times_ms: set[int] = set()  # that records bear which it has read
        self.process: Process | None = None


class SimulatedSnapshot:
    """Implements `TargetSnapshot`: what is known at one moment of what was asked for, and of nothing else."""

    def __init__(self, world: World, asked: AbstractSet[str], known: AbstractSet[str]) -> None:
        self.is_complete = asked <= known
        self._asked = frozenset(asked)
        self._known = frozenset(asked & known)
        self._partitions = {topic: len(world.topics[topic]) for topic in asked if topic in world.topics}
        self._leaderless = frozenset(world.leaderless)

    def takes_any(self, topic: str, size_bytes: int) -> bool:
        return self.problem(topic, ANY_PARTITION, None, size_bytes) is None

    def problem(
        self, topic: str, partition: int, key: bytes | None, size_bytes: int
    ) -> tuple[Code, str] | None:
        if topic not in self._asked:
            raise Violation("targets", f"{topic} was not asked for before it is planned for")
        if topic not in self._known:
            return TARGET_UNKNOWN, f"nobody has said what {topic} is"
        if topic not in self._partitions:
            return RejectCode.TARGET_MISSING, f"{topic} does not exist"
        if partition >= self._partitions[topic]:
            return RejectCode.TARGET_PARTITION, f"{topic} has no partition {partition}"
        return (TARGET_UNAVAILABLE, f"{topic} has no leader") if topic in self._leaderless else None


class Process:
    """Implements `Host` and `Candidate`, and the ports `Log`, `Targets` and `Clock`."""

    def __init__(self, node: Node, world: World, ensemble: Ensemble) -> None:
        self.name = node.name
        self.world = world
        self.store = node.store
        self._node = node
        self.dead = False
        self.paused = self.cut_off = self.resign_asked = False
        self.role = "none"
        self.apply_stalled = self.follower_stalled = False
        self.armed: list[str] = []
        self.in_call = False
        self.last_reading_ms = 0
        setup = world.setup
        self._ensemble = ensemble
        self._buffer = world.topics[setup.names.buffer]
        self._checkpoints = world.checkpoints
        self._settings = KnownSettings(world)
        self.view = open_view(self.name, self.store, world.hears_of(self), world, self)
        self._partitions = list(self.view.reached().read)
        self._fetched: Vector = self.view.reached().read
        self._old: Vector = dict.fromkeys(self._partitions, 0)
        self._ends_untold: Vector = {}
        self.look: Look | None = None
        self._own = OwnCheckpoints(setup.names.checkpoint)
        self._followed = 0
        self._leader_epoch = self._checkpoints.leader_epoch
        self._latest_known: Checkpoint | None = None  # where checkpoints have been lost
        self._epoch_known = 0
        self.mirror_read: Checkpoint | None = None
        self._election = SimulatedElection(self, ensemble)
        self.operator = SimulatedOperator(self, ensemble)
        self.leadership: Generator[Step | Wait, None, StepDown] | None = None
        self._at: Step | Wait | None = None
        self._recovers = False  # whether it reads the log up to where it can begin
        self._delivery: Delivery | None = None
        self._outbox = SimulatedOutbox(self)  # of its leadership
        self._delivering = False
        self._woken = False
        self._wakes_ms: int | None = None  # in true time
        self._held_at: set[tuple[int, int]] = set()  # waiting for its position: epochs and numbers
        self._expired: list[Expired] = []
        self._log_ends: Vector | None = None
        self._to_see: Vector = {}
        self._targets_known: set[str] = set()
        self._targets_wanted: set[str] = set()
        self._produced: Checkpoint | None = None
        self.renew_keys()
        # A node reads back until it has the last one, and from when that was written on, before it follows
        # any (node/kafka/checkpoints.py): so it has read what a copy is of.
        last = self._checkpoints.last_own()
        at = 0 if last is None or last.record is None else last.record.offset
        self._read_checkpoints(max(0, at - world.rng.randint(0, 30)))
        world.after(world.rng.randint(0, 100), lambda: ensemble.enter(self))

    # ------------------------------------------------------------------ Host

    @property
    def where(self) -> str:
        """See the protocol."""
        if self.leadership is None:
            return "following"
        return "waiting" if isinstance(self._at, Wait) else str(self._at or "elected")

    @property
    def versions(self) -> SettingsVersions:
        """Of the settings, as it knows them."""
        return self._settings.versions

    @property
    def skew_ms(self) -> int:
        """What its clock is ahead of true time by."""
        return self._node.skew_ms + self.world.jump_ms

    def wake(self) -> None:
        """See the protocol."""
        self._woken = True

    def meanwhile(self) -> None:
        """See the protocol."""
        self.world.interleave(self)
        if self.dead:
            raise Killed

    def vouch(self, timestamp_ms: int) -> None:
        """See the protocol: rule 1's clock, from the last reading of the own one."""
        reading_ms = self.last_reading_ms
        allowed_ms = reading_ms + self.world.setup.max_clock_skew_ms
        latest_ms = max(reading_ms, *(one for one in self._node.times_ms if one <= allowed_ms), 0)
        if timestamp_ms > latest_ms:
            raise Violation("I2", f"{self.name} delivers as of {timestamp_ms}, its clock says {latest_ms}")

    def inspect(self, checkpoint: Checkpoint) -> None:
        """See the protocol: a cancel made during an outage counts (rule 6)."""
        last, self._produced = self._produced, checkpoint
        known = self._latest_known
        if checkpoint.first and known is not None and not repeats(checkpoint, known):
            raise Violation("I1", f"{self.name} knows {known}, and goes on from {checkpoint}")
        if checkpoint.first and checkpoint.epoch <= self._epoch_known:
            raise Violation(
                "I6", f"{self.name} knows epoch {self._epoch_known}, and begins {checkpoint.epoch}"
            )
        if checkpoint.first or last is None:
            return
        goes_on = (checkpoint.position or ()) > (last.position or ()) or checkpoint.applied != last.applied
        if not goes_on:
            return
        if any(checkpoint.seen.get(number, 0) < offset for number, offset in self._to_see.items()):
            raise Violation("I7", f"{self.name} selected before it had seen {self._to_see}: {checkpoint}")

    def fails(self, fault: str) -> bool:
        """See the protocol."""
        if fault not in self.armed:
            return False
        self.armed.remove(fault)
        self.world.struck(self, fault)
        return True

    def commit_fault(self) -> str | None:
        """See the protocol."""
        for fault in self.armed:
            if fault.startswith("commit-"):
                self.armed.remove(fault)
                self.world.struck(self, fault)
                return fault
        return None

    @property
    def lacks(self) -> bool:
        """Whether there is a partition of which it has not heard."""
        return len(self._partitions) < len(self.world.setup.partitions)

    @property
    def lacks_records(self) -> bool:
        """Whether retention has removed what it has not read."""
        return lacks_records(self.view, self.world)

    def old(self) -> Vector | None:
        """See `LogAge`: as Kafka tells it, not always anew."""
        retention_ms = self.world.setup.settings.retention_ms
        if retention_ms is None:
            return None
        if self.world.calm or self.world.rng.random() < TOLD_ANEW:
            self._old = {
                number: self._buffer[number].first_from(self.world.now_ms - retention_ms // 2, offset)
                for number, offset in self._old.items()
            }
        return self._old

    def outcomes(self) -> Look | None:
        """See `LogAge`: it looks now and then. None where nothing of it goes."""
        topic, rng = self.world.outcomes, self.world.rng
        if topic is not None and (self.world.calm or rng.random() < LOOKED_ANEW):
            last = self.view.checkpoint
            self.look = topic.look(None if last is None else last.told, self.world.now_ms + self.skew_ms)
        return self.look

    def kill(self) -> None:
        """Ends the process, wherever it is."""
        self.dead = True
        if self.leadership is not None and not self.in_call:
            self.leadership.close()

    def recover(self) -> None:
        """Whatever impaired it has passed."""
        self.paused = self.cut_off = self.apply_stalled = self.follower_stalled = False

    # ------------------------------------------------------------------ Clock, Targets, Log

    def heeds(self, records: Records) -> None:
        """See the protocol."""
        self.operator.heeds(records)

    def now_ms(self) -> int:
        self.last_reading_ms = self.world.now_ms + self.skew_ms
        return self.last_reading_ms

    def steady_ms(self) -> int:
        return self.world.now_ms

    def learn(self, wanted: SelectionTargets, *, waits: bool) -> SimulatedSnapshot:
        """What is not looked up in time may be some time later; what is known may be forgotten."""
        if waits and self._outbox.is_sending:
            raise Violation("liveness", f"{self.name} waits for its targets while a transaction is under way")
        asked = wanted.topics | wanted.replayed
        self._look_up(wanted.topics if waits else asked, waits=waits)
        if wanted.replayed and waits:
            self._learn_all(wanted.replayed)
        return SimulatedSnapshot(self.world, asked | self.world.names.own_topics, self._targets_known)

    def _look_up(self, topics: AbstractSet[str], *, waits: bool) -> None:
        self._expect_doubt()
        self.meanwhile()
        rng = self.world.rng
        if self.fails("targets-forgotten"):
            self._targets_known &= self.world.names.own_topics
        for topic in sorted(topics - self._targets_known):
            if waits and (self.world.calm or rng.random() < IN_TIME):
                self._targets_known.add(topic)
            elif topic not in self._targets_wanted:
                self._targets_wanted.add(topic)
                self.world.after(rng.randint(*LOOKED_UP_MS), partial(self._looked_up, topic))

    def _looked_up(self, topic: str) -> None:
        self._targets_wanted.discard(topic)
        self._targets_known.add(topic)

    def _learn_all(self, topics: AbstractSet[str]) -> None:
        self.meanwhile()
        if self.fails("learn-fails"):
            raise Unanswered("the brokers do not answer")
        self._targets_known |= topics

    def require(self, topics: frozenset[str]) -> None:
        self._learn_all(topics)

    def invalidate(self) -> None:
        """Nothing is remembered here."""

    def ask_anew(self) -> None:
        self.operator.has_resumed = False

    def _expect_doubt(self) -> None:
        """What is known of targets is older than the end of a pause, unless it is doubted then."""
        if self.operator.has_resumed:
            raise Violation("pause", f"{self.name} goes by what it knew before a pause was over")

    def last_checkpoint(self) -> Checkpoint | None:
        self.meanwhile()
        if self.fails("read-fails"):
            raise Unanswered("the brokers do not answer")
        self._expect_topic()
        if self._checkpoints.is_own_open:
            raise Unanswered("it lacks a marker of the lane's own")
        if self._checkpoints.is_held:
            raise Unanswered("a transaction is open there that is none of the lane's")
        if not self._read_checkpoints(self._checkpoints.stable_end):
            raise Unanswered("a key is not known")
        last = self._own.latest
        self._note_known()
        self.meanwhile()
        return last

    def _note_known(self) -> None:
        """Where checkpoints have been lost: what a new leader has to go on from."""
        world, entry = self.world, self._checkpoints.last_own(hidden=True)
        if world.lost or world.checkpoints.leader_epoch or world.checkpoints.was_held:
            last = None if entry is None else _checkpoint(entry)
            known = [one for one in (last, self.view.checkpoint, self.mirror_read) if one is not None]
            self._latest_known = latest([*world.lost, world.checkpoints], known)
            self._epoch_known = max((one.epoch for one in known), default=0)

    def lineage(self) -> Lineage:
        self.meanwhile()
        return Lineage(f"topic-{len(self.world.lost)}", self.world.checkpoints.leader_epoch)

    @property
    def ring(self) -> Keyring:
        return self._node.ring

    def renew_keys(self) -> None:
        """See the protocol."""
        if self._ensemble.reaches(self) and self.ring is not self._ensemble.ring:
            self._node.ring = self._ensemble.ring = self.ring.united(self._ensemble.ring)

    @property
    def _knows_all(self) -> bool:
        return len(self.ring.keys) == self.world.key_count

    def high_watermarks(self) -> Vector:
        self.meanwhile()
        if self.fails("read-fails"):
            raise Unanswered("the brokers do not answer")
        return {number: self._buffer[number].end for number in self._partitions}

    def last_stable_offsets(self) -> Vector:
        self.meanwhile()
        if self.fails("read-fails"):
            raise Unanswered("the brokers do not answer")
        ends = {number: self._buffer[number].stable_end for number in self._partitions}
        for number, end in ends.items():
            for entry in self._buffer[number].committed(max(0, end - 20), end):
                assert entry.record is not None, "markers are not read"
                self._to_see[number] = entry.record.offset + 1
        return ends

    # ------------------------------------------------------------------ tasks

    def apply(self) -> bool:
        """Reads some of the buffer into the view. False if there was nothing."""
        if self.apply_stalled:
            return False
        rng = self.world.rng
        arrivals: list[Arrival] = []
        positions, self._ends_untold = self._ends_untold, {}
        for number in self._partitions:
            partition = self._buffer[number]
            begin, end = self._fetched[number], partition.stable_end
            if begin >= end:
                continue
            assert begin >= partition.begin, "who lacks what retention removes begins anew"
            stop = min(end, begin + rng.choice(self.world.setup.profile.batches))
            made = self._all_arrivals(partition.signed(begin, stop))
            if made is None:
                continue
            arrivals += made
            self._fetched[number] = stop
            if arrivals and arrivals[-1].partition == number:
                positions[number] = arrivals[-1].offset + 1
            if stop == end:
                told = rng.random() < self.world.setup.profile.end_of_partition
                (positions if told else self._ends_untold)[number] = end
        if not arrivals and not positions:
            return bool(self._ends_untold)
        for one in arrivals:
            self._node.times_ms.add(one.timestamp_ms)
        if self.view.apply(arrivals, positions):
            self.wake()
        else:
            self._expect_nothing_missed()
        return True

    def has_read_all(self) -> bool:
        """Whether there is nothing more in the buffer that can be read."""
        return all(self._fetched[number] >= self._buffer[number].stable_end for number in self._fetched)

    def reads_on(self) -> bool:
        """Whether `apply` has come any further, be it over nothing but markers."""
        before = dict(self._fetched)
        self.apply()
        return self._fetched != before

    def _expect_nothing_missed(self) -> None:
        """A leader that waits for a time is not left asleep with something to do (no polling tick)."""
        if self._delivery is None or not self._delivering or self._delivery._failures:
            return
        pauses = self.operator.told
        if self.in_call or self._woken or pauses.everything:
            return  # it is not asleep, or meant to be
        own_ms, tip, reached = self.world.now_ms + self.skew_ms, self.view.tip, self.view.reached()
        until_ms = self._at.until_ms if isinstance(self._at, Wait) else None
        if until_ms is None or own_ms >= until_ms or (tip.position is not None and own_ms < tip.position[0]):
            return
        limits, write_back = self.world.setup.limits, self._delivery.write_back
        # What has waited for long may wait for the heartbeat, and so may what is done, if there are not many.
        limits = limits._replace(carried_ms=1 << 60, passed=MOST_WALKED)
        paused = Paused(pauses.targets, replay=bool(pauses.targets))
        chosen = select(self.store, tip, reached, own_ms, limits, write_back=write_back, paused=paused)
        due_ms = None if chosen.cut_short else next_due_ms(self.store, tip)
        if chosen.size or (due_ms is not None and due_ms < until_ms):
            raise Violation("wake", f"{self.name} waits until {until_ms}: {chosen}, next due {due_ms}")

    def _expect_live(self, wait: Wait) -> None:
        """I9: it waits for nothing that what is due does not depend on. In recovery it reads as far as can be
        read; then it waits for its own commits, and for what is not listed where an answer does.
        """
        delivery = self._delivery
        assert delivery is not None, "its leadership is driven"
        if self._recovers:
            if (
                wait.until_ms is None
                and not self.lacks  # it begins anew before it leads
                and not self._ends_untold
                and self.has_read_all()
            ):
                raise Violation("liveness", f"{self.name} has read all that it can, and recovers still")
            return
        if delivery.epoch == 0 or delivery.in_flight is not None or delivery._failures:
            return
        own_ms, tip, applied = self.now_ms(), self.view.tip, self.view.reached().applied
        if self.operator.told.everything:
            return
        ahead_ms = (tip.position or (0,))[0] - own_ms
        self._expect_rewind(delivery.epoch, ahead_ms)
        if ahead_ms > 0 or (wait.until_ms is not None and wait.until_ms <= own_ms):
            return
        if self._may_wait(delivery.write_back.awaited, tip, applied, wait):
            return
        due_ms = next_due_ms(self.store, tip)
        if resumed := self.released():
            raise Violation("liveness", f"{self.name} waits at {own_ms}: {resumed} may go on")
        late = [
            key for number in applied for key in late_keys(self.store, number, tip.applied.get(number, 0))
        ]
        if late or (due_ms is not None and due_ms <= own_ms):
            raise Violation("liveness", f"{self.name} waits at {own_ms}: {late} are late, {due_ms} is due")

    def released(self) -> list[Hold]:
        """The holds that may let something go."""
        paused, tip = self.operator.told.targets, self.view.tip
        limits, own_ms = self.world.setup.limits, self.world.now_ms + self.skew_ms
        return [
            hold
            for hold in tip.holds
            if hold.target not in paused
            and (
                hold.last is None
                or self._holds_any(tip, hold, may_go_to(hold, paused, own_ms, limits.carried_ms))
            )
        ]

    def _expect_rewind(self, epoch: int, ahead_ms: int) -> None:
        """It does not wait for a position that is far ahead once a commit has shown its clock to be right."""
        tip, last = self.view.tip, self.view.checkpoint
        if ahead_ms <= 2 * self.world.setup.max_clock_skew_ms or len(tip.overruns) == MOST_OVERRUNS:
            self._held_at = set()
            return
        assert last is not None, "it has a position"
        self._held_at.add((epoch, last.number))
        if len(self._held_at) > MOST_HELD:
            raise Violation(
                "liveness", f"{self.name} waits for its position, {tip.position}, {ahead_ms} ms ahead"
            )

    def _holds_any(self, tip: Frontier, hold: Hold, end: RowKey | None) -> bool:
        """Whether a hold has something that may go."""
        if end is None:
            return False
        rows = self.store.scan(keys.after(keys.row(*hold.next)), keys.after(keys.row(*end)))
        own = (keys.timed(key) for key, raw in rows if message_target(raw) == hold.target)
        return any(tip.passed(key) and not hold.began_after(key, tip.overruns) for key in own)

    def _may_wait(self, awaited: Awaited, tip: Frontier, applied: Vector, wait: Wait) -> bool:
        """An answer may wait for what is not listed; a reschedule a little for room among what is moved."""
        for number, end in applied.items():
            begin = keys.pending_answer(number, tip.seen.get(number, 0))
            if awaited.may_hide(number, applied) and any(
                self.store.scan(begin, keys.pending_answer(number, end))
            ):
                return True
        most, own_ms = self.world.setup.limits.awaited, self.now_ms()
        is_full = any(len(awaited.moved_offsets(number, applied)) >= most for number in applied)
        return is_full and wait.until_ms is not None and wait.until_ms <= own_ms + HIDDEN_MS

    def _all_arrivals(self, entries: Iterable[Entry]) -> list[Arrival] | None:
        """None until a key is known, or what begins at a mark: nothing behind that is read before."""
        arrivals: list[Arrival] = []
        for entry in entries:
            made = self._arrivals(entry)
            if made is None:
                return None
            arrivals += made
        return arrivals

    def _arrivals(self, entry: Entry) -> list[Arrival] | None:
        """None if it is signed with a key that is not known, or other settings may begin with it and nobody
        tells: what it is does not depend on the process.
        """
        assert entry.record is not None, "markers are not read"
        is_mark = ("delay-op", b"settings") in entry.record.headers and not entry.aborted
        if entry.arrivals is not None and self._knows_all and not is_mark:
            return entry.arrivals
        setup, unknown, marks = self.world.setup, list[str](), list[SettingsMark]()
        record = entry.record._replace(flaw=ABORTED) if entry.aborted else entry.record
        made = arrivals_of([record], self.versions, setup.names, self.ring, unknown.append, marks.append)
        unread = self._settings.unread(marks)
        if unknown or (unread and (self.fails("read-fails") or not self._settings.read_on(self.ring))):
            return None
        if unread:
            if self._settings.lacks(unread):
                return None
            made = arrivals_of([record], self.versions, setup.names, self.ring)
        if self._knows_all:
            entry.arrivals = made
        return made

    def follow(self) -> bool:
        """Reads on in the checkpoint topic, as far as chance will have it, and aligns to the last one."""
        self._expect_topic()
        end = self._checkpoints.stable_end
        if self.leadership is not None or self.follower_stalled or self._followed >= end:
            return False
        if not self._read_checkpoints(self.world.rng.randint(self._followed + 1, end)):
            return False
        latest, aligned = self._own.latest, self.view.checkpoint
        if latest is not None and (aligned is None or latest.order > aligned.order):
            self.view.align(latest)
        return True

    def _read_checkpoints(self, end: int) -> bool:
        """False if it comes to one whose key is not known."""
        for entry in self._checkpoints.signed(self._followed, end):
            assert entry.record is not None, "markers are not read"
            found = entry.checkpoint
            if found is None or not self._knows_all:
                try:
                    found = own_checkpoint(entry.record, self.world.setup.names.checkpoint, self.ring)
                except KeysBehind:
                    return False
            if self._knows_all:
                entry.checkpoint = found
            self._own.weigh(entry.record, found, aborted=entry.aborted)
        self._followed = max(self._followed, end)
        return True

    def _expect_topic(self) -> None:
        """A topic that was made anew is read from its beginning, and so is one that may have lost its end."""
        anew = self._checkpoints is not self.world.checkpoints
        self._checkpoints = self.world.checkpoints
        if anew or self._leader_epoch != self._checkpoints.leader_epoch:
            self._leader_epoch, self._followed = self._checkpoints.leader_epoch, 0
            self._own.reset(another_topic=anew)

    def has_left(self, up_to_ms: int) -> bool:
        """Whether it is leader, and something is left that is due by then. Delivered-up-to does not say so:
        it is not true of what could be read only later.
        """
        due_ms = None if self.leadership is None else next_due_ms(self.store, self.view.tip)
        return due_ms is not None and due_ms <= up_to_ms

    def up_to_date(self) -> bool:
        """Whether the view is aligned to the last committed checkpoint."""
        last = self.world.checkpoints.last_own()
        return last is not None and self.view.checkpoint == _checkpoint(last)

    def drive(self) -> bool:
        """One step of the leadership, if there is one and it does not wait. False if nothing happened."""
        if self.in_call or not (self.leadership is not None or self._begin()):
            return False
        assert self.leadership is not None, "it has begun"
        if isinstance(self._at, Wait):
            if not self._woken and (self._wakes_ms is None or self.world.now_ms < self._wakes_ms):
                return False
            self._woken = False
        self._recovers = self._at is Step.ALIGNED or (self._recovers and isinstance(self._at, Wait))
        self.in_call = True
        try:
            self._at = next(self.leadership)
            self._delivering = self._delivering or self._at is Step.LEADERSHIP_BEGUN
            if isinstance(self._at, Wait):
                self._expect_live(self._at)
                until_ms = self._at.until_ms  # how long that is, is known now: the clock may be set meanwhile
                self._wakes_ms = None if until_ms is None else until_ms - self.skew_ms
            if self._at is Step.AFTER_COMMIT:
                self._check_counted()
                self._expect_share()
        except StopIteration as ended:
            self._stepped_down(ended.value)
        except Killed:
            return True
        finally:
            self.in_call = False
        return True

    def _expect_share(self) -> None:
        """What holds let go has its part of each transaction, however much else there is (rule 8)."""
        last, delivery = self.view.checkpoint, self._delivery
        assert last is not None, "it has committed its first"
        assert delivery is not None, "its leadership is driven"
        assert delivery.in_flight is not None, "its commit is known, and not recorded yet"
        chosen, before = delivery.in_flight.selection, last.frontier
        others, stay = len(chosen.late) + len(chosen.due), {_cursor(hold) for hold in chosen.frontier.holds}
        if others < 2 or chosen.frontier.seen != self.view.reached().applied:
            return  # one alone is no part; and what has come since may have removed what stood in the way
        if any(_cursor(hold) not in stay for hold in before.holds):
            return
        due = (0 if before.position is None else before.position[0], 0, 0)  # by then, at any rate
        oldest = sorted(before.holds, key=lambda hold: hold.first, reverse=True)
        for hold in {hold.target: hold for hold in oldest}.values():
            end = due if hold.last is None else min(hold.last, due)
            if hold.target not in chosen.paused_targets and self._lets_go(before, hold, end):
                raise Violation("liveness", f"{self.name} carries {others} others, and nothing of {hold}")

    def _lets_go(self, before: Frontier, hold: Hold, end: RowKey) -> bool:
        """Whether the first message that a hold has up to a key has been passed."""
        begin, behind = keys.after(keys.row(*hold.next)), keys.after(keys.row(*end))
        rows = self.store.scan(begin, behind) if begin < behind else ()
        own = (keys.timed(key) for key, raw in rows if message_target(raw) == hold.target)
        return any(before.passed(key) for key in islice(own, 1))

    def _check_counted(self) -> None:
        """What the core says of a committed transaction, for the metrics, is what it has sent."""
        assert self._delivery is not None, "its leadership is driven"
        flight = self._delivery.in_flight
        assert flight is not None, "its commit is known, and not recorded yet"
        assert isinstance(flight.commit, SimulatedCommit), "of the simulated outbox"
        counted = {"delivered": 0, "decided": 0}
        for (_, outcome, _), count in flight.decided.items():
            counted[
                "delivered" if outcome in (OutcomeKind.DELIVERED, OutcomeKind.REPLAYED) else "decided"
            ] += count
        if counted != flight.commit.carried:
            raise Violation("metrics", f"{self.name} counts {counted}, and has sent {flight.commit.carried}")

    def _begin(self) -> bool:
        if self.resign_asked:
            self._step_aside()
        if self.role != "leader":
            return False
        setup = self.world.setup
        config = Config(
            self.name,
            LANE,
            setup.names,
            setup.limits,
            setup.max_clock_skew_ms,
            setup.max_parks,
            self,
            self,
            setup.small,
        )
        self._outbox = SimulatedOutbox(self)
        delivery = Delivery(config, self.view, self._outbox, self, self._election, self, self.operator, self)
        self.leadership = delivery.run()
        self._delivery, self._delivering, self._held_at = delivery, False, set()
        self.operator.begin()
        self._at = None
        return True

    @property
    def commits(self) -> bool:
        """Whether a commit of its leadership is not known yet."""
        return self._delivery is not None and self._delivery._in_flight is not None

    def _stepped_down(self, why: StepDown) -> None:
        self.world.note("ended", self.name, why.value)
        self.leadership, self._at, self._delivery = None, None, None
        if self.resign_asked:
            self._step_aside()

    def _step_aside(self) -> None:
        self.resign_asked, self.role = False, "none"
        self._ensemble.remove(self)

    def next_wake_ms(self) -> int | None:
        """When, in true time, the leadership wakes by itself."""
        return self._wakes_ms if isinstance(self._at, Wait) else None

    def keep_house(self) -> None:
        """One turn of housekeeping: prunes, or takes the next step towards forgetting ids. Now and then it
        asks for the keys, and looks at the outcomes.
        """
        if self.ring is not self._ensemble.ring and self.world.rng.random() < KEYS_ASKED:
            self.renew_keys()
        self.outcomes()
        chance = self.world.rng.random()
        if chance < 0.4:
            self.view.prune()
            check_pending(self.name, self.store, self.view)
            check_kept(self.name, self.store, self.view)
        elif chance < 0.5 or self.store.unflushed() > MOST_UNFLUSHED:
            self.view.flush()
        elif not self._expired:
            self._expired, self._log_ends = self.view.forgetting.expired(MOST_EXPIRED), None
        elif self._log_ends is None:
            self._log_ends = {number: self._buffer[number].end for number in self._partitions}
        elif self.view.forgetting.collect(self._expired, self._log_ends):
            self._expired = []


def _cursor(hold: Hold) -> tuple[str, RowKey, RowKey]:
    return hold.target, hold.first, hold.next


def _checkpoint(entry: Entry) -> Checkpoint:
    assert entry.record is not None, "markers are not read"
    return Checkpoint.decode(entry.record.value or b"")
