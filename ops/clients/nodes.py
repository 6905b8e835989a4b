"""Asking nodes about messages, over the HTTP interface that each shows in its member znode."""

from __future__ import annotations

import http.client
import json
import time
from collections.abc import Mapping, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import urlencode

from delayline.names import parse_source
from delayline.partitioner import partition_for
from delayline.settings import ClusterSettings
from node.config import ConnectionConfig
from node.http.messages import cursor, parse_cursor
from ops.clients.zookeeper import registry
from ops.cluster.status import STALE_MS, members_of, silent_ms
from ops.errors import NotFoundError, OperatorError, UnavailableError
from store.keys import RowKey

CONNECT_TIMEOUT_S = 2.0
ANSWER_TIMEOUT_S = 30.0
HISTORY_TIMEOUT_S = 120.0
PATIENCE_S = 15.0  # how long pages are walked for a few rows that are wanted
_PAGE = 1_000
_NOWHERE: RowKey = (-1, -1, -1)

NodeAnswer = dict[str, Any]


@dataclass(frozen=True, slots=True)
class NodeAddress:
    """Where a node answers."""

    node: str
    host: str
    port: int

    def ask(self, path: str, params: Mapping[str, Any], timeout_s: float) -> NodeAnswer | str:
        """Its answer, or why there is none. Raises OperatorError if the question is wrong."""
        given = urlencode({name: value for name, value in params.items() if value is not None})
        connection = http.client.HTTPConnection(self.host, self.port, timeout=CONNECT_TIMEOUT_S)
        try:
            connection.connect()
            connection.sock.settimeout(timeout_s)
            connection.request("GET", f"{path}?{given}")
            response = connection.getresponse()
            return self._understood(response.status, response.read())
        except (OSError, http.client.HTTPException) as error:
            why = getattr(error, "strerror", None) or str(error) or type(error).__name__
            return f"{self.node} at {self.host}:{self.port}: {why}"
        finally:
            connection.close()

    def _understood(self, status: int, raw: bytes) -> NodeAnswer | str:
        where = f"{self.node} at {self.host}:{self.port}"
        try:
            body = json.loads(raw)
        except ValueError:
            body = None
        if not isinstance(body, dict):
            return f"{where}: something else answers there"
        if "error" in body:
            if status == 400:
                raise OperatorError(f"{where}: {body['error']}")
            return f"{where}: {body['error']}"
        standing = body.get("node")
        if not isinstance(standing, dict) or standing.get("node") != self.node:
            return f"{where}: something else answers there"
        return body


@dataclass(slots=True)
class LaneNodes:
    """The nodes of one lane, in the order in which they are asked."""

    lane: int
    nodes: Sequence[NodeAddress]

    def ask(self, path: str, params: Mapping[str, Any], timeout_s: float = ANSWER_TIMEOUT_S) -> NodeAnswer:
        """The answer of the first node that gives one. Raises UnavailableError, which says why none does."""
        silent = []
        for node in self.nodes:
            answer = node.ask(path, params, timeout_s)
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


def show(config: ConnectionConfig, id_: str, node: str | None, history: str) -> NodeAnswer:
    """What became of the message with this id, as a node of its lane says."""
    settings, lanes = lanes_of(config, node)
    partition = partition_for(id_.encode(), settings.partitions)
    asked = _lane_of(partition % settings.lanes, lanes, id_, node)
    timeout_s = HISTORY_TIMEOUT_S if history == "all" else ANSWER_TIMEOUT_S
    return asked.ask("/message", {"id": id_, "history": history}, timeout_s)


def show_source(config: ConnectionConfig, source: str, node: str | None, history: str) -> NodeAnswer:
    """What has become of the message that the request at `source` asked for. Raises OperatorError if that is
    no source.
    """
    try:
        _, partition, _ = parse_source(source)
    except ValueError as error:
        raise OperatorError(str(error)) from None
    settings, lanes = lanes_of(config, node)
    asked = _lane_of(partition % settings.lanes, lanes, source, node)
    timeout_s = HISTORY_TIMEOUT_S if history == "all" else ANSWER_TIMEOUT_S
    return asked.ask("/message", {"source": source, "history": history}, timeout_s)


def _lane_of(lane: int, lanes: Sequence[LaneNodes], what: str, node: str | None) -> LaneNodes:
    asked = next((one for one in lanes if one.lane == lane), None)
    if asked is None:
        raise NotFoundError(f"{what} is in lane {lane}, and {node} is a node of another: leave --node out")
    return asked


def ask_lanes(
    config: ConnectionConfig, lane: int | None, path: str, params: Mapping[str, Any], timeout_s: float
) -> dict[int, NodeAnswer]:
    """What a node of the lane says, or one of each lane."""
    _, lanes = lanes_of(config, None)
    return {one.lane: one.ask(path, params, timeout_s) for one in lanes if lane is None or one.lane == lane}


