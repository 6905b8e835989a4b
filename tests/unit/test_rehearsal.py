"""What a replay or a skip would do is what the leader then does; on a real RocksDB."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import msgspec
import pytest

from delayline.recurrence import Recurrence
from delayline.wire import Request, Schedule
from store import lookup
from store.lookup import Lookup
from store.operations import Replay, ReplayRequest, SkipRequest
from store.rehearsal import Rehearsed
from store.rows import message_target
from store.selection import Paused
from store.view import View
from tests.unit.view_records import (
    MANY,
    WINDOW_MS,
    at,
    checkpoint_of,
    deliver,
    new_view,
    reject,
    schedule,
    take,
)

DONE_MS = 2_500  # what is due by then has been delivered
NOW_MS = 3_500


def to(target: str, due_ms: int, id_: str | None = None) -> Schedule:
    return schedule(due_ms, id_)._replace(target_topic=target)


@pytest.fixture
def view(tmp_path: Path) -> View:
    """Of 30 messages to three targets the first half has been delivered; among them others that are none."""
    view = new_view(tmp_path / "store")
    targets = ("one", "two", "three")
    found = [to(targets[number % 3], 2_000 + 40 * number, str(number)) for number in range(30)]
    cron = to("one", 2_100)._replace(recurrence=Recurrence("0 0 * * *", 0, 1_000, None, None, None, "all"))
    requests: list[Request] = [*found, reject(), cron]
    take(view, *(at(number % 2, number, one) for number, one in enumerate(requests)))
    deliver(view, DONE_MS)
    return view


def rehearsed(view: View, request: ReplayRequest | SkipRequest) -> Rehearsed:
    return Lookup(view).rehearse(request, NOW_MS, WINDOW_MS)


REPLAYS = [
    ReplayRequest(0, 2_000, 2_400),
    ReplayRequest(0, 2_010, 99_000),
    ReplayRequest(0, 2_000, 99_000, "two"),
    ReplayRequest(0, 2_000, 99_000, "nowhere"),
    ReplayRequest(0, DONE_MS, 99_000),
    ReplayRequest(0, 2_400, 2_400),
    ReplayRequest(0, 1_499, 2_400),
]


@pytest.mark.parametrize("request_", REPLAYS)
def test_a_replay_carries_what_was_foretold(view: View, request_: ReplayRequest) -> None:
    foretold = rehearsed(view, request_)
    chosen = view.select(DONE_MS, MANY, msgspec.structs.replace(request_, number=1))
    carried = Counter(message_target(raw) for _, raw in chosen.replayed)
    assert (foretold.targets, foretold.refused) == (carried, chosen.frontier.operation.refused)


def test_of_the_replays_some_carry_something_and_some_are_refused(view: View) -> None:
    found = [rehearsed(view, one) for one in REPLAYS]
    assert [sum(one.targets.values()) for one in found] == [10, 12, 4, 0, 0, 0, 0]
    assert [one.refused is not None for one in found] == [False] * 4 + [True] * 3


@pytest.mark.parametrize("to_ms", [0, DONE_MS, 3_000, NOW_MS, NOW_MS + 1])
def test_what_is_skipped_is_what_was_foretold(view: View, to_ms: int) -> None:
    foretold = rehearsed(view, SkipRequest(0, to_ms))
    chosen = view.select(NOW_MS, MANY, SkipRequest(1, to_ms))
    skipped = [raw for key, raw in chosen.due if chosen.skip_to is not None and key <= chosen.skip_to]
    targets = Counter(filter(None, map(message_target, skipped)))
    assert (foretold.targets, foretold.refused) == (targets, chosen.frontier.operation.refused)


@pytest.fixture
def held(view: View) -> View:
    """The other half of them has come up while `two` is paused, but for the last ones."""
    deliver(view, DONE_MS)
    deliver(view, 3_000, paused=PAUSED)
    return view


PAUSED = Paused(frozenset({"two"}))


def test_what_is_held_is_not_replayed_as_foretold(held: View) -> None:
    request = ReplayRequest(0, 2_000, 3_000)
    foretold = rehearsed(held, request)
    chosen = held.select(3_000, MANY, msgspec.structs.replace(request, number=1), paused=PAUSED)
    carried = Counter(message_target(raw) for _, raw in chosen.replayed)
    assert foretold.targets == carried
    assert carried["two"] < carried["one"]


def test_what_is_held_is_not_skipped_as_foretold(held: View) -> None:
    foretold = rehearsed(held, SkipRequest(0, NOW_MS))
    chosen = held.select(NOW_MS, MANY, SkipRequest(1, NOW_MS), paused=PAUSED)
    skipped = [raw for key, raw in chosen.due if key not in chosen.paused]
    assert foretold.targets == Counter(filter(None, map(message_target, skipped)))
    assert "two" not in foretold.targets


def test_while_a_replay_is_under_way_another_one_would_be_refused(view: View) -> None:
    chosen = view.select(DONE_MS, MANY._replace(messages=4), ReplayRequest(1, 2_000, 2_400))
    view.committed(chosen, checkpoint_of(chosen))
    assert isinstance(chosen.frontier.operation.replay, Replay)
    refused = rehearsed(view, ReplayRequest(0, 2_000, 2_400)).refused
    assert refused == "another replay is under way: stop it, or wait for its end"


def test_what_takes_too_long_is_counted_as_far_as_it_goes(
    view: View, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(lookup, "MOST_REHEARSED", 5)
    found = rehearsed(view, ReplayRequest(0, 2_000, 2_400))
    assert found.at_least
    assert 0 < sum(found.targets.values()) <= 5
