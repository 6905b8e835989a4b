"""When what is pending falls due, in all lanes together: one node of each is asked."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

import msgspec

from election.operators import PauseState
from node.config import ConnectionConfig
from node.http.answers import AnsweringNode, Forecast
from ops.clients.nodes import lanes_of
from ops.clients.zookeeper import registry
from store.due import Due
from store.holds import held_together

ANSWER_TIMEOUT_S: Final = 5.0  # a node takes one at most
SCALES: Final = ("seconds", "minutes", "days")


@dataclass(frozen=True, slots=True)
class ClusterForecast:
    """`due`: of all lanes, by the clock of the first one's node. `nodes`: who has answered, and how far each
    had read; `pauses`: what is paused, and so will not be delivered when it falls due.
    """

    due: Due
    nodes: Sequence[AnsweringNode]
    pauses: PauseState


def forecast(config: ConnectionConfig, node: str | None) -> ClusterForecast:
    """What is pending, of all lanes or of one node's.

    Raises ZnodeMissing if the cluster was never created, NotFoundError if there is no such node, and
    UnavailableError if no node of a lane answers.
    """
    with registry(config) as znodes:
        pauses, _ = znodes.pauses()
    _, lanes = lanes_of(config, node)
    total: Due | None = None
    nodes = []
    for lane in lanes:
        now_ms = None if total is None else total.now_ms
        answer = lane.ask(Forecast, "/due", {"now_ms": now_ms}, ANSWER_TIMEOUT_S)
        nodes.append(answer.node)
        total = answer.due if total is None else _together(total, answer.due)
    assert total is not None, "a cluster has a lane"
    return ClusterForecast(total, nodes, pauses)


def _together(one: Due, other: Due) -> Due:
    changes: dict[str, Any] = {
        scale: msgspec.structs.replace(
            getattr(one, scale),
            counts=_sum(getattr(one, scale).counts, getattr(other, scale).counts),
            at_least=getattr(one, scale).at_least or getattr(other, scale).at_least,
        )
        for scale in SCALES
    }
    return msgspec.structs.replace(
        one,
        overdue=one.overdue + other.overdue,
        overdue_at_least=one.overdue_at_least or other.overdue_at_least,
        targets=_sum(one.targets, other.targets),
        targets_at_least=one.targets_at_least or other.targets_at_least,
        held=held_together((one.held, other.held)),
        **changes,
    )


def _sum(one: Mapping[Any, int], other: Mapping[Any, int]) -> dict[Any, int]:
    return dict(Counter(one) + Counter(other))
