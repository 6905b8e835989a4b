"""Real candidates, real ZooKeeper: who leads after which fault, and how soon."""

from __future__ import annotations

import signal
import uuid
from collections.abc import Callable, Iterator
from contextlib import closing

import psutil
import pytest

from ops.stack import LocalStack
from tests.integration.election_lane import (
    NEVER_SILENT_S,
    PATIENCE_S,
    CandidateProcess,
    Lane,
    eventually,
    operator,
    paused,
    queue,
)
from tests.stacks import Stack

# Long enough that whatever happens sooner did not happen by its end.
LONG_SESSION_S = 60.0
SHORT_SESSION_S = 2.0
SILENCE_S = 0.4
AT_ONCE_S = 5.0
# What would happen at once has not happened after this.
NO_CHANGE_S = 2.0
# For an answer that does not come.
NO_ANSWER_S = 1.0

NewLane = Callable[..., Lane]


@pytest.fixture
def new_lane(cluster_name: str) -> Iterator[NewLane]:
    lanes: list[Lane] = []

    def new(
        zookeeper: str,
        session_timeout_s: float,
        yield_s: float | None = None,
        silence_s: float = NEVER_SILENT_S,
    ) -> Lane:
        lanes.append(Lane(zookeeper, cluster_name, session_timeout_s, yield_s, silence_s))
        return lanes[-1]

    yield new
    for lane in lanes:
        lane.close()


@pytest.fixture(scope="module")
def own_zookeeper(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LocalStack]:
    with LocalStack(tmp_path_factory.mktemp("zookeeper"), kafka=False) as own:
        yield own


@pytest.fixture
def zookeeper(own_zookeeper: LocalStack) -> LocalStack:
    """A ZooKeeper that the test may stop."""
    if not own_zookeeper.zk.running:
        own_zookeeper.zk.start()
    return own_zookeeper


@pytest.fixture
def lane(stack: Stack, new_lane: NewLane) -> Lane:
    return new_lane(stack.zookeeper, LONG_SESSION_S)


def gap_ms(line: dict[str, int], since_ns: int) -> float:
    return (line["at_ns"] - since_ns) / 1e6


# -- who leads


def test_the_first_candidate_leads_and_the_others_know_it(lane: Lane) -> None:
    first, second, third = lane.join_all("n1", "n2", "n3")
    assert first.until("leader")["leader"] == "n1"
    assert [second.until("follower")["leader"], third.until("follower")["leader"]] == ["n1", "n1"]


def test_a_candidacy_says_where_its_process_is_found(lane: Lane) -> None:
    only = lane.join("n1")
    with operator(lane.zookeeper) as client:
        (candidate,) = queue(client, lane.path)
    assert (candidate.node, candidate.host, candidate.peer_port) == ("n1", "127.0.0.1", only.port)


def test_only_the_leader_is_confirmed(lane: Lane) -> None:
    first, second = lane.join_all("n1", "n2")
    assert (first.confirm(), second.confirm()) == (True, False)


# -- a process that is gone


def test_a_killed_leader_is_succeeded_long_before_its_session_ends(lane: Lane) -> None:
    first, second, third = lane.join_all("n1", "n2", "n3")
    killed_ns = first.kill()
    assert gap_ms(second.until("leader"), killed_ns) < 1000 * AT_ONCE_S
    assert third.wait(lambda line: line.get("leader") == "n2")["role"] == "follower"


def test_the_leader_and_the_next_killed_together_are_both_noticed_at_once(lane: Lane) -> None:
    first, second, third = lane.join_all("n1", "n2", "n3")
    second.kill()
    killed_ns = first.kill()
    assert gap_ms(third.until("leader"), killed_ns) < 1000 * AT_ONCE_S


def test_one_who_waited_behind_a_killed_candidate_succeeds_the_leader(lane: Lane) -> None:
    first, second, third = lane.join_all("n1", "n2", "n3")
    second.kill()
    with operator(lane.zookeeper) as client:
        eventually(lambda: [candidate.node for candidate in queue(client, lane.path)] == ["n1", "n3"])
    assert third.roles() == ["follower"]
    first.kill()
    third.until("leader", timeout_s=AT_ONCE_S)


