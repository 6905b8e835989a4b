"""What a node answers takers of snapshots: see node/snapshot/peer.py, which asks.

Nothing is said to who has not signed; nothing else of what is asked is looked at before.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from http import HTTPStatus
from typing import Final, NamedTuple

import anyio
import anyio.to_thread
import msgspec
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from node.http.answers import Failed
from node.snapshot.errors import Stranger, Withheld
from node.snapshot.giver import Giver
from node.snapshot.peer import AT_ONCE, ONCE, PATH, SIGNATURE, TAKER, TIME, Begun, Making
from node.snapshot.secrets import Answered, Asked, Gate

THREADS: Final = AT_ONCE + 1
"""Each part waits for its pace on a thread; one more tells that there is a snapshot under way."""
LONGEST_NAME: Final = 200
MOST_DIGITS: Final = 10


class Giving(NamedTuple):
    """What a node gives with, while it is one that may."""

    giver: Giver
    gate: Gate


def giving_snapshots(app: Starlette, giving: Callable[[], Giving | None]) -> Starlette:
    """The application, with these paths besides its own. `giving`: None while the node gives none."""
    threads = anyio.CapacityLimiter(THREADS)

    def route(path: str, method: str, answer: Callable[[Giving, Request], Response]) -> Route:
        async def endpoint(request: Request) -> Response:
            # The look costs a hash: it needs no thread, and who floods has none.
            given = giving()
            if given is None:
                return _failed(HTTPStatus.SERVICE_UNAVAILABLE, "the node gives none: it has not caught up")
            try:
                given.gate.expect(*_signed(given.gate.giver, request), time.time_ns() // 1_000_000)
            except Stranger as error:
                return _failed(HTTPStatus.FORBIDDEN, str(error))
            return await anyio.to_thread.run_sync(_answered, given, answer, request, limiter=threads)

        return Route(path, endpoint, methods=[method])

    one = PATH + "/{id:str}"
    app.routes.extend(
        [
            route(PATH, "POST", _begin),
            route(one, "GET", _manifest),
            route(one + "/{file:str}/{part:str}", "GET", _part),
            route(one, "DELETE", _end),
        ]
    )
    return app


def _signed(giver: str, request: Request) -> tuple[Asked, str]:
    headers = request.headers
    at = headers.get(TIME, "")
    at_ms = int(at) if at.isascii() and at.isdigit() and len(at) < 16 else 0
    asked = Asked(giver, _taker(request), request.method, _target(request), at_ms, _once(request))
    return asked, headers.get(SIGNATURE, "")


def _target(request: Request) -> str:
    """As it was sent, and routed: request.url has what the client gives as the host in it, too."""
    path: bytes = request.scope["raw_path"]
    query: bytes = request.scope["query_string"]
    return (path + b"?" + query if query else path).decode("latin-1")


def _taker(request: Request) -> str:
    return request.headers.get(TAKER, "")[:LONGEST_NAME]


def _once(request: Request) -> str:
    return request.headers.get(ONCE, "")[:LONGEST_NAME]


def _answered(given: Giving, answer: Callable[[Giving, Request], Response], request: Request) -> Response:
    try:
        return answer(given, request)
    except Withheld as error:
        return _failed(HTTPStatus.CONFLICT, str(error))


def _begin(given: Giving, request: Request) -> Response:
    begun = Begun(given.giver.begin(_taker(request)))
    return _vouched(given, request, _json(HTTPStatus.CREATED, begun))


def _manifest(given: Giving, request: Request) -> Response:
    found = given.giver.manifest(request.path_params["id"])
    if isinstance(found, int):
        return _vouched(given, request, _json(HTTPStatus.ACCEPTED, Making(found)))
    whole = Response(found, HTTPStatus.OK, media_type="application/octet-stream")
    return _vouched(given, request, whole)


def _vouched(given: Giving, request: Request, response: Response) -> Response:
    """Signed: a taker waits for nobody else."""
    answered = Answered(_once(request), response.status_code, bytes(response.body))
    response.headers[SIGNATURE] = given.gate.secrets.vouch(answered)
    return response


def _part(given: Giving, request: Request) -> Response:
    of = request.path_params
    file, part = (_number(of[name]) for name in ("file", "part"))
    return Response(
        given.giver.part(of["id"], file, part), HTTPStatus.OK, media_type="application/octet-stream"
    )


def _number(text: str) -> int:
    """One that no file and no part has, if it is none."""
    return int(text) if text.isascii() and text.isdigit() and len(text) < MOST_DIGITS else -1


def _end(given: Giving, request: Request) -> Response:
    given.giver.end(request.path_params["id"])
    return Response(status_code=HTTPStatus.NO_CONTENT)


def _json(status: HTTPStatus, said: msgspec.Struct) -> Response:
    return Response(msgspec.json.encode(said), status, media_type="application/json")


def _failed(status: HTTPStatus, why: str) -> Response:
    return _json(status, Failed(why))
