"""Since when a last stable offset stands still, and whose transaction holds it."""

from __future__ import annotations

from collections.abc import Mapping

from node.kafka.blocked import ASK_EVERY_MS, TOLD_AFTER_MS, LastStableOffsets
from node.kafka.fetch.transactions import TransactionOwner
from node.status import BlockedPartition
from store.checkpoint import Vector

NOW_MS = 1_800_000_000_000
HOLDER = TransactionOwner(7, "sink-1", NOW_MS - 100, 900_000)


class Kafka:
    """Knows who holds which partition, and what it was asked."""

    def __init__(self, **known: TransactionOwner) -> None:
        self.known = {int(partition[1:]): owner for partition, owner in known.items()}
        self.asked: list[Vector] = []

    def owners(self, ends: Vector) -> Mapping[int, TransactionOwner]:
        self.asked.append(ends)
        return {partition: self.known[partition] for partition in ends if partition in self.known}


def test_what_is_held_back_is_told_with_its_holder_once_it_has_stood_for_longer_than_is_usual() -> None:
    ends = LastStableOffsets(Kafka(p1=HOLDER).owners)
    assert ends.sounded({0: 9, 1: 30}, {0: 9, 1: 10}, NOW_MS) == []
    held = ends.sounded({0: 9, 1: 40}, {0: 9, 1: 10}, NOW_MS + TOLD_AFTER_MS)
    assert held == [BlockedPartition(1, 10, 30, NOW_MS, *HOLDER)]


def test_an_end_that_moves_is_held_back_anew() -> None:
    ends = LastStableOffsets(Kafka().owners)
    ends.sounded({0: 30}, {0: 10}, NOW_MS)
    assert ends.sounded({0: 30}, {0: 11}, NOW_MS + TOLD_AFTER_MS) == []
    (held,) = ends.sounded({0: 30}, {0: 11}, NOW_MS + 2 * TOLD_AFTER_MS)
    assert held.since_ms == NOW_MS + TOLD_AFTER_MS


def test_one_behind_which_nothing_is_is_not_held_back() -> None:
    ends = LastStableOffsets(Kafka().owners)
    ends.sounded({0: 30}, {0: 10}, NOW_MS)
    assert ends.sounded({0: 10}, {0: 10}, NOW_MS + TOLD_AFTER_MS) == []


def test_the_longest_held_comes_first() -> None:
    ends = LastStableOffsets(Kafka().owners)
    ends.sounded({0: 1, 1: 9}, {0: 1, 1: 2}, NOW_MS)
    ends.sounded({0: 5, 1: 9}, {0: 1, 1: 2}, NOW_MS + 1)
    held = ends.sounded({0: 5, 1: 9}, {0: 1, 1: 2}, NOW_MS + 1 + TOLD_AFTER_MS)
    assert [one.partition for one in held] == [1, 0]


def test_who_is_known_is_not_asked_for_again_and_who_is_not_now_and_then() -> None:
    kafka = Kafka(p0=HOLDER, p1=TransactionOwner(8))
    ends = LastStableOffsets(kafka.owners)
    first_ms = NOW_MS + TOLD_AFTER_MS
    for at_ms in (NOW_MS, first_ms, first_ms + 1, first_ms + ASK_EVERY_MS):
        ends.sounded({0: 9, 1: 9}, {0: 1, 1: 2}, at_ms)
    assert kafka.asked == [{0: 1, 1: 2}, {1: 2}]


def test_a_clock_that_is_set_back_shows_no_time_that_has_not_been() -> None:
    ends = LastStableOffsets(Kafka().owners)
    ends.sounded({0: 9}, {0: 1}, NOW_MS)
    assert ends.sounded({0: 9}, {0: 1}, NOW_MS - 3_600_000) == []
    (held,) = ends.sounded({0: 9}, {0: 1}, NOW_MS - 3_600_000 + TOLD_AFTER_MS)
    assert held.since_ms == NOW_MS - 3_600_000
