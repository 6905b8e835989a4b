"""A cluster to be attacked: its topics, and one real node of it that is watched."""

from __future__ import annotations

import json
import threading
import time
from collections import Counter
from pathlib import Path
from types import TracebackType
from typing import Final, Self

import psutil
from confluent_kafka.admin import AdminClient, NewTopic

from delayline.names import ClusterNames
from election.errors import Unavailable
from election.registry import Registry
from election.session import Session
from election.znodes import Znodes
from node.config import ConnectionConfig
from node.status import NodeState, NodeStatus
from ops.demo.processes import NodeOptions, NodeProcess
from ops.stack.ports import free_port
from ops.topics import cluster_topics
from tests.attack.ledger import Ledger
from tests.bad_input.row import LEVELS_MS, PARTITIONS, Names
from tests.bad_input.table import SMALL_BYTES, WIDE_BYTES
from tests.stacks import Stack
from tests.support.cluster import wait_led
from tests.support.waiting import PATIENCE_S, eventually

LIMIT_BYTES: Final = 512 * 2**20
_NODE: Final = "n1"
_SESSION_TIMEOUT_S: Final = 10.0
_LOOK_EVERY_S: Final = 0.1
_ASK_EVERY_S: Final = 1.0
_LONGEST_TOPIC: Final = 249


class Arena:
    """The cluster, with the settings and the targets of tests/bad_input. As a context manager it ends the
    node with the block; what was made on the stack stays there.
    """

    def __init__(self, stack: Stack, cluster: str, folder: Path) -> None:
        self.bootstrap = stack.bootstrap
        self.cluster = cluster
        self.names = ClusterNames(cluster)
        place = Names(cluster, cluster)
        config = ConnectionConfig(
            cluster=cluster, bootstrap_servers=stack.bootstrap, zookeeper=stack.zookeeper
        )
        known = place.settings
        chosen = {
            "partitions": PARTITIONS,
            "levels_ms": LEVELS_MS,
            "targets": known.targets,
            "max_delay_ms": known.max_delay_ms,
        }
        cluster_topics.create(config, chosen)
        self.targets = self._make_targets(place)
        self._session = Session(config.kazoo_options(), timeout_s=_SESSION_TIMEOUT_S)
        self._registry = Registry(self._session, Znodes(cluster))
        options = NodeOptions(stack.bootstrap, stack.zookeeper, _SESSION_TIMEOUT_S, cluster)
        self.node = NodeProcess(_NODE, folder, free_port(), options)

    def _make_targets(self, place: Names) -> list[str]:
        configs: dict[str, dict[str, str]] = {
            "orders": {},
            "small": {"max.message.bytes": str(SMALL_BYTES)},
            "wide": {"max.message.bytes": str(WIDE_BYTES)},
            "compacted": {"cleanup.policy": "compact"},
        }
        named = {f"{place.targets}.{short}": config for short, config in configs.items()}
        named[place.resolved(b"{%d}" % _LONGEST_TOPIC).decode()] = {}
        admin = AdminClient({"bootstrap.servers": self.bootstrap, "log_level": 0})
        new = [
            NewTopic(topic, PARTITIONS, 1, config={"message.timestamp.type": "LogAppendTime", **config})
            for topic, config in named.items()
        ]
        for made in admin.create_topics(new).values():
            made.result(PATIENCE_S)
        wait_led(admin, dict.fromkeys(named, PARTITIONS))
        return list(named)

    def status(self) -> NodeStatus | None:
        """What the node says of itself; None if it says nothing."""
        said = self._registry.members().get(_NODE)
        return None if said is None else NodeStatus.decode(said)

    def is_leader(self) -> bool:
        status = self.status()
        return status is not None and status.state == NodeState.LEADER

    def __enter__(self) -> Self:
        self._session.start()
        self._session.wait_connected(PATIENCE_S)
        self.node.start()
        eventually(self.is_leader, "the node is leader")
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.node.stop()
        self._session.stop()


class Watch:
    """Looks at the node all the while, on a thread of its own: it runs, is leader, stays small, and logs no
    error. Whatever it finds is a flaw of the ledger.
    """

    def __init__(self, arena: Arena, ledger: Ledger) -> None:
        self.peak_bytes = 0
        self.logged: Counter[str] = Counter()  # level and event of each line above information
        self.epochs: set[int] = set()
        self._arena = arena
        self._ledger = ledger
        self._log = arena.node.console
        self._read_to = 0
        self._found: set[str] = set()
        self._stopping = threading.Event()
        self._thread = threading.Thread(target=self._run, name="watch", daemon=True)

    def start(self) -> None:
        self._thread.start()

    def stop(self) -> None:
        """Looks a last time; returns when the thread has ended."""
        self._stopping.set()
        self._thread.join()

    def _run(self) -> None:
        try:
            asked_s = 0.0
            while not self._stopping.wait(_LOOK_EVERY_S):
                self._weigh()
                if time.monotonic() - asked_s > _ASK_EVERY_S:
                    asked_s = time.monotonic()
                    self._ask()
                    self._read_log()
            self._read_log()
        except Exception as error:
            self._ledger.flaw(f"the node cannot be watched any more: {error!r}")

    def _weigh(self) -> None:
        pid = self._arena.node.pid
        try:
            bytes_ = psutil.Process(pid).memory_info().rss if pid is not None else 0
        except psutil.NoSuchProcess:
            bytes_ = 0
        if bytes_ == 0:
            self._find("the node has ended")
        self.peak_bytes = max(self.peak_bytes, bytes_)
        if bytes_ > LIMIT_BYTES:
            self._find(f"the node holds more than {LIMIT_BYTES >> 20} MB")

    def _ask(self) -> None:
        try:
            status = self._arena.status()
        except Unavailable as error:
            self._find(f"ZooKeeper does not answer: {error}")
            return
        state = "not there" if status is None else status.state
        if status is None or status.state != NodeState.LEADER:
            self._find(f"the node is {state}: {status and status.reason}")
        else:
            self.epochs.add(status.epoch)

    def _read_log(self) -> None:
        with self._log.open("rb") as lines:
            lines.seek(self._read_to)
            whole = lines.read().rpartition(b"\n")[0]
        self._read_to += len(whole) + 1 if whole else 0
        for line in whole.splitlines():
            self._look_at(line)

    def _look_at(self, line: bytes) -> None:
        try:
            said = json.loads(line)
            level, event = str(said["level"]), str(said["event"])
        except (ValueError, KeyError, TypeError):
            self._find(f"the node says {line[:200]!r}")
            return
        if level != "info":
            self.logged[f"{level} {event}"] += 1
        if level in ("error", "critical"):
            self._find(f"the node logs {level} {event}: {line[:300]!r}")

    def _find(self, words: str) -> None:
        """Each thing once."""
        if words not in self._found:
            self._found.add(words)
            self._ledger.flaw(words)
