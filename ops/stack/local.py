"""A real Kafka and a real ZooKeeper on this machine, in one data folder."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from types import TracebackType
from typing import Self

from filelock import FileLock, Timeout

from ops.stack.errors import StackError
from ops.stack.kafka import SHORT_LIVED_JVM, KafkaServer
from ops.stack.ports import free_port
from ops.stack.server import Server
from ops.stack.zookeeper import ZooKeeperServer

FAST_TICK_MS = 200


class LocalStack:
    """Kafka and ZooKeeper as child processes that end with this process, however it ends.

    The folder keeps the data, the logs (``logs/``) and the ports: a later stack on the same folder carries on
    where this one stopped, on the same addresses. As a context manager it starts and stops.

    Args:
        data_dir: made if missing; one running stack per folder.
        kafka: whether `start` starts the broker.
        zookeeper: whether `start` starts ZooKeeper.
        zk_tick_ms: ZooKeeper's tick; session time-outs from twice this to a minute are granted.
        kafka_port: 0: the port kept in the folder, or a free one.
        zookeeper_port: likewise.
        kafka_jvm: the broker's heap, collector and compiler.
    """

    def __init__(
        self,
        data_dir: Path,
        *,
        kafka: bool = True,
        zookeeper: bool = True,
        zk_tick_ms: int = FAST_TICK_MS,
        kafka_port: int = 0,
        zookeeper_port: int = 0,
        kafka_jvm: Sequence[str] = SHORT_LIVED_JVM,
    ) -> None:
        self.data_dir = data_dir.absolute()
        try:
            self.data_dir.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise StackError(
                f"{self.data_dir} cannot be made ({error.strerror}): choose another --data-dir"
            ) from error
        self._lock = FileLock(self.data_dir / "stack.lock")
        ports = self._ports({"kafka": kafka_port, "zookeeper": zookeeper_port, "controller": 0})
        self.kafka = KafkaServer(self.data_dir, ports["kafka"], ports["controller"], jvm=kafka_jvm)
        self.zk = ZooKeeperServer(self.data_dir, ports["zookeeper"], tick_ms=zk_tick_ms)
        wanted: list[tuple[bool, Server]] = [(zookeeper, self.zk), (kafka, self.kafka)]
        self.servers: list[Server] = [server for is_wanted, server in wanted if is_wanted]

    @property
    def bootstrap(self) -> str:
        """Kafka's address, for ``bootstrap.servers``."""
        return self.kafka.address

    @property
    def zookeeper(self) -> str:
        """ZooKeeper's address, as its clients' ``hosts``."""
        return self.zk.address

    def start(self) -> None:
        """Start the servers side by side and wait until they serve.

        Raises:
            StackError: another stack runs on this folder, or a server did not start: then none is left.
        """
        try:
            self._lock.acquire(timeout=0)
        except Timeout:
            raise StackError(
                f"a stack runs on {self.data_dir} already: stop it or use another folder"
            ) from None
        try:
            for server in self.servers:
                server.launch()
            for server in self.servers:
                server.wait_ready()
        except BaseException:
            self.stop()
            raise

    def stop(self) -> None:
        """Stop the servers, Kafka first; those that do not end in time are killed."""
        for server in reversed(self.servers):
            server.stop()
        self._lock.release()

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.stop()

    def _ports(self, asked: dict[str, int]) -> dict[str, int]:
        """The ports asked for, else those of last time, else free ones; kept in the folder."""
        file = self.data_dir / "ports.json"
        try:
            kept: dict[str, int] = json.loads(file.read_text()) if file.exists() else {}
        except ValueError as error:
            raise StackError(
                f"{file} is damaged: delete it, the stack then chooses its ports anew"
            ) from error
        ports = {name: port or kept.get(name) or free_port() for name, port in asked.items()}
        if ports != kept:
            try:
                file.write_text(json.dumps(ports))
            except OSError as error:
                raise StackError(
                    f"{file} cannot be written ({error.strerror}): choose another --data-dir"
                ) from error
        return ports
