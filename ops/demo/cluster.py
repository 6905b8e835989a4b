"""The demo's own cluster: a local stack, the topics, and the nodes as processes, all in one folder."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from types import TracebackType
from typing import Final, Self

from confluent_kafka.admin import AdminClient, NewTopic

from delayline.settings import ClusterSettings
from delayline.signing import Keyring
from node.config import ConnectionConfig
from ops.clients.zookeeper import read_keys
from ops.demo.processes import NodeOptions, NodeProcess
from ops.stack import SHORT_LIVED_JVM, LocalStack
from ops.stack.ports import free_port
from ops.topics import cluster_topics

SESSION_TIMEOUT_S: Final = 2.0
_NODE_END_S: Final = 6.0  # a clean end takes less than a second; a paused node never gets there


class DemoCluster:
    """Kafka, ZooKeeper, topics and nodes; as a context manager it starts and stops all of it.

    Args:
        folder: where all data and logs go.
        nodes: how many; they are called n1, n2, ...
        targets: target topics to make, with their partitions.
        kafka_jvm: the broker's heap, collector and compiler.
    """

    def __init__(
        self,
        folder: Path,
        nodes: int,
        targets: Mapping[str, int],
        kafka_jvm: Sequence[str] = SHORT_LIVED_JVM,
    ) -> None:
        self.stack = LocalStack(folder / "stack", kafka_jvm=kafka_jvm)
        self.config = ConnectionConfig(bootstrap_servers=self.stack.bootstrap, zookeeper=self.stack.zookeeper)
        self.nodes = {
            f"n{number}": NodeProcess(f"n{number}", folder, port, self._options())
            for number, port in enumerate(_free_ports(nodes), start=1)
        }
        self.logs = [folder / "logs", folder / "stack" / "logs"]
        self.settings: ClusterSettings | None = None  # once it is up
        self.keys: Keyring | None = None  # as well
        self._targets = targets

    def __enter__(self) -> Self:
        try:
            self._start()
        except BaseException:
            self._stop()
            raise
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._stop()

    def _start(self) -> None:
        self.stack.start()
        self.settings = cluster_topics.create(self.config).settings
        self.keys = read_keys(self.config)
        admin = AdminClient(self.config.client_config())
        wanted = [NewTopic(name, partitions, 1) for name, partitions in self._targets.items()]
        for made in admin.create_topics(wanted).values():
            made.result()
        for node in self.nodes.values():
            node.launch()
        for node in self.nodes.values():
            node.wait_ready()

    def _stop(self) -> None:
        for node in self.nodes.values():
            node.terminate()
        for node in self.nodes.values():
            node.stop(_NODE_END_S)
        self.stack.stop()

    def _options(self) -> NodeOptions:
        return NodeOptions(self.stack.bootstrap, self.stack.zookeeper, SESSION_TIMEOUT_S)


def _free_ports(count: int) -> list[int]:
    ports: set[int] = set()
    while len(ports) < count:
        ports.add(free_port())
    return sorted(ports)


def own_settings_only() -> None:
    """The nodes must not hear of another cluster that this shell's variables speak of."""
    for name in [name for name in os.environ if name.startswith("DELAYLINE_")]:
        if not name.startswith("DELAYLINE_CACHE"):
            del os.environ[name]
