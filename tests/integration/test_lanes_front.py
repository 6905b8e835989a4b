"""The one HTTP port of several lanes, in front of servers that stand for their processes."""

from __future__ import annotations

import asyncio
import http.client
import json
import select
import socket
import threading
from collections.abc import AsyncIterator, Iterator
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from typing import Any

import pytest
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import JSONResponse, PlainTextResponse, Response, StreamingResponse
from starlette.routing import Route

from node.config import NodeConfig
from node.http.server import HttpServer
from ops.lanes import relay
from ops.lanes.front import front
from tests.support.waiting import PATIENCE_S, becomes

PART = b"x" * (1 << 16)
PARTS = 1_000
MOST_ON_THE_WAY = 400
"""Parts of 64 KiB: the buffers of four sockets, as large as Linux makes them on the loopback."""


class Lane:
    """Stands for a lane's process."""

    def __init__(self, lane: int) -> None:
        self.lane = lane
        self.path = f"/lanes/{lane}"
        self.config = NodeConfig(
            bootstrap_servers="k:1", zookeeper="z:1", data_dir=Path("/d"), lane=lane, node_id=f"n-{lane}"
        )
        self._server = HttpServer("127.0.0.1", 0)
        self._server.start(self._app())
        self.begin_anew()

    def begin_anew(self) -> None:
        """As if nothing had been asked yet, and all is well."""
        self.port = self._server.port
        self.wrong: str | None = None
        self.status = 200
        self.lag: int | None = 5
        self.odd: bytes | None = None
        self.sent = self.waiting = 0
        self.left = threading.Event()
        self.seen: list[tuple[str, str, bytes]] = []
        self.probed: list[str] = []

    def trouble(self) -> str | None:
        return self.wrong

    def close(self) -> None:
        self._server.stop()
        self._server.join()

    def _app(self) -> Starlette:
        async def seen(request: Request) -> Response:
            raw = request.scope["raw_path"].decode()
            self.seen.append((request.method, f"{raw}?{request.url.query}", await request.body()))
            return JSONResponse(
                {"lane": self.lane, "header": request.headers.get("delayline-once")},
                201,
                headers={"delayline-signature": "s"},
            )

        async def metrics(_: Request) -> Response:
            return self._said(f'# HELP a A.\n# TYPE a gauge\na{{lane="{self.lane}"}} 1.0\n')

        async def probed(request: Request) -> Response:
            self.probed.append(f"{request.url.path}?{request.url.query}")
            said = {"lane": self.lane, "state": "leader", "lag": self.lag}
            if self.status != 200:
                said |= {"reason": "it waits", "way_out": "wait", "error": "wrong"}
            return self._said(json.dumps(said), self.status)

        async def stream(_: Request) -> Response:
            return StreamingResponse(self._parts(), headers={"content-length": str(len(PART) * PARTS)})

        async def breaks_off(_: Request) -> Response:
            async def parts() -> AsyncIterator[bytes]:
                yield PART
                raise asyncio.CancelledError

            return StreamingResponse(parts(), headers={"content-length": str(len(PART) * 2)})

        async def never(_: Request) -> Response:
            self.waiting += 1
            await asyncio.sleep(PATIENCE_S)
            return Response()

        return Starlette(
            routes=[
                Route("/metrics", metrics),
                *(Route(path, probed) for path in ("/livez", "/readyz", "/replica")),
                Route("/stream", stream),
                Route("/breaks-off", breaks_off),
                Route("/never", never),
                Route("/{any:path}", seen, methods=["GET", "POST", "DELETE"]),
            ]
        )

    def _said(self, text: str, status: int = 200) -> Response:
        return PlainTextResponse(text, status) if self.odd is None else Response(self.odd, self.status)

    async def _parts(self) -> AsyncIterator[bytes]:
        try:
            for _ in range(PARTS):
                self.sent += 1
                yield PART
                await asyncio.sleep(0)  # the loop's look at its sockets
        finally:
            self.left.set()


