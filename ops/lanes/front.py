"""The one HTTP port of several lanes.

    /lanes/N/...            what lane N's node answers at /... (node/http/)
    GET /metrics            the samples of all lanes, and which of them answer
    GET /livez              200 if it is so of every lane
    GET /readyz             as well
    GET /replica[?max_lag=] as well
    GET /leader             400: of which lane?

Else 503, with the reasons and the ways out, and what each lane says, as JSON.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable, Sequence
from http import HTTPStatus
from typing import Final, NamedTuple, Protocol

import msgspec
from msgspec import UNSET, UnsetType
from prometheus_client import CONTENT_TYPE_PLAIN_0_0_4, CollectorRegistry, Gauge, generate_latest
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Mount, Route

from node.config import NodeConfig
from node.health.metrics import FRESH_S, PREFIX
from ops.lanes import relay
from ops.lanes.exposition import merged
from ops.lanes.relay import Question, Relay, Unanswered, asked, failed

ANSWER_S: Final = 2.0
"""For the lanes' own words on themselves, which they have ready."""
MOST_BYTES: Final = 8 << 20
LANE_UP: Final = f"{PREFIX}lane_up"
_WAIT: Final = "See the log of its process: it is started again when it has ended."


class Lane(relay.Lane, Protocol):
    """A lane's process, and whose it is."""

    @property
    def config(self) -> NodeConfig:
        """Of its node."""


class _Said(NamedTuple):
    """What a lane has answered, or what is said for it."""

    lane: Lane
    status: int
    body: bytes


class _Reason(msgspec.Struct):
    """What is read of a lane's answer."""

    reason: str | None = None
    way_out: str | None = None
    error: str | None = None


class _Missing(msgspec.Struct, frozen=True):
    """In place of the answer of a lane that gives none."""

    lane: int
    reason: str
    way_out: str


class ProbedLanes(msgspec.Struct, frozen=True):
    """What all lanes say, in order. `reason` and `way_out`: of those that say no."""

    lanes: list[msgspec.Raw]
    reason: str | UnsetType = UNSET
    way_out: str | UnsetType = UNSET


def front(lanes: Sequence[Lane]) -> Starlette:
    """What is answered at the port of all."""
    there = ", ".join(str(lane.lane) for lane in lanes)

    async def leader(_: Request) -> Response:
        return failed(
            HTTPStatus.BAD_REQUEST, f"each lane has its own: ask /lanes/N/leader; N is one of {there}"
        )

    async def nowhere(request: Request, _: Exception) -> Response:
        path = request.url.path
        if path.startswith("/lanes/"):
            return failed(HTTPStatus.NOT_FOUND, f"no such lane is here: there are {there}")
        return failed(
            HTTPStatus.NOT_FOUND, f"several lanes answer here: ask /lanes/N{path}; N is one of {there}"
        )

    made = Starlette(
        routes=[
            *(Mount(lane.path, Relay(lane)) for lane in lanes),
            Route("/metrics", _Metrics(lanes).answer, methods=["GET"]),
            *(Route(path, _probe(lanes), methods=["GET"]) for path in ("/livez", "/readyz", "/replica")),
            Route("/leader", leader, methods=["GET"]),
        ],
        exception_handlers={HTTPStatus.NOT_FOUND: nowhere},
    )
    made.router.redirect_slashes = False
    return made


def _probe(lanes: Sequence[Lane]) -> Callable[[Request], Awaitable[Response]]:
    async def endpoint(request: Request) -> Response:
        query = request.url.query
        said = await _asked_all(lanes, request.url.path + (f"?{query}" if query else ""))
        wrong = [one for one in said if one.status == HTTPStatus.BAD_REQUEST]
        if wrong:
            return Response(wrong[0].body, HTTPStatus.BAD_REQUEST, media_type="application/json")
        return _joint(said)

    return endpoint


def _joint(said: Sequence[_Said]) -> Response:
    noes = [one for one in said if one.status != HTTPStatus.OK]
    reasons = [(one, _reason(one)) for one in noes]
    body = ProbedLanes(
        lanes=[msgspec.Raw(one.body) for one in said],
        reason="; ".join(f"lane {one.lane.lane}: {why.reason}" for one, why in reasons) or UNSET,
        way_out="; ".join(f"lane {one.lane.lane}: {why.way_out}" for one, why in reasons) or UNSET,
    )
    status = HTTPStatus.SERVICE_UNAVAILABLE if noes else HTTPStatus.OK
    return Response(msgspec.json.encode(body), status, media_type="application/json")


def _reason(said: _Said) -> _Reason:
    return msgspec.json.decode(said.body, type=_Reason)


async def _asked_all(lanes: Sequence[Lane], target: str) -> list[_Said]:
    """At once: who does not answer holds up no other, and all for a time alone."""
    return await asyncio.gather(*(_said(lane, target) for lane in lanes))


async def _said(lane: Lane, target: str) -> _Said:
    try:
        async with asyncio.timeout(ANSWER_S):
            return _Said(lane, *await _whole(lane, target))
    except Unanswered as error:
        why = str(error).partition(": ")[2]
    except TimeoutError:
        why = f"its process has not answered within {ANSWER_S:g} s"
    return _Said(lane, HTTPStatus.SERVICE_UNAVAILABLE, msgspec.json.encode(_Missing(lane.lane, why, _WAIT)))


async def _whole(lane: Lane, target: str) -> tuple[int, bytes]:
    async with asked(lane, Question("GET", target.encode())) as answer:
        body = bytearray()
        async for part in answer.parts():
            body += part
            if len(body) > MOST_BYTES:
                why = f"its answer is longer than {MOST_BYTES} bytes"
                raise Unanswered(lane, HTTPStatus.BAD_GATEWAY, why)
        return answer.status, bytes(body)


class _Metrics:
    """Made at most once a second, whoever asks and however often."""

    def __init__(self, lanes: Sequence[Lane]) -> None:
        self._lanes = lanes
        self._text = b""
        self._made_s: float | None = None
        self._making = asyncio.Lock()
        self._registry = CollectorRegistry()
        self._up = Gauge(
            LANE_UP,
            "Where several lanes share a port: 1 if the process of this one has answered.",
            ["cluster", "node", "lane"],
            registry=self._registry,
        )

    async def answer(self, _: Request) -> Response:
        async with self._making:
            if self._made_s is None or time.monotonic() - self._made_s > FRESH_S:
                self._text, self._made_s = await self._made(), time.monotonic()
        return Response(self._text, headers={"Content-Type": CONTENT_TYPE_PLAIN_0_0_4})

    async def _made(self) -> bytes:
        said = await _asked_all(self._lanes, "/metrics")
        for one in said:
            own = one.lane.config
            self._up.labels(own.cluster, own.node_id, own.lane).set(one.status == HTTPStatus.OK)
        texts = [generate_latest(self._registry).decode()]
        texts += [one.body.decode() for one in said if one.status == HTTPStatus.OK]
        return merged(texts).encode()
