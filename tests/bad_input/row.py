"""A row of the table: one record of the buffer topic, and what must come of it."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple, TypeAlias

from delayline.headers import H_ID, H_TARGET_TOPIC, PREFIX
from delayline.names import ClusterNames
from delayline.partitioner import partition_for
from delayline.settings import ClusterSettings
from node.kafka.fetch.records import MOST_HEADERS, MOST_UNPACKED_BYTES

RawHeader: TypeAlias = tuple[str | bytes, bytes | None]
"""A key in bytes is one that is not UTF-8: no client library sends it, and none reads it."""

PARTITIONS = 2
"""Of the buffer, and of each target."""

LEVELS_MS = (100, 200)
OLDER_OFFSETS = 4
"""The first records of partition 0 are none of the table's: forged parents and roots point to them."""

TARGET: RawHeader = (H_TARGET_TOPIC, b"{targets}.orders")
_TOKEN = re.compile(rb"\{(cluster|targets|\d+)\}")


class Names(NamedTuple):
    """Where a request is sent, so what stands for the braces in its headers: `{cluster}`; `{targets}`, with
    which the topics that are allowed as targets begin; `{249}`, such a topic of so many characters.
    """

    cluster: str
    targets: str

    @property
    def names(self) -> ClusterNames:
        return ClusterNames(self.cluster)

    @property
    def settings(self) -> ClusterSettings:
        return ClusterSettings(
            cluster=self.cluster, partitions=PARTITIONS, levels_ms=LEVELS_MS, targets=(f"{self.targets}.*",)
        )

    def resolved(self, raw: bytes) -> bytes:
        return _TOKEN.sub(lambda match: self._meant(match[1].decode()), raw)

    def _meant(self, token: str) -> bytes:
        if token == "cluster":
            return self.cluster.encode()
        if token == "targets":
            return self.targets.encode()
        return f"{self.targets}.".ljust(int(token), "x").encode()


class Rejected(NamedTuple):
    """A dead letter at once: the parser finds it. `whole`: the letter has the value, too."""

    code: str
    whole: bool = True


class Undelivered(NamedTuple):
    """A dead letter when it is due; `says`: what its detail has. `whole`: the letter has the value, too."""

    code: str
    says: str
    whole: bool = True


class Delivered(NamedTuple):
    """It is no mistake. None: as for any sound request."""

    scheduled_for_ms: int | None = None
    after_ms: int = 0  # counted from the request, where there is no time of its own
    key: tuple[bytes | None] | None = None
    partition: int | None = None
    occurrence: int | None = None


class Answered(NamedTuple):
    """A cancel or reschedule that is sound, with its outcome."""

    outcome: str


Fate: TypeAlias = Rejected | Undelivered | Delivered | Answered


@dataclass(frozen=True, slots=True, kw_only=True)
class Row:
    """`odd`: what is wrong, or may look so; `base`: what makes a request of it."""

    group: str
    label: str
    odd: tuple[RawHeader, ...] = ()
    base: tuple[RawHeader, ...] = (TARGET,)
    fate: Fate
    key: bytes | None = b"k"
    value: bytes | None = b"v"
    zeros: int = 0  # instead of the value, so many of them, compressed with `codec`
    codec: str | None = None
    batch_bytes: int = 0  # the value is of the length that makes a batch of this size
    timestamp_ms: int = 0  # the producer's own; 0: none
    misplaced: bool = False  # in another partition than its id's

    @property
    def name(self) -> str:
        return f"{self.group}: {self.label}"

    @property
    def raw(self) -> bool:
        """Whether no client library can send it."""
        return any(isinstance(key, bytes) for key, _ in self.headers)

    @property
    def unpacks(self) -> bool:
        """Whether the node reads anything of it."""
        return self.zeros < MOST_UNPACKED_BYTES

    @property
    def readable(self) -> bool:
        """Whether the node sees any of its headers."""
        return not self.raw and len(self.headers) <= MOST_HEADERS and self.unpacks

    @property
    def headers(self) -> tuple[RawHeader, ...]:
        return self.base + self.odd

    def headers_in(self, place: Names) -> list[tuple[str, bytes | None]]:
        """What is sent; none of those that cannot be read."""
        return [
            (key, None if value is None else place.resolved(value))
            for key, value in self.headers
            if isinstance(key, str)
        ]

    @property
    def partition(self) -> int:
        """That of the last id among the headers, if there is one."""
        ids = [value for key, value in self.headers if key == H_ID and value is not None]
        home = partition_for(ids[-1], PARTITIONS) if ids else 0
        return 1 - home if self.misplaced else home


def users_own(headers: Sequence[tuple[str, bytes | None]]) -> list[tuple[str, bytes | None]]:
    """The headers that are delivered."""
    return [header for header in headers if not header[0].startswith(PREFIX)]


def values_of(
    name: str, values: dict[str, bytes], fate: Fate, base: tuple[RawHeader, ...] = (TARGET,)
) -> list[Row]:
    """A row for each value of a header, by its label."""
    return [
        Row(group=name, label=label, base=base, odd=((name, raw),), fate=fate)
        for label, raw in values.items()
    ]


def not_once(name: str, good: bytes, base: tuple[RawHeader, ...] = (TARGET,)) -> list[Row]:
    """There twice, and with a null value."""
    twice, null = Rejected("duplicate-header"), Rejected("null-header")
    return [
        Row(group=name, label="twice", base=base, odd=((name, good), (name, good)), fate=twice),
        Row(group=name, label="twice, once null", base=base, odd=((name, good), (name, None)), fate=twice),
        Row(group=name, label="null", base=base, odd=((name, None),), fate=null),
    ]