@pytest.fixture(scope="module")
def running() -> Iterator[tuple[list[Lane], int]]:
    """The lanes, and the port of all."""
    lanes = [Lane(0), Lane(2)]
    server = HttpServer("127.0.0.1", 0)
    server.start(front(lanes))
    yield lanes, server.port
    server.stop()
    server.join()
    for lane in lanes:
        lane.close()


@pytest.fixture
def lanes(running: tuple[list[Lane], int]) -> list[Lane]:
    for lane in running[0]:
        lane.begin_anew()
    return running[0]


@pytest.fixture
def port(running: tuple[list[Lane], int], lanes: list[Lane], monkeypatch: pytest.MonkeyPatch) -> int:
    """Metrics are made anew whenever they are asked for."""
    monkeypatch.setattr("ops.lanes.front.FRESH_S", -1.0)
    return running[1]


@contextmanager
def asking(port: int, path: str, method: str = "GET", **more: Any) -> Iterator[http.client.HTTPResponse]:
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=PATIENCE_S)
    try:
        connection.request(method, path, **more)
        yield connection.getresponse()
    finally:
        connection.close()


def asked(port: int, path: str) -> tuple[int, Any]:
    with asking(port, path) as response:
        return response.status, json.loads(response.read())


@pytest.mark.parametrize("method", ["GET", "POST", "DELETE"])
def test_what_stands_below_a_lane_s_path_its_process_answers_as_it_is(
    lanes: list[Lane], port: int, method: str
) -> None:
    headers = {"delayline-once": "1", "connection": "close"}
    with asking(port, "/lanes/2/message/a%2Fb?id=%C3%A4&x=", method, headers=headers, body=b"no") as response:
        assert response.status == 201
        assert response.headers["delayline-signature"] == "s"
        assert len(response.headers.get_all("date", [])) == 1
        assert json.loads(response.read()) == {"lane": 2, "header": "1"}
    assert lanes[1].seen == [(method, "/message/a%2Fb?id=%C3%A4&x=", b"")]
    assert lanes[0].seen == []


@pytest.mark.parametrize("method", ["CONNECT", "PUT", "TRACE"])
def test_what_no_node_knows_is_not_passed_on(lanes: list[Lane], port: int, method: str) -> None:
    with asking(port, "/lanes/0/due", method) as response:
        assert response.status == 405
    assert lanes[0].seen == []


def test_a_head_has_no_body(port: int) -> None:
    with asking(port, "/lanes/0/metrics", "HEAD") as response:
        assert response.status == 200
        assert int(response.headers["content-length"]) > 0
        assert response.read() == b""


@pytest.mark.parametrize(
    ("path", "status", "why"),
    [
        ("/leader", 400, "each lane has its own: ask /lanes/N/leader; N is one of 0, 2"),
        ("/due", 404, "several lanes answer here: ask /lanes/N/due; N is one of 0, 2"),
        ("/lanes/1/due", 404, "no such lane is here: there are 0, 2"),
        ("/lanes/0", 404, "no such lane is here: there are 0, 2"),
        ("/lanes/%30/due", 404, "Not Found"),
        ("/lanes/0%2fdue", 404, "Not Found"),
    ],
)
def test_what_is_no_lane_s_is_answered_with_where_to_ask(port: int, path: str, status: int, why: str) -> None:
    assert asked(port, path) == (status, {"error": why})


@pytest.mark.parametrize("host", ["x/lanes/0", "x#", "x?", "a b"])
def test_what_a_client_gives_as_the_host_is_no_part_of_its_question(port: int, host: str) -> None:
    with asking(port, "/readyz", headers={"Host": host}) as response:
        assert response.status == 200
    with asking(port, "/due", headers={"Host": host}) as response:
        assert b"ask /lanes/N/due;" in response.read()


def test_the_metrics_are_those_of_all_lanes(port: int) -> None:
    with asking(port, "/metrics") as response:
        lines = response.read().decode().splitlines()
    assert lines.count("# TYPE a gauge") == 1
    assert {'a{lane="0"} 1.0', 'a{lane="2"} 1.0'} <= set(lines)
    assert 'delayline_lane_up{cluster="delay",lane="2",node="n-2"} 1.0' in lines


