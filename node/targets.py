"""What is known of the target topics (rule 10): whether they exist, partitions, leaders and size limits.

Looked up before anything is produced: an unknown topic would hold its whole transaction back for as long
as the client is ready to wait for it. The lane's thread looks up what it has not met before; what is in use
is kept true by the watch (node/target_watch.py), so that no look-up holds a delivery back. Without the watch
it is kept for a while, so a topic that is made or changed is seen within that time.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Collection, Iterable, Sequence
from collections.abc import Set as AbstractSet
from concurrent.futures import Future
from typing import Any, Final, NamedTuple

import msgspec
from confluent_kafka import KafkaError, KafkaException, Node, TopicCollection
from confluent_kafka.admin import (  # type: ignore[attr-defined]  # missing from the stubs' __all__
    AclOperation,
    ConfigEntry,
    ConfigResource,
    ResourceType,
    TopicDescription,
)

from delayline.partitioner import partition_for
from node.broker_links import Address
from node.ports import ANY_PARTITION, UNAVAILABLE, Doubtful
from node.refusal import Refusing, own_topic_unusable
from node.topics import Answers, admin_client, ask

KNOWN_FOR_S: Final = 60.0
RENEWED_BEFORE_S: Final = 10.0
MISSING_FOR_S: Final = 5.0
REFUSED_FOR_S: Final = 5.0
MOST_BYTES: Final = 100_000_000
"""Brokers end the connection on a request above `socket.request.max.bytes`, 100 MiB by default: what cannot
be sent must not be tried, whatever the topic's own limit says, or its transaction is begun again for ever.
"""
BATCH_BYTES: Final = 1_000_000
SMALLEST_BATCH_BYTES: Final = 1_024
NO_LEADER: Final = -1

Place = tuple[str, int]
"""A topic and one of its partitions."""


class _Target(msgspec.Struct, frozen=True):
    """`leaders`: the broker of each partition, or `NO_LEADER`; `leaderless`: those whose leader is none, or
    cannot be reached. `told`: a broker has refused it, whatever the brokers say of it.
    """

    leaders: tuple[int, ...]
    limit_bytes: int
    compacted: bool
    leaderless: frozenset[int]
    refusal: tuple[str, str] | None
    until_s: float
    told: bool = False

    @property
    def partitions(self) -> int:
        return len(self.leaders)


class _Found(NamedTuple):
    leaders: tuple[int, ...]
    addresses: dict[int, Address]
    writable: bool


class _Limits(NamedTuple):
    limit_bytes: int
    compacted: bool


_Targets = dict[str, _Target]

# A topic that this node may not see is no different from one that is not there.
_MISSING: Final = frozenset((KafkaError.UNKNOWN_TOPIC_OR_PART, KafkaError.TOPIC_AUTHORIZATION_FAILED))


class KafkaTargets:
    """Implements `node.ports.Targets`. Used by the lane's thread and, where it says so, by the watch's;
    `changed`, `refuse`, `led` and `unled` by any.
    """

    def __init__(
        self, client_config: dict[str, Any], reach: Callable[[dict[int, Address]], frozenset[int]]
    ) -> None:
        """`reach`: says which of some brokers cannot be reached."""
        self._reach = reach
        self._admin = admin_client(client_config)
        self._changing = threading.Lock()
        self._known: _Targets = {}  # never changed in place: who reads it needs no lock
        self._asked_s: dict[str, float] = {}  # when each was last learnt; the lane's own
        self._addresses: dict[int, Address] = {}  # of the brokers that lead any of them; replaced as a whole
        self._gone: frozenset[int] = frozenset()
        self._unled_s: dict[Place, float] = {}  # when each was last seen without a leader
        self._doubts = 0

    # -- the lane

    def learn(self, topics: AbstractSet[str]) -> None:
        """See the port."""
        now_s = time.monotonic()
        known = self._known
        self._asked_s.update(dict.fromkeys(topics, now_s))
        unknown = [topic for topic in topics if topic not in known or known[topic].until_s < now_s]
        if unknown:
            self._publish(self._looked_up(unknown, now_s), self._doubts)
            self._reach_leaders()
            # The names are the users': what nobody has asked for in a while must not pile up.
            self._asked_s = {t: at_s for t, at_s in self._asked_s.items() if at_s > now_s - KNOWN_FOR_S}

    def _reach_leaders(self) -> None:
        gone, brokers = self._gone, self.brokers()
        self.lose(gone | self._reach({broker: at for broker, at in brokers.items() if broker not in gone}))

    def require(self, topics: frozenset[str]) -> None:
        """See the port."""
        self.learn(topics)
        for topic in sorted(topics):
            refusal = self._known[topic].refusal
            if refusal is not None:
                raise Refusing(own_topic_unusable(refusal[1]))

    def open_to_all(self, topic: str, size_bytes: int) -> bool:
        """See the port."""
        target = self._known[topic]
        return not target.leaderless and self.problem(topic, ANY_PARTITION, None, size_bytes) is None

    def problem(
        self, topic: str, partition: int, key: bytes | None, size_bytes: int
    ) -> tuple[str, str] | None:
        """See the port."""
        target = self._known[topic]
        if target.refusal is not None:
            return target.refusal
        if target.compacted and key is None:
            return "undeliverable", f"{topic} is compacted: it takes no message without a key"
        if partition >= target.partitions:
            return "target-partition", f"{topic} has {target.partitions} partitions, there is no {partition}"
        if size_bytes > target.limit_bytes:
            return "too-large", f"about {size_bytes} bytes; {topic} takes {target.limit_bytes}"
        place = _leaderless(target, partition, key) if target.leaderless else None
        return None if place is None else (UNAVAILABLE, f"{topic}/{place} {self._why(target, place)}")

    def doubt(self) -> None:
        """See the port."""
        now_s = time.monotonic()
        with self._changing:
            self._doubts += 1
            self._known = {
                topic: msgspec.structs.replace(target, until_s=now_s) if target.refusal is None else target
                for topic, target in self._known.items()
            }

    def batch_bytes(self) -> int:
        """The largest batch that every known target takes: a broker's limit is on the whole batch."""
        limits = (target.limit_bytes for target in self._known.values() if target.refusal is None)
        return max(SMALLEST_BATCH_BYTES, min(BATCH_BYTES, *limits, BATCH_BYTES))

    # -- any thread

    def refuse(self, topic: str, code: str, detail: str) -> None:
        """A broker has refused the topic: its messages go to the dead-letter topic for a while."""
        refused = _refused(code, detail, time.monotonic() + REFUSED_FOR_S, told=True)
        with self._changing:
            self._known = {**self._known, topic: refused}

    def changed(self, topics: set[str], unled: set[Place]) -> str | None:
        """One of them that has gone, has a partition without a leader that is not among `unled`, or another
        number of partitions than when it was looked up. Raises `Doubtful`.
        """
        lost = sorted(topic for topic, _ in self.unled(topics) - unled)
        if lost or not topics:
            return lost[0] if lost else None
        known = self._known
        for topic, found in self._described(topics).items():
            if found is None or (topic in known and len(found.leaders) != known[topic].partitions):
                return topic
            if any(
                leader == NO_LEADER
                for number, leader in enumerate(found.leaders)
                if (topic, number) not in unled
            ):
                return topic
        return None

    def led(self, topic: str) -> Sequence[int]:
        """The partitions that have a leader, if some have and some have none; else nothing."""
        target = self._known.get(topic)
        if target is None or not target.leaderless:
            return ()
        return [number for number in range(target.partitions) if number not in target.leaderless]

    def unled(self, topics: AbstractSet[str] | None = None) -> set[Place]:
        """The partitions of these targets, or of all in use, that have no leader."""
        return {
            (topic, number)
            for topic, target in self._known.items()
            if topics is None or topic in topics
            for number in target.leaderless
        }

    def unled_since(self, since_s: float) -> set[Place]:
        """The partitions of targets that were seen without a leader then, by `time.monotonic`, or later."""
        return {place for place, seen_s in self._unled_s.items() if seen_s >= since_s}

    # -- the watch

    def look(self) -> None:
        """Looks up whatever is in use: its partitions and leaders, and the rest of it where that has become
        old. Raises `Doubtful`.
        """
        now_s, doubts = time.monotonic(), self._doubts
        known, asked_s = self._known, self._asked_s.copy()
        used = [t for t, one in known.items() if asked_s.get(t, 0) > now_s - KNOWN_FOR_S and not one.told]
        old = [t for t in used if known[t].refusal is not None or known[t].until_s < now_s + RENEWED_BEFORE_S]
        young = [topic for topic in used if topic not in old]
        looked_up = self._looked_up(old, now_s) if old else {}
        for topic, found in (self._described(young) if young else {}).items():
            limits = _Limits(known[topic].limit_bytes, known[topic].compacted)
            looked_up[topic] = self._target(topic, found, limits, now_s, known[topic].until_s)
        self._publish(looked_up, doubts)

    def brokers(self) -> dict[int, Address]:
        """The brokers that lead a partition of a target in use."""
        leaders = {leader for target in self._known.values() for leader in target.leaders}
        addresses = self._addresses
        return {leader: addresses[leader] for leader in leaders if leader in addresses}

    def lose(self, gone: frozenset[int]) -> None:
        """These brokers, and no others, cannot be reached: the partitions that they lead are as good as
        without a leader, long before the brokers' controller says so.
        """
        if gone != self._gone:
            with self._changing:
                self._gone = gone
                self._known = self._seen(self._known)

    # --

    def _publish(self, learnt: _Targets, doubts: int) -> None:
        """Unless it was looked up before the last doubt: that may be what is wrong with it. What a broker has
        refused stays so for its time.
        """
        now_s = time.monotonic()
        with self._changing:
            if doubts != self._doubts:
                return
            known = {t: known for t, known in self._known.items() if known.until_s > now_s - KNOWN_FOR_S}
            told = {
                topic: target for topic, target in known.items() if target.told and target.until_s > now_s
            }
            self._known = known | self._seen(learnt) | told

    def _seen(self, targets: _Targets) -> _Targets:
        """With what has no leader now, which is noted."""
        now_s, out = time.monotonic(), self._gone | {NO_LEADER}
        seen: _Targets = {}
        for topic, target in targets.items():
            leaderless = frozenset(number for number, leader in enumerate(target.leaders) if leader in out)
            seen[topic] = msgspec.structs.replace(target, leaderless=leaderless)
            # Replaced as a whole: who reads it needs no lock.
            self._unled_s = self._unled_s | dict.fromkeys(((topic, number) for number in leaderless), now_s)
        return seen

    def _why(self, target: _Target, place: int) -> str:
        leader = target.leaders[place]
        return "has no leader" if leader == NO_LEADER else f"has no leader: broker {leader} is not reached"

    def _looked_up(self, topics: Collection[str], now_s: float) -> _Targets:
        """All that is to be known of topics. Raises `Doubtful`."""
        configs, descriptions = ask(
            self._admin,
            next(iter(topics)),
            lambda timeout_s: self._ask_for_limits(topics, timeout_s),
            lambda timeout_s: self._ask_for_descriptions(topics, timeout_s),
        )
        looked_up: _Targets = {}
        for topic, found in self._all_found(descriptions).items():
            open_ = found is not None and found.writable
            limits = _limits(topic, configs[topic]) if open_ else _Limits(0, compacted=False)
            looked_up[topic] = self._target(topic, found, limits, now_s, now_s + KNOWN_FOR_S)
        return looked_up

    def _target(
        self, topic: str, found: _Found | None, limits: _Limits, now_s: float, until_s: float
    ) -> _Target:
        if found is None:
            detail = f"{topic} does not exist, or this node may not see it"
            return _refused("target-missing", detail, now_s + MISSING_FOR_S)
        if not found.writable:
            detail = f"{topic} may not be written to by this node"
            return _refused("target-forbidden", detail, now_s + MISSING_FOR_S)
        if NO_LEADER in found.leaders:
            until_s = min(until_s, now_s + MISSING_FOR_S)
        return _Target(found.leaders, *limits, leaderless=frozenset(), refusal=None, until_s=until_s)

    def _described(self, topics: Collection[str]) -> dict[str, _Found | None]:
        """What the brokers say of topics; None of those that are not there. Raises `Doubtful`."""
        (descriptions,) = ask(
            self._admin,
            next(iter(topics)),
            lambda timeout_s: self._ask_for_descriptions(topics, timeout_s),
        )
        return self._all_found(descriptions)

    def _all_found(self, descriptions: Answers) -> dict[str, _Found | None]:
        found = {topic: _found(topic, future) for topic, future in descriptions.items()}
        addresses = {broker: at for one in found.values() if one for broker, at in one.addresses.items()}
        with self._changing:
            self._addresses = self._addresses | addresses
        return found

    def _ask_for_descriptions(self, topics: Collection[str], timeout_s: float) -> Answers:
        wanted = TopicCollection(list(topics))
        return dict(
            self._admin.describe_topics(wanted, include_authorized_operations=True, request_timeout=timeout_s)
        )

    def _ask_for_limits(self, topics: Iterable[str], timeout_s: float) -> Answers:
        resources = [ConfigResource(ResourceType.TOPIC, topic) for topic in topics]
        futures = self._admin.describe_configs(resources, request_timeout=timeout_s)
        return {resource.name: future for resource, future in futures.items()}


