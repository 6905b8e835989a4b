"""A node that leads by preference, and does not begin to."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest
from structlog.testing import capture_logs

from election.candidacy import ElectionState, Role
from election.errors import ElectionError, Malformed, Unavailable
from election.operators import Author, Switchover
from node import probation
from node.probation import BEGINS_WITHIN_S, Probation

EPOCH = 7
WISH = Switchover(EPOCH, "b", Author("a", "b is the preferred leader of lane 1", 1), by_preference=True)


class Stage:
    """Node b, which leads and has not begun. It is its registry and its contender, too."""

    def __init__(self, role: Role = "leader") -> None:
        self.has_begun = False
        self.done: list[str] = []
        self.trouble: ElectionError | None = None
        self.leaves = True
        self.begins_meanwhile = False
        self.checkpoint: SimpleNamespace | None = SimpleNamespace(epoch=EPOCH)
        self.state = ElectionState(role, "x-0000000001", 0)
        stage: Any = self
        self.probation = Probation("b", 1, stage, stage, stage, stage)

    def take_back(self, lane: int, wanted: Switchover) -> None:
        assert (lane, wanted) == (1, WISH)
        self.done.append("take back")
        self.has_begun = self.begins_meanwhile
        if self.trouble is not None:
            raise self.trouble

    def requeue(self) -> None:
        self.done.append("requeue")
        if self.leaves:
            self.state = ElectionState("leader", "x-0000000009", 0)  # nobody else is there


class Clock:
    """Stands still but for what a test lets pass."""

    def __init__(self) -> None:
        self.now_s = 100.0

    def monotonic(self) -> float:
        return self.now_s


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    clock = Clock()
    monkeypatch.setattr(probation, "time", clock)
    return clock


def done(stage: Stage, clock: Clock, *wanted: Switchover | None) -> list[str]:
    """What comes of it: each stands there once so much more of the time has passed."""
    stage.done.clear()
    for one in wanted:
        stage.probation.watch(one)
        clock.now_s += BEGINS_WITHIN_S / 2
    return stage.done


@pytest.mark.parametrize("later", [WISH, None], ids=["it stands there", "it was taken away meanwhile"])
def test_it_gives_the_candidacy_back_after_a_while_and_once(clock: Clock, later: Switchover | None) -> None:
    stage = Stage()
    assert done(stage, clock, WISH, later) == []
    with capture_logs() as logs:
        assert done(stage, clock, later) == ["take back", "requeue"]
    assert [(one["event"], one["log_level"]) for one in logs] == [("candidacy-given-back", "warning")]
    assert done(stage, clock, *[later] * 9) == []


def test_the_while_begins_when_it_is_elected(clock: Clock) -> None:
    stage = Stage("follower")
    assert done(stage, clock, *[WISH] * 9) == []
    stage.state = ElectionState("leader", "x-0000000001", 0)
    assert done(stage, clock, None, None) == []
    assert done(stage, clock, None) == ["take back", "requeue"]


def test_it_begins_anew_in_another_candidacy(clock: Clock) -> None:
    stage = Stage()
    done(stage, clock, WISH, WISH)
    stage.state = ElectionState("leader", "x-0000000002", 0)
    assert done(stage, clock, None, None) == []


def test_who_has_begun_or_was_not_elected_by_such_a_wish_leads_on(clock: Clock) -> None:
    stage = Stage()
    stage.has_begun = True
    assert done(stage, clock, *[WISH] * 9) == []
    operators = Switchover(EPOCH, "b", WISH.author)
    to_another = Switchover(EPOCH, "c", WISH.author, by_preference=True)
    of_before = Switchover(EPOCH - 1, "b", WISH.author, by_preference=True)
    for wanted in (operators, to_another, of_before, None):
        assert done(Stage(), clock, *[wanted] * 9) == []


def test_who_knows_of_no_checkpoint_gives_it_back_too(clock: Clock) -> None:
    stage = Stage()
    stage.checkpoint = None
    assert done(stage, clock, WISH, WISH, WISH)[-1] == "requeue"


def test_where_zookeeper_does_not_answer_it_tries_again(clock: Clock) -> None:
    stage = Stage()
    stage.trouble = Unavailable("it is away")
    assert done(stage, clock, WISH, WISH, WISH) == ["take back"]
    stage.trouble = None
    assert done(stage, clock, WISH) == [], "the while begins anew: it could not begin to lead"
    assert done(stage, clock, WISH) == ["take back", "requeue"]


def test_a_wish_that_somebody_has_made_unreadable_holds_nothing_up(clock: Clock) -> None:
    stage = Stage()
    stage.trouble = Malformed("x is no switchover")
    assert done(stage, clock, WISH, WISH, WISH) == ["take back", "requeue"]


def test_a_candidacy_that_could_not_be_left_is_given_back_again(clock: Clock) -> None:
    stage = Stage()
    stage.leaves = False
    assert done(stage, clock, WISH, WISH, WISH) == ["take back", "requeue"]
    assert done(stage, clock, None, None) == ["take back", "requeue"]


def test_who_begins_while_the_wish_is_taken_back_leads_on(clock: Clock) -> None:
    stage = Stage()
    stage.begins_meanwhile = True
    assert done(stage, clock, WISH, WISH, WISH) == ["take back"]


def test_who_is_elected_long_after_the_wish_has_gone_is_not_elected_by_it(clock: Clock) -> None:
    stage = Stage("follower")
    done(stage, clock, WISH, None, None, None, None)
    stage.state = ElectionState("leader", "x-0000000001", 0)
    assert done(stage, clock, *[None] * 9) == []


def test_an_operator_s_wish_takes_the_place_of_a_leader_s_own(clock: Clock) -> None:
    stage = Stage()
    operators = Switchover(EPOCH, "b", Author("somebody", "to see it", 2))
    assert done(stage, clock, WISH, *[operators] * 9) == []
