"""Removing what a dead node has left in ZooKeeper."""

from __future__ import annotations

import socket
import time
from typing import Final

from election.candidates import Candidate
from election.operators import Author, HistoryEntry
from node.config import ConnectionConfig
from node.http.answers import Forecast
from node.status import STALE_MS
from ops.clients.members import Member, members_of
from ops.clients.nodes import address_of
from ops.clients.zookeeper import registry
from ops.errors import ConflictError, NotFoundError

ANSWER_TIMEOUT_S: Final = 2.0


def remove(config: ConnectionConfig, node: str, author: Author) -> list[str]:
    """Delete the member znode and the candidacies of a dead node; returns their paths.

    Raises NotFoundError if it has none, ConflictError if it lives: it has told of itself a moment ago, or
    answers at its HTTP or its peer port.
    """
    with registry(config) as znodes:
        lanes = range(znodes.settings().lanes)
        member = members_of(znodes).get(node)
        candidates = [
            (lane, name, candidate)
            for lane in lanes
            for name, candidate in znodes.candidates(lane).items()
            if candidate.node == node
        ]
        if member is None and not candidates:
            raise _gone(config, node)
        sign = _sign_of_life(member, [candidate for *_, candidate in candidates])
        if sign is not None:
            raise ConflictError(f"{node} lives: {sign}; stop its process, its znodes then go by themselves")
        entry = HistoryEntry(what="remove", author=author, before=node)
        removed = znodes.remove_node(node, [(lane, name) for lane, name, _ in candidates], entry)
    if not removed:
        raise _gone(config, node)
    return removed


def _gone(config: ConnectionConfig, node: str) -> NotFoundError:
    return NotFoundError(f"node {node} has no znodes in cluster {config.cluster}: it is gone already")


def _sign_of_life(member: Member | None, candidates: list[Candidate]) -> str | None:
    """Why it is not dead; None if nothing tells that it lives."""
    if member is not None:
        age_ms = member.silent_ms(time.time_ns() // 1_000_000)
        if age_ms < STALE_MS:
            return f"it told of itself {max(0, age_ms) // 1000} s ago"
        host, port = member.http
        if host and port and _answers(member, host, port):
            return f"it answers at {host}:{port}"
    for candidate in candidates:
        if _greets(candidate):
            return f"it answers at its peer port, {candidate.host}:{candidate.peer_port}"
    return None


def _answers(member: Member, host: str, port: int) -> bool:
    """One of another version may answer otherwise: of such a one it is enough that somebody does."""
    if member.status is not None:
        return not isinstance(address_of(member.status).ask(Forecast, "/due", {}, ANSWER_TIMEOUT_S), str)
    try:
        socket.create_connection((host, port), ANSWER_TIMEOUT_S).close()
    except OSError:
        return False
    return True


def _greets(candidate: Candidate) -> bool:
    """Whether the node itself answers on its peer port (election/link.py)."""
    try:
        with socket.create_connection((candidate.host, candidate.peer_port), ANSWER_TIMEOUT_S) as connection:
            connection.settimeout(ANSWER_TIMEOUT_S)
            return candidate.node.encode() in connection.recv(512).split(b" ")
    except OSError:
        return False
