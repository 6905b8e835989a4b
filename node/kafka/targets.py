"""What is known of the target topics (rule 10): whether they exist, partitions, brokers and size limits.

Known before anything is produced: an unknown topic would hold its whole transaction back for as long as the
client is ready to wait for it. The lane's thread reads this table and asks nobody: it says what it lacks, and
waits a bounded time. The look-up (node/kafka/target_lookup.py) finds that out; what is in use is kept true by
the watch (node/kafka/target_watch.py). What nobody uses is forgotten after a while, so the table is no larger
than the cluster; what is missing has bounds of its own (node/kafka/target_bounds.py).
"""

from __future__ import annotations

import itertools
import math
import threading
import time
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from collections.abc import Set as AbstractSet
from typing import Final, NamedTuple

import msgspec

from delayline.names import PartitionId
from delayline.rejects import Code, RejectCode
from node.core.ports import SelectionTargets, Unanswered
from node.kafka.broker_links import Address
from node.kafka.target_answers import NO_LEADER, NO_LIMITS, FoundTopic, TargetAnswers, TopicLimits
from node.kafka.target_bounds import MISSING_FOR_S, Missing, Patience, TopicList
from node.kafka.target_snapshot import KafkaTargetSnapshot, Target, Unreached
from node.kafka.topics import TIMEOUT_S
from node.refusal import Refusing, own_topic_unusable

KNOWN_FOR_S: Final = 60.0
RENEWED_BEFORE_S: Final = 10.0
OBSTRUCTED_FOR_S: Final = 5.0
UNLED_FOR_S: Final = 3_600.0
"""A partition that was without a leader is remembered for longer than any transaction lasts."""
OUT_OF_SYNC_FOR_S: Final = 60.0
"""So long a follower that is not reached counts as out of sync before the brokers say so. If they do not even
then, it is this node that does not reach it.
"""
LOOKED_AWAY_S: Final = 6.0
"""A little more than the longest pause between two looks: where more lies between them, the process stood
still, or the brokers did not answer, and nobody knows what was so meanwhile.
"""
FEW: Final = 100
"""So many names are asked for in one request; for more of them, all topics are listed."""
FEW_TROUBLES: Final = 3
NO_PAUSE, FEW_PAUSE, MANY_PAUSE = 0, 1, 19
MOST_WANTED: Final = 50_000
ASK_AGAIN_S: Final = 0.5  # what could not be looked up is no longer wanted
BATCH_BYTES: Final = 1_000_000
SMALLEST_BATCH_BYTES: Final = 1_024

KnownTargets = Mapping[str, Target]
UnavailablePartitions = Mapping[str, frozenset[int]]
"""Topics that have unavailable partitions, and which those are."""
_LookedUp = dict[str, Target | None]
"""None: the topic is missing."""


