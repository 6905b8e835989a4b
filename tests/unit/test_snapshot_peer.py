"""A peer as a taker sees it: whatever one answers costs a while, and what it says is one line."""

from __future__ import annotations

import http.client
import select
import socket
import threading
import time
from collections.abc import Iterator
from contextlib import ExitStack, closing
from functools import partial
from http import HTTPStatus
from pathlib import Path

import pytest
from starlette.applications import Starlette

from node.http.server import MOST_CONNECTIONS, HttpServer
from node.http.snapshots import Giving, giving_snapshots
from node.snapshot import peer, tries
from node.snapshot.at_once import answers
from node.snapshot.errors import Broken, SnapshotError, Withheld
from node.snapshot.giver import About, Giver
from node.snapshot.peer import ONCE, PATH, SIGNATURE, TAKER, TIME, PeerSource
from node.snapshot.secrets import Asked, Gate, Heard
from node.worker import Roster
from tests.support import bad_peer
from tests.support.bad_peer import BAD_ANSWERS, Answer, BadServer, Keyed, name_of, says
from tests.support.waiting import PATIENCE_S
from tests.unit.test_snapshot import IDENTITY, SECRETS

DEADLINE_S = 0.3
A_WHILE_S = 10.0
"""Far longer than the three tries of a deadline each."""


