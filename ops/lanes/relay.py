"""Passes a request on to a lane's process, and its answer back as it comes: no body is held as a whole, and
who reads slowly is written slowly.

A lane whose process does not run or hangs is answered for at once, or as soon as that shows. It is asked so
much at once and no more: the oldest question makes room for a new one, and none of another lane does. A
process may take as long for an answer as it gives signs; the server (node/http/server.py) ends what takes too
long for any.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterable
from contextlib import asynccontextmanager
from http import HTTPStatus
from typing import Final, NamedTuple, Protocol

import anyio
import h11
import msgspec
from starlette.responses import Response
from starlette.types import Message, Receive, Scope, Send

from node.http.answers import Failed

LOOPBACK: Final = "127.0.0.1"
CONNECT_S: Final = 1.0
LOOK_S: Final = 0.25
READ_BYTES: Final = 1 << 16
MOST_AT_ONCE: Final = 32
"""Of one lane: its own server takes twice as many connections, so it ends none of these, nor those with which
ops/lanes/front.py asks it, one for each path.
"""

METHODS: Final = ("GET", "HEAD", "POST", "DELETE")
"""Those that nodes know."""

Headers = list[tuple[bytes, bytes]]

_OF_ONE_HOP: Final = frozenset(
    (b"connection", b"keep-alive", b"proxy-connection", b"te", b"trailer", b"transfer-encoding", b"upgrade")
)
_NOT_PASSED_ON: Final = _OF_ONE_HOP | {b"host", b"content-length", b"expect"}  # no body is passed on either
_NOT_PASSED_BACK: Final = _OF_ONE_HOP | {b"date"}  # the server writes its own


class Lane(Protocol):
    """A lane's process, to be asked at a port of this host."""

    @property
    def lane(self) -> int:
        """Its number."""

    @property
    def path(self) -> str:
        """What others have before its paths."""

    @property
    def port(self) -> int:
        """Where it is asked."""

    def trouble(self) -> str | None:
        """Why it cannot be asked now; None if it can."""


class Unanswered(Exception):
    """Of a lane: why, and the status to say that with."""

    def __init__(self, lane: Lane, status: HTTPStatus, why: str) -> None:
        super().__init__(f"lane {lane.lane}: {why}")
        self.status = status

    def response(self) -> Response:
        """For who has asked."""
        return failed(self.status, str(self))


def failed(status: HTTPStatus, why: str) -> Response:
    """As a node says it."""
    return Response(msgspec.json.encode(Failed(why)), status, media_type="application/json")


class Question(NamedTuple):
    """A request without a body: nodes read none."""

    method: str
    target: bytes
    headers: Headers = []  # noqa: RUF012 - nobody changes it


