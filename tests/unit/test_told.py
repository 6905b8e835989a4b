"""Since when the outcomes topic is whole: what looks at it tell."""

from __future__ import annotations

import pytest

from store.told import Look, Told, looked

KNOWN = Told("a", begin=10, end=20, written_ms=5_000, whole_since_ms=1_000)


def test_the_first_topic_of_a_lane_that_has_carried_nothing_is_whole() -> None:
    look = Look("a", 0, 3, 4_000, 9_000)
    assert looked(None, look, is_first=True) == Told("a", 0, 3, 9_000, whole_since_ms=0)


def test_of_one_that_nobody_has_looked_at_before_nothing_older_is_believed() -> None:
    assert looked(None, Look("a", 0, 3, 4_000, 9_000)).whole_since_ms == 9_000


@pytest.mark.parametrize("is_first", [True, False])
def test_one_that_was_made_anew_lacks_what_was_told_before_though_it_begins_at_its_beginning(
    *, is_first: bool
) -> None:
    look = Look("b", 0, 30, 500, 9_000)
    assert looked(KNOWN, look, is_first=is_first) == Told("b", 0, 30, 9_000, whole_since_ms=9_000)


@pytest.mark.parametrize(
    ("look", "since_ms"),
    [
        (Look("a", 10, 25, 1_500, 9_000), 1_000),
        (Look("a", 12, 25, 3_000, 9_000), 3_000),
        (Look("a", 12, 25, 400, 9_000), 1_000),
        (Look("a", 20, 20, None, 9_000), 5_000),
        (Look("a", 25, 25, None, 9_000), 9_000),
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
    after = looked(KNOWN, Look("a", 10, 25, 1_500, 9_000))
    assert (after.end, after.written_ms) == (25, 9_000)
    assert looked(after, Look("a", 10, 25, 1_500, 12_000)) == after


def test_a_look_from_before_the_last_one_tells_nothing() -> None:
    assert looked(KNOWN, Look("a", 8, 19, 900, 4_000)) == KNOWN
