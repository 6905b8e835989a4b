"""The names that belong to one cluster: its topics, its transactional ids, its sources.

A source, `topic/partition/offset`, names one record for ever: it is the value of `delay-source` and the key
of an outcome (docs/design.md, "Words").
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Final, TypeAlias

# Kafka's own limit (its class Topic): the name and "-<partition>" must fit a file name.
TOPIC_MAX_LENGTH: Final = 249
MAX_OFFSET: Final = 2**63 - 1
MAX_PARTITION: Final = 2**31 - 1

PartitionId: TypeAlias = tuple[str, int]
"""Topic and partition."""

_LEGAL_TOPIC = re.compile(r"[a-zA-Z0-9._-]+", re.ASCII)
_SOURCE = re.compile(r"([^/]+)/([0-9]{1,10})/([0-9]{1,19})", re.ASCII)
_LONGEST_SUFFIX = ".dead-letter"


def is_legal_topic(topic: str) -> bool:
    """Whether Kafka takes `topic` as a name: 1 to 249 of a-z A-Z 0-9 . _ -, and neither "." nor ".."."""
    return (
        len(topic) <= TOPIC_MAX_LENGTH
        and _LEGAL_TOPIC.fullmatch(topic) is not None
        and topic not in (".", "..")
    )


def raw_source_format(topic: str) -> bytes:
    """What makes the source of a record of a topic, as a header has it, of its partition and offset: where
    many are made, one formatting each is what they may cost.
    """
    return topic.encode() + b"/%d/%d"


def source(topic: str, partition: int, offset: int) -> str:
    """The name of one record: `topic/partition/offset`."""
    return f"{topic}/{partition}/{offset}"


def parse_source(text: str) -> tuple[str, int, int]:
    """Split `topic/partition/offset`; ValueError says what a source looks like."""
    match = _SOURCE.fullmatch(text)
    if match is not None and is_legal_topic(match[1]):
        partition, offset = int(match[2]), int(match[3])
        if partition <= MAX_PARTITION and offset <= MAX_OFFSET:
            return match[1], partition, offset
    raise ValueError(f"{text[:300]!r} is no source: write topic/partition/offset, as in delay.buffer/0/42")


@dataclass(frozen=True, slots=True)
class ClusterNames:
    """The names of the cluster called `cluster`; ValueError if a topic could not be called that."""

    cluster: str = "delay"

    def __post_init__(self) -> None:
        if not is_legal_topic(self.cluster + _LONGEST_SUFFIX) or not self.cluster:
            raise ValueError(
                f"cluster name {self.cluster[:300]!r} cannot name a topic: use 1 to "
                f"{TOPIC_MAX_LENGTH - len(_LONGEST_SUFFIX)} of a-z A-Z 0-9 . _ -"
            )

    @property
    def buffer(self) -> str:
        """Every request, in the order it was made."""
        return self.cluster + ".buffer"

    @property
    def checkpoint(self) -> str:
        """What was delivered: one partition per lane."""
        return self.cluster + ".checkpoint"

    @property
    def outcomes(self) -> str:
        """What became of requests other than plain delivery."""
        return self.cluster + ".outcomes"

    @property
    def dead_letter(self) -> str:
        """What could not be accepted or delivered."""
        return self.cluster + ".dead-letter"

    @property
    def settings(self) -> str:
        """The cluster's settings, and what they were: one partition."""
        return self.cluster + ".settings"

    @property
    def audit(self) -> str:
        """What a watch has found: one partition. Nodes neither read nor write it."""
        return self.cluster + ".audit"

    @property
    def export(self) -> str:
        """What exports have asked for, and what came of it: one partition, of the operators' commands."""
        return self.cluster + ".export"

    @property
    def imports(self) -> str:
        """How far imports are: one partition, of the operators' commands."""
        return self.cluster + ".import"

    @property
    def own_topics(self) -> frozenset[str]:
        """The four topics of the cluster that nodes write to."""
        return frozenset((self.buffer, self.checkpoint, self.outcomes, self.dead_letter))

    def no_targets(self, *, later_too: bool = True) -> frozenset[str]:
        """All topics of the service's own. `later_too`: with what the first release does not know:
        that can be a target in the first meaning.
        """
        later = frozenset((self.settings, self.audit, self.export, self.imports))
        return self.own_topics | later if later_too else self.own_topics

    def is_forbidden_target(self, topic: str, *, later_too: bool = True) -> bool:
        """Whether `topic` can never be a target: the cluster's own topics, and Kafka's internal `__*`.
        `later_too`: False for what was asked for in the first meaning.
        """
        if topic.startswith("__"):
            return True
        if not topic.startswith(self.cluster):  # most often
            return False
        return topic in self.no_targets(later_too=later_too)

    @property
    def watch_transactional_id(self) -> str:
        """Of the watch: one at a time."""
        return f"{self.cluster}-watch"

    @property
    def settings_transactional_id(self) -> str:
        """Of who changes the settings: one at a time."""
        return f"{self.cluster}-settings"

    def transactional_id(self, lane: int, producer: str) -> str:
        """The id of producer "a" or "b" of a lane: the same on every node, so that a new leader fences."""
        return f"{self.cluster}-{lane}-{producer}"

    def transactional_ids(self, lane: int) -> tuple[str, str]:
        """Those of both, a first."""
        return self.transactional_id(lane, "a"), self.transactional_id(lane, "b")
