"""What became of a message, and what is pending, as nodes tell: `delayline message show` and `list`."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

from delayline.names import parse_source
from delayline.partitioner import partition_for
from node.config import ConnectionConfig
from node.http.answers import AnsweringNode, Extent, Listed, Message, Shown, cursor, parse_cursor
from ops.clients.nodes import ANSWER_TIMEOUT_S, LaneNodes, lanes_of
from ops.errors import NotFoundError, OperatorError
from store.keys import RowKey
from store.lookup import Total

HISTORY_TIMEOUT_S: Final = 120.0
PATIENCE_S: Final = 15.0  # how long pages are walked for a few rows that are wanted
_PAGE: Final = 1_000
_NOWHERE: Final[RowKey] = (-1, -1, -1)


def show(config: ConnectionConfig, id_: str, node: str | None, history: Extent) -> Shown:
    """What became of the message with this id, as a node of its lane says."""
    settings, lanes = lanes_of(config, node)
    partition = partition_for(id_.encode(), settings.partitions)
    asked = _lane_of(partition % settings.lanes, lanes, id_, node)
    timeout_s = HISTORY_TIMEOUT_S if history == "all" else ANSWER_TIMEOUT_S
    return asked.ask(Shown, "/message", {"id": id_, "history": history}, timeout_s)


def show_source(config: ConnectionConfig, source: str, node: str | None, history: Extent) -> Shown:
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
    return asked.ask(Shown, "/message", {"source": source, "history": history}, timeout_s)


def _lane_of(lane: int, lanes: Sequence[LaneNodes], what: str, node: str | None) -> LaneNodes:
    asked = next((one for one in lanes if one.lane == lane), None)
    if asked is None:
        raise NotFoundError(f"{what} is in lane {lane}, and {node} is a node of another: leave --node out")
    return asked


@dataclass(slots=True)
class MessageListing:
    """Pending messages in key order. `next`: the cursor behind which more may be; `total`: of the first page
    alone; `nodes`: those that have answered, and how far each was.
    """

    messages: list[Message] = field(default_factory=list)
    next: str | None = None
    total: Total | None = None
    nodes: list[AnsweringNode] = field(default_factory=list)


def pending(
    config: ConnectionConfig, query: Mapping[str, Any], after: str | None, limit: int, node: str | None
) -> MessageListing:
    """Up to `limit` pending messages behind `after`, of all lanes, or of one node's."""
    _, lanes = lanes_of(config, node)
    walks = [_Walk(lane, dict(query), parse_cursor(after) if after else _NOWHERE) for lane in lanes]
    rows, rest = _merged(walks, limit)
    totals = [walk.total for walk in walks if walk.total is not None]
    counted = Total(sum(total.count for total in totals), any(total.at_least for total in totals))
    answering = [walk.answering for walk in walks if walk.answering is not None]
    return MessageListing(rows, rest, counted if totals else None, answering)


def _merged(walks: Sequence[_Walk], limit: int) -> tuple[list[Message], str | None]:
    """The first rows of all lanes by key, and the cursor behind them. A row goes out once every lane has been
    walked past its key.
    """
    rows: list[tuple[RowKey, Message]] = []
    until_s = time.monotonic() + PATIENCE_S
    while len(rows) <= limit:
        best = min((walk for walk in walks if walk.rows), key=lambda walk: walk.rows[0][0], default=None)
        behind = min((walk for walk in walks if walk.hungry), key=lambda walk: walk.walked, default=None)
        if best is not None and (behind is None or best.rows[0][0] <= behind.walked):
            rows.append(best.rows.pop(0))
        elif behind is None:
            return [row for _, row in rows], None
        elif time.monotonic() > until_s and behind.answering is not None:
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
    rows: list[tuple[RowKey, Message]] = field(default_factory=list)
    answering: AnsweringNode | None = None
    total: Total | None = None
    ended: bool = False

    @property
    def hungry(self) -> bool:
        return not self.rows and not self.ended

    def walk_on(self, wanted: int) -> None:
        after = None if self.walked == _NOWHERE else cursor(self.walked)
        page = self.lane.ask(Listed, "/messages", self.query | {"after": after, "limit": min(wanted, _PAGE)})
        self.answering = page.node
        self.total = page.total or self.total
        self.rows = [(_key(message), message) for message in page.messages]
        self.ended = page.next is None
        self.walked = self.walked if page.next is None else parse_cursor(page.next)


def _key(message: Message) -> RowKey:
    assert message.due_ms is not None, "what is listed is a row"
    assert message.source is not None, "what is listed is a row"
    _, partition, offset = parse_source(message.source)
    return message.due_ms, partition, offset
