"""Finding letters in the dead-letter topic."""

from __future__ import annotations

import heapq
from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field, replace

from delayline.names import ClusterNames
from node.config import KafkaConfig
from ops.clients.kafka import KafkaAdmin
from ops.clients.records import records_at, records_from
from ops.dead_letter.letter import Letter, read_letter, render_place
from ops.errors import NotFoundError
from store.keys import RecordId

NO_LETTER = "none"
"""What stands for the code of a record that is no dead letter of the service."""


@dataclass(frozen=True, slots=True)
class LetterFilter:
    """Which letters: None and empty mean any. The times are the letters' own, `to_ms` exclusive."""

    codes: frozenset[str] = frozenset()
    target: str | None = None
    id: str | None = None
    from_ms: int | None = None
    to_ms: int | None = None

    def takes(self, letter: Letter) -> bool:
        """Whether it is one of them."""
        return (
            (not self.codes or letter.code in self.codes)
            and (self.target is None or letter.target == self.target)
            and (self.id is None or letter.id == self.id)
            and (self.from_ms is None or letter.at_ms >= self.from_ms)
            and (self.to_ms is None or letter.at_ms < self.to_ms)
        )


@dataclass(slots=True)
class LetterListing:
    """Some letters, in order, and how many there are of each code in all."""

    letters: list[Letter]
    codes: Counter[str] = field(default_factory=Counter)


def listed(letters: Iterable[Letter], limit: int, *, oldest_first: bool) -> LetterListing:
    """The newest or the oldest letters, and the counts of all; holds no more than `limit` of them."""
    listing = LetterListing([])

    def counted() -> Iterator[Letter]:
        for letter in letters:
            listing.codes[letter.code or NO_LETTER] += 1
            yield replace(letter, value=None)  # nobody looks at it, and it may be large

    pick = heapq.nsmallest if oldest_first else heapq.nlargest
    listing.letters = pick(limit, counted(), key=age_order)
    return listing


def age_order(letter: Letter) -> tuple[int, RecordId]:
    """Older letters first."""
    return letter.at_ms, letter.record_id


def find(config: KafkaConfig, wanted: LetterFilter) -> Iterator[Letter]:
    """The letters that are wanted, each partition's in order.

    Raises NotFoundError if the topic is missing, and what `ops.clients.records` raises.
    """
    topic = ClusterNames(config.cluster).dead_letter
    begins = KafkaAdmin(config).begins(topic, wanted.from_ms)
    return (
        letter for letter in map(read_letter, records_from(config, topic, begins)) if wanted.takes(letter)
    )


def find_at(config: KafkaConfig, record_ids: Iterable[RecordId]) -> Iterator[Letter]:
    """The letters with these record ids, in the order of ids; NotFoundError if one is not there."""
    topic = ClusterNames(config.cluster).dead_letter
    partitions = KafkaAdmin(config).require(topic).partitions
    wanted = sorted(set(record_ids))
    _require([one for one in wanted if one[0] not in partitions], topic)
    found = [read_letter(message) for message in records_at(config, topic, wanted)]
    _require(sorted(set(wanted) - {letter.record_id for letter in found}), topic)
    return iter(found)


def _require(missing: list[RecordId], topic: str) -> None:
    if missing:
        places = " ".join(map(render_place, missing[:10]))
        raise NotFoundError(
            f"{topic} has no letter at {places}: 'delayline dead-letter list' shows the places"
        )