class KafkaTargets:
    """Implements `node.core.ports.Targets`. Used by the lane's thread and, where it says so, by the look-up's
    or the watch's, or by any.
    """

    def __init__(
        self,
        answers: TargetAnswers,
        reach: Callable[[dict[int, Address]], frozenset[int]],
        hurry: Callable[[], None],
    ) -> None:
        """`reach`: says which of some brokers cannot be reached. `hurry`: has the watch look now."""
        self._answers = answers
        self._reach = reach
        self._hurry = hurry
        self._looked_s = self._watched_since_s = time.monotonic()  # guarded by `_changing`
        self._look_wanted_s = 0.0
        self._watched_s: dict[str, float] = {}  # of each topic, since when it is looked at without a break
        self._changing = threading.Condition()
        self._known: KnownTargets = {}  # never changed in place: who reads it needs no lock
        self._missing = Missing()
        self._listed: TopicList | None = None  # guarded by `_changing`, as `_missing` is; read without
        self._wanted: dict[str, None] = {}  # by the lane, in order; guarded by `_changing`
        self._urgent = False  # somebody waits for all that is wanted
        self._closed = False
        self._own: frozenset[str] = frozenset()  # the service's own topics, while they are in use
        self._asked_s: dict[str, float] = {}  # when each was last in use; the lane's own
        self._patience = Patience(time.monotonic())
        self._unreached = Unreached()  # replaced as a whole
        self._gone_s: dict[int, float] = {}  # since when
        self._unavailable: UnavailablePartitions = {}  # replaced as a whole
        self._led_again_s: dict[PartitionId, float] = {}  # in the order of when; guarded by `_changing`
        self._unled_s = -math.inf  # when any partition was without a leader last; guarded by `_changing`
        self._doubts = 0

    # -- the lane

    def learn(self, wanted: SelectionTargets, *, waits: bool) -> KafkaTargetSnapshot:
        now_s = time.monotonic()
        topics = wanted.topics | wanted.replayed if wanted.replayed else wanted.topics
        unknown, absent = self._left(wanted.topics if waits else topics, wanted.due_ms, now_s)
        is_complete = not unknown
        if unknown and waits:
            is_complete = self._await(unknown, self._patience.left_s(now_s))
            self._patience.spend(time.monotonic() - now_s)
        elif unknown:
            self._want(unknown)
        self._note_use(topics, now_s)
        if wanted.replayed and waits:
            absent |= self.learn_all(wanted.replayed, wanted.replayed_due_ms)
        return self._snapshot((*topics, *self._own), absent, is_complete=is_complete)

    def learn_all(self, topics: AbstractSet[str], due_ms: int) -> frozenset[str]:
        """Waits until all of them are known, and returns those that the last list lacks. Raises `Unanswered`
        if that takes seconds.
        """
        now_s = time.monotonic()
        until_s = now_s + TIMEOUT_S
        unknown, absent = self._left(topics, due_ms, now_s)
        while not self._await(unknown, min(ASK_AGAIN_S, TIMEOUT_S), urgently=True):
            if time.monotonic() >= until_s:
                left = self._unknown(unknown, until_s)
                raise Unanswered(f"{', '.join(left[:3])} could not be looked up in {TIMEOUT_S:.0f} s")
        self._note_use(topics, time.monotonic())
        return absent

    def require(self, topics: frozenset[str]) -> None:
        self._own = topics
        now = self._snapshot(topics, self.learn_all(topics, 0))
        for topic in sorted(topics):
            obstacle = now.obstacle(topic)
            if obstacle is not None:
                raise Refusing(own_topic_unusable(obstacle[1]))

    def await_look(self, topics: AbstractSet[str]) -> None:
        """Waits until the watch has looked at these, brokers and all, from now on. Raises `Unanswered` if it
        does not.
        """
        began_s = time.monotonic()
        self.keep(topics)
        with self._changing:
            self._look_wanted_s = began_s
            self._hurry()
            if not self._changing.wait_for(lambda: self._closed or self._looked_s >= began_s, TIMEOUT_S):
                raise Unanswered(f"nobody has said in {TIMEOUT_S:.0f} s who leads the targets")

    def keep(self, topics: AbstractSet[str]) -> None:
        """Has the watch look at these, though nothing may be sent there: as long as it is asked for."""
        self.expect(topics)
        self._note_use(topics, time.monotonic())

    def expect(self, topics: AbstractSet[str]) -> None:
        """Has these looked up soon: they will be needed."""
        self._want(self._unknown(topics, time.monotonic()))

    def problem(
        self, topic: str, partition: int, key: bytes | None, size_bytes: int
    ) -> tuple[Code, str] | None:
        """As it is now, of one of those that are in use (`TargetSnapshot.problem`)."""
        return self._snapshot((topic,)).problem(topic, partition, key, size_bytes)

    def invalidate(self) -> None:
        now_s = time.monotonic()
        with self._changing:
            self._doubts += 1
            self._missing, self._listed = Missing(), None
            self._known = {
                topic: msgspec.structs.replace(target, until_s=now_s) if target.obstacle is None else target
                for topic, target in self._known.items()
            }

    def ask_anew(self) -> None:
        self.invalidate()
        with self._changing:
            self._replace(
                {
                    topic: msgspec.structs.replace(target, doubted=topic not in self._own)
                    for topic, target in self._known.items()
                    if target.obstacle is None or topic in self._own
                }
            )

    def batch_bytes(self) -> int:
        """The largest batch that every known target takes: a broker's limit is on the whole batch."""
        limits = (target.limits.limit_bytes for target in self._known.values() if target.obstacle is None)
        return max(SMALLEST_BATCH_BYTES, min(BATCH_BYTES, *limits, BATCH_BYTES))

    def _snapshot(
        self, topics: Iterable[str], absent: AbstractSet[str] = frozenset(), *, is_complete: bool = True
    ) -> KafkaTargetSnapshot:
        """What is known of them, and is not so old that it may be another one by now. `absent`: those that
        the last list lacks.
        """
        now_s, now_known = time.monotonic(), self._known
        known: dict[str, Target] = {}
        missing: set[str] = set()
        for topic in topics:
            target = now_known.get(topic)
            if target is not None and target.until_s >= now_s - KNOWN_FOR_S:
                known[topic] = target
            elif topic in absent or self._missing.fresh(topic, now_s):
                missing.add(topic)
        return KafkaTargetSnapshot(known, missing, self._unreached, is_complete=is_complete)

    def _unknown(self, topics: Iterable[str], now_s: float) -> list[str]:
        known, missing = self._known, self._missing
        return [
            topic
            for topic in topics
            if (known[topic].until_s < now_s if topic in known else not missing.fresh(topic, now_s))
        ]

    def _left(self, topics: AbstractSet[str], due_ms: int, now_s: float) -> tuple[list[str], frozenset[str]]:
        """What has to be looked up; and what the last list lacks, which is missing where it tells of the
        messages.
        """
        unknown, listed = self._unknown(topics, now_s), self._listed
        if not unknown or listed is None or not listed.tells_of(due_ms, now_s):
            return unknown, frozenset()
        absent = frozenset(
            topic for topic in unknown if topic not in listed.names and topic not in self._known
        )
        return [topic for topic in unknown if topic not in absent], absent

    def _await(self, topics: Collection[str], for_s: float, *, urgently: bool = False) -> bool:
        """Has topics looked up, and waits for that; whether it was done in time."""
        if not topics:
            return True
        with self._changing:
            self._want(topics, first=urgently)
            return self._changing.wait_for(lambda: not self._unknown(topics, time.monotonic()), for_s)

    def _want(self, topics: Collection[str], *, first: bool = False) -> None:
        with self._changing:
            if first:
                self._urgent = True
                self._wanted = dict.fromkeys(topics) | self._wanted
            for topic in topics:
                if len(self._wanted) >= MOST_WANTED:
                    break  # it is asked for again
                self._wanted[topic] = None
            self._changing.notify_all()

    def _note_use(self, topics: AbstractSet[str], now_s: float) -> None:
        """The watch keeps what is in use. Names of what is not there are not kept here."""
        known = self._known
        if len(self._asked_s) > len(known):
            self._asked_s = {topic: at_s for topic, at_s in self._asked_s.items() if topic in known}
        self._asked_s.update((topic, now_s) for topic in (*topics, *self._own) if topic in known)

    # -- any thread

    @property
    def known(self) -> KnownTargets:
        """All that is known now; it does not change."""
        return self._known

    @property
    def counts(self) -> Counts:
        """How many names it holds."""
        return Counts(len(self._known), len(self._missing), len(self._wanted))

    @property
    def unavailable(self) -> UnavailablePartitions:
        """The partitions of targets in use where nothing can be committed now; it does not change."""
        return self._unavailable

    def obstruct(self, topic: str, code: RejectCode, detail: str) -> None:
        """A broker takes nothing for the topic: its messages go to the dead-letter topic for a while."""
        obstructed = _obstructed(code, detail, time.monotonic() + OBSTRUCTED_FOR_S, told=True)
        with self._changing:
            self._replace({**self._known, topic: obstructed})

    def changed(
        self, topics: AbstractSet[str], then: KnownTargets, unavailable: AbstractSet[PartitionId]
    ) -> str | None:
        """One of them that has gone, has an unavailable partition that is not among `unavailable`, or another
        number of partitions than `then`, as far as the watch has seen it.
        """
        now_unavailable = self._unavailable
        for topic in sorted(topics & now_unavailable.keys()):
            if any((topic, number) not in unavailable for number in now_unavailable[topic]):
                return topic
        known = self._known
        for topic in topics & then.keys():
            now = known.get(topic)
            if now is None or now.partitions != then[topic].partitions:
                return topic
        return None

    def open_partitions(self, topic: str) -> Sequence[int]:
        """The partitions that are not unavailable, if some are and some are not; else nothing."""
        target = self._known.get(topic)
        if target is None or not target.unavailable:
            return ()
        return [number for number in range(target.partitions) if number not in target.unavailable]

    def troubles(self) -> list[str]:
        """Why partitions are unavailable, of a few."""
        unavailable = (
            (topic, one, number) for topic, one in self._known.items() for number in sorted(one.unavailable)
        )
        few, why_unavailable = itertools.islice(unavailable, FEW_TROUBLES), self._unreached.why_unavailable
        return [f"{topic}/{number} {why_unavailable(target, number)}" for topic, target, number in few]

    def unled_since(self, since_s: float, then: KnownTargets) -> set[PartitionId]:
        """The partitions of these targets that may have been without a leader then, by `time.monotonic`, or
        later: that were seen so, or that nobody has watched since.
        """
        with self._changing:
            known, led_again_s = self._known, self._led_again_s
            unwatched = {
                topic for topic in then if topic not in known or self._began_to_watch_s(topic) > since_s
            }
            unled = {(topic, number) for topic in unwatched for number in range(then[topic].partitions)}
            for topic in then.keys() & self._unavailable.keys():
                unled.update((topic, number) for number in known[topic].leaderless)
            unled.update(
                partition_id
                for partition_id, at_s in led_again_s.items()
                if at_s >= since_s and partition_id[0] in then
            )
            return unled

    def were_led_since(self, since_s: float) -> bool:
        """Whether all partitions that the watch looks at have had their leader since then, as far as it has
        seen, and it has not looked away. That a connection has ended and another could be made at once, does
        not count here: brokers end what is idle.
        """
        with self._changing:
            return not self._unavailable and max(self._unled_s, self._watched_since_s) < since_s

    def _began_to_watch_s(self, topic: str) -> float:
        return max(self._watched_since_s, self._watched_s.get(topic, math.inf))

    # -- the look-up

    def await_wanted(self, rest_s: float) -> bool:
        """Rests, unless somebody waits, then waits until anything is wanted; False: it is to end."""
        with self._changing:
            self._changing.wait_for(lambda: self._closed or self._urgent, rest_s)
            self._changing.wait_for(lambda: self._closed or self._wanted)
            return not self._closed

    def close(self) -> None:
        """Nothing is looked up any more."""
        with self._changing:
            self._closed = True
            self._changing.notify_all()

    def look_up(self) -> int:
        """Looks up what is wanted, or a part of it. Returns how long to rest, in times of how long it took:
        of what is there, there is no more than the cluster has; of what is not, as much as users like. Raises
        `Unanswered`: then it is no longer wanted, and is asked for again.
        """
        with self._changing:
            names, doubts, self._urgent = list(self._wanted), self._doubts, False
        now_s = time.monotonic()
        absent: list[str] = []
        try:
            if self._are_many(names, now_s):
                listed = TopicList(self._answers.names(), now_s, time.time_ns() // 1_000_000)
                absent = [name for name in names if name not in listed.names]
                names = [name for name in names if name in listed.names]
                with self._changing:
                    self._listed = listed if doubts == self._doubts else None
            names = names[:FEW]
            looked_up = self._looked_up(names, now_s) if names else {}
            self._reach_brokers(looked_up)
            published = self._publish(looked_up | dict.fromkeys(absent), doubts)
        except Unanswered:
            self._have_done((*absent, *names))
            raise
        if published:
            self._have_done((*absent, *names))
        if absent:
            return MANY_PAUSE
        return NO_PAUSE if all(looked_up.values()) else FEW_PAUSE

    def _are_many(self, names: Collection[str], now_s: float) -> bool:
        """Whether too many of them are not in a list of a moment ago: there is no end of those."""
        listed = self._listed
        there = listed.names if listed is not None and now_s - listed.begun_s < MISSING_FOR_S else frozenset()
        return sum(name not in there for name in names) > FEW

    def _have_done(self, names: Iterable[str]) -> None:
        with self._changing:
            for name in names:
                self._wanted.pop(name, None)
            self._changing.notify_all()

    def _reach_brokers(self, looked_up: _LookedUp) -> None:
        """Before they are used: brokers go on naming one for a while that has died."""
        addresses, gone = self._answers.addresses, self._unreached.brokers
        brokers = {broker for target in looked_up.values() if target for broker in target.brokers} - gone
        unreached = self._reach({broker: addresses[broker] for broker in brokers if broker in addresses})
        if unreached:
            self.lose(gone | unreached)

    # -- the watch

    def look(self) -> None:
        """Looks up whatever is in use: its partitions and brokers, and the rest of it where that has become
        old. Raises `Unanswered`.
        """
        now_s, doubts = time.monotonic(), self._doubts
        known, asked_s = self._known, self._asked_s.copy()
        used = [t for t, one in known.items() if asked_s.get(t, 0) > now_s - KNOWN_FOR_S and not one.told]
        soon_s = now_s + RENEWED_BEFORE_S
        old = [t for t in used if known[t].obstacle is not None or known[t].until_s < soon_s]
        young = set(used).difference(old)
        for some in _by_few(old):
            self._publish(self._looked_up(some, now_s), doubts)
        for some in _by_few(young):
            described = self._answers.described(some)
            self._publish({t: self._as_before(t, known[t], found) for t, found in described.items()}, doubts)
        with self._changing:
            before = self._watched_s
            later = {topic: since_s for topic, since_s in before.items() if since_s >= now_s}
            self._watched_s = later | {topic: before.get(topic, now_s) for topic in used}

    def _as_before(self, topic: str, before: Target, found: FoundTopic | None) -> Target | None:
        """With the limits that it had."""
        return (
            None if found is None else _target(topic, found, before.limits, time.monotonic(), before.until_s)
        )

    def brokers(self) -> dict[int, Address]:
        """The brokers that what goes to targets in use depends on."""
        brokers = {broker for target in self._known.values() for broker in target.brokers}
        addresses = self._answers.addresses
        return {broker: addresses[broker] for broker in brokers if broker in addresses}

    def note_looked(self, began_s: float) -> None:
        """It has looked at all that is in use, and tried to hold the brokers' connections, since then."""
        with self._changing:
            if began_s - self._looked_s > LOOKED_AWAY_S:
                self._watched_since_s = began_s
            self._looked_s = began_s
            self._changing.notify_all()

    def is_look_wanted(self, began_s: float) -> bool:
        """Whether somebody waits for a look that begins later than then."""
        return self._look_wanted_s > began_s

    def lose(self, gone: frozenset[int], ended: AbstractSet[int] = frozenset()) -> None:
        """These brokers, and no others, cannot be reached: the partitions that they lead are as good as
        without a leader, and they are in sync no more, long before the brokers' controller says so. `ended`:
        those whose connections have ended, reached again or not: they may have died and come back.
        """
        now_s = time.monotonic()
        with self._changing:
            if ended:
                self._note_led_again(
                    (topic, number)
                    for topic, target in self._known.items()
                    for number, partition in enumerate(target.states)
                    if partition.leader in ended
                )
            self._gone_s = {broker: self._gone_s.get(broker, now_s) for broker in gone}
            out_of_sync = frozenset(
                broker for broker, at_s in self._gone_s.items() if at_s > now_s - OUT_OF_SYNC_FOR_S
            )
            unreached = Unreached(gone, out_of_sync)
            if unreached != self._unreached:
                self._unreached = unreached
                self._replace({topic: unreached.seen(target) for topic, target in self._known.items()})

    # --

    def _publish(self, looked_up: _LookedUp, doubts: int) -> bool:
        """Unless it was looked up before the last doubt: that may be what is wrong with it. An obstacle that
        was told stays for its time.
        """
        now_s = time.monotonic()
        with self._changing:
            if doubts != self._doubts:
                return False
            known = {t: one for t, one in self._known.items() if one.until_s > now_s - KNOWN_FOR_S}
            told = {topic for topic, one in known.items() if one.told and one.until_s > now_s}
            missing = []
            for topic, target in looked_up.items():
                if target is None:
                    known.pop(topic, None)
                    missing.append(topic)
                elif topic not in told:
                    known[topic] = self._unreached.seen(target)
            watched = dict.fromkeys(looked_up, now_s) | self._watched_s
            self._watched_s = {topic: since_s for topic, since_s in watched.items() if topic in known}
            self._missing.add(missing, now_s)
            self._missing.found(known.keys() & looked_up.keys())
            self._replace(known)
            self._changing.notify_all()
        return True

    def _replace(self, known: KnownTargets) -> None:
        """What is known from now on; guarded by `_changing`. Only what has changed costs more than a look."""
        now_s, led_again_s = time.monotonic(), self._led_again_s
        for topic, before in self._known.items():
            now = known.get(topic)
            if now is before or not before.leaderless:
                continue
            led_again = before.leaderless - (frozenset() if now is None else now.leaderless)
            self._note_led_again((topic, number) for number in led_again)
            self._unled_s = now_s
        while led_again_s and led_again_s[oldest := next(iter(led_again_s))] <= now_s - UNLED_FOR_S:
            del led_again_s[oldest]
        self._known = known
        self._unavailable = {
            topic: target.unavailable for topic, target in known.items() if target.unavailable
        }

    def _note_led_again(self, partitions: Iterable[PartitionId]) -> None:
        now_s = time.monotonic()
        for partition_id in partitions:
            self._led_again_s.pop(partition_id, None)  # the latest stand last
            self._led_again_s[partition_id] = now_s

    def _looked_up(self, topics: Collection[str], now_s: float) -> _LookedUp:
        """All that is to be known of topics. Raises `Unanswered`."""
        return {
            topic: None if one is None else _target(topic, *one, now_s, now_s + KNOWN_FOR_S)
            for topic, one in self._answers.looked_up(topics).items()
        }


class Counts(NamedTuple):
    """How many targets are known, missing, and asked for."""

    known: int
    missing: int
    wanted: int


def named(partitions: AbstractSet[PartitionId]) -> str:
    """Partitions as people write them."""
    return ", ".join(f"{topic}/{number}" for topic, number in sorted(partitions))


def _by_few(topics: Collection[str]) -> Iterator[list[str]]:
    names = list(topics)
    return (names[begin : begin + FEW] for begin in range(0, len(names), FEW))


def _target(topic: str, found: FoundTopic, limits: TopicLimits, now_s: float, until_s: float) -> Target:
    if not found.writable:
        detail = f"{topic} may not be written to by this node"
        return _obstructed(RejectCode.TARGET_FORBIDDEN, detail, now_s + MISSING_FOR_S)
    least, partitions = limits.least_in_sync, found.partitions
    if any(one.leader == NO_LEADER or len(one.in_sync) < min(least, one.replicas) for one in partitions):
        until_s = min(until_s, now_s + MISSING_FOR_S)
    brokers = {one.leader for one in partitions} - {NO_LEADER}
    if least > 1:
        brokers.update(*(one.in_sync for one in partitions))
    nothing: frozenset[int] = frozenset()
    return Target(partitions, limits, frozenset(brokers), nothing, nothing, obstacle=None, until_s=until_s)


def _obstructed(code: RejectCode, detail: str, until_s: float, *, told: bool = False) -> Target:
    nothing: frozenset[int] = frozenset()
    return Target((), NO_LIMITS, nothing, nothing, nothing, (code, detail), until_s, told)