def test_a_restarted_process_is_not_held_up_by_its_former_life(lane: Lane) -> None:
    former = lane.join("n1")
    port = former.port
    former.kill()
    former.process.wait()
    lane.begin("n1", port).until("leader", timeout_s=LONG_SESSION_S / 2)


def test_another_node_on_a_dead_ones_port_is_not_taken_for_it(lane: Lane) -> None:
    former = lane.join("n1")
    port = former.port
    former.kill()
    former.process.wait()
    other = lane.begin("n2", port)
    other.until("follower")
    with pytest.raises(AssertionError, match="did not say it"):
        other.until("leader", timeout_s=NO_CHANGE_S)


# -- leaving


def test_a_terminated_leader_hands_over_and_ends(lane: Lane) -> None:
    first, second = lane.join_all("n1", "n2")
    told_ns = first.signal(signal.SIGTERM)
    assert gap_ms(second.until("leader"), told_ns) < 1000 * AT_ONCE_S
    assert first.process.wait(timeout=10) == 0
    assert first.roles() == ["leader", "none"]


def test_one_who_left_can_stand_again_at_the_end_of_the_queue(lane: Lane) -> None:
    first, second = lane.join_all("n1", "n2")
    first.order("leave")
    second.until("leader")
    assert first.wait(lambda line: line["event"] == "left")["done"] is True
    first.order("enter")
    assert first.until("follower")["leader"] == "n2"


# -- a process that is paused


def test_a_paused_leader_is_succeeded_once_its_peers_miss_its_beats(stack: Stack, new_lane: NewLane) -> None:
    lane = new_lane(stack.zookeeper, LONG_SESSION_S, silence_s=SILENCE_S)
    first, second = lane.join_all("n1", "n2")
    paused_ns = first.pause()
    assert gap_ms(second.until("leader"), paused_ns) < 1000 * (SILENCE_S + AT_ONCE_S)
    first.resume()
    assert first.until("follower")["leader"] == "n2"


def test_a_machine_that_stood_still_deposes_nobody(stack: Stack, new_lane: NewLane) -> None:
    """Leader and follower stop, and go on, together: who was not there to listen has heard no silence."""
    lane = new_lane(stack.zookeeper, LONG_SESSION_S, silence_s=SILENCE_S)
    first, second = lane.join_all("n1", "n2")
    second.pause()
    first.pause()
    third = lane.begin("n3")
    third.until("follower")  # a process begins meanwhile, which takes longer than a silence
    second.resume()
    first.resume()
    assert (second.confirm(), first.confirm()) == (False, True)
    assert (first.roles(), second.roles()) == (["leader"], ["follower"])


def test_leaders_that_stand_still_again_and_again_are_left_to_lead(stack: Stack, new_lane: NewLane) -> None:
    """Each of two deposes the other once: then both spare each other for a while."""
    lane = new_lane(stack.zookeeper, LONG_SESSION_S, silence_s=SILENCE_S)
    first, second = lane.join_all("n1", "n2")
    for still, next_ in ((first, second), (second, first)):
        said, next_said = len(still.lines), len(next_.lines)
        still.pause()
        next_.until("leader", after=next_said)
        still.resume()
        still.until("follower", after=said)
        still.order("greeted")
        still.wait(lambda line: line["event"] == "greeted", after=said)
    said = len(second.lines)
    first.pause()
    with pytest.raises(AssertionError, match="did not say it"):
        second.until("leader", timeout_s=NO_CHANGE_S, after=said)


def test_a_paused_leader_whose_beats_are_not_missed_is_succeeded_only_after_its_session(
    stack: Stack, new_lane: NewLane
) -> None:
    lane = new_lane(stack.zookeeper, SHORT_SESSION_S)
    first, second = lane.join_all("n1", "n2")
    paused_ns = first.pause()
    # ZooKeeper last heard of it up to a third of the session before.
    assert (
        1000 * SHORT_SESSION_S / 2
        < gap_ms(second.until("leader"), paused_ns)
        < 1000 * (SHORT_SESSION_S + AT_ONCE_S)
    )


