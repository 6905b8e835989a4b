"""delayline: one node on a Kafka and a ZooKeeper of its own."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import Final

from bench.cluster import SESSION_TIMEOUT_S, Cluster, Clusters
from bench.job import JobProcess, python_job
from bench.peers.job import Reading, Sending, said
from bench.peers.peer import Peer, disk_bytes_of
from ops.demo.verdict import versions
from ops.stack import SHIPPED_JVM, LocalStack
from ops.stack.server import Server

_JOB: Final = "bench.peers.kafka_job"


class Ours(Peer):
    """The node is what is killed and held: Kafka goes on, as it does for whoever uses it."""

    name = "delayline"
    title = f"delayline {versions()['delayline']} on Kafka {versions()['kafka']}"
    settings = (
        f"one node, with a session of {SESSION_TIMEOUT_S:g} s; 4 partitions; the broker with"
        f" {' '.join(SHIPPED_JVM)}; its clients as in `make bench`"
    )
    lacks = "targets other than Kafka's topics; working without a ZooKeeper beside Kafka"

    def __init__(self, folder: Path) -> None:
        super().__init__(folder)
        self._stack = LocalStack(folder / "stack", kafka_jvm=SHIPPED_JVM)
        self._clusters: Clusters | None = None
        self._cluster: Cluster | None = None
        self._ending = ExitStack()
        self._sent = 0

    @property
    def servers(self) -> Sequence[Server]:
        return [*self._stack.servers, self.holder]

    @property
    def holder(self) -> Server:
        return self._running.node

    def start(self) -> None:
        self._ending.enter_context(self._stack)
        self._clusters = Clusters(self._stack, self.folder)
        self._cluster = self._ending.enter_context(self._clusters.cluster("peers"))
        self._running.node.lead()

    def stop(self) -> None:
        self._ending.close()

    def topic(self) -> str:
        assert self._clusters is not None, "started"
        return self._clusters.topic("target")

    def load(self, topic: str, sending: Sending) -> JobProcess:
        self._sent += sending.count
        through = f"{self._running.names.buffer}/{topic}"
        process = python_job(_JOB, said((self._stack.bootstrap, through, sending)))
        process.wait_ready()
        return process

    def read(self, topic: str, reading: Reading) -> JobProcess:
        process = python_job(_JOB, said((self._stack.bootstrap, topic, reading)))
        process.wait_ready()
        return process

    def wait_settled(self) -> None:
        self._running.node.wait("all applied", lambda sample: sample.applied == self._sent)

    def added_processes(self) -> list[int]:
        pid = self.holder.pid
        return [] if pid is None else [pid]

    def disk_bytes(self) -> int:
        return disk_bytes_of(self.folder)

    @property
    def _running(self) -> Cluster:
        assert self._cluster is not None, "started"
        return self._cluster
