"""What a node answers over HTTP, as JSON.

    GET /message?id=ID[&history=recent|all|none]
    GET /messages[?from_ms=][&to_ms=][&target=][&id_prefix=][&limit=][&after=]
    GET /due[?now_ms=]
    GET /replay?from_ms=&to_ms=[&target=]   what a replay would carry: nothing is done
    GET /skip?to_ms=                        what would be skipped: nothing is done

404 for an id that is unknown (with the whole answer), 400 for a bad question, 503 while the node cannot tell.
What is not an answer is `{"error": ...}`.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Final, get_args

import anyio
import anyio.to_thread
import msgspec
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from node.http.answers import Extent, Failed, MessageState, NodeAnswer, parse_cursor
from node.http.messages import Messages, NoSource, WrongLane
from store.kv import StoreError
from store.lookup import Query, ViewClosed
from store.operations import ReplayRequest, SkipRequest
from store.view import FOREVER_MS

AT_ONCE: Final = 4
"""Looks at the same time: each walks, and takes the interpreter from delivery."""
DEFAULT_LIMIT: Final = 50


Endpoint = Callable[[Messages, Request], tuple[int, NodeAnswer]]
"""Gives the status of the response, and what is said."""


class _Bad(Exception):
    """The question is wrong: what, and what it may be."""


def application(messages: Callable[[], Messages | None]) -> Starlette:
    """`messages`: None while the node's store is not open yet."""
    looks = anyio.CapacityLimiter(AT_ONCE)

    def route(path: str, answer: Endpoint) -> Route:
        async def endpoint(request: Request) -> Response:
            return await anyio.to_thread.run_sync(_answered, messages(), answer, request, limiter=looks)

        return Route(path, endpoint, methods=["GET"])

    made = Starlette(
        routes=[
            route("/message", _message),
            route("/messages", _messages),
            route("/due", _due),
            route("/replay", _replay),
            route("/skip", _skip),
        ]
    )
    made.router.redirect_slashes = False  # it would make an address of what the client gives as the host
    return made


def _answered(messages: Messages | None, answer: Endpoint, request: Request) -> Response:
    if messages is None:
        return _response(503, Failed("the node has not opened its store yet: ask again, or another node"))
    try:
        return _response(*answer(messages, request))
    except (_Bad, NoSource, WrongLane) as error:
        return _response(400, Failed(str(error)))
    except (ViewClosed, StoreError) as error:
        return _response(503, Failed(str(error)))


def _response(code: int, body: NodeAnswer | Failed) -> Response:
    return Response(msgspec.json.encode(body), code, media_type="application/json")


def _message(messages: Messages, request: Request) -> tuple[int, NodeAnswer]:
    asked = _only(request, "id", "source", "history")
    if bool(asked.get("id")) == bool(asked.get("source")):
        raise _Bad("say which message: ?id=... or ?source=...")
    extent = asked.get("history", "recent")
    if extent not in get_args(Extent):
        raise _Bad(f"history is {extent!r}: it may be {', '.join(get_args(Extent))}")
    now_ms = time.time_ns() // 1_000_000
    if asked.get("id"):
        shown = messages.show(asked["id"], extent, now_ms)  # type: ignore[arg-type]
    else:
        shown = messages.show_source(asked["source"], extent, now_ms)  # type: ignore[arg-type]
    return 404 if shown.message.state == MessageState.UNKNOWN else 200, shown


def _messages(messages: Messages, request: Request) -> tuple[int, NodeAnswer]:
    asked = _only(request, "from_ms", "to_ms", "target", "id_prefix", "limit", "after")
    query = Query(
        begin_ms=_number(asked, "from_ms", 0),
        end_ms=_number(asked, "to_ms", FOREVER_MS),
        target=asked.get("target"),
        id_prefix=asked.get("id_prefix", ""),
    )
    try:
        after = parse_cursor(asked["after"]) if "after" in asked else None
    except ValueError as error:
        raise _Bad(f"after: {error}") from error
    return 200, messages.list(query, after, max(1, _number(asked, "limit", DEFAULT_LIMIT)))


def _due(messages: Messages, request: Request) -> tuple[int, NodeAnswer]:
    asked = _only(request, "now_ms")
    return 200, messages.due(_number(asked, "now_ms", time.time_ns() // 1_000_000))


def _replay(messages: Messages, request: Request) -> tuple[int, NodeAnswer]:
    asked = _only(request, "from_ms", "to_ms", "target")
    replay = ReplayRequest(0, _needed(asked, "from_ms"), _needed(asked, "to_ms"), asked.get("target"))
    return 200, messages.foresee(replay, time.time_ns() // 1_000_000)


def _skip(messages: Messages, request: Request) -> tuple[int, NodeAnswer]:
    asked = _only(request, "to_ms")
    return 200, messages.foresee(SkipRequest(0, _needed(asked, "to_ms")), time.time_ns() // 1_000_000)


def _needed(asked: dict[str, str], name: str) -> int:
    if name not in asked:
        raise _Bad(f"say {name}: epoch ms")
    return _number(asked, name, 0)


def _only(request: Request, *names: str) -> dict[str, str]:
    asked = dict(request.query_params)
    unknown = asked.keys() - set(names)
    if unknown:
        raise _Bad(f"unknown: {', '.join(sorted(unknown))}; there are {', '.join(names)}")
    return asked


def _number(asked: dict[str, str], name: str, default: int) -> int:
    text = asked.get(name, str(default))
    if not (text.isascii() and text.isdigit() and len(text) <= 19):
        raise _Bad(f"{name} is {text[:100]!r}: it must be a number")
    return min(int(text), FOREVER_MS)
