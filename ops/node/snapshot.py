"""`delayline node snapshot`: the view of a running node, as a cold copy."""

from __future__ import annotations

import secrets as system
import time
from contextlib import closing
from dataclasses import dataclass

from delayline.names import ClusterNames
from delayline.signing import Keyring
from node.config import ConnectionConfig
from node.snapshot.errors import SnapshotError, Unfit
from node.snapshot.manifest import Manifest
from node.snapshot.peer import PeerSource
from node.snapshot.secrets import Secrets
from node.status import CAUGHT_UP, NodeState, NodeStatus
from ops.clients.members import members_of
from ops.clients.zookeeper import registry, required_keys
from ops.errors import ConflictError, NotFoundError, UnavailableError
from ops.node.cold_copy import ColdCopy

TAKER = "delayline node snapshot {}"
"""Each with digits of its own: a giver ends what the same taker has begun before."""


@dataclass(frozen=True, slots=True)
class Copied:
    """What was written."""

    manifest: Manifest
    seconds: float


def snapshot(config: ConnectionConfig, url: str, lane: int, node: str | None) -> Copied:
    """Writes a cold copy of the lane's view, as a follower has it; of that node's, if one is named. Raises
    OperatorError.
    """
    copy = ColdCopy(url)
    copy.expect_empty()
    with registry(config) as znodes:
        ring, said = required_keys(znodes), [one.status for one in members_of(znodes).values()]
    givers = _givers([one for one in said if one is not None], lane, node)
    began_s, taker, silent = time.monotonic(), TAKER.format(system.token_hex(4)), list[str]()
    for one in givers:
        try:
            manifest = _copied(config, ring, one, copy, taker)
            return Copied(manifest, round(time.monotonic() - began_s, 1))
        except SnapshotError as error:
            silent.append(f"{one.node}: {error}")
    raise UnavailableError(f"no node has given its view: {'; '.join(silent)}")


def _givers(members: list[NodeStatus], lane: int, node: str | None) -> list[NodeStatus]:
    """Followers first: a leader has other things to do."""
    if node is not None:
        named = [one for one in members if one.node == node]
        if not named:
            raise NotFoundError(f"no node {node} is running: see 'delayline cluster status'")
        if named[0].state not in CAUGHT_UP:
            raise ConflictError(f"{node} has not caught up: it is {named[0].state}")
        return named
    found = [one for one in members if one.lane == lane and one.state in CAUGHT_UP and one.http_port]
    if not found:
        raise UnavailableError(f"no node of lane {lane} has caught up: see 'delayline cluster status'")
    return sorted(found, key=lambda one: (one.state == NodeState.LEADER, one.node))


def _copied(
    config: ConnectionConfig, ring: Keyring, giver: NodeStatus, copy: ColdCopy, taker: str
) -> Manifest:
    secrets, buffer = Secrets(ring.root), ClusterNames(config.cluster).buffer

    def look_at(manifest: Manifest) -> None:
        if manifest.identity.cluster != config.cluster or manifest.node != giver.node:
            raise Unfit(f"it is of another node or cluster than {giver.node} of {buffer}")

    address = giver.node, giver.http_host, giver.http_port
    with closing(PeerSource(*address, secrets, taker, path=giver.http_path)) as source:
        return copy.write(source, secrets, look_at)