class Answer:
    """The head of a lane's answer, and its body as it comes."""

    def __init__(self, lane: Lane, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.status = 0
        self.headers: Headers = []
        self._lane = lane
        self._reader = reader
        self._writer = writer
        self._h11 = h11.Connection(h11.CLIENT)

    async def ask(self, question: Question) -> None:
        """Raises `Unanswered`."""
        own = [(b"host", b"lane"), (b"connection", b"close")]
        request = h11.Request(
            method=question.method, target=question.target, headers=[*own, *question.headers]
        )
        self._writer.write(self._h11.send(request) or b"")
        self._writer.write(self._h11.send(h11.EndOfMessage()) or b"")
        event = await self._next()
        while not isinstance(event, h11.Response):
            event = await self._next()
        self.status = event.status_code
        self.headers = [(name, value) for name, value in event.headers if name not in _NOT_PASSED_BACK]

    async def parts(self) -> AsyncIterator[bytes]:
        """The body. Raises `Unanswered` if it does not come to its end."""
        while isinstance(event := await self._next(), h11.Data):
            yield bytes(event.data)

    async def _next(self) -> h11.Event:
        try:
            while (event := self._h11.next_event()) is h11.NEED_DATA:
                self._h11.receive_data(await self._read())
        except (OSError, h11.ProtocolError) as error:
            why = f"its process has broken off its answer: {error}"
            raise Unanswered(self._lane, HTTPStatus.BAD_GATEWAY, why) from error
        assert isinstance(event, h11.Event), "nothing is asked after the end"
        return event

    async def _read(self) -> bytes:
        while True:
            try:
                async with asyncio.timeout(LOOK_S):
                    return await self._reader.read(READ_BYTES)
            except TimeoutError:
                _expect_well(self._lane, HTTPStatus.GATEWAY_TIMEOUT)


@asynccontextmanager
async def asked(lane: Lane, question: Question) -> AsyncIterator[Answer]:
    """Its answer. Raises `Unanswered`."""
    _expect_well(lane, HTTPStatus.SERVICE_UNAVAILABLE)
    try:
        async with asyncio.timeout(CONNECT_S):
            reader, writer = await asyncio.open_connection(LOOPBACK, lane.port)
    except OSError as error:  # TimeoutError is one
        why = f"its process takes no connection: {str(error) or 'timed out'}"
        raise Unanswered(lane, HTTPStatus.BAD_GATEWAY, why) from error
    try:
        answer = Answer(lane, reader, writer)
        await answer.ask(question)
        yield answer
    finally:
        writer.transport.abort()


def _expect_well(lane: Lane, status: HTTPStatus) -> None:
    trouble = lane.trouble()
    if trouble is not None:
        raise Unanswered(lane, status, trouble)


class _Asking:
    """A question under way. `has_begun`: whether something of an answer was sent."""

    def __init__(self, scope: Scope, receive: Receive, send: Send) -> None:
        self.scope = scope
        self.ends = anyio.CancelScope()
        self.has_begun = False
        self._receive = receive
        self._send = send

    async def send(self, message: Message) -> None:
        self.has_begun = True
        await self._send(message)

    async def answer(self, response: Response) -> None:
        """What has begun and has no end is broken off by the server."""
        if not self.has_begun:
            await response(self.scope, self._receive, self.send)

    async def until_gone(self) -> None:
        """Ends what nobody waits for any more; what comes as a body is passed over."""
        while (await self._receive())["type"] != "http.disconnect":
            pass
        self.has_begun = True  # nobody is to be told
        self.ends.cancel()


class Relay:
    """What answers below a lane's path."""

    def __init__(self, lane: Lane) -> None:
        self._lane = lane
        self._under_way: dict[_Asking, None] = {}  # in order

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        asking = _Asking(scope, receive, send)
        if scope["method"] not in METHODS:
            why = f"a node knows {', '.join(METHODS)}"
            await asking.answer(failed(HTTPStatus.METHOD_NOT_ALLOWED, why))
            return
        self._begin(asking)
        try:
            with asking.ends:
                async with anyio.create_task_group() as tasks:
                    tasks.start_soon(asking.until_gone)
                    await self._pass_on(asking)
                    tasks.cancel_scope.cancel()
        finally:
            self._under_way.pop(asking, None)
        newer = f"{MOST_AT_ONCE} newer questions are under way"
        why = f"lane {self._lane.lane}: {newer}: ask again, or another node"
        await asking.answer(failed(HTTPStatus.SERVICE_UNAVAILABLE, why))

    def _begin(self, asking: _Asking) -> None:
        while len(self._under_way) >= MOST_AT_ONCE:
            oldest = next(iter(self._under_way))
            del self._under_way[oldest]  # several may come before it has ended
            oldest.ends.cancel()
        self._under_way[asking] = None

    async def _pass_on(self, asking: _Asking) -> None:
        question = _question(asking.scope, self._lane.path.encode())
        if question is None:
            await asking.answer(failed(HTTPStatus.NOT_FOUND, "Not Found"))
            return
        try:
            async with asked(self._lane, question) as answer:
                await asking.send(_start(answer))
                async for part in answer.parts():
                    await asking.send(_body(part, more=True))
                await asking.send(_body(b"", more=False))
        except Unanswered as error:
            await asking.answer(error.response())


def _question(scope: Scope, before: bytes) -> Question | None:
    """As the lane's process is to see it; None if the path is written otherwise, as with %30 for a 0."""
    path: bytes = scope["raw_path"]
    if not path.startswith(before + b"/"):
        return None
    query: bytes = scope["query_string"]
    target = path.removeprefix(before) + (b"?" + query if query else b"")
    return Question(scope["method"], target, _kept(scope["headers"]))


def _kept(headers: Iterable[tuple[bytes, bytes]]) -> Headers:
    return [(name, value) for name, value in headers if name not in _NOT_PASSED_ON]


def _start(answer: Answer) -> Message:
    return {"type": "http.response.start", "status": answer.status, "headers": answer.headers}


def _body(part: bytes, *, more: bool) -> Message:
    return {"type": "http.response.body", "body": part, "more_body": more}
