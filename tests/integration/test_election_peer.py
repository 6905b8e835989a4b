"""What the end of a connection proves, and what not: real sockets, the peer's is the test's own."""

from __future__ import annotations

import ipaddress
import os
import queue
import resource
import socket
import threading
import time
from collections.abc import Iterator
from contextlib import suppress
from typing import Any

import pytest

from election.errors import PortTaken
from election.link import BEAT, Peer
from election.peer import Peers
from ops.stack.ports import free_port
from tests.integration.election_lane import eventually

HOST = "127.0.0.1"
GUID, OTHER_GUID = "a" * 32, "b" * 32
NAME = f"{GUID}-0000000001"
VERDICT_S = 5.0
# No verdict comes of what takes a few milliseconds to come to one.
NO_VERDICT_S = 0.5
SILENCE_S = 0.3


class ScriptedPeer:
    """A peer port that does what the test says. Nobody else is given it while nothing listens there."""

    def __init__(self, port: int | None = None) -> None:
        self.port = free_port() if port is None else port
        self.listener = socket.create_server((HOST, self.port))
        self.listener.settimeout(VERDICT_S)
        self.visitor: socket.socket | None = None

    def greet(self, node: str = "n1", guid: str = GUID) -> None:
        self.accept()
        self.say(f"delayline-peer/1 {node} {guid}\n".encode())

    def accept(self) -> None:
        self.visitor, _ = self.listener.accept()

    def say(self, data: bytes) -> None:
        assert self.visitor is not None
        self.visitor.sendall(data)

    def drop(self) -> None:
        assert self.visitor is not None
        self.visitor.close()

    def die(self) -> None:
        self.listener.close()
        if self.visitor is not None:
            self.visitor.close()


class Watcher:
    """Real Peers that follow one candidacy, and their verdicts."""

    def __init__(self) -> None:
        self.verdicts: queue.SimpleQueue[str] = queue.SimpleQueue()
        self.told_silent = threading.Event()
        self.peers = Peers("n2", HOST, 0, SILENCE_S)
        self.peers.start(self.verdicts.put, self.told_silent.set)

    def follow(self, port: int) -> None:
        self.peers.follow({NAME: Peer("n1", GUID, HOST, port)})

    def until_greeted(self) -> None:
        eventually(lambda: self.peers.has_greeted(NAME))

    def finds_it_gone(self) -> bool:
        with suppress(queue.Empty):
            return self.verdicts.get(timeout=VERDICT_S) == NAME
        return False

    def finds_nothing(self) -> bool:
        with suppress(queue.Empty):
            self.verdicts.get(timeout=NO_VERDICT_S)
            return False
        return not self.told_silent.is_set()


@pytest.fixture
def watcher() -> Iterator[Watcher]:
    watching = Watcher()
    yield watching
    watching.peers.stop()
    watching.peers.join()


@pytest.fixture
def peer() -> Iterator[ScriptedPeer]:
    scripted = ScriptedPeer()
    yield scripted
    scripted.die()


@pytest.fixture
def greeted(watcher: Watcher, peer: ScriptedPeer) -> ScriptedPeer:
    watcher.follow(peer.port)
    peer.greet()
    watcher.until_greeted()
    return peer


def test_a_connection_that_ends_with_a_refused_reconnect_proves_the_end(
    watcher: Watcher, greeted: ScriptedPeer
) -> None:
    greeted.die()
    assert watcher.finds_it_gone()


def test_the_same_node_with_another_candidacy_proves_the_end(watcher: Watcher, greeted: ScriptedPeer) -> None:
    greeted.drop()
    greeted.greet(guid=OTHER_GUID)
    assert watcher.finds_it_gone()


def test_the_same_node_without_a_candidacy_proves_the_end(watcher: Watcher, greeted: ScriptedPeer) -> None:
    greeted.drop()
    greeted.greet(guid="-")
    assert watcher.finds_it_gone()


def test_the_same_node_with_another_candidacy_proves_the_end_at_first_sight(
    watcher: Watcher, peer: ScriptedPeer
) -> None:
    watcher.follow(peer.port)
    peer.greet(guid=OTHER_GUID)
    assert watcher.finds_it_gone()


def test_the_end_is_told_once(watcher: Watcher, greeted: ScriptedPeer) -> None:
    greeted.die()
    watcher.finds_it_gone()
    assert watcher.finds_nothing()