def test_the_metrics_of_a_lane_that_is_down_are_missing_and_it_is_told(lanes: list[Lane], port: int) -> None:
    lanes[1].wrong = "its process has ended"
    with asking(port, "/metrics") as response:
        lines = response.read().decode().splitlines()
    assert [line for line in lines if line.startswith("a{")] == ['a{lane="0"} 1.0']
    assert 'delayline_lane_up{cluster="delay",lane="2",node="n-2"} 0.0' in lines


def test_metrics_that_cannot_be_read_are_missing(lanes: list[Lane], port: int) -> None:
    lanes[1].odd = b"\xff"
    with asking(port, "/metrics") as response:
        assert response.status == 200
        assert 'delayline_lane_up{cluster="delay",lane="2",node="n-2"} 0.0' in response.read().decode()


@pytest.mark.parametrize("path", ["/livez", "/readyz", "/replica?max_lag=5"])
def test_it_is_so_of_all_if_it_is_so_of_each(lanes: list[Lane], port: int, path: str) -> None:
    both = [{"lane": 0, "state": "leader", "lag": 5}, {"lane": 2, "state": "leader", "lag": 5}]
    assert asked(port, path) == (200, {"lanes": both})

    lanes[1].status = 503
    status, said = asked(port, path)
    assert (status, said["reason"], said["way_out"]) == (503, "lane 2: it waits", "lane 2: wait")
    assert [one["lane"] for one in said["lanes"]] == [0, 2]


def test_a_lane_that_is_down_is_not_ready(lanes: list[Lane], port: int) -> None:
    lanes[0].wrong = "its process has ended"
    status, said = asked(port, "/readyz")
    assert (status, said["reason"]) == (503, "lane 0: its process has ended")
    assert said["lanes"][0] == {
        "lane": 0,
        "reason": "its process has ended",
        "way_out": "See the log of its process: it is started again when it has ended.",
    }


@pytest.mark.parametrize(
    ("status", "body"),
    [(500, b"Internal Server Error"), (200, b"well"), (200, b"[1]"), (200, b'{"a": "\xff"}')],
)
def test_a_lane_whose_answer_cannot_be_read_gives_none(
    lanes: list[Lane], port: int, status: int, body: bytes
) -> None:
    lanes[0].status, lanes[0].odd = status, body
    code, said = asked(port, "/readyz")
    assert code == 503
    assert said["reason"].startswith(
        f"lane 0: its process has answered with {status} and what cannot be read: "
    )
    assert [one["lane"] for one in said["lanes"]] == [0, 2]


@pytest.mark.parametrize(
    ("lag", "reason"),
    [
        (6, "lane 2: 6 offsets of the buffer are not read yet; 5 are allowed"),
        (None, "lane 2: Kafka does not say where the buffer ends"),
    ],
)
def test_a_lane_that_lacks_more_than_is_allowed_is_no_replica(
    lanes: list[Lane], port: int, lag: int | None, reason: str
) -> None:
    lanes[1].lag = lag
    status, said = asked(port, "/replica?max_lag=5")
    assert (status, said["reason"]) == (503, reason)
    assert f"lane 2: {said['lanes'][1]['reason']}" == reason
    assert asked(port, "/replica")[0] == 200


def test_a_wrong_question_is_answered_with_what_is_wrong(port: int) -> None:
    assert asked(port, "/replica?max_lag=x") == (400, {"error": "max_lag is 'x': it must be a number"})