def test_a_leader_that_slept_too_long_wakes_up_behind_its_successor(stack: Stack, new_lane: NewLane) -> None:
    lane = new_lane(stack.zookeeper, SHORT_SESSION_S)
    first, second = lane.join_all("n1", "n2")
    first.pause()
    second.until("leader")
    first.resume()
    assert first.until("follower")["leader"] == "n2"
    assert first.roles() == ["leader", "none", "follower"]
    assert (first.confirm(), second.confirm()) == (False, True)


def test_a_pause_shorter_than_the_session_that_nobody_hears_changes_nothing(lane: Lane) -> None:
    first, second = lane.join_all("n1", "n2")
    first.pause()
    third = lane.begin("n3")
    third.until("follower")  # which takes longer than to notice a process that is gone
    first.resume()
    assert (first.confirm(), first.roles(), second.roles()) == (True, ["leader"], ["follower"])


# -- somebody else's hand in ZooKeeper


def test_a_leader_whose_znode_is_deleted_queues_up_again_behind_the_next(lane: Lane) -> None:
    first, second = lane.join_all("n1", "n2")
    _delete_znode_of(lane, first)
    assert second.until("leader")["leader"] == "n2"
    assert first.until("follower")["leader"] == "n2"


def test_a_candidate_whose_znode_is_deleted_queues_up_again(lane: Lane) -> None:
    first, second = lane.join_all("n1", "n2")
    before = second.until("follower")["znode"]
    _delete_znode_of(lane, second)
    again = second.wait(lambda line: line.get("role") == "follower" and line["znode"] != before)
    assert again["znode"].rpartition("-")[2] > before.rpartition("-")[2]
    assert first.roles() == ["leader"]


def test_what_is_no_candidacy_is_not_in_the_queue(lane: Lane) -> None:
    with operator(lane.zookeeper) as client:
        client.create(f"{lane.path}/0000000000", b"", makepath=True)
        lane.join("n1").until("leader")


def test_a_candidacy_that_cannot_be_read_is_waited_for_all_the_same(lane: Lane) -> None:
    with operator(lane.zookeeper) as client:
        strange = client.create(f"{lane.path}/{'f' * 32}-", b"?", sequence=True, makepath=True)
        only = lane.begin("n1")
        assert only.until("follower")["leader"] is None
        client.delete(strange)
        only.until("leader", timeout_s=AT_ONCE_S)


def _delete_znode_of(lane: Lane, candidate: CandidateProcess) -> None:
    with operator(lane.zookeeper) as client:
        name = candidate.wait(lambda line: line.get("znode") is not None)["znode"]
        client.delete(f"{lane.path}/{name}")


# -- ZooKeeper away


class Outage:
    """What three candidates did while ZooKeeper was away for longer than their sessions, and after it."""

    def __init__(self, own: LocalStack, lane: Lane) -> None:
        candidates = lane.join_all("n1", "n2", "n3")
        seen = [len(candidate.lines) for candidate in candidates]
        own.zk.stop()
        for candidate in candidates:
            candidate.until_session("suspended")
        before_s = [_processor_time_s(candidate) for candidate in candidates]
        _wait_for_a_session(candidates[0])
        own.zk.start()
        for candidate, after in zip(candidates, seen, strict=True):
            candidate.until_session("connected", after=after)
        after_s = [_processor_time_s(candidate) for candidate in candidates]
        self.used_s = [after - before for before, after in zip(before_s, after_s, strict=True)]
        self.roles = [candidate.roles() for candidate in candidates]
        self.confirmed = [candidate.confirm() for candidate in candidates]


@pytest.fixture(scope="module")
def outage(own_zookeeper: LocalStack) -> Outage:
    lane = Lane(own_zookeeper.zookeeper, f"t-outage-{uuid.uuid4().hex[:8]}", SHORT_SESSION_S)
    with closing(lane):
        return Outage(own_zookeeper, lane)


def test_an_outage_longer_than_the_session_changes_nothing(outage: Outage) -> None:
    assert outage.roles == [["leader"], ["follower"], ["follower"]]
    assert outage.confirmed == [True, False, False]


def test_an_outage_costs_no_processor_time(outage: Outage) -> None:
    assert max(outage.used_s) < SHORT_SESSION_S / 5


