"""What is known of targets at one moment, and what that says of a record. It asks nobody, and no clock."""

from __future__ import annotations

from collections.abc import Mapping
from collections.abc import Set as AbstractSet

import msgspec

from delayline.partitioner import partition_for
from delayline.rejects import Code, RejectCode
from node.core.ports import ANY_PARTITION, TARGET_UNAVAILABLE, TARGET_UNKNOWN
from node.kafka.target_answers import NO_LEADER, Partition, TopicLimits


class Target(msgspec.Struct, frozen=True):
    """`leaderless`: the partitions whose leader is none, or cannot be reached; `unavailable`: those, and
    where too few replicas are in sync. `told`: a broker takes nothing for it, whatever the brokers say of it.
    `doubted`: by this nothing is refused.
    """

    states: tuple[Partition, ...]
    limits: TopicLimits
    brokers: frozenset[int]
    leaderless: frozenset[int]
    unavailable: frozenset[int]
    obstacle: tuple[Code, str] | None
    until_s: float
    told: bool = False
    doubted: bool = False

    @property
    def partitions(self) -> int:
        return len(self.states)

    def unavailable_partition(self, partition: int, key: bytes | None) -> int | None:
        """The unavailable partition that a record would go to. One without a key, for any partition, goes to
        one that is open (`KafkaTargets.open_partitions`), if there is one.
        """
        if partition == ANY_PARTITION and key is None:
            return 0 if len(self.unavailable) == self.partitions else None
        number = (
            partition_for(key, self.partitions)
            if partition == ANY_PARTITION and key is not None
            else partition
        )
        return number if number in self.unavailable else None


class Unreached(msgspec.Struct, frozen=True):
    """The brokers that this node does not reach, and those of them that count as out of sync."""

    brokers: frozenset[int] = frozenset()
    out_of_sync: frozenset[int] = frozenset()

    def seen(self, target: Target) -> Target:
        """With what is unavailable now. A leader is in sync with itself."""
        least = target.limits.least_in_sync
        leaderless = frozenset(
            number
            for number, partition in enumerate(target.states)
            if partition.leader == NO_LEADER or partition.leader in self.brokers
        )
        lacking = (
            number
            for number, partition in enumerate(target.states if least > 1 else ())
            if self._in_sync(partition) < min(least, partition.replicas)
        )
        return msgspec.structs.replace(target, leaderless=leaderless, unavailable=leaderless.union(lacking))

    def why_unavailable(self, target: Target, number: int) -> str:
        """What an unavailable partition lacks."""
        partition = target.states[number]
        if partition.leader == NO_LEADER:
            return "has no leader"
        if partition.leader in self.brokers:
            return f"has no leader: broker {partition.leader} is not reached"
        least = min(target.limits.least_in_sync, partition.replicas)
        return (
            f"has {self._in_sync(partition)} of {partition.replicas} replicas in sync, and asks for {least}"
        )

    def _in_sync(self, partition: Partition) -> int:
        return sum(broker not in self.out_of_sync for broker in partition.in_sync)


class KafkaTargetSnapshot:
    """Implements `node.core.ports.TargetSnapshot`. A topic that is neither known nor missing has not been
    looked up.
    """

    def __init__(
        self,
        known: Mapping[str, Target],
        missing: AbstractSet[str],
        unreached: Unreached,
        *,
        is_complete: bool,
    ) -> None:
        self._known = known
        self._missing = missing
        self._unreached = unreached
        self._is_complete = is_complete

    @property
    def is_complete(self) -> bool:
        return self._is_complete

    def takes_any(self, topic: str, size_bytes: int) -> bool:
        target = self._known.get(topic)
        if target is None or target.unavailable:
            return False
        return self.problem(topic, ANY_PARTITION, None, size_bytes) is None

    def problem(
        self, topic: str, partition: int, key: bytes | None, size_bytes: int
    ) -> tuple[Code, str] | None:
        target = self._known.get(topic)
        if target is None or target.obstacle is not None:
            return self.obstacle(topic)
        found = self._problem(topic, target, partition, key, size_bytes)
        if found is None or not target.doubted:
            return found
        return TARGET_UNKNOWN, f"{topic} has changed, perhaps"

    def obstacle(self, topic: str) -> tuple[Code, str] | None:
        """Why nothing at all can go to a topic, if so."""
        target = self._known.get(topic)
        if target is not None:
            return target.obstacle
        if topic in self._missing:
            return RejectCode.TARGET_MISSING, f"{topic} does not exist, or this node may not see it"
        return TARGET_UNKNOWN, f"the brokers have not said yet what {topic} is"

    def _problem(
        self, topic: str, target: Target, partition: int, key: bytes | None, size_bytes: int
    ) -> tuple[Code, str] | None:
        if target.limits.compacted and key is None:
            return RejectCode.UNDELIVERABLE, f"{topic} is compacted: it takes no message without a key"
        if partition >= target.partitions:
            return (
                RejectCode.TARGET_PARTITION,
                f"{topic} has {target.partitions} partitions, there is no {partition}",
            )
        if size_bytes > target.limits.limit_bytes:
            return RejectCode.TOO_LARGE, f"{size_bytes} bytes; {topic} takes {target.limits.limit_bytes}"
        number = target.unavailable_partition(partition, key) if target.unavailable else None
        if number is None:
            return None
        return TARGET_UNAVAILABLE, f"{topic}/{number} {self._unreached.why_unavailable(target, number)}"
