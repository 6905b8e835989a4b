"""Candidacies in this process, on a real ZooKeeper: lost answers, doubled znodes, and what confirm says."""

from __future__ import annotations

import queue
import threading
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from election.candidacy import Candidacy, ElectionState
from election.candidates import Candidate, in_order
from election.link import BEAT_S
from election.peer import Peers
from election.session import Session
from election.znodes import Znodes
from tests.integration.election_lane import PATIENCE_S, eventually, operator
from tests.integration.sessions import AnswerLost
from tests.stacks import Stack

HOST = "127.0.0.1"
GUID = "a" * 32
NO_CHANGE_S = 1.0


class Node:
    """A candidate with its session, and all its states."""

    def __init__(self, zookeeper: str, path: str, name: str, peers: Callable[..., Peers] = Peers) -> None:
        self.is_abreast = True
        self.states: queue.SimpleQueue[ElectionState] = queue.SimpleQueue()
        self.session = AnswerLost({"hosts": zookeeper}, 10)
        self.peers = peers(name, HOST, 0, silence_s=60)
        self.candidacy = Candidacy(
            self.session,
            path,
            self.peers,
            node=name,
            host=HOST,
            on_change=self.states.put,
            is_abreast=lambda: self.is_abreast,
        )
        self.session.start()
        self.candidacy.start()
        self.session.wait_connected(PATIENCE_S)

    def until(self, role: str) -> ElectionState:
        while (state := self.states.get(timeout=PATIENCE_S)).role != role:
            pass
        return state

    def close(self) -> None:
        self.candidacy.leave()
        self.candidacy.stop()
        self.candidacy.join()
        self.session.stop()


NewNode = Callable[..., Node]


@pytest.fixture
def path(cluster_name: str) -> str:
    return Znodes(cluster_name).candidates(0)


@pytest.fixture
def new_node(stack: Stack, path: str) -> Iterator[NewNode]:
    nodes: list[Node] = []

    def new(name: str, peers: Callable[..., Peers] = Peers) -> Node:
        nodes.append(Node(stack.zookeeper, path, name, peers))
        return nodes[-1]

    yield new
    for node in nodes:
        node.close()


class SilentPeers(Peers):
    """Hears of nobody that runs."""

    def is_silent(self, name: str) -> bool:
        return True


def fixed_guids(monkeypatch: pytest.MonkeyPatch, *guids: str) -> None:
    """Let the next candidacies have these GUIDs."""
    left = list(guids)
    monkeypatch.setattr("election.candidacy.new_guid", lambda: left.pop(0))


def test_one_who_has_not_entered_is_not_in_the_queue(new_node: NewNode, path: str) -> None:
    node = new_node("n1")
    assert node.candidacy.confirm(PATIENCE_S) is False
    assert node.session.exists(path) is None
    assert node.candidacy.state.role == "none"


def test_an_election_state_says_what_and_since_when(new_node: NewNode, path: str) -> None:
    node = new_node("n1")
    before_ms = node.candidacy.state.since_ms
    node.candidacy.enter()
    state = node.until("leader")
    assert node.session.children(path) == [state.znode]
    assert (state.leader, node.candidacy.state) == ("n1", state)
    assert state.since_ms >= before_ms


def test_a_candidacy_whose_creation_was_not_answered_is_found_again(new_node: NewNode, path: str) -> None:
    node = new_node("n1")
    node.session.lost = 1
    node.candidacy.enter()
    state = node.until("leader")
    assert node.session.children(path) == [state.znode]


