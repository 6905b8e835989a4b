"""What a node answers those who watch it: Prometheus, Kubernetes, load balancers, `delayline check`.

    GET /metrics            Prometheus' text format
    GET /livez              200 while all threads run
    GET /readyz             200 for a node that could lead or leads: leader or follower
    GET /leader             200 for the leader
    GET /replica[?max_lag=] 200 for a node that has caught up, and lacks at most so many offsets

Else 503, with the reason and the way out as JSON. All is answered from what is known, on the event loop:
nobody waits for the store, for Kafka or for ZooKeeper, and a client that hangs holds nobody else up.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

import msgspec
from msgspec import UNSET
from prometheus_client import CONTENT_TYPE_PLAIN_0_0_4
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from node.health.metrics import Exposition
from node.health.vitals import Vitals
from node.http.answers import Failed, Probed, ProbedPartition
from node.status import CAUGHT_UP, NodeState

_WAITS: Final = "See to that: the node goes on by itself."
_ENDS: Final = "Ask another node."

ProbeAnswer = tuple[bool, Probed]
"""Whether it is so, and what to say about it."""


def watched(app: Starlette, vitals: Callable[[], Vitals]) -> Starlette:
    """The application, with these paths besides its own. `vitals`: a glance at the node; never blocks."""
    app.routes.extend(_routes(vitals))
    return app


def _routes(vitals: Callable[[], Vitals]) -> list[Route]:
    exposition = Exposition(vitals)

    async def metrics(_: Request) -> Response:
        return Response(await exposition.text(), headers={"Content-Type": CONTENT_TYPE_PLAIN_0_0_4})

    def route(path: str, answer: Callable[[Vitals], ProbeAnswer]) -> Route:
        async def endpoint(_: Request) -> Response:
            return _response(*answer(vitals()))

        return Route(path, endpoint, methods=["GET"])

    async def replica(request: Request) -> Response:
        try:
            max_lag = max_lag_of(request)
        except ValueError as error:
            return Response(msgspec.json.encode(Failed(str(error))), 400)
        return _response(*_replica(vitals(), max_lag))

    return [
        Route("/metrics", metrics, methods=["GET"]),
        route("/livez", _live),
        route("/readyz", _ready),
        route("/leader", _leader),
        Route("/replica", replica, methods=["GET"]),
    ]


def max_lag_of(request: Request) -> int | None:
    """None if it is not asked for. ValueError if it is no number."""
    asked = request.query_params.get("max_lag")
    if asked is not None and not (asked.isascii() and asked.isdigit() and len(asked) <= 19):
        raise ValueError(f"max_lag is {asked[:100]!r}: it must be a number")
    return None if asked is None else int(asked)


def too_far_behind(lag: int | None, max_lag: int | None) -> tuple[str, str] | None:
    """Why a node that has caught up is, and what to do about it; None if it is not."""
    if max_lag is None or (lag is not None and lag <= max_lag):
        return None
    if lag is None:
        return "Kafka does not say where the buffer ends", _WAITS
    return f"{lag} offsets of the buffer are not read yet; {max_lag} are allowed", "Wait: the node reads on."


def _response(so: bool, said: Probed) -> Response:  # noqa: FBT001 - the answer itself
    return Response(msgspec.json.encode(said), 200 if so else 503, media_type="application/json")


def _live(vitals: Vitals) -> ProbeAnswer:
    said = _probed(vitals)
    if not vitals.dead:
        return True, said
    reason = f"threads have ended that should run: {', '.join(vitals.dead)}"
    return _no(said, reason, "Restart the node: its log says why.")


def _ready(vitals: Vitals) -> ProbeAnswer:
    said = _probed(vitals)
    return (True, said) if vitals.state in CAUGHT_UP else _no(said, *_why_not(vitals))


def _leader(vitals: Vitals) -> ProbeAnswer:
    leader = vitals.nameplate.node if vitals.leads else vitals.leader
    return vitals.leads, msgspec.structs.replace(_probed(vitals), leader=leader, epoch=vitals.epoch)


def _replica(vitals: Vitals, max_lag: int | None) -> ProbeAnswer:
    said = msgspec.structs.replace(_probed(vitals), lag=vitals.lag)
    if vitals.state not in CAUGHT_UP:
        return _no(said, *_why_not(vitals))
    why = too_far_behind(vitals.lag, max_lag)
    return (True, said) if why is None else _no(said, *why)


def _probed(vitals: Vitals) -> Probed:
    own = vitals.nameplate
    blocked = [ProbedPartition(one.partition, one.records, one.since_ms) for one in vitals.blocked or ()]
    return Probed(
        cluster=own.cluster, node=own.node, lane=own.lane, state=vitals.state, blocked=blocked or UNSET
    )


def _no(said: Probed, reason: str, way_out: str) -> ProbeAnswer:
    return False, msgspec.structs.replace(said, reason=reason, way_out=way_out)


def _why_not(vitals: Vitals) -> tuple[str, str]:
    """Why a node has not caught up, and what to do about it."""
    if vitals.refusal is not None:
        why = vitals.refusal
        return f"{why.code}: {why.detail}", why.way_out
    if vitals.state == NodeState.STOPPING:
        return "the node ends", _ENDS
    if vitals.waits_for is not None:
        return f"the node waits: {vitals.waits_for}", _WAITS
    if vitals.state == NodeState.STARTING:
        return "the node has just started", "Wait: the node goes on by itself."
    left = "" if vitals.lag is None else f": {vitals.lag} offsets of the buffer are left"
    return f"the node reads the log to its end{left}", "Wait: the node reads on."
