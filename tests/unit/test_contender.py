"""When a node stands for leader, and what of its clock is told."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from election.candidacy import ElectionState
from node.contender import Contender
from node.worker import Bell
from node.zookeeper.leadership import ZooKeeperElection
from tests.support.waiting import becomes

ALLOWED_MS = 1_000
WRONG_MS = 5_000


class Queue:
    """The lane's candidates: who stands there, leads."""

    stands = False

    @property
    def state(self) -> ElectionState:
        return ElectionState("leader" if self.stands else "none", None, 0)

    def enter(self) -> None:
        self.stands = True

    def leave(self) -> None:
        self.stands = False


@pytest.fixture
def queue() -> Any:
    return Queue()


@pytest.fixture
def election(queue: Any) -> ZooKeeperElection:
    nobody: Any = None
    return ZooKeeperElection(queue, nobody, nobody, lambda: None)


@pytest.fixture
def contender(queue: Any, election: ZooKeeperElection) -> Iterator[Contender]:
    contender = Contender(queue, election, Bell(), ALLOWED_MS)
    assert contender.stand()
    yield contender
    contender.withdraw()


def test_a_leader_with_a_wrong_clock_steps_down_and_stands_no_more(
    contender: Contender, election: ZooKeeperElection
) -> None:
    contender.leadership_begun()
    contender.judge_clock(-WRONG_MS)
    assert (election.elected(), contender.stand()) == (False, False)


def test_it_stays_in_the_queue_until_its_leadership_has_ended(contender: Contender, queue: Queue) -> None:
    contender.leadership_begun()
    contender.judge_clock(WRONG_MS)
    stood = queue.stands
    contender.leadership_ended()
    becomes(lambda: queue.stands, expected=False)
    assert stood


def test_it_stands_again_after_a_while(
    contender: Contender, election: ZooKeeperElection, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("node.contender.SIT_OUT_S", 0.0)
    contender.judge_clock(WRONG_MS)
    becomes(election.elected, expected=True)
    assert contender.refusal is None


def test_a_clock_within_what_is_allowed_is_right(contender: Contender, election: ZooKeeperElection) -> None:
    contender.judge_clock(ALLOWED_MS)
    assert (contender.refusal, election.elected()) == (None, True)


def test_who_has_withdrawn_stands_no_more(contender: Contender) -> None:
    contender.withdraw()
    assert not contender.stand()


@pytest.mark.parametrize(
    ("leads", "offset_ms", "told"), [(True, 3, 3), (False, 3, None), (False, WRONG_MS, WRONG_MS)]
)
def test_of_a_clock_a_leaders_offset_is_told_or_a_wrong_one(
    contender: Contender,
    leads: bool,  # noqa: FBT001 - a row of the table
    offset_ms: int,
    told: int | None,
) -> None:
    if leads:
        contender.leadership_begun()
    assert contender.known_offset(offset_ms) == told
