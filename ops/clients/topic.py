"""A topic as it must be, and as it is."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal

Rule = Literal["exactly", "at least", "free"]


@dataclass(frozen=True, slots=True)
class Setting:
    """A topic setting as `topics create` makes it, and how far an operator may change it."""

    key: str
    value: str
    rule: Rule
    why: str = ""

    def allows(self, actual: str) -> bool:
        """Whether `actual` keeps what the rule guards; -1 is Kafka's "no limit"."""
        if self.rule == "free":
            return True
        if self.rule == "exactly":
            return actual == self.value
        return actual == "-1" or int(actual) >= int(self.value)


@dataclass(frozen=True, slots=True)
class WantedTopic:
    """A topic as it must be; `partitions` is their exact number, the least, or what a new one gets.
    `outlives`: the topic that keeps its records no longer than this one.
    """

    name: str
    partitions: int
    rule: Literal["exactly", "at least", "any"]
    settings: tuple[Setting, ...]
    outlives: str | None = None

    def takes(self, partitions: int) -> bool:
        """Whether a topic with so many will do."""
        if self.rule == "exactly":
            return partitions == self.partitions
        return self.rule == "any" or partitions >= self.partitions


@dataclass(frozen=True, slots=True)
class Topic:
    """A topic as it is: `replication` is that of its least replicated partition. `unavailable`: the
    partitions where nothing can be committed now, for want of a leader or of replicas in sync.
    """

    name: str
    partitions: int
    replication: int
    settings: Mapping[str, str] = field(default_factory=dict)
    unavailable: tuple[int, ...] = ()


def min_insync_replicas(replication: int) -> int:
    """A majority of three or more; of fewer replicas one: else one broker's restart stops the service."""
    return replication // 2 + 1 if replication > 2 else 1
