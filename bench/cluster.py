"""What is measured: delay clusters on a local stack, one for each scenario, and their nodes as processes."""

from __future__ import annotations

import itertools
import shutil
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Final, NamedTuple

from confluent_kafka.admin import AdminClient, NewTopic

from bench.loader import Load
from delayline.names import ClusterNames
from node.config import ConnectionConfig
from node.own_stores import store_folder
from node.status import NodeStatus
from ops.clients.zookeeper import registry
from ops.demo.processes import NodeOptions, NodeProcess
from ops.stack import LocalStack, StackError
from ops.stack.ports import free_port
from ops.stack.server import Server
from ops.topics import cluster_topics
from ops.topics.new_settings import with_defaults

TARGET_PARTITIONS: Final = 4
SESSION_TIMEOUT_S: Final = 20.0  # a node that is stopped for a while must not lose its candidacy
POLL_S: Final = 0.2  # a look takes its share of the two cores
PATIENCE_S: Final = 600.0
AHEAD_MS: Final = 5_000
QUIET: Final = {"log_level": "2"}  # what goes wrong is raised; the client need not print it as well
NO_MORE: Final[Mapping[str, Any]] = {}
APPLIED_IN_A_MS: Final = 80  # sent and applied, at the least


class Sample(NamedTuple):
    """How far a node had come at a moment, and the CPU time until then (bench/sampled_node.py)."""

    at_ms: float
    applied: int
    leader: bool
    delivered_up_to_ms: int
    peak_bytes: int
    node_cpu_us: int
    broker_cpu_us: int


class BenchNode(NodeProcess):
    """A node of a cluster, that writes down how far it has come."""

    def __init__(self, folder: Path, options: NodeOptions, broker: Server, name: str = "n1") -> None:
        super().__init__(name, folder, free_port(), options)
        self._folder = folder
        self._broker = broker
        self._samples: list[Sample] = []
        self._read_to = 0

    def wait(self, what: str, condition: Callable[[Sample], bool]) -> Sample:
        """The first sample since its start for which the condition holds. Raises `TimeoutError`, `StackError`
        if it has ended.
        """
        deadline_s = time.monotonic() + PATIENCE_S
        looked_at = 0
        while time.monotonic() < deadline_s:
            self._read_samples()
            for sample in self._samples[looked_at:]:
                if condition(sample):
                    return sample
            looked_at = len(self._samples)
            if not self.running:
                raise StackError(f"{what}: the node has ended: {self._last_words()}")
            time.sleep(POLL_S)
        raise TimeoutError(f"{what}: not within {PATIENCE_S:.0f} s; the node: {self._last_words()}")

    def before(self, sample: Sample) -> Sample:
        """The one before: what that one shows for the first time has happened since."""
        return self._samples[max(0, self._samples.index(sample) - 1)]

    def lead(self) -> None:
        """Starts it and waits until it is leader."""
        self.start()
        self.wait("leader", lambda sample: sample.leader)

    def beside(self, name: str) -> BenchNode:
        """Another node of the same cluster, which is not started yet. Whoever starts it ends it."""
        return BenchNode(self._folder, self._options, self._broker, name)

    def of_lane(self, lane: int) -> BenchNode:
        """A node of another lane of the same cluster, which is not started yet. Whoever starts it ends it."""
        options = replace(self._options, more={**self._options.more, "lane": lane})
        return BenchNode(self._folder, options, self._broker, f"{self.name}-{lane}")

    def newest(self) -> Sample:
        """The last sample so far; there is one."""
        self._read_samples()
        return self._samples[-1]

    def peak_memory_mb(self) -> float:
        """The most memory that it has held since it started, as it last said."""
        return self.newest().peak_bytes / 2**20

    def disk_bytes(self) -> int:
        """What its view takes on disk."""
        return sum(file.stat().st_size for file in store_folder(self.data).iterdir())

    def _read_samples(self) -> None:
        if not self._samples_file.exists():
            return
        with self._samples_file.open() as lines:
            lines.seek(self._read_to)
            whole = lines.read().rpartition("\n")[0]
        self._read_to += len(whole) + 1 if whole else 0
        for line in whole.splitlines():
            at_ms, *counts = line.split()
            applied, leader, *others = map(int, counts)
            self._samples.append(Sample(float(at_ms), applied, leader == 1, *others))

    def _prepare(self) -> None:
        super()._prepare()
        self._samples_file.unlink(missing_ok=True)
        self._samples, self._read_to = [], 0

    def _command(self) -> list[str]:
        files = [str(self._config), str(self._samples_file)]
        return [sys.executable, "-m", "bench.sampled_node", *files, str(self._broker.pid)]

    @property
    def _samples_file(self) -> Path:
        return self.data / "samples"


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

    def load(self, count: int, **how: Any) -> Load:
        """Requests for its target; `how` are further fields of `Load`."""
        return Load(self.bootstrap, self.names.buffer, self.target, count, **how)

    def load_ahead(self, count: int, span_ms: int) -> Load:
        """Sends messages that fall due within `span_ms`, the first once all are applied; the load says when.
        Raises `TimeoutError` if the node was too slow.
        """
        due_ms = int(time.time() * 1000) + AHEAD_MS + count // APPLIED_IN_A_MS
        load = self.load(count, first_due_ms=due_ms, span_ms=span_ms)
        load.send()
        self.node.wait("all applied", lambda sample: sample.applied == count)
        if time.time() * 1000 > due_ms:
            raise TimeoutError(f"{count} messages were not applied before the first was due")
        return load

    def node_address(self) -> tuple[str, int]:
        """The host and port at which its node answers over HTTP. Raises `TimeoutError`."""
        config = ConnectionConfig(
            cluster=self.names.cluster,
            bootstrap_servers=self.bootstrap,
            zookeeper=self.stack.zookeeper,
        )
        deadline_s = time.monotonic() + PATIENCE_S
        while time.monotonic() < deadline_s:
            with registry(config) as znodes:
                said = znodes.members().get(self.node.name)
            if said is not None:
                member = NodeStatus.decode(said)
                return member.http_host, member.http_port
            time.sleep(POLL_S)
        raise TimeoutError(f"the node has not shown itself within {PATIENCE_S:.0f} s")