def named(places: AbstractSet[Place]) -> str:
    """Partitions as people write them."""
    return ", ".join(f"{topic}/{number}" for topic, number in sorted(places))


def _found(topic: str, future: Future[TopicDescription]) -> _Found | None:
    try:
        found = future.result()
    except KafkaException as error:
        if error.args[0].code() in _MISSING:
            return None
        raise Doubtful(f"{topic} cannot be looked up: {error}") from error
    # Of a partition without a leader the client says None; LEADER_NOT_AVAILABLE is no error of the topic's.
    led_by: dict[int, Node | None] = {one.id: one.leader for one in found.partitions}
    nodes = [led_by[number] for number in sorted(led_by)]
    leaders = tuple(NO_LEADER if node is None else node.id for node in nodes)
    addresses = {node.id: (node.host, node.port) for node in nodes if node is not None}
    return _Found(leaders, addresses, AclOperation.WRITE in found.authorized_operations)


def _leaderless(target: _Target, partition: int, key: bytes | None) -> int | None:
    """The partition without a leader that a record would go to. One without a key, for any partition, goes to
    one with a leader (`led`), if there is one.
    """
    if partition == ANY_PARTITION and key is None:
        return 0 if len(target.leaderless) == target.partitions else None
    place = (
        partition_for(key, target.partitions) if partition == ANY_PARTITION and key is not None else partition
    )
    return place if place in target.leaderless else None


def _refused(code: str, detail: str, until_s: float, *, told: bool = False) -> _Target:
    return _Target(
        (), 0, compacted=False, leaderless=frozenset(), refusal=(code, detail), until_s=until_s, told=told
    )


def _limits(topic: str, future: Future[dict[str, ConfigEntry]]) -> _Limits:
    """The largest batch, and whether each record needs a key. A topic may be open for writing and its
    configuration closed: then the broker decides.
    """
    try:
        config = future.result()
        compacted = "compact" in (config["cleanup.policy"].value or "")
        return _Limits(min(int(config["max.message.bytes"].value or MOST_BYTES), MOST_BYTES), compacted)
    except KafkaException as error:
        if error.args[0].code() == KafkaError.TOPIC_AUTHORIZATION_FAILED:
            return _Limits(MOST_BYTES, compacted=False)
        raise Doubtful(f"the limits of {topic} cannot be looked up: {error}") from error
