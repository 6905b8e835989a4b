"""Removing what a dead node has left in ZooKeeper."""

from __future__ import annotations

import socket
import time
from typing import Any, Final

from election.candidates import Candidate
from election.operators import Author, Entry
from node.config import ConnectionConfig
from ops.clients.nodes import NodeAddress
from ops.clients.zookeeper import registry
from ops.cluster.status import STALE_MS, members_of, silent_ms
from ops.errors import ConflictError, NotFoundError

ANSWER_TIMEOUT_S: Final = 2.0


def remove(config: ConnectionConfig, node: str, author: Author) -> list[str]:
    """Delete the member znode and the candidacies of a dead node; returns their paths.

    Raises NotFoundError if it has none, ConflictError if it lives: it has told of itself a moment ago, or
    answers at its HTTP or its peer port.
    """
    with registry(config) as znodes:
        lanes = range(znodes.settings().lanes)
        said = members_of(znodes).get(node)
        standing = [
            (lane, name, candidate)
            for lane in lanes
            for name, candidate in znodes.candidates(lane).items()
            if candidate.node == node
        ]
        if said is None and not standing:
            raise _gone(config, node)
        sign = _sign_of_life(node, said, [candidate for *_, candidate in standing])
        if sign is not None:
            raise ConflictError(f"{node} lives: {sign}; stop its process, its znodes then go by themselves")
        entry = Entry(what="remove", author=author, before=node)
        removed = znodes.remove_node(node, [(lane, name) for lane, name, _ in standing], entry)
    if not removed:
        raise _gone(config, node)
    return removed


def _gone(config: ConnectionConfig, node: str) -> NotFoundError:
    return NotFoundError(f"node {node} has no znodes in cluster {config.cluster}: it is gone already")


def _sign_of_life(node: str, said: dict[str, Any] | None, standing: list[Candidate]) -> str | None:
    """Why it is not dead; None if nothing tells that it lives."""
    if said is not None:
        age_ms = silent_ms(said, time.time_ns() // 1_000_000)
        if age_ms < STALE_MS:
            return f"it told of itself {max(0, age_ms) // 1000} s ago"
        host, port = said.get("http_host"), said.get("http_port")
        if host and port and not isinstance(_asked(NodeAddress(node, str(host), int(port))), str):
            return f"it answers at {host}:{port}"
    for candidate in standing:
        if _greets(candidate):
            return f"it answers at its peer port, {candidate.host}:{candidate.peer_port}"
    return None


def _asked(address: NodeAddress) -> Any:
    return address.ask("/due", {}, ANSWER_TIMEOUT_S)


def _greets(candidate: Candidate) -> bool:
    """Whether the node itself answers on its peer port (election/link.py)."""
    try:
        with socket.create_connection((candidate.host, candidate.peer_port), ANSWER_TIMEOUT_S) as connection:
            connection.settimeout(ANSWER_TIMEOUT_S)
            return candidate.node.encode() in connection.recv(512).split(b" ")
    except OSError:
        return False
