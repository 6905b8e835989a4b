"""The demo's workload: the same each time, of every kind, spread evenly."""

from __future__ import annotations

from collections import Counter
from itertools import pairwise

import pytest

from delayline.names import ClusterNames
from delayline.requests import BufferRecord
from delayline.settings import ClusterSettings
from delayline.wire import Reject, Schedule, parse
from node.kafka.fetch.records import LogRecord
from ops.demo.rejects import WRONG
from ops.demo.workload import MISSING_TARGET, ROUND_MS, TARGETS, TIMED, WINDOW_MS, Planned, Workload

START_MS = 1_700_000_000_000
SETTINGS = ClusterSettings()
ROUNDS = WINDOW_MS // ROUND_MS


def written(request: BufferRecord, at_ms: int) -> LogRecord:
    return LogRecord(request.partition(SETTINGS.partitions) or 0, 0, at_ms, *request)


def workload(messages: int = 36_000) -> Workload:
    return Workload(1, START_MS, messages, SETTINGS.partitions)


@pytest.fixture(scope="module")
def live() -> list[Planned]:
    """The live part of a whole window."""
    return [planned for number in range(ROUNDS) for planned in workload().live(number)]


def test_the_same_moment_gives_the_same_requests() -> None:
    assert workload(2_000).ahead() == workload(2_000).ahead()
    assert workload(2_000).rows() == workload(2_000).rows()
    assert workload(2_000).live(3) == workload(2_000).live(3)


def test_a_window_has_at_least_the_messages_asked_for(live: list[Planned]) -> None:
    ahead = len(workload().ahead()) + len(workload().rows())
    assert ahead + sum(planned.is_message for planned in live) >= 36_000


def test_at_least_five_hundred_messages_are_due_in_each_second_once_it_has_begun(live: list[Planned]) -> None:
    due = [planned.due_ms for planned in [*workload().ahead(), *live] if planned.kind in TIMED]
    due += [row["due"] for row in workload().rows()]
    seconds = Counter((due_ms - START_MS) // 1_000 for due_ms in due if due_ms is not None)
    assert min(seconds[second] for second in range(5, WINDOW_MS // 1_000 - 5)) >= 500


def test_what_follows_the_window_is_due_at_the_whole_rate() -> None:
    first, then = (len(workload().live(number)) for number in (0, ROUNDS))
    assert then > 2 * first


def test_what_is_scheduled_ahead_is_due_evenly_over_the_window() -> None:
    due = sorted(planned.due_ms or 0 for planned in workload(6_000).ahead())
    assert due[0] == START_MS
    assert due[-1] < START_MS + WINDOW_MS
    assert max(later - earlier for earlier, later in pairwise(due)) <= 25


def test_a_round_is_sent_in_order_and_within_its_time() -> None:
    sent = [planned.send_ms for planned in workload().live(2)]
    assert sent == sorted(sent)
    assert sent[0] >= START_MS + 2 * ROUND_MS
    assert sent[-1] < START_MS + 3 * ROUND_MS


def test_every_kind_of_request_is_there(live: list[Planned]) -> None:
    kinds = {planned.kind for planned in live}
    assert kinds >= {
        "deliver-at", "after", "level", "at-once", "past-due", "cancelled", "cancel", "rescheduled",
        "reschedule", "replaced", "replacing", "run-now", "expired", "rejected", "no-target", "unknown-id",
        "far", "kept", "duplicate", "interval", "cron", "ended",
    }  # fmt: skip


def test_only_what_is_meant_to_be_rejected_is(live: list[Planned]) -> None:
    rejected = {
        planned.kind
        for planned in live
        if isinstance(parse(written(planned.request, planned.send_ms), SETTINGS, ClusterNames()), Reject)
    }
    assert rejected == {"rejected"}


def test_headers_are_repeated_and_null_in_some_messages(live: list[Planned]) -> None:
    shapes = [Counter(name for name, _ in planned.request.headers) for planned in live]
    assert any(shape["tag"] > 1 for shape in shapes)
    assert any(("flag", None) in planned.request.headers for planned in live)


def test_targets_are_several_and_one_does_not_exist(live: list[Planned]) -> None:
    parsed = [parse(written(planned.request, planned.send_ms), SETTINGS, ClusterNames()) for planned in live]
    targets = {request.target_topic for request in parsed if isinstance(request, Schedule)}
    assert targets == {*TARGETS, MISSING_TARGET}


def test_nothing_but_the_far_messages_is_due_long_after_it_was_asked_for(live: list[Planned]) -> None:
    assert all(
        planned.due_ms - planned.send_ms <= 10_000
        for planned in live
        if planned.due_ms is not None and planned.is_message
    )
    assert {planned.kind for planned in live if planned.due_ms is None and planned.is_message} == {"far"}


@pytest.mark.parametrize("code", WRONG)
def test_a_wrong_request_earns_its_code(code: str) -> None:
    request = parse(
        written(WRONG[code]("demo.orders", SETTINGS.partitions, b"x"), START_MS), SETTINGS, ClusterNames()
    )
    assert isinstance(request, Reject)
    assert request.code == code
