"""A Kafka broker: one process that is its own controller (KRaft)."""

from __future__ import annotations

import subprocess
import uuid
from base64 import urlsafe_b64encode
from collections.abc import Sequence
from pathlib import Path
from typing import Final

from confluent_kafka import KafkaException, Producer
from confluent_kafka.admin import AdminClient

from ops.setup.jars import kafka_jars
from ops.setup.java import find_java
from ops.stack.classes import reading_options
from ops.stack.errors import StackError
from ops.stack.jvm import classpath, log4j2_option
from ops.stack.ports import HOST, accepts, wait_free
from ops.stack.server import START_LIMIT_S, Server

# One broker, so every internal topic has one replica; one partition, so that a start loads quickly.
# Timed-out transactions are looked for every second (default 10 s): an open one blocks its readers.
# Access rules can be tried: a topic without any stays open to everyone.
# A killed broker may register again when its old session has ended (default 9 s): so a short one.
_CONFIG = """\
process.roles=broker,controller
node.id=1
controller.quorum.voters=1@{host}:{controller_port}
controller.listener.names=CONTROLLER
listeners=PLAINTEXT://{host}:{port},CONTROLLER://{host}:{controller_port}
advertised.listeners=PLAINTEXT://{host}:{port}
log.dirs={data}/log
auto.create.topics.enable=false
offsets.topic.num.partitions=1
offsets.topic.replication.factor=1
transaction.state.log.num.partitions=1
transaction.state.log.replication.factor=1
transaction.state.log.min.isr=1
share.coordinator.state.topic.num.partitions=1
share.coordinator.state.topic.replication.factor=1
share.coordinator.state.topic.min.isr=1
group.initial.rebalance.delay.ms=0
authorizer.class.name=org.apache.kafka.metadata.authorizer.StandardAuthorizer
allow.everyone.if.no.acl.found=true
transaction.abort.timed.out.transaction.cleanup.interval.ms=1000
broker.heartbeat.interval.ms=250
broker.session.timeout.ms=3000
"""
# A local stack lives for minutes: the optimising compiler would take a core for the first of them, half of a
# small machine [measured: 22 of the broker's 48 CPU seconds after 75 s of a demo].
SHORT_LIVED_JVM: Final = ("-Xmx1g", "-XX:+UseZGC", "-XX:TieredStopAtLevel=1")
# As Kafka's own scripts start a broker (4.3.0): what figures are held against.
SHIPPED_JVM: Final = (
    "-Xmx1G", "-Xms1G", "-server", "-XX:+UseG1GC", "-XX:MaxGCPauseMillis=20",
    "-XX:InitiatingHeapOccupancyPercent=35", "-XX:+ExplicitGCInvokesConcurrent", "-Djava.awt.headless=true",
)  # fmt: skip
_WARM_UP_LIMIT_S = 60


class KafkaServer(Server):
    """One Kafka broker.

    Args:
        folder: the stack's data folder.
        port: for clients.
        controller_port: for the controller, which only the broker itself talks to.
        jvm: the broker's heap, collector and compiler.
        classes: the JVM's options to read or to write its archive of classes.
    """

    def __init__(
        self,
        folder: Path,
        port: int,
        controller_port: int,
        *,
        jvm: Sequence[str] = SHORT_LIVED_JVM,
        classes: Sequence[str] = (),
    ) -> None:
        super().__init__("kafka", folder, port)
        self._controller_port = controller_port
        self.jvm = jvm
        self._classes = classes or reading_options()

    def serves(self) -> bool:
        """Ask it for its metadata: an active broker lists itself."""
        if not accepts(self.port):
            return False
        try:
            metadata = AdminClient(self._client()).list_topics(timeout=2)
        except KafkaException:
            return False
        return len(metadata.brokers) > 0

    def wait_ready(self, timeout_s: float = START_LIMIT_S) -> None:
        """Wait until it serves and so does its transaction coordinator.

        The first transactional call on a fresh broker waits 1 to 5 s for 'coordinator load in progress': it
        is made here, so that nobody's measurement or time-out meets it.
        """
        super().wait_ready(timeout_s)
        producer = Producer({**self._client(), "transactional.id": "stack-warm-up"})
        producer.list_topics(timeout=_WARM_UP_LIMIT_S)  # connects first: otherwise init takes 500 ms
        producer.init_transactions(_WARM_UP_LIMIT_S)

    def cluster_id(self) -> str:
        """Kafka's id of the cluster, once it has been started."""
        lines = self._meta.read_text().splitlines()
        return next(line.partition("=")[2] for line in lines if line.startswith("cluster.id="))

    def _client(self) -> dict[str, str | int | float | bool]:
        # Refused connections are what waiting for a server looks like: no log line for each.
        return {
            "bootstrap.servers": self.address, "log_level": 0,
            "reconnect.backoff.ms": 20, "reconnect.backoff.max.ms": 100,
        }  # fmt: skip

    def _prepare(self) -> None:
        wait_free(self._controller_port, timeout_s=10)
        self._config.write_text(self._settings())
        if not self._meta.exists():
            cluster_id = urlsafe_b64encode(uuid.uuid4().bytes).rstrip(b"=").decode()
            self._format(f"d{cluster_id[1:]}")

    def _settings(self) -> str:
        return _CONFIG.format(
            host=HOST, port=self.port, controller_port=self._controller_port, data=self.data
        )

    def _format(self, cluster_id: str) -> None:
        """Make the empty log folder a KRaft one."""
        command = [
            *self._java("-Xmx64m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1", *reading_options()),
            "kafka.tools.StorageTool", "format", "-t", cluster_id, "-c", str(self._config),
        ]  # fmt: skip
        done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
        if done.returncode != 0:
            said = (done.stderr or done.stdout).strip().splitlines() or ["it said nothing"]
            raise StackError(f"kafka's folder {self.data} could not be formatted: {said[-1]}")

    def _command(self) -> list[str]:
        return [*self._java(*self.jvm, *self._classes), "kafka.Kafka", str(self._config)]

    def _java(self, *options: str) -> list[str]:
        logging_option = log4j2_option(self.log, self.data)
        return [str(find_java()), *options, logging_option, "-cp", classpath(kafka_jars())]

    @property
    def _config(self) -> Path:
        return self.data / "server.properties"

    @property
    def _meta(self) -> Path:
        return self.data / "log" / "meta.properties"