@dataclass(slots=True)
class Listing:
    """Pending messages in key order. `next`: the cursor behind which more may be; `total`: of the first page
    alone; `nodes`: those that have answered, and how far each was.
    """

    messages: list[NodeAnswer] = field(default_factory=list)
    next: str | None = None
    total: NodeAnswer | None = None
    nodes: list[NodeAnswer] = field(default_factory=list)


def pending(
    config: ConnectionConfig, query: Mapping[str, Any], after: str | None, limit: int, node: str | None
) -> Listing:
    """Up to `limit` pending messages behind `after`, of all lanes, or of one node's."""
    _, lanes = lanes_of(config, node)
    walks = [_Walk(lane, dict(query), parse_cursor(after) if after else _NOWHERE) for lane in lanes]
    rows, rest = _merged(walks, limit)
    totals = [walk.total for walk in walks if walk.total is not None]
    counted = {
        "count": sum(total["count"] for total in totals),
        "at_least": any(total["at_least"] for total in totals),
    }
    standing = [walk.standing for walk in walks if walk.standing is not None]
    return Listing(rows, rest, counted if totals else None, standing)


def _merged(walks: Sequence[_Walk], limit: int) -> tuple[list[NodeAnswer], str | None]:
    """The first rows of all lanes by key, and the cursor behind them. A row goes out once every lane has been
    walked past its key.
    """
    rows: list[tuple[RowKey, NodeAnswer]] = []
    until_s = time.monotonic() + PATIENCE_S
    while len(rows) <= limit:
        best = min((walk for walk in walks if walk.rows), key=lambda walk: walk.rows[0][0], default=None)
        behind = min((walk for walk in walks if walk.hungry), key=lambda walk: walk.walked, default=None)
        if best is not None and (behind is None or best.rows[0][0] <= behind.walked):
            rows.append(best.rows.pop(0))
        elif behind is None:
            return [row for _, row in rows], None
        elif time.monotonic() > until_s and behind.standing is not None:
            return [row for _, row in rows], cursor(behind.walked)
        else:
            behind.walk_on(limit + 1)
    return [row for _, row in rows[:limit]], cursor(rows[limit - 1][0])


@dataclass(slots=True)
class _Walk:
    """One lane's pages."""

    lane: LaneNodes
    query: dict[str, Any]
    walked: RowKey
    rows: list[tuple[RowKey, NodeAnswer]] = field(default_factory=list)
    standing: NodeAnswer | None = None
    total: NodeAnswer | None = None
    ended: bool = False

    @property
    def hungry(self) -> bool:
        return not self.rows and not self.ended

    def walk_on(self, wanted: int) -> None:
        after = None if self.walked == _NOWHERE else cursor(self.walked)
        page = self.lane.ask("/messages", self.query | {"after": after, "limit": min(wanted, _PAGE)})
        self.standing = page["node"]
        self.total = page["total"] or self.total
        self.rows = [(_key(message), message) for message in page["messages"]]
        self.ended = page["next"] is None
        self.walked = self.walked if page["next"] is None else parse_cursor(page["next"])


def _key(message: NodeAnswer) -> RowKey:
    _, partition, offset = str(message["source"]).rsplit("/", 2)
    return int(message["due_ms"]), int(partition), int(offset)


def lanes_of(config: ConnectionConfig, node: str | None) -> tuple[ClusterSettings, list[LaneNodes]]:
    """The lanes and who answers for them; with `node`, its lane and it alone."""
    with registry(config) as znodes:
        settings = znodes.settings()
        members = [said for said in members_of(znodes).values() if "lane" in said]
        leaders = {
            lane: next((candidate.node for candidate in znodes.candidates(lane).values()), None)
            for lane in range(settings.lanes)
        }
    there = {said["node"]: said for said in members if "node" in said and said.get("http_port")}
    if node is not None and node not in there:
        others = f": there are {', '.join(sorted(there))}" if there else ", nor any other"
        raise NotFoundError(f"no node {node} is running{others}")
    chosen = list(there.values()) if node is None else [there[node]]
    chosen = in_order(chosen, set(leaders.values()), time.time_ns() // 1_000_000)
    lanes = range(settings.lanes) if node is None else [int(there[node]["lane"])]
    return settings, [
        LaneNodes(lane, [_address(said) for said in chosen if said["lane"] == lane]) for lane in lanes
    ]


def in_order(
    members: Sequence[NodeAnswer], leaders: AbstractSet[str | None], now_ms: int
) -> list[NodeAnswer]:
    """Whom to ask first: the leader; later who refuses; last of all who has not told of itself for a while:
    it may be paused, and would be waited for.
    """

    def rank(said: NodeAnswer) -> tuple[bool, bool, bool]:
        stale = silent_ms(said, now_ms) > STALE_MS
        return stale, said["node"] not in leaders, said.get("state") == "refusing"

    return sorted(members, key=rank)


def _address(said: NodeAnswer) -> NodeAddress:
    return NodeAddress(str(said["node"]), str(said["http_host"]), int(said["http_port"]))
