"""What operators' commands make of what a node has written into its member znode."""

from __future__ import annotations

import json

import msgspec
import pytest

from delayline.settings import ClusterSettings
from election import registry
from election.operators import PauseState
from node.status import BlockedPartition, NodeState, NodeStatus
from ops.clients.members import Health, Member
from ops.cluster.accept_gap import _refusing
from ops.cluster.status import ClusterStatus
from ops.doctor.finding import Level
from ops.doctor.nodes import judge_cluster
from ops.errors import ConflictError

NOW_MS = 1_800_000_000_000
SAID = NodeStatus("a", 1, NodeState.LEADER, applied={3: 10}, blocked=[BlockedPartition(3, 10, 5, NOW_MS)])
UNREADABLE = Member(None, NOW_MS)


def test_what_a_node_writes_is_what_is_read() -> None:
    assert Member.decode(SAID.encode(), NOW_MS) == Member(SAID, NOW_MS)


def test_what_a_node_of_another_version_says_besides_is_passed_over() -> None:
    more = json.dumps(json.loads(SAID.encode()) | {"mood": ["good"]}).encode()
    assert Member.decode(more, NOW_MS).status == SAID


def test_where_a_node_of_another_version_answers_is_known() -> None:
    newer = b'{"node": "a", "state": "dreaming", "http_host": "here", "http_port": 17400}'
    assert Member.decode(newer, NOW_MS) == Member(None, NOW_MS, ("here", 17_400))


def test_what_a_node_does_not_say_is_not_known() -> None:
    said = Member.decode(b'{"node": "a", "lane": 1, "state": "follower"}', NOW_MS)
    assert said.status == NodeStatus("a", 1, NodeState.FOLLOWER)
    assert (said.wrong_clock_ms, said.little_disk, said.is_closed) == (None, False, False)


@pytest.mark.parametrize(
    "data",
    [
        b"",
        b"\xff",
        b"null",
        b"[]",
        b"[" * 100_000,
        b'{"node": "a", "lane": 1}',
        b'{"node": "a", "lane": 1, "state": "dreaming"}',
        b'{"node": "a", "lane": "1", "state": "leader"}',
    ],
)
def test_a_member_that_cannot_be_read_is_one_all_the_same(data: bytes) -> None:
    assert Member.decode(data, NOW_MS) == UNREADABLE


def snapshot(member: Member) -> ClusterStatus:
    return ClusterStatus(ClusterSettings("delay"), (), {"a": member}, {0: 1}, PauseState(), NOW_MS)


@pytest.mark.parametrize(("age_ms", "health"), [(0, Health.UNREADABLE), (9_000, Health.SILENT)])
def test_its_health_says_so_until_it_is_silent(age_ms: int, health: Health) -> None:
    assert snapshot(Member(None, NOW_MS - age_ms)).health("a") == health


def test_it_is_a_problem_to_the_doctor() -> None:
    found = [one for one in judge_cluster(snapshot(UNREADABLE)) if one.level == Level.PROBLEM]
    assert [(one.check, one.found) for one in found] == [("a", "its member znode holds no status")]


def test_a_gap_is_not_accepted_beside_one_that_may_have_read_it() -> None:
    gap = Member(NodeStatus("a", 0, NodeState.REFUSING, "retention-gap: 5 of 9"), NOW_MS)
    assert _refusing(0, {"a": gap}, None) == {"a": gap.status}
    with pytest.raises(ConflictError, match="b is unreadable, and not for a gap"):
        _refusing(0, {"a": gap, "b": UNREADABLE}, None)


def test_the_election_finds_in_a_status_what_tells_two_processes_apart() -> None:
    run = msgspec.structs.replace(SAID, run="r", started_ms=5, pid=7, peer_host="h")
    assert registry._Run.decode(run.encode()) == registry._Run("r", 5, 7, "h")
