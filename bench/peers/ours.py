"""delayline: a node of each lane on a Kafka and a ZooKeeper of its own."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import ExitStack
from pathlib import Path

from bench.cluster import SESSION_TIMEOUT_S, BenchNode, Clusters
from bench.job import JobProcess
from bench.peers.compared import IN_TWO, OURS
from bench.peers.job import Reading, Sending, python_begun
from bench.peers.peer import Peer, disk_bytes_of
from bench.scenarios.lanes import PARTITIONS, leading_nodes, wait_applied
from ops.demo.verdict import versions
from ops.stack import SHIPPED_JVM, LocalStack
from ops.stack.server import Server


class Ours(Peer):
    """The nodes are what is killed and held: Kafka goes on, as it does for whoever uses it."""

    name = OURS
    title = f"delayline {versions()['delayline']} on Kafka {versions()['kafka']}"
    settings = (
        f"one lane, one node with a session of {SESSION_TIMEOUT_S:g} s; {PARTITIONS} partitions; the broker"
        f" with {' '.join(SHIPPED_JVM)}; its clients as in `make bench`"
    )
    lacks = "targets other than Kafka's topics; working without a ZooKeeper beside Kafka"
    lanes = 1

    def __init__(self, folder: Path) -> None:
        super().__init__(folder)
        self._stack = LocalStack(folder / "stack", kafka_jvm=SHIPPED_JVM)
        self._clusters = Clusters(self._stack, self.folder)
        self._ending = ExitStack()
        self._buffer = ""
        self._nodes: list[BenchNode] = []
        self._sent = 0

    @property
    def servers(self) -> Sequence[Server]:
        return [*self._stack.servers, *self._nodes]

    @property
    def holders(self) -> Sequence[Server]:
        return self._nodes

    def start(self) -> None:
        self._ending.enter_context(self._stack)
        made = self._clusters.cluster("peers", lanes=self.lanes, partitions=PARTITIONS)
        cluster = self._ending.enter_context(made)
        self._buffer = cluster.names.buffer
        self._nodes = self._ending.enter_context(leading_nodes(cluster, self.lanes))

    def stop(self) -> None:
        self._ending.close()

    def topic(self) -> str:
        return self._clusters.topic("target")

    def load(self, topic: str, sending: Sending) -> JobProcess:
        self._sent += sending.count
        return super().load(f"{self._buffer}/{topic}", sending)

    def wait_settled(self) -> None:
        wait_applied(self._nodes, self._sent)
        super().wait_settled()

    def added_processes(self) -> list[int]:
        return [pid for node in self._nodes if (pid := node.pid) is not None]

    def disk_bytes(self) -> int:
        return disk_bytes_of(self.folder)

    def _begin(self, topic: str, what: Sending | Reading) -> JobProcess:
        return python_begun("bench.peers.kafka_job", (self._stack.bootstrap, topic, what))


class OursInTwo(Ours):
    """As many lanes as the machine has cores, if these are two: each is a process of its own."""

    name = IN_TWO
    settings = f"the same with two lanes, a node of each: as many as there are cores; {PARTITIONS} partitions"
    lanes = 2
