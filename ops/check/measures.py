"""What the plugins measure: how far the nodes are behind, how late messages are, whether somebody leads."""

from __future__ import annotations

import http.client
import time
from collections.abc import Sequence
from typing import Final

from prometheus_client.parser import text_string_to_metric_families

from node.config import ConnectionConfig
from ops.check.plugin import PluginResult, Status, Value
from ops.clients import nodes
from ops.clients.nodes import LaneNodes, NodeAddress
from ops.cluster import status
from ops.cluster.status import LaneStatus

TIMEOUT_S: Final = 2.0
OVERDUE: Final = "delayline_oldest_overdue_seconds"
PAUSED: Final = "delayline_paused"

Found = Sequence[Value | PluginResult]


def lag(config: ConnectionConfig) -> Found:
    """The offsets of the buffer that each node has not read. Raises what `status.status` raises."""
    snapshot = status.status(config)
    if not snapshot.members:
        return [PluginResult(Status.UNKNOWN, "no node is running")]
    return [_lag_of(node, snapshot.lag(node)) for node in snapshot.members]


def _lag_of(node: str, behind: int | None) -> Value | PluginResult:
    if behind is None:
        return PluginResult(Status.UNKNOWN, f"{node}: Kafka, or the node, does not say how far it has read")
    return Value(node, behind, "", f"{node} is {behind} offsets behind")


def leader(config: ConnectionConfig) -> Found:
    """How old each lane's last checkpoint is. Raises what `status.status` raises."""
    now_ms = time.time_ns() // 1_000_000
    return [_leader_of(lane, now_ms) for lane in status.status(config).lanes]


def _leader_of(lane: LaneStatus, now_ms: int) -> Value | PluginResult:
    where, last = f"lane {lane.lane}", lane.checkpoint
    if lane.leader is None:
        return PluginResult(Status.CRITICAL, f"{where} has no leader: nothing of it is delivered")
    if last is None:
        return PluginResult(
            Status.CRITICAL, f"{where}: {lane.leader} is elected and has committed nothing yet"
        )
    age_s = max(0, now_ms - last.at_ms) / 1000
    says = f"{where}: {lane.leader} is leader, the last checkpoint is of {last.node}, {age_s:.1f} s old"
    return Value(where, age_s, "s", f"{says}, epoch {last.epoch}")


def lateness(config: ConnectionConfig) -> Found:
    """For how long the oldest overdue message of each lane has been due. Raises Unavailable, ZnodeMissing."""
    _, lanes = nodes.lanes_of(config, None)
    return [_lateness_of(lane) for lane in lanes]


def _lateness_of(lane: LaneNodes) -> Value | PluginResult:
    """As the leader says; where it cannot be reached, another node, which knows a moment later."""
    where, silent = f"lane {lane.lane}", []
    for node in lane.nodes:
        said = _scraped(node)
        if isinstance(said, str):
            silent.append(said)
            continue
        overdue_s, paused = said
        says = f"{where}: nothing is overdue" if not overdue_s else f"{where}: {overdue_s:.1f} s overdue"
        return Value(where, overdue_s, "s", f"{says}, says {node.node}{', the cluster is paused' * paused}")
    why = "; ".join(silent) or "no node is running"
    hint = " (a node is reached at its http_host, by default from its own machine alone)" if silent else ""
    return PluginResult(Status.UNKNOWN, f"{where}: {why}{hint}")


def _scraped(node: NodeAddress) -> tuple[float, bool] | str:
    """For how long its oldest overdue message has been due and whether the cluster is paused; or why it does
    not say.
    """
    try:
        samples = {
            (sample.name, sample.labels.get("node")): sample.value
            for family in text_string_to_metric_families(_got(node))
            for sample in family.samples
        }
    except (OSError, http.client.HTTPException, ValueError) as error:
        return f"{node}: {getattr(error, 'strerror', None) or str(error) or type(error).__name__}"
    overdue_s = samples.get((OVERDUE, node.node))
    if overdue_s is None:
        return f"{node}: it does not know yet, or something else answers there"
    return overdue_s, samples.get((PAUSED, node.node)) == 1


def _got(node: NodeAddress) -> str:
    connection = http.client.HTTPConnection(node.host, node.port, timeout=TIMEOUT_S)
    try:
        connection.request("GET", f"{node.path}/metrics")
        return connection.getresponse().read().decode()
    finally:
        connection.close()
