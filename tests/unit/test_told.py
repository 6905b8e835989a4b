"""Since when the outcomes topic is whole: what looks at it tell."""

from __future__ import annotations

import pytest

from store.told import EpochEnd, Look, Told, lacks, looked

KNOWN = Told("a", begin=10, end=20, leader_epoch=3, written_ms=5_000, whole_since_ms=1_000)


def test_the_first_topic_of_a_lane_that_has_carried_nothing_is_whole() -> None:
    look = Look("a", 0, 3, 3, 4_000, 9_000)
    assert looked(None, look, is_first=True) == Told("a", 0, 3, 3, 9_000, whole_since_ms=0)


def test_of_one_that_nobody_has_looked_at_before_nothing_older_is_believed() -> None:
    assert looked(None, Look("a", 0, 3, 3, 4_000, 9_000)).whole_since_ms == 9_000


@pytest.mark.parametrize("is_first", [True, False])
def test_one_that_was_made_anew_lacks_what_was_told_before_though_it_begins_at_its_beginning(
    *, is_first: bool
) -> None:
    look = Look("b", 0, 30, 3, 500, 9_000)
    assert looked(KNOWN, look, is_first=is_first) == Told("b", 0, 30, 3, 9_000, whole_since_ms=9_000)


@pytest.mark.parametrize(
    ("look", "since_ms"),
    [
        (Look("a", 10, 25, 3, 1_500, 9_000), 1_000),
        (Look("a", 12, 25, 3, 3_000, 9_000), 3_000),
        (Look("a", 12, 25, 3, 400, 9_000), 1_000),
        (Look("a", 20, 20, 3, None, 9_000), 5_000),
        (Look("a", 25, 25, 3, None, 9_000), 9_000),
    ],
    ids=[
        "nothing has gone",
        "something has that is no younger than what is left",
        "it was older than what is missed already",
        "all has that was there",
        "so has what came since",
    ],
)
def test_what_has_gone_is_as_young_as_it_can_be(look: Look, since_ms: int) -> None:
    assert looked(KNOWN, look).whole_since_ms == since_ms


def test_what_is_there_is_as_young_as_the_look_that_has_found_it_first() -> None:
    after = looked(KNOWN, Look("a", 10, 25, 3, 1_500, 9_000))
    assert (after.end, after.written_ms) == (25, 9_000)
    assert looked(after, Look("a", 10, 25, 3, 1_500, 12_000)) == after


@pytest.mark.parametrize(
    "look",
    [
        Look("a", 8, 19, 3, 900, 4_000),
        Look("a", 8, 19, 2, 900, 9_000),
        Look("a", 10, 25, 2, 900, 9_000, EpochEnd(1, 5)),
    ],
    ids=["of the same leader", "of one that leads no more", "which has grown on by itself"],
)
def test_a_look_from_before_the_last_one_tells_nothing(look: Look) -> None:
    assert looked(KNOWN, look) == KNOWN


@pytest.mark.parametrize(
    "look",
    [
        Look("a", 10, 19, 4, 900, 9_000, EpochEnd(3, 19)),
        Look("a", 10, 19, 4, 900, 9_000),
        Look("a", 10, 20, 4, 900, 9_000, EpochEnd(3, 19)),
        Look("a", 10, 25, 6, 900, 9_000, EpochEnd(3, 19)),
        Look("a", 10, 25, 6, 900, 9_000, EpochEnd(4, 19)),
        Look("a", 10, 25, 6, 900, 9_000, EpochEnd(3, -1)),
    ],
    ids=["it is shorter", "unasked", "it is as long again", "it has grown past it", "since", "unknown to it"],
)
def test_one_that_has_lost_its_end_under_a_later_leader_lacks_what_was_told_before(look: Look) -> None:
    after = looked(KNOWN, look)
    assert after == Told("a", 10, look.end, look.leader_epoch, 9_000, whole_since_ms=9_000)


def test_what_has_lost_its_end_is_not_whole_again_once_it_has_grown_past_it() -> None:
    shorter = looked(KNOWN, Look("a", 10, 15, 4, 900, 9_000, EpochEnd(3, 15)))
    longer = looked(shorter, Look("a", 10, 30, 4, 900, 12_000))
    assert (longer.end, longer.written_ms, longer.whole_since_ms) == (30, 12_000, 9_000)


@pytest.mark.parametrize("end", [20, 23, 25])
def test_a_later_leader_that_has_all_of_the_earlier_one_has_lost_nothing(end: int) -> None:
    after = looked(KNOWN, Look("a", 10, 25, 5, 900, 9_000, EpochEnd(3, end)))
    assert after == Told("a", 10, 25, 5, 9_000, whole_since_ms=1_000)


@pytest.mark.parametrize("earlier", [None, EpochEnd(2, 19), EpochEnd(4, 20)])
def test_a_later_leader_that_was_not_asked_about_what_is_known_tells_nothing(
    earlier: EpochEnd | None,
) -> None:
    assert looked(KNOWN, Look("a", 10, 25, 5, 900, 9_000, earlier)) == KNOWN


@pytest.mark.parametrize(
    ("told", "look", "why"),
    [
        (None, Look("a", 0, 3, 3, 900, 9_000), "no leader has looked at it yet"),
        (KNOWN, Look("b", 0, 30, 3, 900, 9_000), "it was made anew"),
        (KNOWN, Look("a", 10, 19, 4, 900, 9_000, EpochEnd(3, 19)), "it has lost its end"),
        (KNOWN, Look("a", 10, 25, 4, 900, 9_000, EpochEnd(3, 19)), "it has all since 9000 alone"),
        (KNOWN, Look("a", 12, 25, 3, 1_501, 9_000), "it has all since 1501 alone"),
        (KNOWN, Look("a", 12, 25, 3, 1_500, 9_000), None),
    ],
    ids=["unknown", "anew", "shorter", "grown past it", "too short", "whole"],
)
def test_who_begins_looks_whether_what_was_told_since_a_time_is_there(
    told: Told | None, look: Look, why: str | None
) -> None:
    assert lacks(told, look, since_ms=1_500) == why
