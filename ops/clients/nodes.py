"""The nodes' addresses, as each shows its own in its member znode, and asking them over HTTP."""

from __future__ import annotations

import http.client
import time
from collections.abc import Iterable, Mapping, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import dataclass
from http import HTTPStatus
from typing import Any, Final, TypeVar
from urllib.parse import urlencode

import msgspec

from delayline.settings import ClusterSettings
from node.config import ConnectionConfig
from node.http.answers import Failed, NodeAnswer
from node.status import NodeState, NodeStatus
from ops.clients.members import Member, members_of
from ops.clients.zookeeper import registry
from ops.errors import NotFoundError, OperatorError, UnavailableError

CONNECT_TIMEOUT_S: Final = 2.0
ANSWER_TIMEOUT_S: Final = 30.0

Given = TypeVar("Given", bound=NodeAnswer)
Decoded = TypeVar("Decoded", bound=msgspec.Struct)


@dataclass(frozen=True, slots=True)
class NodeAddress:
    """Where a node answers. `path`: what stands before its paths there."""

    node: str
    host: str
    port: int
    path: str = ""

    def __str__(self) -> str:
        return f"{self.node} at {self.host}:{self.port}{self.path}"

    def ask(self, kind: type[Given], path: str, params: Mapping[str, Any], timeout_s: float) -> Given | str:
        """Its answer, or why there is none. Raises OperatorError if the question is wrong."""
        given = urlencode({name: value for name, value in params.items() if value is not None})
        connection = http.client.HTTPConnection(self.host, self.port, timeout=CONNECT_TIMEOUT_S)
        try:
            connection.connect()
            connection.sock.settimeout(timeout_s)
            connection.request("GET", f"{self.path}{path}?{given}")
            response = connection.getresponse()
            return self._understood(kind, response.status, response.read())
        except (OSError, http.client.HTTPException) as error:
            why = getattr(error, "strerror", None) or str(error) or type(error).__name__
            return f"{self}: {why}"
        finally:
            connection.close()

    def _understood(self, kind: type[Given], status: int, raw: bytes) -> Given | str:
        answer = _decoded(kind, raw)
        if answer is not None and answer.node.node == self.node:
            return answer
        failed = _decoded(Failed, raw)
        if failed is None:
            return f"{self}: something else answers there"
        if status == HTTPStatus.BAD_REQUEST:
            raise OperatorError(f"{self}: {failed.error}")
        return f"{self}: {failed.error}"


def _decoded(kind: type[Decoded], raw: bytes) -> Decoded | None:
    try:
        return msgspec.json.decode(raw, type=kind)
    except (msgspec.MsgspecError, UnicodeError, RecursionError):
        return None


@dataclass(slots=True)
class LaneNodes:
    """The nodes of one lane, in the order in which they are asked."""

    lane: int
    nodes: Sequence[NodeAddress]

    def ask(
        self, kind: type[Given], path: str, params: Mapping[str, Any], timeout_s: float = ANSWER_TIMEOUT_S
    ) -> Given:
        """The answer of the first node that gives one. Raises UnavailableError, which says why none does."""
        silent = []
        for node in self.nodes:
            answer = node.ask(kind, path, params, timeout_s)
            if not isinstance(answer, str):
                return answer
            silent.append(answer)
        if not silent:
            raise UnavailableError(
                f"no node of lane {self.lane} is running: see 'delayline cluster status', start one with"
                " 'delayline node run'"
            )
        raise UnavailableError(
            f"no node of lane {self.lane} answers: {'; '.join(silent)}. A node is reached at its http_host,"
            " by default from its own machine alone"
        )


def ask_lanes(
    config: ConnectionConfig,
    lane: int | None,
    kind: type[Given],
    path: str,
    params: Mapping[str, Any],
    timeout_s: float,
) -> list[Given]:
    """What a node of the lane says, or one of each lane."""
    _, lanes = lanes_of(config, None)
    return [one.ask(kind, path, params, timeout_s) for one in lanes if lane is None or one.lane == lane]


def lanes_of(config: ConnectionConfig, node: str | None) -> tuple[ClusterSettings, list[LaneNodes]]:
    """The lanes and who answers for them; with `node`, its lane and it alone."""
    with registry(config) as znodes:
        settings = znodes.settings()
        members = members_of(znodes).values()
        leaders = {
            lane: next((candidate.node for candidate in znodes.candidates(lane).values()), None)
            for lane in range(settings.lanes)
        }
    there = {one.status.node: one for one in members if one.status is not None and one.status.http_port}
    if node is not None and node not in there:
        others = f": there are {', '.join(sorted(there))}" if there else ", nor any other"
        raise NotFoundError(f"no node {node} is running{others}")
    chosen = list(there.values()) if node is None else [there[node]]
    asked = in_order(chosen, set(leaders.values()), time.time_ns() // 1_000_000)
    lanes = range(settings.lanes) if node is None else {one.lane for one in asked}
    return settings, [
        LaneNodes(lane, [address_of(said) for said in asked if said.lane == lane]) for lane in lanes
    ]


def in_order(members: Iterable[Member], leaders: AbstractSet[str | None], now_ms: int) -> list[NodeStatus]:
    """Whom to ask first: the leader; later who refuses; last of all who has not told of itself for a while:
    it may be paused, and would be waited for. Who cannot be read is not asked.
    """
    told = [(one.status, one.is_silent(now_ms)) for one in members if one.status is not None]
    told.sort(key=lambda one: (one[1], one[0].node not in leaders, one[0].state == NodeState.REFUSING))
    return [said for said, _ in told]


def address_of(said: NodeStatus) -> NodeAddress:
    """Where it says that it answers."""
    return NodeAddress(said.node, said.http_host, said.http_port, said.http_path)