def test_a_connection_that_ends_with_an_answered_reconnect_proves_nothing(
    watcher: Watcher, greeted: ScriptedPeer
) -> None:
    greeted.drop()
    greeted.greet()
    assert watcher.finds_nothing()
    watcher.until_greeted()


def test_a_reconnect_without_a_greeting_proves_nothing(watcher: Watcher, greeted: ScriptedPeer) -> None:
    # As a stopped process: the kernel accepts for it.
    greeted.drop()
    assert watcher.finds_nothing()
    assert not watcher.peers.has_greeted(NAME)


def test_a_process_killed_while_it_was_stopped_is_found_gone(watcher: Watcher, greeted: ScriptedPeer) -> None:
    greeted.drop()
    greeted.accept()  # without a greeting
    greeted.die()
    assert watcher.finds_it_gone()


def test_a_refusal_by_an_address_that_never_greeted_proves_nothing(
    watcher: Watcher, peer: ScriptedPeer
) -> None:
    peer.die()
    watcher.follow(peer.port)
    assert watcher.finds_nothing()


def test_an_address_that_refused_at_first_is_tried_until_it_answers(
    watcher: Watcher, peer: ScriptedPeer
) -> None:
    peer.die()
    watcher.follow(peer.port)
    assert watcher.finds_nothing()
    late = ScriptedPeer(peer.port)
    late.greet()
    watcher.until_greeted()
    late.die()


@pytest.mark.parametrize("answer", [f"delayline-peer/1 n9 {OTHER_GUID}\n".encode(), b"x" * 10_000])
def test_an_answer_from_somebody_else_proves_nothing(
    watcher: Watcher, greeted: ScriptedPeer, answer: bytes
) -> None:
    greeted.drop()
    greeted.accept()
    greeted.say(answer)
    assert watcher.finds_nothing()


def test_a_greeting_in_pieces_is_understood(watcher: Watcher, peer: ScriptedPeer) -> None:
    watcher.follow(peer.port)
    peer.accept()
    for piece in (b"delayline-", b"peer/1 n1 ", GUID.encode(), b"\n"):
        peer.say(piece)
    watcher.until_greeted()


def test_one_who_is_no_longer_followed_is_let_go_without_a_verdict(
    watcher: Watcher, greeted: ScriptedPeer
) -> None:
    watcher.peers.follow({})
    assert greeted.visitor is not None
    greeted.visitor.settimeout(VERDICT_S)
    assert greeted.visitor.recv(1) == b""
    greeted.die()
    assert watcher.finds_nothing()


def test_peers_greet_with_the_candidacy_they_have_now(watcher: Watcher) -> None:
    greetings = []
    for guid in (GUID, None):
        watcher.peers.introduce(guid)
        with socket.create_connection((HOST, watcher.peers.port), timeout=VERDICT_S) as visitor:
            greetings.append(visitor.makefile().readline())
    assert greetings == [f"delayline-peer/1 n2 {GUID}\n", "delayline-peer/1 n2 -\n"]


@pytest.fixture
def running(watcher: Watcher) -> Iterator[Peers]:
    """Another process's, whom the watcher follows."""
    other = Peers("n1", HOST, 0, SILENCE_S)
    other.introduce(GUID)
    other.start(lambda _: None, lambda: None)
    watcher.follow(other.port)
    watcher.until_greeted()
    yield other
    other.stop()
    other.join()


def test_peers_find_each_other(watcher: Watcher, running: Peers) -> None:
    running.stop()
    assert watcher.finds_it_gone()


def test_who_beats_and_stops_is_silent_and_not_gone(watcher: Watcher, greeted: ScriptedPeer) -> None:
    greeted.say(BEAT)
    assert watcher.told_silent.wait(VERDICT_S)
    assert (watcher.peers.is_silent(NAME), watcher.verdicts.empty()) == (True, True)


def test_who_beats_again_is_silent_no_more(watcher: Watcher, greeted: ScriptedPeer) -> None:
    greeted.say(BEAT)
    assert watcher.told_silent.wait(VERDICT_S)
    greeted.say(BEAT)
    eventually(lambda: not watcher.peers.is_silent(NAME))


