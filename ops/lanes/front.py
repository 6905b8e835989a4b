"""The one HTTP port of several lanes.

    /lanes/N/...            what lane N's node answers at /... (node/http/)
    GET /metrics            the samples of all lanes, and which of them answer
    GET /livez              200 if it is so of every lane
    GET /readyz             as well
    GET /replica[?max_lag=] as well
    GET /leader             400: of which lane?

Else 503, with the reasons and the ways out, and what each lane says, as JSON. For each of these paths a lane
is asked one question at a time, and one a second, whoever asks and however often.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable, Sequence
from http import HTTPStatus
from typing import Any, Final, Generic, NamedTuple, Protocol, TypeVar

import msgspec
from msgspec import UNSET, UnsetType
from prometheus_client import CONTENT_TYPE_PLAIN_0_0_4, CollectorRegistry, Gauge, generate_latest
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Mount, Route

from node.config import NodeConfig
from node.health.metrics import FRESH_S, PREFIX
from node.http.watch import max_lag_of, too_far_behind
from ops.lanes import relay
from ops.lanes.exposition import merged
from ops.lanes.relay import Question, Relay, Unanswered, asked, failed

ANSWER_S: Final = 2.0
"""For the lanes' own words on themselves, which they have ready."""
MOST_BYTES: Final = 8 << 20
LANE_UP: Final = f"{PREFIX}lane_up"
_WAIT: Final = "See the log of its process: it is started again when it has ended."
_PROBES: Final = ("/livez", "/readyz", "/replica")

T = TypeVar("T")


class Lane(relay.Lane, Protocol):
    """A lane's process, and whose it is."""

    @property
    def config(self) -> NodeConfig:
        """Of its node."""


class _Said(NamedTuple, Generic[T]):
    """What a lane has answered. `body`: None if it has not, or with what cannot be read; then `why`."""

    lane: Lane
    status: int
    body: T | None
    why: str = ""


class _Probed(NamedTuple):
    """What a lane says to a probe, or what is said for it. `so`: whether that is yes."""

    lane: int
    so: bool
    said: dict[str, Any]

    def no(self, reason: str, way_out: str) -> _Probed:
        return self._replace(so=False, said=self.said | {"reason": reason, "way_out": way_out})


class ProbedLanes(msgspec.Struct, frozen=True):
    """What all lanes say, in order. `reason` and `way_out`: of those that say no."""

    lanes: list[dict[str, Any]]
    reason: str | UnsetType = UNSET
    way_out: str | UnsetType = UNSET


class _Fresh(Generic[T]):
    """What is made at most once a second, and by one at a time: the others wait for what that one makes."""

    def __init__(self, make: Callable[[], Awaitable[T]]) -> None:
        self._make = make
        self._making = asyncio.Lock()
        self._made: tuple[T, float] | None = None

    async def get(self) -> T:
        async with self._making:
            if self._made is None or time.monotonic() - self._made[1] > FRESH_S:
                self._made = await self._make(), time.monotonic()
            return self._made[0]


def front(lanes: Sequence[Lane]) -> Starlette:
    """What is answered at the port of all."""
    there = ", ".join(str(lane.lane) for lane in lanes)

    async def leader(_: Request) -> Response:
        return failed(
            HTTPStatus.BAD_REQUEST, f"each lane has its own: ask /lanes/N/leader; N is one of {there}"
        )

    async def nowhere(request: Request, _: Exception) -> Response:
        path = request.scope["path"]  # request.url has what the client gives as the host in it, too
        if path.startswith("/lanes/"):
            return failed(HTTPStatus.NOT_FOUND, f"no such lane is here: there are {there}")
        return failed(
            HTTPStatus.NOT_FOUND, f"several lanes answer here: ask /lanes/N{path}; N is one of {there}"
        )

    made = Starlette(
        routes=[
            *(Mount(lane.path, Relay(lane)) for lane in lanes),
            Route("/metrics", _Metrics(lanes).answer, methods=["GET"]),
            *(Route(path, _probe(lanes, path), methods=["GET"]) for path in _PROBES),
            Route("/leader", leader, methods=["GET"]),
        ],
        exception_handlers={HTTPStatus.NOT_FOUND: nowhere},
    )
    made.router.redirect_slashes = False
    return made


