"""What operators write into ZooKeeper, and waiting until the nodes know it."""

from __future__ import annotations

from election.operators import Author, PauseState, encode
from tests.support.cluster import Cluster
from tests.support.waiting import eventually

AUTHOR = Author("somebody", "to see what happens", 1)


def write(cluster: Cluster, path: str, data: bytes) -> None:
    """Writes a znode, which need not be there."""
    cluster.kazoo.ensure_path(path)
    cluster.kazoo.set(path, data)


def say(cluster: Cluster, pauses: PauseState) -> None:
    """Pauses and resumes; returns once all nodes know."""
    write(cluster, cluster.znodes.pauses, encode(pauses))

    def known() -> bool:
        said = [cluster.member(node) for node in cluster.candidates()]
        return all(
            one.get("paused") is (pauses.paused is not None)
            and one.get("paused_targets") == sorted(pauses.paused_targets)
            for one in said
        )

    eventually(known, f"all know of {pauses}")