def test_who_hears_none_of_several_any_more_is_cut_off_itself(watcher: Watcher, peer: ScriptedPeer) -> None:
    """One is heard for longer: once that one is silent as well, nobody counts as such."""
    other = ScriptedPeer()
    other_name = f"{OTHER_GUID}-0000000000"
    watcher.peers.follow(
        {NAME: Peer("n1", GUID, HOST, peer.port), other_name: Peer("n3", OTHER_GUID, HOST, other.port)}
    )
    peer.greet()
    other.greet("n3", OTHER_GUID)
    watcher.until_greeted()
    eventually(lambda: watcher.peers.has_greeted(other_name))
    other.say(BEAT)
    peer.say(BEAT)
    assert watcher.finds_nothing()
    other.say(BEAT)
    assert watcher.told_silent.wait(VERDICT_S)
    assert (watcher.peers.is_silent(NAME), watcher.peers.is_silent(other_name)) == (True, False)
    other.die()


def test_who_has_never_beaten_is_not_silent(watcher: Watcher, greeted: ScriptedPeer) -> None:
    """A node of an older version."""
    assert watcher.finds_nothing()


@pytest.mark.usefixtures("running")
def test_those_who_run_hear_each_other(watcher: Watcher) -> None:
    assert watcher.finds_nothing()


def test_a_crowd_of_visitors_is_bounded_and_the_newest_are_greeted(watcher: Watcher) -> None:
    crowd = [socket.create_connection((HOST, watcher.peers.port), timeout=VERDICT_S) for _ in range(300)]
    try:
        assert crowd[-1].makefile().readline().startswith("delayline-peer/1 n2")
        # The newest are greeted before the oldest are sent off.
        eventually(lambda: len(watcher.peers._visitors) <= 128)
    finally:
        for visitor in crowd:
            visitor.close()


def test_one_peers_name_server_that_does_not_answer_holds_up_no_other(
    watcher: Watcher, peer: ScriptedPeer, monkeypatch: pytest.MonkeyPatch
) -> None:
    answers, asked = threading.Event(), socket.getaddrinfo

    def slow(host: str, *args: Any, **options: Any) -> Any:
        if host == "slow.invalid":
            answers.wait()
        return asked(host, *args, **options)

    monkeypatch.setattr(socket, "getaddrinfo", slow)
    far = Peer("n3", OTHER_GUID, "slow.invalid", peer.port)
    watcher.peers.follow({f"{OTHER_GUID}-0000000000": far, NAME: Peer("n1", GUID, HOST, peer.port)})
    peer.greet()
    watcher.until_greeted()
    answers.set()


def test_visitors_wait_without_a_busy_loop_until_there_are_file_descriptors(watcher: Watcher) -> None:
    with socket.create_connection((HOST, watcher.peers.port), timeout=VERDICT_S) as first:
        assert first.makefile().readline().startswith("delayline-peer/1 n2")
        visitor = socket.socket()
        visitor.settimeout(NO_VERDICT_S)
        limits = resource.getrlimit(resource.RLIMIT_NOFILE)
        free = os.dup(0)
        os.close(free)
        resource.setrlimit(resource.RLIMIT_NOFILE, (free, limits[1]))
        try:
            visitor.connect((HOST, watcher.peers.port))
            began_s = time.process_time()
            with pytest.raises(TimeoutError):
                visitor.recv(1)
            assert time.process_time() - began_s < NO_VERDICT_S / 4
        finally:
            resource.setrlimit(resource.RLIMIT_NOFILE, limits)
        visitor.settimeout(VERDICT_S)
        assert visitor.makefile().readline().startswith("delayline-peer/1 n2")
        visitor.close()


def test_a_taken_port_is_named(watcher: Watcher) -> None:
    with pytest.raises(PortTaken, match=f"peer port {watcher.peers.port} at 127.0.0.1"):
        Peers("n3", HOST, watcher.peers.port, SILENCE_S)


def test_a_peer_host_that_means_this_host_alone_is_reached_from_nowhere_else() -> None:
    peers = Peers("a", "localhost", 0, SILENCE_S)
    try:
        assert ipaddress.ip_address(peers._listener.getsockname()[0]).is_loopback
        with socket.create_connection(("localhost", peers.port)) as connection:
            assert ipaddress.ip_address(connection.getpeername()[0]).is_loopback
    finally:
        peers.stop()
