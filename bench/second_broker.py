"""A second Kafka broker beside a local stack's own: what is only there has no leader when it is gone."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Final

from confluent_kafka import KafkaException
from confluent_kafka.admin import AdminClient, NewTopic

from ops.stack import LocalStack
from ops.stack.kafka import KafkaServer
from ops.stack.ports import accepts, free_port

SECOND: Final = 2

# What comes last counts.
_CONFIG: Final = """\
process.roles=broker
node.id={node}
listeners=PLAINTEXT://{address}
"""


class SecondBroker(KafkaServer):
    """A broker without a controller; it joins that of a stack that runs, and keeps its data when killed."""

    def __init__(self, stack: LocalStack, folder: Path) -> None:
        """`folder`: of its own."""
        self._stack = stack
        controller: int = json.loads((stack.data_dir / "ports.json").read_text())["controller"]
        super().__init__(folder, free_port(), controller)

    def make_topic(self, name: str, replicas: Sequence[Sequence[int]], config: Mapping[str, str]) -> None:
        """A topic whose replicas, partition by partition, are on these brokers, the first one its leader."""
        placed = [list(brokers) for brokers in replicas]
        new = NewTopic(name, len(placed), replica_assignment=placed, config=dict(config))
        admin = self._admin()  # its answers come only as long as it lives
        admin.create_topics([new])[name].result()

    def _prepare(self) -> None:
        self._config.write_text(self._settings() + _CONFIG.format(node=SECOND, address=self.address))
        if not self._meta.exists():
            self._format(self._stack.kafka.cluster_id())

    def serves(self) -> bool:
        """Whether the controller counts it among the brokers, as its neighbour says."""
        return accepts(self.port) and self.is_counted()

    def is_counted(self) -> bool:
        """Whether the controller counts it among the brokers: it does so for a while after its end."""
        try:
            return SECOND in self._admin().list_topics(timeout=2).brokers
        except KafkaException:
            return False

    def _admin(self) -> AdminClient:
        return AdminClient({"bootstrap.servers": self._stack.bootstrap, "log_level": 0})
