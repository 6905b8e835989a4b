"""Which switchovers are refused before anything is written."""

from __future__ import annotations

import pytest

from node.status import NodeState, NodeStatus
from ops.clients.members import Member
from ops.cluster.switchover import refuse
from ops.errors import ConflictError, NotFoundError, OperatorError

NOW_MS = 1_800_000_000_000
MEMBERS = {
    node: Member(NodeStatus(node, 0, NodeState.FOLLOWER, at_ms=at_ms), written_ms)
    for node, at_ms, written_ms in (
        ("a", NOW_MS, NOW_MS),
        ("b", NOW_MS - 900, NOW_MS - 890),
        ("hangs", NOW_MS - 9_000, NOW_MS - 9_000),
        ("wrong", NOW_MS - 3_600_900, NOW_MS - 900),
    )
}


@pytest.mark.parametrize(
    ("queue", "to", "error", "why"),
    [
        ([], None, NotFoundError, "lane 0 has no leader"),
        (["a", "b"], "a", ConflictError, "a is the leader of lane 0 already"),
        (["a", "b"], "c", NotFoundError, "c is no candidate for lane 0: there are b"),
        (["a"], None, ConflictError, "a is the only candidate"),
        (["a", "hangs", "b"], None, ConflictError, "nothing has been heard of hangs for 9 s"),
        (["a", "b", "hangs"], "hangs", ConflictError, "nothing has been heard of hangs for 9 s"),
        (["a", "new"], None, ConflictError, "nothing has been heard of new:"),
        (["a", "wrong"], None, ConflictError, "the clock of wrong is -3600000 ms off"),
    ],
)
def test_a_switchover_of_which_nothing_good_can_come_is_refused(
    queue: list[str], to: str | None, error: type[OperatorError], why: str
) -> None:
    with pytest.raises(error, match=why):
        refuse(queue, 0, to, MEMBERS, NOW_MS)


@pytest.mark.parametrize("to", [None, "b"])
def test_one_to_a_node_that_was_heard_of_is_not(to: str | None) -> None:
    refuse(["a", "b", "hangs"], 0, to, MEMBERS, NOW_MS)
