"""What is counted at a commit: lateness by bisection, what became of requests; nothing without a bound."""

from __future__ import annotations

import random
from bisect import bisect_left
from collections import Counter
from itertools import pairwise
from typing import Any, cast

import pytest

from delayline.outcome_kinds import OutcomeKind
from node.core.delivery import InFlight
from node.core.outcome_record import Decided
from node.health.meter import LATENESS_MS, OTHER, Histogram, Meter, Row
from node.kafka.outbox import CommitTime
from store.checkpoint import Frontier
from store.selection import Selection

NOW_MS = 1_800_000_000_000
NOWHERE = Frontier(None, {}, {}, {}, 0)
KNOWN = CommitTime(NOW_MS, 0.012)


def rows(*late_ms: int) -> list[Row]:
    """Rows that fell due so long ago, in due order."""
    return [((NOW_MS - ms, 0, offset), b"row") for offset, ms in enumerate(sorted(late_ms, reverse=True))]


def selection(**fields: Any) -> Selection:
    return Selection(
        **{"late": [], "due": [], "answers": [], "resolutions": {}, "frontier": NOWHERE, **fields}
    )


def in_flight(chosen: Selection, decided: dict[Decided, int] | None = None) -> InFlight:
    return InFlight(chosen, cast("Any", None), cast("Any", None), decided or {})


def counts(histogram: Histogram) -> list[int]:
    reached = [0, *histogram.reached()]
    return [after - before for before, after in pairwise(reached)]


@pytest.mark.parametrize("most_ms", [3, 40, 700, 10_000_000])
def test_rows_are_counted_as_if_one_by_one(most_ms: int) -> None:
    dice = random.Random(most_ms)
    late_ms = [dice.randint(0, most_ms) for _ in range(2_000)]
    together = Histogram(LATENESS_MS)
    together.add_since(rows(*late_ms), NOW_MS)
    one_by_one = Counter(bisect_left(LATENESS_MS, ms) for ms in late_ms)
    assert counts(together) == [one_by_one[bucket] for bucket in range(len(LATENESS_MS) + 1)]
    assert together.sum == sum(late_ms)


def test_an_edge_belongs_to_its_bucket() -> None:
    histogram = Histogram([10, 20])
    for value in (9, 10, 11, 20, 21):
        histogram.add(value)
    histogram.add_since(rows(9, 10, 11, 20, 21), NOW_MS)
    assert counts(histogram) == [4, 4, 2]


def test_a_message_that_was_due_ahead_of_the_own_clock_is_not_late() -> None:
    histogram = Histogram(LATENESS_MS)
    histogram.add_since(rows(-400, -300), NOW_MS)
    assert (counts(histogram)[0], histogram.sum) == (2, 0)


def test_what_has_waited_for_the_end_of_a_pause_is_not_late() -> None:
    meter = Meter()
    chosen = selection(late=rows(7), released=rows(90_000, 80_000))
    meter.committed(in_flight(chosen), KNOWN)
    assert (meter.lateness.reached()[-1], meter.lateness.sum) == (1, 7)


def test_late_and_due_rows_are_late_until_the_commit_is_known_and_skipped_and_replayed_ones_are_not() -> None:
    meter, due = Meter(), rows(70_000, 60_000, 40)
    chosen = selection(late=rows(3_000), due=due, skip_to=due[1][0], replayed=rows(900_000))
    meter.committed(in_flight(chosen), KNOWN)
    assert meter.lateness.reached()[-1] == 2
    assert meter.lateness.sum == 3_040


def test_a_heartbeat_is_a_commit_and_no_selection() -> None:
    meter = Meter()
    meter.committed(in_flight(selection()), KNOWN)
    assert (meter.commits.reached()[-1], meter.commits.sum) == (1, 12.0)
    assert meter.selections.reached()[-1] == 0


def test_what_became_of_requests_adds_up() -> None:
    meter = Meter()
    decided: dict[Decided, int] = {
        ("schedule", OutcomeKind.DELIVERED, None): 5,
        ("schedule", OutcomeKind.REPLAYED, None): 2,
        ("cancel", OutcomeKind.CANCELLED, None): 1,
        ("schedule", OutcomeKind.DEAD_LETTERED, "target-missing"): 3,
    }
    for _ in range(2):
        meter.committed(in_flight(selection(due=rows(1)), decided), KNOWN)
    assert meter.delivered == 14
    assert meter.requests["schedule", OutcomeKind.DEAD_LETTERED, "target-missing"] == 6
    assert meter.requests["cancel", OutcomeKind.CANCELLED, ""] == 2


def test_a_reason_that_is_no_code_of_the_service_is_another() -> None:
    meter = Meter()
    known = len(meter.requests)
    for number in range(100):
        decided: dict[Decided, int] = {("schedule", OutcomeKind.DEAD_LETTERED, f"made-up-{number}"): 1}
        meter.committed(in_flight(selection(), decided), KNOWN)
    assert len(meter.requests) == known
    assert meter.requests["schedule", OutcomeKind.DEAD_LETTERED, OTHER] == 100