@pytest.fixture(autouse=True)
def _soon(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(peer, "ANSWER_TIMEOUT_S", DEADLINE_S)
    monkeypatch.setattr(peer, "POLL_S", 0.0)
    monkeypatch.setattr(tries, "RETRY_S", 0.0)


@pytest.fixture
def died(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """What has ended a thread: in a node it would end the process."""
    errors: list[str] = []
    monkeypatch.setattr(threading, "excepthook", lambda args: errors.append(repr(args.exc_value)))
    return errors


def source_of(server: BadServer) -> PeerSource:
    return PeerSource("bad", *server.where, SECRETS, "c")


@pytest.mark.parametrize("answer", BAD_ANSWERS, ids=name_of)
def test_whatever_a_peer_answers_is_no_snapshot_after_a_while(answer: Answer, died: list[str]) -> None:
    began_s = time.monotonic()
    with closing(BadServer(answer)) as bad, closing(source_of(bad)) as source:
        with pytest.raises(SnapshotError) as caught:
            SECRETS.opened(source.manifest())
        assert str(caught.value).isprintable()
    assert time.monotonic() - began_s < A_WHILE_S
    assert died == []


@pytest.mark.parametrize(
    ("answer", "said"),
    [
        (bad_peer.is_of_another_version, "says 404: Not Found"),
        (bad_peer.is_another_service, 'says 404: {"detail":"Not Found"}'),
        (bad_peer.has_no_words, "says 404: {}"),
        (bad_peer.says_a_page, r"says 404: <html> \[31m<body>Not Found"),
    ],
)
def test_what_a_peer_says_instead_of_a_snapshot_is_told(answer: Answer, said: str) -> None:
    with (
        closing(BadServer(answer)) as bad,
        closing(source_of(bad)) as source,
        pytest.raises(Withheld, match=said),
    ):
        source.manifest()


def test_an_answer_that_takes_too_long_is_said_to() -> None:
    with (
        closing(BadServer(bad_peer.drips)) as bad,
        closing(source_of(bad)) as source,
        pytest.raises(SnapshotError, match="timed out"),
    ):
        source.manifest()


class Replaying(Keyed):
    """A stranger that has heard the first answers of a giver, and says them again."""

    def __init__(self) -> None:
        super().__init__(SECRETS)
        self._heard = b""

    def __call__(self, to: socket.socket, request: bytes) -> None:
        if request.startswith(b"GET"):
            self._heard = self._heard or request
        super().__call__(to, self._heard or request)


def test_what_a_giver_has_said_to_one_request_is_no_answer_to_another() -> None:
    with closing(BadServer(Replaying())) as server, closing(source_of(server)) as source:
        with pytest.raises(Withheld, match="has not signed its answer"):
            source.manifest()
        assert len(server.asked) == 3, "the beginning, a look that is answered, and one that is not"


def test_a_stranger_that_comes_on_with_a_manifest_is_not_waited_for() -> None:
    with closing(BadServer(bad_peer.makes_its_manifest)) as server, closing(source_of(server)) as source:
        with pytest.raises(Withheld, match="has not signed its answer"):
            source.manifest()
        assert len(server.asked) == 1


class Breaking(Keyed):
    """Gives its manifest over as many connections as it takes: each breaks after so many answers."""

    def __init__(self, answers: int, polls: int) -> None:
        super().__init__(SECRETS)
        self._answers = answers
        self._left = polls
        self._talked: dict[socket.socket, int] = {}

    def __call__(self, to: socket.socket, request: bytes) -> None:
        talked = self._talked[to] = self._talked.get(to, 0) + 1
        if talked > self._answers:
            to.shutdown(socket.SHUT_RDWR)
        elif self._left or request.startswith(b"POST"):
            self._left -= request.startswith(b"GET")
            super().__call__(to, request)
        else:
            self.says(to, request, 200, b"the manifest")


def test_a_manifest_is_asked_for_again_where_the_connection_breaks() -> None:
    with closing(BadServer(Breaking(answers=1, polls=5))) as server, closing(source_of(server)) as source:
        assert source.manifest() == b"the manifest"


def test_a_peer_that_is_gone_before_its_manifest_is_made_is_given_up() -> None:
    def goes(to: socket.socket, request: bytes) -> None:
        if request.startswith(b"POST"):
            Keyed(SECRETS)(to, request)
        else:
            to.shutdown(socket.SHUT_RDWR)

    with closing(BadServer(goes)) as server, closing(source_of(server)) as source:
        with pytest.raises(SnapshotError):
            source.manifest()
        assert sum(one.startswith(b"GET") for one in server.asked) == tries.TRIES


def test_a_manifest_that_does_not_come_on_is_not_waited_for(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(peer, "NO_PROGRESS_S", 0.1)

    with (
        closing(BadServer(Keyed(SECRETS, lambda: 7))) as server,
        closing(source_of(server)) as source,
        pytest.raises(Withheld, match="does not come on"),
    ):
        source.manifest()


class Counting:
    """Ends each connection at its second request; the first ones wait for each other."""

    def __init__(self, connections: int) -> None:
        self._connections = connections
        self._all = threading.Barrier(connections)
        self._known: list[socket.socket] = []

    def __call__(self, to: socket.socket, request: bytes) -> None:
        if to in self._known:
            to.shutdown(socket.SHUT_RDWR)
            return
        self._known.append(to)
        if len(self._known) <= self._connections:
            self._all.wait(PATIENCE_S)
        says(to, b"200 OK", b"sealed")


def test_connections_that_have_ended_while_none_was_asked_for_cost_one_try() -> None:
    with closing(BadServer(Counting(peer.AT_ONCE))) as server, closing(source_of(server)) as source:
        asks = [partial(source.part, 0, part, 6) for part in range(peer.AT_ONCE)]
        assert list(answers(asks, peer.AT_ONCE, threading.Event())) == [b"sealed"] * peer.AT_ONCE
        with pytest.raises(Broken):
            source.part(0, 0, 6)
        assert source.part(0, 0, 6) == b"sealed"


# -- a giver that many strangers are connected to


class Slow:
    """A store whose files are linked once it is told to."""

    def __init__(self) -> None:
        self.go_on = threading.Event()

    def link_files(self, folder: Path) -> None:
        self.go_on.wait(PATIENCE_S)
        folder.mkdir()
        (folder / "CURRENT").write_bytes(b"MANIFEST-000005\n")


@pytest.fixture
def server() -> Iterator[HttpServer]:
    made = HttpServer("127.0.0.1", 0)
    yield made
    made.stop()
    made.join()


@pytest.fixture
def slow(server: HttpServer, tmp_path: Path) -> Iterator[Slow]:
    store = Slow()
    about = About("a", IDENTITY, 0)
    giver = Giver(store, tmp_path / "given", lambda: about, SECRETS, dict, 1 << 30, lambda: True)
    giver.start(Roster())
    giving = Giving(giver, Gate(SECRETS, "a", Heard()))
    server.start(giving_snapshots(Starlette(), lambda: giving))
    yield store
    store.go_on.set()
    giver.stop()
    giver.join()


def test_a_taker_whose_connection_strangers_have_taken_gets_its_manifest(
    server: HttpServer, slow: Slow, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(peer, "ANSWER_TIMEOUT_S", PATIENCE_S)
    looks = 0
    with ExitStack() as strangers:

        def is_to_end() -> bool:
            """Asked before each request: the third one is a poll, and there was one before."""
            nonlocal looks
            looks += 1
            if looks == 3:
                for _ in range(MOST_CONNECTIONS + 1):
                    strangers.enter_context(socket.create_connection(("127.0.0.1", server.port)))
                assert select.select([source._idle[0].sock], [], [], PATIENCE_S)[0], "it is broken off"
                slow.go_on.set()
            return False

        with closing(PeerSource("a", "127.0.0.1", server.port, SECRETS, "c", is_to_end)) as source:
            assert SECRETS.opened(source.manifest()).node == "a"
    assert looks > 3


@pytest.mark.usefixtures("slow")
@pytest.mark.parametrize(
    ("signed", "status"), [(f"{PATH}/1", HTTPStatus.CONFLICT), ("/2", HTTPStatus.FORBIDDEN)]
)
def test_what_is_signed_for_one_path_is_no_request_for_another(
    server: HttpServer, signed: str, status: HTTPStatus
) -> None:
    asked = Asked.new("a", "c", "GET", signed, time.time_ns() // 1_000_000)
    headers = {
        "Host": f"x{signed}#",
        TIME: str(asked.at_ms),
        ONCE: asked.once,
        TAKER: asked.taker,
        SIGNATURE: SECRETS.sign(asked),
    }
    with closing(http.client.HTTPConnection("127.0.0.1", server.port, timeout=PATIENCE_S)) as connection:
        connection.request("GET", f"{PATH}/1", headers=headers)
        assert connection.getresponse().status == status
