"""From the log into the view: an emptied node reads a buffer topic that is full, with nothing due.

The rate is that between the first tenth and the last message; the rebuild's, from the start of the process
until the node is a candidate. The same node is then killed with all that is pending, and started again.
"""

from __future__ import annotations

import time
from typing import Final

from bench.cluster import Cluster, Clusters
from bench.measured import Measured
from bench.reader import ReadJob, ReadResult

HOUR_MS: Final = 3_600_000


class Ingest:
    """The ingest, which is the rebuild as well, and then the restart."""

    def __init__(self, order: str, messages: int, *, ids: bool = False) -> None:
        """`order` of due times: `rising` or `random`. `ids`: each message has one."""
        self._order = order
        self._ids = ids
        self.messages = messages
        self._name = f"{'ids' if ids else order}.{messages // 1_000_000}m"

    def run(self, clusters: Clusters) -> Measured:
        with clusters.cluster("ingest") as cluster:
            self._fill(cluster)
            return self._ingest(cluster) | self._restart(cluster)

    def _fill(self, cluster: Cluster) -> None:
        due_ms = int(time.time() * 1000) + HOUR_MS
        how = {"first_due_ms": due_ms, "span_ms": HOUR_MS, "order": self._order, "ids": self._ids}
        cluster.load(self.messages, **how).send()

    def _ingest(self, cluster: Cluster) -> Measured:
        node, all_of_it = cluster.node, self.messages
        begun_ms = time.time() * 1000
        node.start()
        begun = node.wait("at work", lambda _: True)
        first = node.wait("a tenth applied", lambda sample: sample.applied >= all_of_it // 10)
        last = node.wait("all applied", lambda sample: sample.applied == all_of_it)
        leading = node.wait("candidate", lambda sample: sample.leader)
        seconds = (last.at_ms - first.at_ms) / 1000
        return Measured(
            {
                f"ingest.{self._name}": (last.applied - first.applied) / seconds,
                f"rebuild.{self._name}": all_of_it / ((leading.at_ms - begun_ms) / 1000),
                f"memory.ingest.{self._name}": node.peak_memory_mb(),
                f"cpu.ingest.node.{self._name}": (leading.node_cpu_us - begun.node_cpu_us) / all_of_it,
                f"cpu.ingest.broker.{self._name}": (leading.broker_cpu_us - begun.broker_cpu_us) / all_of_it,
            }
        )

    def _restart(self, cluster: Cluster) -> Measured:
        """From the start of a killed node's process to its first delivery: of a message that waits for it."""
        node = cluster.node
        node.stop()  # what is on disk now is all that is pending
        disk_bytes = node.disk_bytes()
        node.lead()
        self._settle(cluster)
        node.kill()
        with ReadJob(cluster.bootstrap, cluster.target, 1).begin() as reader:
            cluster.load(1).send()
            begun_ms = time.time() * 1000
            node.launch()
            read = ReadResult(**reader.result())
        return Measured(
            {
                f"restart.{self._name}": read.last_ms - begun_ms,
                f"disk.{self._name}": disk_bytes / self.messages,
            }
        )

    def _settle(self, cluster: Cluster) -> None:
        """A few transactions, so that the killed node was at work."""
        with ReadJob(cluster.bootstrap, cluster.target, 1000).begin() as reader:
            cluster.load(1000, rate=1000).send()
            reader.result()
