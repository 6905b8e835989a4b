"""The audit's judgement of one occurrence: what became of it, and what was written back after it."""

from __future__ import annotations

from typing import Any

import pytest

from delayline.recurrence import ALL, LATEST, SAME_INTERVAL, SKIP, Recurrence
from pipeline.audit.chain import ChainLink, Following, flaws_of, link_of

AT_MS = 1_795_255_200_000
EVERY_SECOND = Recurrence(None, 1_000, SAME_INTERVAL, None, None, None, ALL)
CRON = Recurrence("*/10 * * * * *", 0, SAME_INTERVAL, None, None, None, ALL)
NEXT = Following(7, "delay.buffer/0/7", 3, AT_MS + 1_000, EVERY_SECOND)
RIGHT = ChainLink(2, AT_MS, EVERY_SECOND, "delivered", None, AT_MS + 5, AT_MS, settled=True, following=NEXT)
FIRST = Following(1, "delay.buffer/0/1", 1, AT_MS + 10_000, CRON)
BEGUN = ChainLink(None, AT_MS + 1, CRON, "begun", None, None, None, settled=True, following=FIRST)
LATE_MS = AT_MS + 2_500
PARKED = RIGHT._replace(end="parked", as_ms=None, following=NEXT._replace(number=2, at_ms=AT_MS))


def link(**changes: Any) -> ChainLink:
    return RIGHT._replace(**changes)


def recurring(missed: str, **changes: Any) -> ChainLink:
    """The same, taken when the next two were due."""
    recurrence = EVERY_SECOND._replace(missed=missed)
    following = NEXT._replace(recurrence=recurrence, **changes.pop("follows", {}))
    return link(recurrence=recurrence, now_ms=LATE_MS, following=following, **changes)


def kinds(one: ChainLink) -> list[str]:
    return [kind for kind, _ in flaws_of(one)]


@pytest.mark.parametrize(
    "right",
    [
        RIGHT,
        link(settled=False, following=None),
        link(end="pending", following=None, settled=False),
        link(recurrence=EVERY_SECOND._replace(times=2), following=None),
        link(recurrence=EVERY_SECOND._replace(until_ms=AT_MS + 999), following=None),
        link(end="dead-lettered", code="undeliverable", following=None),
        link(end="dead-lettered", code="target-missing"),
        recurring(LATEST, as_ms=AT_MS + 2_000, follows={"at_ms": AT_MS + 3_000}),
        recurring(LATEST, as_ms=AT_MS + 2_000, follows={"at_ms": AT_MS + 3_000})._replace(now_ms=None),
        recurring(SKIP, end="skipped", as_ms=None, follows={"number": 2, "at_ms": AT_MS + 2_000}),
        PARKED,
        BEGUN,
        link(recurrence=CRON._replace(time_zone="Nowhere/Atall"), following=None),
    ],
    ids=[
        "followed", "not yet settled", "pending", "the last by times", "the last by until",
        "refused for good", "target missing", "latest", "latest by the broker's clock", "skipped", "parked",
        "begun",
        "unknown time zone",
    ],
)  # fmt: skip
def test_nothing_is_wrong_with(right: ChainLink) -> None:
    assert flaws_of(right) == []


@pytest.mark.parametrize(
    ("wrong", "kind"),
    [
        (link(following=None), "lost"),
        (link(end="dead-lettered", code="target-missing", following=None), "lost"),
        (link(as_ms=AT_MS + 1), "wrong_occurrence"),
        (link(following=NEXT._replace(number=4)), "wrong_occurrence"),
        (link(following=NEXT._replace(at_ms=AT_MS + 1_001)), "wrong_occurrence"),
        (link(following=NEXT._replace(recurrence=CRON)), "wrong_occurrence"),
        (link(recurrence=EVERY_SECOND._replace(times=2)), "wrong_occurrence"),
        (link(end="skipped", as_ms=None), "false_outcome"),
        (PARKED._replace(following=NEXT), "wrong_occurrence"),
        (recurring(SKIP, follows={"number": 2, "at_ms": AT_MS + 2_000}), "wrong_occurrence"),
        (recurring(LATEST, follows={"at_ms": AT_MS + 3_000}), "wrong_occurrence"),
        (BEGUN._replace(end="dead-lettered", code="no-occurrence", following=None), "false_outcome"),
    ],
    ids=[
        "missing", "missing after a dead letter", "another time", "a number left out", "another next time",
        "another rule", "one too many", "skipped in time", "another one is tried later",
        "delivered though missed", "not the latest", "no first one",
    ],
)  # fmt: skip
def test_it_is_found_when_an_occurrence_is(wrong: ChainLink, kind: str) -> None:
    assert kinds(wrong) == [kind]


def test_a_link_is_read_from_rows() -> None:
    raw = (*RIGHT[:2], tuple(EVERY_SECOND), *RIGHT[3:8], (*NEXT[:4], tuple(EVERY_SECOND)))
    assert link_of(raw) == RIGHT
