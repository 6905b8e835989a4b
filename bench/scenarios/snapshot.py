"""How long a node without a store takes to have all that is pending: from the log, and from a peer; and how
late the peer is meanwhile, which is the leader here, as where there are but two nodes.
"""

from __future__ import annotations

import threading
import time
from typing import Final

from bench.cluster import PATIENCE_S, POLL_S, BenchNode, Cluster, Clusters
from bench.measured import Measured
from bench.scenarios.steady import Pace
from node.config import ConnectionConfig
from node.status import NodeStatus, TakenSnapshot
from ops.clients.zookeeper import registry

HOUR_MS: Final = 3_600_000
MS_OF_A_MESSAGE: Final = 0.1  # nothing of it falls due while it is sent, and read
TAKER: Final = "n2"


class Rebuild:
    """So many pending; the leader delivers at a rate beside them."""

    def __init__(self, pending: int, rate: int) -> None:
        self._pending = pending
        self._pace = Pace(rate)
        self.messages = pending + 2 * self._pace.messages

    def run(self, clusters: Clusters) -> Measured:
        with clusters.cluster("snapshot") as cluster:
            self._fill(cluster)
            log_ms = self._all_applied_ms(cluster.node, self._launched_ms(cluster.node))
            cluster.node.wait("leader", lambda sample: sample.leader)
            calm = self._pace.come(cluster).measured(f"snapshot.calm.{self._pace.rate}", {})
            taker = cluster.node.beside(TAKER)
            try:
                return calm | self._taken(cluster, taker, log_ms)
            finally:
                taker.stop()

    def _taken(self, cluster: Cluster, taker: BenchNode, log_ms: float) -> Measured:
        launched_ms: list[float] = []

        def launch() -> None:
            launched_ms.append(self._launched_ms(taker))

        def on_begin(begin_s: float) -> None:
            threading.Timer(max(0.0, begin_s - time.time()), launch).start()

        came = self._pace.come(cluster, on_begin=on_begin)
        peer_ms = self._all_applied_ms(taker, launched_ms[0])
        snapshot, millions = _snapshot_of(cluster), f"{self._pending / 1e6:g}m"
        more = {
            f"snapshot.log.{millions}": log_ms,
            f"snapshot.peer.{millions}": peer_ms,
            f"snapshot.transfer.{millions}": 1_000 * snapshot.seconds,
            f"snapshot.size.{millions}": snapshot.bytes / self._pending,
        }
        return came.measured(f"snapshot.giving.{self._pace.rate}", more)

    def _fill(self, cluster: Cluster) -> None:
        due_ms = int(time.time() * 1000 + HOUR_MS + self._pending * MS_OF_A_MESSAGE)
        cluster.load(self._pending, first_due_ms=due_ms, span_ms=HOUR_MS, order="random").send()

    @staticmethod
    def _launched_ms(node: BenchNode) -> float:
        begun_ms = time.time() * 1000
        node.launch()
        return begun_ms

    def _all_applied_ms(self, node: BenchNode, begun_ms: float) -> float:
        last = node.wait("all applied", lambda sample: sample.applied >= self._pending)
        return last.at_ms - begun_ms


def _snapshot_of(cluster: Cluster) -> TakenSnapshot:
    """What the taker says of it. Raises `TimeoutError` if it has read the log instead."""
    config = ConnectionConfig(
        cluster=cluster.names.cluster, bootstrap_servers=cluster.bootstrap, zookeeper=cluster.stack.zookeeper
    )
    deadline_s = time.monotonic() + PATIENCE_S
    with registry(config) as znodes:
        while (said := znodes.members().get(TAKER)) is None and time.monotonic() < deadline_s:
            time.sleep(POLL_S)
    taken = None if said is None else NodeStatus.decode(said).snapshot
    if taken is None:
        raise TimeoutError("the new node has read the log: no peer has given it a snapshot that it can use")
    return taken
