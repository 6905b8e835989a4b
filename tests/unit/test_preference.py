"""When a leader hands its lane over to the preferred candidate: each condition alone keeps it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import msgspec
import pytest

from election.candidates import MOST_CANDIDACIES, UNREADABLE, preferred_of
from election.operators import BY_PREFERENCE, SWITCHOVER, Author, HistoryEntry
from node.core.ports import Pauses
from node.preference import (
    OVERDUE_MS,
    Business,
    Preference,
    Sight,
    Standing,
    is_operators_choice,
    is_too_soon,
)
from node.status import NodeState, NodeStatus
from store.operations import Operation, Replay, SkipRequest
from store.overdue import Overdue

FIT_S = 300.0
LOOK_S = 10.0
BEGIN_MS = 1_800_000_000_000
QUEUE = {"x-1": "host-a-1", "x-2": "host-c-1", "x-3": "host-b-1"}
PREFERRED = "host-b-1"
REPLAY = Replay(1, (0, 0, 0), (1, 0, 0), {}, None)
Change = Callable[[Sight], Sight]


# -- who is preferred


def test_the_lanes_go_round_the_machines_that_run_all_of_them() -> None:
    lanes = 7
    nodes = [[f"{host}-{lane}" for host in ("rack-9", "rack-10", "rack-1")] for lane in range(lanes)]
    found = [preferred_of(queue, lane, lanes) for lane, queue in enumerate(nodes)]
    assert found == [f"rack-{(1, 10, 9)[lane % 3]}-{lane}" for lane in range(lanes)]


def test_it_does_not_matter_in_which_order_they_stand_or_how_often() -> None:
    assert preferred_of(["b", "a", "b"], 1, 2) == preferred_of(["a", "b"], 1, 2) == "b"


@pytest.mark.parametrize(
    ("nodes", "lanes"),
    [([], 2), (["a", "b"], 1), (["a"] * (MOST_CANDIDACIES + 1), 2)],
    ids=["nobody", "one lane", "too many to look at"],
)
def test_without_candidates_and_with_one_lane_nobody_is(nodes: list[str], lanes: int) -> None:
    assert preferred_of(nodes, 0, lanes) is None


@pytest.mark.parametrize(
    "stranger", [UNREADABLE.node, "", ".", "..", "a/../b", "a" * 201, "\u00e4", "a\n", "..\n"]
)
def test_what_is_no_node_s_id_is_nobody_s(stranger: str) -> None:
    assert [preferred_of([stranger, "a"], lane, 2) for lane in (0, 1)] == ["a", "a"]
    assert preferred_of([stranger], 0, 2) is None


def test_where_one_host_is_called_as_another_with_a_number_behind_one_may_lead_more() -> None:
    """So the page of operations warns of it."""
    found = [preferred_of([f"{host}-{lane}" for host in ("n", "n-1")], lane, 6) for lane in (0, 5)]
    assert found == ["n-0", "n-5"]


# -- whom to hand over to


def sight(at_s: float, **said: Any) -> Sight:
    """All is well, and applied and delivered further every second. `said`: what the preferred one says."""
    now_ms = BEGIN_MS + int(1000 * at_s)
    own = Standing({1: now_ms}, 4, now_ms)
    there: dict[str, Any] = {"applied": {1: now_ms - 2_000}, "epoch": 4, "delivered_up_to_ms": now_ms - 2_000}
    status = NodeStatus(PREFERRED, 1, NodeState.FOLLOWER, at_ms=now_ms - 900, run="run-1", **there)
    status = msgspec.structs.replace(status, **said)
    quiet = Business(Pauses(), None, Operation(), Overdue(1, OVERDUE_MS))
    return Sight(QUEUE, (status, now_ms - 800), own, quiet, now_ms=now_ms, steady_s=at_s)


def saying(**said: Any) -> Change:
    """The preferred one says something else."""

    def change(one: Sight) -> Sight:
        assert one.said is not None, "it says something"
        return one._replace(said=(msgspec.structs.replace(one.said[0], **said), one.said[1]))

    return change


def busy(**business: Any) -> Change:
    """The leader is about something."""
    return lambda one: one._replace(business=one.business._replace(**business))


def seeing(**fields: Any) -> Change:
    """The leader sees something else."""
    return lambda one: one._replace(**fields)


def written(later_ms: int, ahead_ms: int = -100, **said: Any) -> Change:
    """The preferred one's words were written so much later than now, and its clock was ahead."""

    def change(one: Sight) -> Sight:
        assert one.said is not None, "it says something"
        at_ms = one.now_ms + later_ms
        return one._replace(
            said=(msgspec.structs.replace(one.said[0], at_ms=at_ms + ahead_ms, **said), at_ms)
        )

    return change