def _probe(lanes: Sequence[Lane], path: str) -> Callable[[Request], Awaitable[Response]]:
    async def ask() -> list[_Probed]:
        return [_probed(one) for one in await _asked_all(lanes, path, _json)]

    fresh = _Fresh(ask)

    async def endpoint(request: Request) -> Response:
        try:
            max_lag = max_lag_of(request) if path == "/replica" else None
        except ValueError as error:
            return failed(HTTPStatus.BAD_REQUEST, str(error))
        return _joint([_judged(one, max_lag) for one in await fresh.get()])

    return endpoint


def _json(body: bytes) -> dict[str, Any]:
    return msgspec.json.decode(body, type=dict[str, Any])


def _probed(said: _Said[dict[str, Any]]) -> _Probed:
    lane = said.lane.lane
    if said.body is None:
        return _Probed(lane, False, {"lane": lane}).no(said.why, _WAIT)
    return _Probed(lane, said.status == HTTPStatus.OK, said.body)


def _judged(one: _Probed, max_lag: int | None) -> _Probed:
    """Here, so that each lane is asked one thing, however many a client thinks of."""
    lag = one.said.get("lag")
    why = too_far_behind(lag if isinstance(lag, int) else None, max_lag) if one.so else None
    return one if why is None else one.no(*why)


def _joint(probed: Sequence[_Probed]) -> Response:
    noes = [one for one in probed if not one.so]

    def together(what: str) -> str | UnsetType:
        return "; ".join(f"lane {one.lane}: {one.said.get(what)}" for one in noes) or UNSET

    body = ProbedLanes([one.said for one in probed], together("reason"), together("way_out"))
    status = HTTPStatus.SERVICE_UNAVAILABLE if noes else HTTPStatus.OK
    return Response(msgspec.json.encode(body), status, media_type="application/json")


async def _asked_all(lanes: Sequence[Lane], path: str, read: Callable[[bytes], T]) -> list[_Said[T]]:
    """At once: who does not answer holds up no other, and all for a time alone."""
    return await asyncio.gather(*(_said(lane, path, read) for lane in lanes))


async def _said(lane: Lane, path: str, read: Callable[[bytes], T]) -> _Said[T]:
    status = 0
    try:
        async with asyncio.timeout(ANSWER_S):
            status, body = await _whole(lane, path)
        return _Said(lane, status, read(body))
    except Unanswered as error:
        why = str(error).partition(": ")[2]
    except TimeoutError:
        why = f"its process has not answered within {ANSWER_S:g} s"
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        why = f"its process has answered with {status} and what cannot be read: {error}"
    return _Said(lane, status, None, why)


async def _whole(lane: Lane, path: str) -> tuple[int, bytes]:
    async with asked(lane, Question("GET", path.encode())) as answer:
        body = bytearray()
        async for part in answer.parts():
            body += part
            if len(body) > MOST_BYTES:
                why = f"its answer is longer than {MOST_BYTES} bytes"
                raise Unanswered(lane, HTTPStatus.BAD_GATEWAY, why)
        return answer.status, bytes(body)


class _Metrics:
    """Of all lanes."""

    def __init__(self, lanes: Sequence[Lane]) -> None:
        self._lanes = lanes
        self._fresh = _Fresh(self._made)
        self._registry = CollectorRegistry()
        self._up = Gauge(
            LANE_UP,
            "Where several lanes share a port: 1 if the process of this one has answered.",
            ["cluster", "node", "lane"],
            registry=self._registry,
        )

    async def answer(self, _: Request) -> Response:
        return Response(await self._fresh.get(), headers={"Content-Type": CONTENT_TYPE_PLAIN_0_0_4})

    async def _made(self) -> bytes:
        texts = []
        for one in await _asked_all(self._lanes, "/metrics", bytes.decode):
            own = one.lane.config
            up = one.body is not None and one.status == HTTPStatus.OK
            self._up.labels(own.cluster, own.node_id, own.lane).set(up)
            texts += [one.body] if one.body is not None and up else []
        return merged([generate_latest(self._registry).decode(), *texts]).encode()
