"""What is measured: delay clusters on a local stack, one for each scenario, and their nodes as processes."""

from __future__ import annotations

import itertools
import os
import shutil
import signal
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Final, NamedTuple

import psutil
import yaml
from confluent_kafka.admin import AdminClient, NewTopic  # type: ignore[attr-defined]  # missing from its __all__

from delayline.names import ClusterNames
from node.config import ConnectionConfig
from ops import topics
from ops.stack import LocalStack
from ops.stack.ports import HOST, accepts, free_port
from ops.stack.server import Server

TARGET_PARTITIONS: Final = 4
SESSION_TIMEOUT_S: Final = 20.0  # a node that is stopped for a while must not lose its place
POLL_S: Final = 0.02
PATIENCE_S: Final = 600.0


class Sample(NamedTuple):
    """How far a node had come at a moment (bench/sampled_node.py)."""

    at_ms: float
    ingested: int
    master: bool
    delivered_up_to_ms: int


class Spent(NamedTuple):
    """CPU seconds."""

    node_s: float
    broker_s: float


class BenchNode(Server):
    """One node of a cluster. `data / "store"` is its view."""

    def __init__(self, folder: Path, config: Mapping[str, object]) -> None:
        super().__init__("node", folder, free_port())
        self._config_file = folder / "node.yaml"
        self._samples_file = folder / "samples"
        self._settings = config

    def serves(self) -> bool:
        return accepts(self.port)

    def samples(self) -> list[Sample]:
        """All so far."""
        lines = (
            self._samples_file.read_text().splitlines(keepends=True) if self._samples_file.exists() else []
        )
        parts = (line.split() for line in lines if line.endswith("\n"))
        return [
            Sample(float(at), int(ingested), master == "1", int(up_to))
            for at, ingested, master, up_to in parts
        ]

    def wait(self, what: str, condition: Callable[[Sample], bool]) -> Sample:
        """The first sample for which the condition holds. Raises `TimeoutError`."""
        deadline_s = time.monotonic() + PATIENCE_S
        while time.monotonic() < deadline_s:
            for sample in self.samples():
                if condition(sample):
                    return sample
            time.sleep(10 * POLL_S)  # reading the samples takes its share of the two cores
        raise TimeoutError(f"{what}: not within {PATIENCE_S} s; log: {self.console}")

    def pause(self) -> None:
        """SIGSTOP."""
        os.kill(self._process_id(), signal.SIGSTOP)

    def resume(self) -> None:
        """SIGCONT."""
        os.kill(self._process_id(), signal.SIGCONT)

    def empty(self) -> None:
        """Removes its view, so that it rebuilds it from the log."""
        shutil.rmtree(self.data, ignore_errors=True)

    def peak_memory_mb(self) -> float:
        """The most memory that it has held since it started (Linux: VmHWM)."""
        status = Path(f"/proc/{self._process_id()}/status").read_text()
        line = next(line for line in status.splitlines() if line.startswith("VmHWM:"))
        return int(line.split()[1]) / 1024

    def cpu_s(self) -> float:
        return _cpu_s(self._process_id())

    def disk_bytes(self) -> int:
        """What its view takes on disk."""
        return sum(file.stat().st_size for file in (self.data / "view" / "store").iterdir())

    def _process_id(self) -> int:
        assert self.pid is not None, "it runs"
        return self.pid

    def _prepare(self) -> None:
        self._samples_file.unlink(missing_ok=True)
        ours = {"data_dir": str(self.data / "view"), "peer_host": HOST, "peer_port": self.port}
        self._config_file.write_text(yaml.safe_dump({**self._settings, **ours}))

    def _command(self) -> list[str]:
        return [sys.executable, "-m", "bench.sampled_node", str(self._config_file), str(self._samples_file)]


@dataclass(frozen=True, slots=True)
class Cluster:
    """A delay cluster with one node, which is not started yet."""

    stack: LocalStack
    names: ClusterNames
    target: str
    node: BenchNode

    @property
    def bootstrap(self) -> str:
        return self.stack.bootstrap

    def spent(self) -> Spent:
        """The CPU time that its node and the broker have taken so far."""
        assert self.stack.kafka.pid is not None, "it runs"
        return Spent(self.node.cpu_s(), _cpu_s(self.stack.kafka.pid))


class Clusters:
    """Makes clusters on one stack, each with topics and a folder of its own."""

    def __init__(self, stack: LocalStack, folder: Path) -> None:
        self._stack = stack
        self._folder = folder
        self._numbers = itertools.count(1)

    @property
    def stack(self) -> LocalStack:
        return self._stack

    def topic(self, purpose: str) -> str:
        """A fresh plain topic."""
        name = f"{purpose}-{next(self._numbers)}"
        self._make_topic(name)
        return name

    @contextmanager
    def cluster(self, purpose: str) -> Iterator[Cluster]:
        """A fresh one; its node is ended, and all its data removed, at the end."""
        name = f"{purpose}-{next(self._numbers)}"
        config = ConnectionConfig(
            cluster=name, bootstrap_servers=self._stack.bootstrap, zookeeper=self._stack.zookeeper
        )
        topics.create(config)
        self._make_topic(f"{name}.target")
        folder = self._folder / name
        folder.mkdir()
        settings = {
            "cluster": name,
            "bootstrap_servers": self._stack.bootstrap,
            "zookeeper": self._stack.zookeeper,
            "session_timeout_s": SESSION_TIMEOUT_S,
            "node_id": "n1",
        }
        node = BenchNode(folder, settings)
        names = ClusterNames(name)
        try:
            yield Cluster(self._stack, names, f"{name}.target", node)
        finally:
            node.stop()
            shutil.rmtree(folder, ignore_errors=True)
            self.remove([*names.own_topics, f"{name}.target"])

    def remove(self, names: list[str]) -> None:
        """Deletes topics: the disk is not the thing that is measured."""
        admin = AdminClient({"bootstrap.servers": self._stack.bootstrap})
        for removed in admin.delete_topics(names).values():
            removed.result()

    def _make_topic(self, name: str) -> None:
        admin = AdminClient({"bootstrap.servers": self._stack.bootstrap})
        for made in admin.create_topics([NewTopic(name, TARGET_PARTITIONS, 1)]).values():
            made.result()


def _cpu_s(pid: int) -> float:
    times = psutil.Process(pid).cpu_times()
    return times.user + times.system