def test_nobody_is_confirmed_while_zookeeper_is_away(zookeeper: LocalStack, new_lane: NewLane) -> None:
    lane = new_lane(zookeeper.zookeeper, SHORT_SESSION_S)
    leader = lane.join("n1")
    zookeeper.zk.stop()
    assert (leader.confirm(NO_ANSWER_S), leader.roles()) == (None, ["leader"])


def test_confirm_does_not_wait_longer_than_it_was_told(zookeeper: LocalStack, new_lane: NewLane) -> None:
    leader = new_lane(zookeeper.zookeeper, LONG_SESSION_S).join("n1")
    with paused(zookeeper.zk.pid):
        assert leader.confirm(NO_ANSWER_S) is None


def test_when_every_session_is_lost_the_old_leader_leads_again(
    zookeeper: LocalStack, new_lane: NewLane
) -> None:
    lane = new_lane(zookeeper.zookeeper, SHORT_SESSION_S, yield_s=PATIENCE_S)
    first, second, third = lane.join_all("n1", "n2", "n3")
    _forget_everything(zookeeper)
    assert first.until("leader", after=_index_of_loss(first))["leader"] == "n1"
    for other in (second, third):
        other.until("follower", after=_index_of_loss(other))
        assert "leader" not in other.roles()


def test_when_every_session_is_lost_a_dead_leader_is_not_waited_for(
    zookeeper: LocalStack, new_lane: NewLane
) -> None:
    lane = new_lane(zookeeper.zookeeper, SHORT_SESSION_S)
    first, second = lane.join_all("n1", "n2")
    zookeeper.zk.stop()
    first.kill()
    _forget_everything(zookeeper)
    second.until("leader")


def test_when_every_session_is_lost_a_late_leader_is_let_go_first(
    zookeeper: LocalStack, new_lane: NewLane
) -> None:
    lane = new_lane(zookeeper.zookeeper, SHORT_SESSION_S, yield_s=PATIENCE_S)
    first, second = lane.join_all("n1", "n2")
    zookeeper.zk.stop()
    _wait_for_a_session(first)
    first.pause()
    _forget_everything(zookeeper)
    second.until_session("connected", after=_index_of_loss(second))
    first.resume()
    first.until("leader", after=_index_of_loss(first))
    second.until("follower", after=_index_of_loss(second))
    assert "leader" not in second.roles()


def test_when_every_session_is_lost_a_silent_leader_is_not_waited_for_long(
    zookeeper: LocalStack, new_lane: NewLane
) -> None:
    lane = new_lane(zookeeper.zookeeper, SHORT_SESSION_S)
    first, second = lane.join_all("n1", "n2")
    zookeeper.zk.stop()
    first.pause()
    _forget_everything(zookeeper)
    second.until("leader")


def test_a_leader_killed_in_an_outage_is_succeeded_right_after_it(
    zookeeper: LocalStack, new_lane: NewLane
) -> None:
    lane = new_lane(zookeeper.zookeeper, LONG_SESSION_S)
    first, second = lane.join_all("n1", "n2")
    zookeeper.zk.stop()
    second.until_session("suspended")
    first.kill()
    zookeeper.zk.start()
    second.until("leader", timeout_s=LONG_SESSION_S / 2)


def test_a_candidate_started_without_zookeeper_joins_when_it_comes(
    zookeeper: LocalStack, new_lane: NewLane
) -> None:
    zookeeper.zk.stop()
    only = new_lane(zookeeper.zookeeper, SHORT_SESSION_S).begin("n1")
    assert only.confirm(NO_ANSWER_S) is None
    zookeeper.zk.start()
    only.until("leader")


def _wait_for_a_session(candidate: CandidateProcess) -> None:
    assert candidate.confirm(1.5 * SHORT_SESSION_S) is None


def _forget_everything(zookeeper: LocalStack) -> None:
    """ZooKeeper comes back without its data: it knows no session any more."""
    zookeeper.zk.stop()
    for file in (zookeeper.zk.data / "version-2").iterdir():
        file.unlink()
    zookeeper.zk.start()


def _index_of_loss(candidate: CandidateProcess) -> int:
    return candidate.lines.index(candidate.until_session("lost"))


def _processor_time_s(candidate: CandidateProcess) -> float:
    used = psutil.Process(candidate.process.pid).cpu_times()
    return used.user + used.system
