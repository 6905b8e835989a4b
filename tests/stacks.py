"""The Kafka and ZooKeeper that tests run on, where they are not the local stack."""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Protocol

from confluent_kafka import KafkaException
from confluent_kafka.admin import AdminClient

from ops.stack.ports import HOST, free_port


class Stack(Protocol):
    """Where a test finds Kafka and ZooKeeper."""

    @property
    def bootstrap(self) -> str: ...

    @property
    def zookeeper(self) -> str: ...


@dataclass(frozen=True, slots=True)
class GivenStack:
    """A Kafka and a ZooKeeper that somebody else runs."""

    bootstrap: str
    zookeeper: str


def outside_stack(environment: Mapping[str, str]) -> GivenStack | None:
    """The cluster that the environment names, if it names one.

    Raises:
        ValueError: it names half of one.
    """
    bootstrap = environment.get("DELAYLINE_TEST_BOOTSTRAP")
    zookeeper = environment.get("DELAYLINE_TEST_ZOOKEEPER")
    if bool(bootstrap) != bool(zookeeper):
        raise ValueError("set both DELAYLINE_TEST_BOOTSTRAP and DELAYLINE_TEST_ZOOKEEPER, or neither")
    return GivenStack(bootstrap, zookeeper) if bootstrap and zookeeper else None


@contextmanager
def containers_stack() -> Iterator[GivenStack]:
    """Kafka and ZooKeeper in Docker; fails with Docker's own error where Docker is not there."""
    from testcontainers.core.container import DockerContainer

    port = free_port()  # the broker must advertise the port that its clients see
    kafka = DockerContainer("apache/kafka:4.3.0").with_bind_ports(port, port)
    for name, value in _kafka_environment(port).items():
        kafka = kafka.with_env(name, value)
    zookeeper = DockerContainer("zookeeper:3.9").with_exposed_ports(2181).with_env("ZOO_TICK_TIME", "200")
    with kafka, zookeeper:
        hosts = f"{zookeeper.get_container_host_ip()}:{zookeeper.get_exposed_port(2181)}"
        given = GivenStack(f"{HOST}:{port}", hosts)
        _wait_for_broker(given.bootstrap, timeout_s=60)
        yield given


def _kafka_environment(port: int) -> dict[str, str]:
    return {
        "KAFKA_NODE_ID": "1",
        "KAFKA_PROCESS_ROLES": "broker,controller",
        "KAFKA_LISTENERS": f"PLAINTEXT://:{port},CONTROLLER://:9093",
        "KAFKA_ADVERTISED_LISTENERS": f"PLAINTEXT://{HOST}:{port}",
        "KAFKA_CONTROLLER_LISTENER_NAMES": "CONTROLLER",
        "KAFKA_LISTENER_SECURITY_PROTOCOL_MAP": "CONTROLLER:PLAINTEXT,PLAINTEXT:PLAINTEXT",
        "KAFKA_CONTROLLER_QUORUM_VOTERS": "1@localhost:9093",
        "KAFKA_AUTO_CREATE_TOPICS_ENABLE": "false",
        "KAFKA_OFFSETS_TOPIC_REPLICATION_FACTOR": "1",
        "KAFKA_TRANSACTION_STATE_LOG_REPLICATION_FACTOR": "1",
        "KAFKA_TRANSACTION_STATE_LOG_MIN_ISR": "1",
        "KAFKA_GROUP_INITIAL_REBALANCE_DELAY_MS": "0",
    }


def _wait_for_broker(bootstrap: str, timeout_s: float) -> None:
    admin = AdminClient({"bootstrap.servers": bootstrap, "log_level": 0})
    deadline = time.monotonic() + timeout_s
    while True:
        try:
            admin.list_topics(timeout=2)
        except KafkaException:
            if time.monotonic() > deadline:
                raise
        else:
            return