def test_a_candidacy_made_twice_keeps_its_lower_znode(
    new_node: NewNode, path: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    fixed_guids(monkeypatch, GUID)
    node = new_node("n1")
    twice = [_premade(node.session, path, GUID) for _ in range(2)]
    node.candidacy.enter()  # and makes a third
    assert node.until("leader").znode == twice[0]
    eventually(lambda: node.session.children(path) == [twice[0]])


def test_a_znode_that_ends_with_an_earlier_session_is_not_stood_on(
    stack: Stack, new_node: NewNode, path: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    fixed_guids(monkeypatch, GUID, "b" * 32)
    earlier = Session({"hosts": stack.zookeeper}, 10)
    earlier.start()
    earlier.wait_connected(PATIENCE_S)
    of_earlier = _premade(earlier, path, GUID)
    node = new_node("n1")
    node.candidacy.enter()
    assert str(node.until("leader").znode).startswith("b" * 32)
    assert earlier.exists(f"{path}/{of_earlier}") is None
    earlier.stop()


def test_confirm_says_no_as_soon_as_the_znode_is_gone(stack: Stack, new_node: NewNode, path: str) -> None:
    node, other = new_node("n1"), new_node("n2")
    node.candidacy.enter()
    state = node.until("leader")
    other.candidacy.enter()
    other.until("follower")
    with operator(stack.zookeeper) as client:
        client.delete(f"{path}/{state.znode}")
        assert node.candidacy.confirm(PATIENCE_S) is False


def test_confirm_is_answered_to_several_threads_at_once(new_node: NewNode) -> None:
    node = new_node("n1")
    node.candidacy.enter()
    node.until("leader")
    answers: queue.SimpleQueue[bool] = queue.SimpleQueue()
    threads = [
        threading.Thread(target=lambda: answers.put(node.candidacy.confirm(PATIENCE_S))) for _ in range(8)
    ]
    for thread in threads:
        thread.start()
    assert [answers.get(timeout=PATIENCE_S) for _ in threads] == [True] * 8


def test_leaving_removes_the_znode_before_it_returns(new_node: NewNode, path: str) -> None:
    node = new_node("n1")
    node.candidacy.enter()
    node.until("leader")
    assert node.candidacy.leave(PATIENCE_S) is True
    assert (node.session.children(path), node.candidacy.state.role) == ([], "none")


def test_leaving_right_after_entering_leaves_nothing_behind(new_node: NewNode, path: str) -> None:
    node = new_node("n1")
    for _ in range(20):
        node.candidacy.enter()
        assert node.candidacy.leave(PATIENCE_S) is True
    assert (
        node.session.exists(path) is None or node.session.children(path) == [],
        node.candidacy.state.role,
    ) == (
        True,
        "none",
    )


def test_a_candidacy_that_breaks_down_does_not_stay_in_the_queue(
    stack: Stack, new_node: NewNode, path: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    crashes: queue.SimpleQueue[str] = queue.SimpleQueue()
    monkeypatch.setattr(threading, "excepthook", lambda crash: crashes.put(str(crash.exc_value)))

    def break_down(state: ElectionState) -> None:
        raise RuntimeError(f"as {state.role}")

    node = new_node("n1")
    node.candidacy._on_change = break_down
    node.candidacy.enter()
    assert crashes.get(timeout=PATIENCE_S) == "as leader"
    with operator(stack.zookeeper) as client:
        eventually(lambda: in_order(client.get_children(path)) == [])


def _premade(session: Session, path: str, guid: str) -> str:
    """A znode as a candidacy's creation leaves it; its name."""
    data = Candidate("n1", HOST, 1, 1).encode()
    return session.create(f"{path}/{guid}-", data, ephemeral=True, sequence=True).rpartition("/")[2]


class Overtaken(threading.Event):
    """Somebody enters at the moment at which it is set."""

    def __init__(self, enter: Callable[[], None]) -> None:
        super().__init__()
        self.entering = threading.Thread(target=enter)

    def set(self) -> None:
        if self.entering.ident is None:
            self.entering.start()
            self.entering.join(0.2)  # unless it is kept waiting until this is set
        super().set()


def test_who_enters_while_it_leaves_has_an_end_to_wait_for(new_node: NewNode) -> None:
    node = new_node("a")
    node.candidacy.enter()
    node.until("leader")
    node.candidacy._out = out = Overtaken(node.candidacy.enter)
    node.candidacy.leave()
    node.until("leader")
    out.entering.join()
    assert not node.candidacy.leave(0), "its znode is there"


def test_who_is_not_abreast_lets_a_silent_leader_be(new_node: NewNode) -> None:
    leader, next_ = new_node("n1"), new_node("n2", SilentPeers)
    leader.candidacy.enter()
    leader.until("leader")
    next_.is_abreast = False
    next_.candidacy.enter()
    next_.until("follower")
    with pytest.raises(queue.Empty):
        next_.states.get(timeout=NO_CHANGE_S)
    next_.is_abreast = True  # it is looked at again, though nothing tells of it
    next_.until("leader")
    leader.until("none")


def test_who_is_answered_late_by_zookeeper_lets_a_silent_leader_be(
    new_node: NewNode, monkeypatch: pytest.MonkeyPatch
) -> None:
    leader, next_ = new_node("n1"), new_node("n2", SilentPeers)
    leader.candidacy.enter()
    leader.until("leader")
    exists = next_.session.exists

    def late(*asked: Any, **how: Any) -> Any:
        answer = exists(*asked, **how)
        threading.Event().wait(BEAT_S)  # as long as it takes one who is cut off to miss a beat
        return answer

    monkeypatch.setattr(next_.session, "exists", late)
    next_.candidacy.enter()
    next_.until("follower")
    with pytest.raises(queue.Empty):
        next_.states.get(timeout=NO_CHANGE_S)
    monkeypatch.setattr(next_.session, "exists", exists)
    next_.until("leader")