class Clusters:
    """Makes clusters on one stack, each with topics and a folder of its own."""

    def __init__(self, stack: LocalStack, folder: Path) -> None:
        self._stack = stack
        self._folder = folder
        self._numbers = itertools.count(1)
        self._admin = AdminClient({"bootstrap.servers": stack.bootstrap, **QUIET})

    @property
    def stack(self) -> LocalStack:
        return self._stack

    def topic(self, purpose: str) -> str:
        """A fresh plain topic."""
        name = f"{purpose}-{next(self._numbers)}"
        self.make_topic(name)
        return name

    @contextmanager
    def topics(self, purpose: str, count: int) -> Iterator[list[str]]:
        """Fresh topics of one partition each, deleted at the end.

        One reader reads them all, and its fetch is looked at anew for each partition that is written to: with
        several partitions each, the broker would be busy with that alone.
        """
        names = [f"{purpose}-{next(self._numbers)}" for _ in range(count)]
        for name in names:
            self.make_topic(name, partitions=1)
        try:
            yield names
        finally:
            self.remove(names)

    @contextmanager
    def folder(self, purpose: str) -> Iterator[Path]:
        """A fresh folder, removed at the end."""
        folder = self._folder / f"{purpose}-{next(self._numbers)}"
        folder.mkdir()
        try:
            yield folder
        finally:
            shutil.rmtree(folder, ignore_errors=True)

    @contextmanager
    def cluster(self, purpose: str, node: Mapping[str, Any] = NO_MORE, **settings: Any) -> Iterator[Cluster]:
        """A fresh one, with the defaults but for some settings, and some of its node's; that is ended, and
        all data removed, at the end.
        """
        name = f"{purpose}-{next(self._numbers)}"
        config = ConnectionConfig(
            cluster=name,
            bootstrap_servers=self._stack.bootstrap,
            zookeeper=self._stack.zookeeper,
            kafka=QUIET,
        )
        with registry(config) as znodes:  # the command makes none with so short a retention
            znodes.create_settings(with_defaults(name, **settings))
        cluster_topics.create(config)
        self.make_topic(f"{name}.target")
        folder = self._folder / name
        folder.mkdir()
        options = NodeOptions(self._stack.bootstrap, self._stack.zookeeper, SESSION_TIMEOUT_S, name, node)
        measured, names = BenchNode(folder, options, self._stack.kafka), ClusterNames(name)
        try:
            yield Cluster(self._stack, names, f"{name}.target", measured)
        finally:
            measured.stop()
            shutil.rmtree(folder, ignore_errors=True)
            self.remove([*names.own_topics, f"{name}.target"])

    def remove(self, names: list[str]) -> None:
        """Deletes topics: the disk is not the thing that is measured."""
        for removed in self._admin.delete_topics(names).values():
            removed.result()

    def make_topic(self, name: str, partitions: int = TARGET_PARTITIONS) -> None:
        """A plain topic of this name."""
        for made in self._admin.create_topics([NewTopic(name, partitions, 1)]).values():
            made.result()