def handed_over_s(change: Change, when: Callable[[float], bool], until_s: float = 2 * FIT_S) -> float | None:
    """After how long a leader that looks all the time hands over, if something is so at some times."""
    preference = Preference(1, 2, FIT_S)
    at_s = 0.0
    while at_s <= until_s:
        seen = sight(at_s)
        if (to := preference.hand_over_to(change(seen) if when(at_s) else seen)) is not None:
            assert to == PREFERRED
            return at_s
        at_s += LOOK_S
    return None


def test_it_is_handed_over_once_the_preferred_one_has_been_fit_for_a_while() -> None:
    assert handed_over_s(lambda one: one, lambda _: True) == LOOK_S + FIT_S


UNFIT = {
    "it is not there": seeing(said=None),
    "it catches up": saying(state=NodeState.CATCHING_UP),
    "it refuses": saying(state=NodeState.REFUSING),
    "it has another lane": saying(lane=0),
    "it is silent": written(-5_001),
    "its clock is behind": saying(at_ms=BEGIN_MS - 10_000),
    "its clock is ahead": saying(at_ms=BEGIN_MS + 900_000),
    "its clock is further ahead than a leader's": written(-800, 501),
    "its clock is further behind than a leader's": written(-800, -501),
    "its clock is further off than it may be": written(-800, 51, max_clock_skew_ms=50),
    "its clock is off, and it may be for all that": written(-800, 2_001, max_clock_skew_ms=9_000),
    "it has not applied enough": saying(applied={1: BEGIN_MS - 60_000}),
    "it has applied nothing of a partition": saying(applied={}),
    "it does not follow the checkpoint": saying(delivered_up_to_ms=BEGIN_MS - 60_000),
    "it follows an earlier epoch": saying(epoch=3),
    "it has begun anew": saying(run="run-2"),
    "it has queued up anew": seeing(queue={"x-1": "host-a-1", "x-2": "host-c-1", "x-4": "host-b-1"}),
    "another one led": seeing(queue={"x-2": "host-c-1", "x-3": "host-b-1", "x-5": "host-a-1"}),
    "another one was preferred": seeing(queue={"x-1": "host-a-1", "x-3": "host-b-1", "x-6": "host-aa-1"}),
    "it led": seeing(queue={"x-3": "host-b-1", "x-1": "host-a-1"}),
    "it was alone": seeing(queue={"x-1": "host-a-1"}),
}


@pytest.mark.parametrize("why", UNFIT)
def test_it_is_not_handed_over_before_the_while_has_passed_without_a_break(why: str) -> None:
    """Else it is handed over at 310 s."""
    found = handed_over_s(UNFIT[why], lambda at_s: at_s == 200)
    assert found == 210 + FIT_S


BUSY = {
    "all is paused": busy(pauses=Pauses(everything=True)),
    "a replay is under way": busy(operation=Operation(1, replay=REPLAY)),
    "a skip is under way": busy(operation=Operation(1, skip_to=(BEGIN_MS, 0, 0))),
    "a request waits": busy(asked=SkipRequest(1, BEGIN_MS)),
    "something is overdue": busy(overdue=Overdue(1, OVERDUE_MS + 1)),
    "nobody has counted what is overdue": busy(overdue=None),
}


@pytest.mark.parametrize("why", BUSY)
def test_it_is_not_handed_over_while_that_is_not_cheap(why: str) -> None:
    assert handed_over_s(BUSY[why], lambda at_s: at_s < 400) == 400
    assert handed_over_s(BUSY[why], lambda _: True) is None


@pytest.mark.parametrize(
    "change",
    [
        busy(pauses=Pauses(targets=frozenset({"orders"}))),
        busy(asked=SkipRequest(1, BEGIN_MS), operation=Operation(1)),
        busy(overdue=Overdue(5, OVERDUE_MS)),
        written(-800, 500),
        written(-800, -700, max_clock_skew_ms=700),
    ],
    ids=[
        *("a target is paused", "a request is done", "what is due is delivered"),
        *("its clock is off a little", "its clock may be off"),
    ],
)
def test_what_costs_nothing_does_not_keep_it(change: Change) -> None:
    assert handed_over_s(change, lambda _: True) == LOOK_S + FIT_S


