"""What the delivery core is told of the election: why a leader is to step down."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from election.candidacy import ElectionState, Role
from node.core.steps import StepDown
from node.zookeeper.leadership import ZooKeeperElection


def election(role: Role) -> ZooKeeperElection:
    """Of a node that ZooKeeper has told this role last."""
    told: Any = SimpleNamespace(state=ElectionState(role, None, 0))
    nobody: Any = None
    return ZooKeeperElection(told, nobody, nobody, lambda: None)


@pytest.mark.parametrize(
    ("role", "why"),
    [
        pytest.param("leader", None, id="it leads"),
        pytest.param("none", None, id="ZooKeeper knows nothing of it"),
        pytest.param("follower", StepDown.SUPERSEDED, id="another node leads"),
    ],
)
def test_who_leads_goes_on_until_another_node_does(role: Role, why: StepDown | None) -> None:
    assert election(role).steps_down() == why


def test_who_is_asked_to_resign_resigns() -> None:
    leader = election("leader")
    leader.resign()
    assert leader.steps_down() is StepDown.RESIGNED


def test_a_resignation_that_is_taken_back_is_none() -> None:
    leader = election("leader")
    leader.resign()
    leader.withdraw_resignation()
    assert leader.steps_down() is None
