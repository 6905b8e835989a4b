"""Which requests of one id are duplicates, by the log."""

from __future__ import annotations

from typing import Any

import pytest

from pipeline.audit.duplicates import IdEvent, duplicates_of

WINDOW_MS = 100


def event(offset: int, newest_ms: int, due_ms: int | None = None, **more: Any) -> IdEvent:
    found = {"kind": "schedule", "parent": None, "keep": False, "most_ms": newest_ms} | more
    return IdEvent(offset=offset, newest_ms=newest_ms, due_ms=due_ms, **found)


FIRST = event(0, 0, due_ms=50)
CANCEL = event(1, 10, kind="cancel")


def known_from_ms(_: int, newest_ms: int) -> int:
    return newest_ms - WINDOW_MS


@pytest.mark.parametrize(
    ("events", "duplicates"),
    [
        ([FIRST, event(1, 10, 500, keep=True)], [1]),
        ([FIRST, event(1, 149, 500, keep=True)], [1]),
        ([FIRST, event(1, 150, 500, keep=True)], []),
        ([FIRST, event(1, 150, 500, keep=True), event(2, 160, 170, keep=True)], [2]),
        ([FIRST, event(1, 10, 900, keep=True), event(2, 150, 160, keep=True)], [1]),
        ([FIRST, event(1, 10, 900)], []),
        ([event(0, 0, 50, keep=True)], []),
        ([FIRST, CANCEL, event(2, 20, 60, keep=True)], []),
        ([FIRST, event(1, 60, 400, parent=0), event(2, 300, 500, keep=True)], [2]),
        ([FIRST, CANCEL, event(2, 60, 400, parent=0), event(3, 300, 500, keep=True)], []),
    ],
    ids=[
        "known", "known to the end of the window", "known no more", "known since it was accepted",
        "a duplicate makes nothing known for longer", "it does not ask", "unknown", "cancelled",
        "written back", "written back too late",
    ],
)  # fmt: skip
def test_duplicates_are_those_whose_id_is(events: list[IdEvent], duplicates: list[int]) -> None:
    assert duplicates_of(events, known_from_ms) == duplicates


@pytest.mark.parametrize(
    ("events", "duplicates"),
    [
        ([event(5, 10, 500, keep=True, told=True)], [5]),
        ([event(5, 10, 500, keep=True)], []),
        ([event(5, 10, 500, keep=True), event(6, 20, 500, keep=True)], [6]),
        ([event(5, 10, 500, keep=True, told=True), event(6, 20, 500, keep=True)], [5]),
        ([event(5, 10, 50), event(6, 200, 500, keep=True, told=True)], []),
        ([event(5, 10, kind="cancel"), event(6, 20, 60, keep=True, told=True)], []),
    ],
    ids=[
        "as an outcome says", "no outcome says so", "known since it was accepted", "each by its own outcome",
        "the log says when it was known last", "the log says that it was cancelled",
    ],
)  # fmt: skip
def test_where_the_log_has_lost_its_beginning_outcomes_tell_what_it_does_not(
    events: list[IdEvent], duplicates: list[int]
) -> None:
    assert duplicates_of(events, known_from_ms, cut=True) == duplicates


@pytest.mark.parametrize(
    ("most_ms", "told", "duplicates"),
    [(149, False, [6]), (150, False, []), (150, True, [6]), (None, False, []), (None, True, [6])],
    ids=["known at most too", "perhaps unknown", "told", "nobody knows", "nobody knows, and told"],
)
def test_where_a_newer_timestamp_may_be_gone_outcomes_tell_what_the_log_does_not(
    most_ms: int | None, duplicates: list[int], *, told: bool
) -> None:
    events = [event(5, 10, 50), event(6, 20, 500, keep=True, told=told, most_ms=most_ms)]
    assert duplicates_of(events, known_from_ms, cut=True) == duplicates


def test_what_is_unknown_by_what_is_left_is_no_duplicate_whatever_is_told() -> None:
    events = [event(5, 10, 50), event(6, 150, 500, keep=True, told=True, most_ms=None)]
    assert duplicates_of(events, known_from_ms, cut=True) == []