def test_what_was_forgotten_has_to_last_anew() -> None:
    preference = Preference(1, 2, FIT_S)
    assert [preference.hand_over_to(sight(at_s)) for at_s in (0, 10, 310)] == [None, None, PREFERRED]
    preference.forget()
    assert [preference.hand_over_to(sight(at_s)) for at_s in (320, 330, 620)] == [None, None, None]
    assert preference.hand_over_to(sight(630)) == PREFERRED


# -- what the history says

LED_MS = BEGIN_MS
EPOCH = 9
NODE = "host-a-1"


def entry(**fields: Any) -> HistoryEntry:
    known: dict[str, Any] = {"what": SWITCHOVER, "lane": 1, "before": PREFERRED, "after": NODE}
    return HistoryEntry(author=Author("somebody", "to see it", 1), **known | fields)


@pytest.mark.parametrize(
    ("said", "written_ms", "chosen"),
    [
        (entry(), LED_MS - 50, True),
        (entry(after=None), LED_MS - 50, True),
        (entry(after=None, epoch=EPOCH - 1), LED_MS - 50, True),
        (entry(after=None, epoch=EPOCH - 2), LED_MS - 50, False),
        (entry(epoch=EPOCH - 2), LED_MS - 50, True),
        (entry(), LED_MS - 90_000, True),
        (entry(), LED_MS + 4_000, True),
        (entry(), LED_MS - 90_001, False),
        (entry(), LED_MS + 5_001, False),
        (entry(after="host-c-1"), LED_MS - 50, False),
        (entry(before=NODE, after=None), LED_MS - 50, False),
        (entry(lane=0), LED_MS - 50, False),
        (entry(what=BY_PREFERENCE), LED_MS - 50, False),
    ],
    ids=[
        *("to it", "to whoever is next", "to the next, as said", "to another who was next"),
        *("to it, which has failed once", "slowly", "clocks differ", "long before", "long after"),
        *("to another", "away from it", "another lane", "by preference"),
    ],
)
def test_a_leader_knows_whether_an_operator_has_chosen_it(
    said: HistoryEntry, written_ms: int, chosen: object
) -> None:
    assert is_operators_choice([(said, written_ms)], 1, NODE, EPOCH, LED_MS) is chosen


@pytest.mark.parametrize(
    ("said", "ago_s", "soon"),
    [
        (entry(), 299, True),
        (entry(), 301, False),
        (entry(what=BY_PREFERENCE, after=PREFERRED), 3_599, True),
        (entry(what=BY_PREFERENCE, after=PREFERRED), 3_601, False),
        (entry(what=BY_PREFERENCE), 1, False),
        (entry(what=BY_PREFERENCE, after=PREFERRED, lane=0), 1, False),
        (entry(lane=0), 1, False),
        (entry(what="pause", lane=None), 1, False),
        (entry(what="replay", after=PREFERRED), 1, False),
    ],
)
def test_a_lane_rests_after_a_switchover(said: HistoryEntry, ago_s: int, soon: object) -> None:
    found = is_too_soon([(said, BEGIN_MS - 1000 * ago_s)], 1, PREFERRED, BEGIN_MS, FIT_S, 3_600)
    assert found is soon


@pytest.mark.parametrize(
    ("hours_ago", "soon"),
    [
        ([1.1], False),
        ([1.1, 3], True),
        ([2.1, 3], False),
        ([3.9, 7, 8], True),
        ([4.1, 7, 8], False),
        ([7.9, 12, 14, 15], True),
        ([8.1, 12, 14, 15], False),
        ([7.9, 16, 20, 22, 23], True),
        ([8.1, 16, 20, 22, 23], False),
    ],
)
def test_each_time_of_the_last_day_makes_it_rest_for_twice_as_long(
    hours_ago: list[float], soon: object
) -> None:
    found = [
        (entry(what=BY_PREFERENCE, after=PREFERRED), BEGIN_MS - int(3_600_000 * hours)) for hours in hours_ago
    ]
    assert is_too_soon(found, 1, PREFERRED, BEGIN_MS, FIT_S, 3_600) is soon