def test_a_lane_is_asked_once_a_while_however_many_ask_and_whatever_they_add(
    lanes: list[Lane], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("ops.lanes.front.FRESH_S", PATIENCE_S)
    server = HttpServer("127.0.0.1", 0)
    server.start(front(lanes))
    try:
        for number in range(20):
            assert asked(server.port, f"/replica?max_lag={5 + number}")[0] == 200
            assert asked(server.port, f"/livez?{number}")[0] == 200
    finally:
        server.stop()
        server.join()
    assert sorted(lanes[0].probed) == ["/livez?", "/replica?"]


def test_a_lane_that_is_down_is_said_to_be_and_the_others_answer(lanes: list[Lane], port: int) -> None:
    lanes[0].wrong = "its process has ended"
    assert asked(port, "/lanes/0/due") == (503, {"error": "lane 0: its process has ended"})
    assert asked(port, "/lanes/2/due")[0] == 201


def test_a_lane_whose_server_is_gone_takes_no_connection(lanes: list[Lane], port: int) -> None:
    with socket.create_server(("127.0.0.1", 0)) as gone:
        lanes[0].port = gone.getsockname()[1]
    status, said = asked(port, "/lanes/0/due")
    assert status == 502
    assert said["error"].startswith("lane 0: its process takes no connection")


def test_a_process_that_begins_to_hang_is_waited_for_no_longer(lanes: list[Lane], port: int) -> None:
    with ExitStack() as ends:
        connection = ends.enter_context(socket.create_connection(("127.0.0.1", port), PATIENCE_S))
        connection.sendall(b"GET /lanes/0/never HTTP/1.1\r\nHost: x\r\n\r\n")
        assert asked(port, "/lanes/2/due")[0] == 201
        lanes[0].wrong = "its process has given no sign for 4 s"
        assert connection.recv(1000).startswith(b"HTTP/1.1 504 ")


def test_an_answer_that_breaks_off_is_not_taken_for_a_whole_one(port: int) -> None:
    with asking(port, "/lanes/0/breaks-off") as response, pytest.raises(http.client.IncompleteRead):
        response.read()


def test_a_body_of_many_megabytes_comes_whole(port: int) -> None:
    with asking(port, "/lanes/0/stream") as response:
        length = 0
        while part := response.read(1 << 20):
            length += len(part)
    assert length == len(PART) * PARTS


def test_who_reads_slowly_is_sent_slowly_and_nothing_is_kept_for_him(lanes: list[Lane], port: int) -> None:
    with asking(port, "/lanes/0/stream") as response:
        response.read(1)
        before = -1
        while before != lanes[0].sent:  # until it is sent no more
            before = lanes[0].sent
            assert asked(port, "/lanes/0/due")[0] == asked(port, "/lanes/2/due")[0] == 201
        assert before < MOST_ON_THE_WAY


def test_who_goes_away_is_answered_no_more(lanes: list[Lane], port: int) -> None:
    with asking(port, "/lanes/0/stream") as response:
        response.read(1)
    assert lanes[0].left.wait(PATIENCE_S)
    assert lanes[0].sent < PARTS


def test_the_oldest_question_to_a_lane_makes_room_for_a_new_one(
    lanes: list[Lane], port: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(relay, "MOST_AT_ONCE", 2)
    with ExitStack() as ends:
        waiting = []
        for number in (1, 2):
            waiting.append(ends.enter_context(socket.create_connection(("127.0.0.1", port), PATIENCE_S)))
            waiting[-1].sendall(b"GET /lanes/0/never HTTP/1.1\r\nHost: x\r\n\r\n")
            becomes(lambda: lanes[0].waiting, number)
        assert asked(port, "/lanes/2/due")[0] == 201
        assert ready(waiting) == []
        assert asked(port, "/lanes/0/due")[0] == 201
        assert waiting[0].recv(1000).startswith(b"HTTP/1.1 503 ")
        assert ready(waiting[1:]) == []


def ready(connections: list[socket.socket]) -> list[socket.socket]:
    """Those at which something has come."""
    return select.select(connections, [], [], 0)[0]


def test_one_that_makes_room_in_the_midst_of_its_answer_is_broken_off(
    lanes: list[Lane], port: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(relay, "MOST_AT_ONCE", 1)
    with asking(port, "/lanes/0/stream") as response:
        response.read(1)
        assert asked(port, "/lanes/0/due")[0] == 201
        assert lanes[0].left.wait(PATIENCE_S)
        with pytest.raises(http.client.IncompleteRead):
            response.read()


def test_half_a_request_holds_up_nobody(port: int) -> None:
    with ExitStack() as ends:
        for _ in range(100):
            connection = ends.enter_context(socket.create_connection(("127.0.0.1", port), PATIENCE_S))
            with suppress(OSError):
                connection.sendall(b"GET /lanes/0/due HTTP/1.1\r\nHo")
        assert asked(port, "/lanes/0/due")[0] == asked(port, "/lanes/2/due")[0] == 201
