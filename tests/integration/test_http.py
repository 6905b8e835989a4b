"""A node's HTTP interface and its clients: wrong questions, clients that hang, nodes that do not answer."""

from __future__ import annotations

import http.client
import http.server
import ipaddress
import json
import socket
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from threading import Event

import pytest
from anyio import to_thread
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route

from node.http import server
from node.http.answers import Listed
from node.http.app import application
from node.http.messages import Messages, NoSource, WrongLane
from node.http.server import HttpServer
from ops.clients.nodes import LaneNodes, NodeAddress
from ops.errors import UnavailableError
from tests.support.strangers import http_stranger
from tests.support.waiting import PATIENCE_S

HALF = b"GET /messages HTTP/1.1\r\nHo"


class OfAnotherLane(Messages):
    """Knows nothing, and says of every id that it is another lane's."""

    def __init__(self) -> None:
        pass

    def show(self, id_: str, *_: object) -> None:  # type: ignore[override]
        raise WrongLane(f"{id_} is of another lane")

    def show_source(self, name: str, *_: object) -> None:  # type: ignore[override]
        raise NoSource(f"{name} is no source")


@pytest.fixture
def port(request: pytest.FixtureRequest) -> Iterator[int]:
    """That of a server, of a node whose store is open unless the test says otherwise."""
    messages = getattr(request, "param", OfAnotherLane())
    made = HttpServer("127.0.0.1", 0)
    made.start(application(lambda: messages))
    yield made.port
    made.stop()
    made.join()


def asked(port: int, question: str) -> tuple[int, dict[str, str]]:
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=PATIENCE_S)
    connection.request("GET", question)
    response = connection.getresponse()
    return response.status, json.loads(response.read())


@pytest.mark.parametrize(
    ("question", "why"),
    [
        ("/message", "say which message: ?id=... or ?source=..."),
        ("/message?id=x&source=delay.buffer/0/1", "say which message: ?id=... or ?source=..."),
        ("/message?source=x", "x is no source"),
        ("/message?id=x&history=some", "history is 'some': it may be recent, all, none"),
        ("/message?id=x&what=y", "unknown: what; there are id, source, history"),
        ("/message?id=x", "x is of another lane"),
        ("/replay?from_ms=5", "say to_ms: epoch ms"),
        ("/replay?from_ms=now&to_ms=5", "from_ms is 'now': it must be a number"),
        ("/skip", "say to_ms: epoch ms"),
        ("/skip?to_ms=5&target=x", "unknown: target; there are to_ms"),
        ("/messages?limit=-1", "limit is '-1': it must be a number"),
        ("/due?now_ms=soon", "now_ms is 'soon': it must be a number"),
        ("/messages?after=x", "after: 'x' is no cursor: take it from the answer before"),
    ],
)
def test_a_wrong_question_is_answered_with_what_is_wrong(port: int, question: str, why: str) -> None:
    assert asked(port, question) == (400, {"error": why})


def test_nobody_is_sent_elsewhere_for_a_slash(port: int) -> None:
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=PATIENCE_S)
    connection.request("GET", "/due/")
    assert connection.getresponse().status == 404


@pytest.mark.parametrize("port", [None], indirect=True)
def test_a_node_that_has_not_opened_its_store_says_so(port: int) -> None:
    status, said = asked(port, "/messages")
    assert (status, said["error"].split(":")[0]) == (503, "the node has not opened its store yet")


def test_half_a_request_is_not_waited_for_for_ever(monkeypatch: pytest.MonkeyPatch, port: int) -> None:
    monkeypatch.setattr(server, "REQUEST_TIMEOUT_S", 0.1)
    with socket.create_connection(("127.0.0.1", port), PATIENCE_S) as hanging:
        hanging.sendall(HALF)
        assert ended(hanging)


def test_the_oldest_connection_makes_room(monkeypatch: pytest.MonkeyPatch, port: int) -> None:
    monkeypatch.setattr(server, "MOST_CONNECTIONS", 2)
    with ExitStack() as ends:
        first, *_ = (
            ends.enter_context(socket.create_connection(("127.0.0.1", port), PATIENCE_S)) for _ in range(3)
        )
        assert ended(first)
        assert asked(port, "/message")[0] == 400


def test_who_only_connects_breaks_off_nobodys_answer(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(server, "MOST_CONNECTIONS", 2)
    monkeypatch.setattr(server, "SPARED_S", 0.0)
    is_asked, may_answer = Event(), Event()

    async def answer(_: Request) -> Response:
        is_asked.set()
        await to_thread.run_sync(may_answer.wait, PATIENCE_S)
        return JSONResponse({"it": "was answered"})

    made = HttpServer("127.0.0.1", 0)
    made.start(Starlette(routes=[Route("/slow", answer)]))
    with ExitStack() as ends, ThreadPoolExecutor() as pool:
        ends.callback(made.join)
        ends.callback(made.stop)
        answered = pool.submit(asked, made.port, "/slow")
        assert is_asked.wait(PATIENCE_S)
        where = "127.0.0.1", made.port
        idle = [ends.enter_context(socket.create_connection(where, PATIENCE_S)) for _ in range(4)]
        assert all(map(ended, idle[:3]))
        may_answer.set()
        assert answered.result(PATIENCE_S) == (200, {"it": "was answered"})


def ended(connection: socket.socket) -> bool:
    try:
        return connection.recv(1) == b""
    except ConnectionResetError:
        return True


def test_a_lane_without_a_node_that_answers_says_of_each_why() -> None:
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    with http_stranger() as stranger:
        lane = LaneNodes(0, [NodeAddress("n1", "127.0.0.1", port), NodeAddress("n2", "127.0.0.1", stranger)])
        with pytest.raises(UnavailableError) as raised:
            lane.ask(Listed, "/messages", {})
    assert f"n1 at 127.0.0.1:{port}: Connection refused" in str(raised.value)
    assert f"n2 at 127.0.0.1:{stranger}: something else answers there" in str(raised.value)


def test_a_lane_without_a_node_says_so() -> None:
    with pytest.raises(UnavailableError, match="no node of lane 3 is running"):
        LaneNodes(3, []).ask(Listed, "/messages", {})


def test_an_http_host_that_means_this_host_alone_is_reached_from_nowhere_else() -> None:
    listening = HttpServer("localhost", 0)
    try:
        assert ipaddress.ip_address(listening._listener.getsockname()[0]).is_loopback
        socket.create_connection(("localhost", listening.port)).close()
    finally:
        listening._listener.close()
