"""A delay cluster of one test's own: topics, nodes, and what its znodes and topics say."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from functools import partial
from pathlib import Path
from typing import Any

from confluent_kafka import Producer
from confluent_kafka.admin import (
    AclBinding,
    AclOperation,
    AclPermissionType,
    AdminClient,
    NewPartitions,
    NewTopic,
    ResourcePatternType,
    ResourceType,
)
from kazoo.client import KazooClient
from kazoo.exceptions import NoNodeError

from delayline.headers import H_SIGNATURE
from delayline.names import ClusterNames
from delayline.settings import SETTINGS
from delayline.signing import Keyring
from election.candidates import Candidate, in_order
from election.operators import Author
from election.znodes import Znodes
from node.config import ConnectionConfig, NodeConfig
from node.node import Node
from node.status import NodeState
from ops.clients.zookeeper import read_keys, registry
from ops.stack.ports import HOST, free_port
from ops.topics import cluster_topics
from ops.topics.new_settings import with_defaults
from store.checkpoint import Checkpoint
from tests.stacks import Stack
from tests.support.closing import Closing
from tests.support.hurry import hurry
from tests.support.process import NodeProcess, RunningNode
from tests.support.released import Release
from tests.support.tail import Got, Tail
from tests.support.waiting import PATIENCE_S, becomes, eventually

SESSION_TIMEOUT_S = 2.0
# On a busy machine a node may stand still for a moment, and nothing is to follow from it.
NEVER_SILENT_MS = 60_000
TARGET = "target"

TopicConfig = Mapping[str, str]


def is_there(admin: AdminClient, topic: str) -> bool:
    """Whether the brokers show it."""
    return admin.list_topics(topic, timeout=PATIENCE_S).topics[topic].error is None


def wait_led(admin: AdminClient, partitions: Mapping[str, int]) -> None:
    """Waits until brokers show topics that were made, with a leader of each partition: that they are made is
    the controller's word. `partitions`: how many each topic has, by name.
    """

    def led(topic: str) -> int:
        there = admin.list_topics(topic, timeout=PATIENCE_S).topics[topic]
        return sum(one.leader >= 0 for one in there.partitions.values())

    for topic, count in partitions.items():
        becomes(partial(led, topic), count)


class Cluster(Closing):
    """Makes the cluster's topics, and its targets (by their short names, see `target`). It carries nothing,
    unless a `retention_ms` is given.

    The targets have LogAppendTime: the brokers' word on when a message arrived. What was started is ended by
    `close`; as a context manager it closes at the end.
    """

    def __init__(
        self,
        stack: Stack,
        name: str,
        folder: Path,
        *,
        targets: Mapping[str, TopicConfig] | Iterable[str] = (TARGET,),
        allow_list: tuple[str, ...] = (),
        **settings: Any,
    ) -> None:
        self.name = name
        self.names = ClusterNames(name)
        self.bootstrap = stack.bootstrap
        self.zookeeper = stack.zookeeper
        self.folder = folder
        self.connection = ConnectionConfig(
            cluster=name, bootstrap_servers=stack.bootstrap, zookeeper=stack.zookeeper
        )
        self.admin = AdminClient({"bootstrap.servers": stack.bootstrap, "log_level": 0})
        self._processes: list[RunningNode] = []
        self._nodes: list[Node] = []
        self._kazoo: KazooClient | None = None
        self._checkpoint_tail: Tail | None = None
        self._ports: dict[str, int] = {}
        chosen = {"partitions": 2, "targets": allow_list, "retention_ms": None, **settings}
        with registry(self.connection) as znodes:  # the command makes none with so short a retention
            znodes.create_settings(with_defaults(name, **chosen))
        self.settings = cluster_topics.create(self.connection).settings
        configs = targets if isinstance(targets, Mapping) else {target: {} for target in targets}
        self.targets = [self.target(short) for short in configs]
        self.make_topics({self.target(short): config for short, config in configs.items()})
        self.make_topics({self.sentinels: {}})
        own = [self.names.outcomes, self.names.dead_letter, self.sentinels]
        self.tail = Tail(stack.bootstrap, [*self.targets, *own])

    @property
    def sentinels(self) -> str:
        """A target for messages that tell when all before them is committed; none of `targets`."""
        return self.target("sentinels")

    def target(self, short: str = TARGET) -> str:
        """The name of a target topic of this cluster's own."""
        return f"{self.name}.{short}"

    # -- topics

    def make_topics(self, configs: Mapping[str, TopicConfig], partitions: int = 2) -> None:
        """Makes topics, with LogAppendTime."""
        new = [
            NewTopic(topic, partitions, 1, config={"message.timestamp.type": "LogAppendTime", **config})
            for topic, config in configs.items()
        ]
        for made in (self.admin.create_topics(new) if new else {}).values():
            made.result(PATIENCE_S)
        wait_led(self.admin, dict.fromkeys(configs, partitions))

    def widen_buffer(self, partitions: int) -> None:
        """Gives the buffer this many partitions, as somebody may do by hand."""
        wider = NewPartitions(self.names.buffer, partitions)
        self.admin.create_partitions([wider])[self.names.buffer].result(PATIENCE_S)
        wait_led(self.admin, {self.names.buffer: partitions})

    def delete_topic(self, topic: str) -> None:
        """Deletes it; returns when the brokers no longer show it. The tail keeps what it has read of it, and
        reads no other of this name.
        """
        if topic == self.names.checkpoint:
            self._forget_checkpoint_topic()
        if topic in self.tail.records:
            self.tail.leave(topic)
        self.admin.delete_topics([topic])[topic].result(PATIENCE_S)
        eventually(lambda: not is_there(self.admin, topic), f"{topic} is gone")

    def delete_topics(self) -> None:
        """Deletes all of them: with each thousand that it has a broker takes longer to make the next one."""
        there = self.admin.list_topics(timeout=PATIENCE_S).topics
        ours = [topic for topic in there if topic.startswith(f"{self.name}.")]
        for deleted in (self.admin.delete_topics(ours) if ours else {}).values():
            deleted.result(PATIENCE_S)

    def allow_only(self, topic: str, *operations: AclOperation) -> None:
        """Once there is an ACL for a topic, what none allows is forbidden."""
        allowed = [
            AclBinding(
                ResourceType.TOPIC,
                topic,
                ResourcePatternType.LITERAL,
                "User:ANONYMOUS",
                "*",
                operation,
                AclPermissionType.ALLOW,
            )
            for operation in operations
        ]
        for future in self.admin.create_acls(allowed).values():
            future.result()

    def create_again(self) -> None:
        """What `delayline topics create` does in a cluster that exists."""
        cluster_topics.create(self.connection)

    def restore_settings(self) -> None:
        """What the command does that a node with a store names, once ZooKeeper has lost the settings."""
        chosen = {name: getattr(self.settings, name) for name in SETTINGS if name != "cluster"}
        cluster_topics.create(self.connection, chosen, restore=Author("somebody", "they were lost", 1))

    @property
    def delivered(self) -> list[Got]:
        """What the tail has read from all targets."""
        return [got for target in self.targets for got in self.tail.records[target]]

    def delivered_to(self, short: str) -> list[Got]:
        return self.tail.records[self.target(short)]

    @property
    def dead_letters(self) -> list[Got]:
        return self.tail.records[self.names.dead_letter]

    @property
    def outcomes(self) -> list[dict[str, Any]]:
        """The outcomes read so far, each with the request that it is keyed by."""
        return [
            {"request": (got.key or b"").decode(), **json.loads(got.value or b"")}
            for got in self.tail.records[self.names.outcomes]
        ]

    def wait_delivered(self, count: int, timeout_s: float = PATIENCE_S) -> list[Got]:
        """Reads on until so many messages have reached the targets."""
        self.tail.wait(lambda: len(self.delivered) >= count, f"{count} messages are delivered", timeout_s)
        return self.delivered

    def checkpoints(self, lane: int = 0) -> list[Checkpoint]:
        """The lane's committed checkpoints, in order."""
        topic = self.names.checkpoint
        if self._checkpoint_tail is None:
            self._checkpoint_tail = Tail(self.bootstrap, [topic])
        self._checkpoint_tail.catch_up()
        found = self._checkpoint_tail.records[topic]
        return [Checkpoint.decode(got.value or b"") for got in found if got.partition == lane]

    @property
    def keys(self) -> Keyring:
        """What the cluster signs with."""
        return read_keys(self.connection)

    def append_checkpoint(self, raw: bytes, *, signed: bool = True) -> None:
        """Writes what no node would."""
        producer = Producer({"bootstrap.servers": self.bootstrap})
        headers: Any = []
        if signed:
            signature = self.keys.sign_checkpoint(self.names.checkpoint, 0, b"0", raw)
            headers = [(H_SIGNATURE, signature)]
        producer.produce(self.names.checkpoint, raw, b"0", 0, headers=headers)
        assert producer.flush(PATIENCE_S) == 0

    def _forget_checkpoint_topic(self) -> None:
        tail, self._checkpoint_tail = self._checkpoint_tail, None
        if tail is not None:
            tail.close()

    def wait_epoch(self, epoch: int, lane: int = 0) -> Checkpoint:
        """Waits for the first checkpoint of an epoch (or of a later one)."""

        def first() -> Checkpoint | None:
            found = [checkpoint for checkpoint in self.checkpoints(lane) if checkpoint.epoch >= epoch]
            return found[0] if found else None

        found = eventually(first, f"lane {lane} has an epoch {epoch}")
        assert found is not None, "eventually returns what is true"
        return found

    def leaderships(self, lane: int = 0) -> list[Checkpoint]:
        """The first checkpoint of each: epochs of one node that follow one another are one leadership. A node
        begins another one whenever a commit was slow.
        """
        found: list[Checkpoint] = []
        for checkpoint in self.checkpoints(lane):
            if not found or found[-1].node != checkpoint.node:
                found.append(checkpoint)
        return found

    def wait_leadership(self, number: int, lane: int = 0) -> Checkpoint:
        """Waits for the first checkpoint of the lane's first, second, ... leadership."""
        found = eventually(
            lambda: self.leaderships(lane)[number - 1 :], f"lane {lane} has had {number} leaderships"
        )
        return found[0]

    # -- znodes

    @property
    def kazoo(self) -> KazooClient:
        """An operator's ZooKeeper client. Its session outlives a ZooKeeper that stands still for a while."""
        if self._kazoo is None:
            # It soon finds a ZooKeeper that comes back.
            retry = {"max_tries": -1, "max_delay": 0.1}
            self._kazoo = KazooClient(hosts=self.zookeeper, timeout=PATIENCE_S, connection_retry=retry)
            self._kazoo.start(timeout=PATIENCE_S)
        return self._kazoo

    @property
    def znodes(self) -> Znodes:
        return Znodes(self.name)

    def mirrored(self, lane: int = 0) -> Checkpoint:
        """The checkpoint in the lane's znode, once there is one."""
        eventually(lambda: self.kazoo.exists(self.znodes.checkpoint(lane)), "it is mirrored")
        return Checkpoint.decode(self.kazoo.get(self.znodes.checkpoint(lane))[0])

    def candidates(self, lane: int = 0) -> list[str]:
        """The lane's candidates by node id, the leader first."""
        path = self.znodes.candidates(lane)
        try:
            names = in_order(self.kazoo.get_children(path))
            return [Candidate.decode(self.kazoo.get(f"{path}/{name}")[0]).node for name in names]
        except NoNodeError:
            return []  # none yet, or one has gone since

    def wait_candidates(self, count: int, lane: int = 0) -> list[str]:
        """Waits until so many nodes have caught up and stand."""
        return (
            eventually(
                lambda: len(found := self.candidates(lane)) == count and found, f"{count} candidates stand"
            )
            or []
        )

    def member(self, node_id: str) -> dict[str, Any]:
        """What a node says of itself; empty if it says nothing."""
        try:
            said: dict[str, Any] = json.loads(self.kazoo.get(self.znodes.member(node_id))[0])
        except NoNodeError:
            return {}
        return said

    def wait_state(self, node_id: str, state: NodeState) -> dict[str, Any]:
        """Waits until a node says that it is in this state; all that it says then."""
        said: dict[str, Any] = {}

        def is_there() -> bool:
            nonlocal said
            said = self.member(node_id)
            return said.get("state") == state

        eventually(is_there, f"{node_id} is {state}")
        return said

    # -- nodes

    def node_config(self, node_id: str, lane: int = 0, **fields: Any) -> NodeConfig:
        """A node's configuration; its folder and its port are the same after a restart."""
        return NodeConfig(
            **{
                "cluster": self.name,
                "bootstrap_servers": self.bootstrap,
                "zookeeper": self.zookeeper,
                "node_id": node_id,
                "lane": lane,
                "data_dir": self.data_dir(node_id),
                "peer_host": HOST,
                "peer_port": self._ports.setdefault(node_id, free_port()),
                "session_timeout_s": SESSION_TIMEOUT_S,
                "peer_silence_ms": NEVER_SILENT_MS,
                **fields,
            }
        )

    def data_dir(self, node_id: str) -> Path:
        return self.folder / node_id

    def start(
        self,
        node_id: str,
        *,
        lane: int = 0,
        step: str | None = None,
        signal_name: str = "SIGKILL",
        delay_s: float = 0.0,
        acknowledged: bool = False,
        carried: int = 0,
        clock_offset_ms: int = 0,
        brokers_too: bool = False,
        prefers_after_s: float = 0.0,
        cannot_lead: bool = False,
        **fields: Any,
    ) -> NodeProcess:
        """Starts a node as a process, without waiting for anything. See tests/support/killable_node.py."""
        process = NodeProcess(
            self.node_config(node_id, lane, **fields),
            self.folder / f"{node_id}.log",
            step=step,
            signal_name=signal_name,
            delay_s=delay_s,
            acknowledged=acknowledged,
            carried=carried,
            clock_offset_ms=clock_offset_ms,
            brokers_too=brokers_too,
            prefers_after_s=prefers_after_s,
            cannot_lead=cannot_lead,
        )
        self._processes.append(process)
        return process

    def start_released(self, release: Release, node_id: str, *, lane: int = 0) -> RunningNode:
        """Starts a node of an earlier release, without waiting for anything."""
        config, log_file = self.node_config(node_id, lane), self.folder / f"{node_id}.log"
        process = RunningNode(config, log_file, release.start_node(config, log_file))
        self._processes.append(process)
        return process

    def start_here(self, node_id: str, *, lane: int = 0, **fields: Any) -> Node:
        """Starts a node on threads of this process."""
        hurry()
        node = Node(self.node_config(node_id, lane, **fields))
        self._nodes.append(node)
        node.start()
        return node

    def process(self, node_id: str) -> RunningNode:
        """The last process started for a node."""
        return next(process for process in reversed(self._processes) if process.node_id == node_id)

    def leader(self, lane: int = 0) -> RunningNode:
        """The process of the lane's first candidate."""
        return self.process(self.candidates(lane)[0])

    # -- end

    def stop_here(self, node: Node) -> None:
        """Ends a node of this process."""
        self._nodes.remove(node)
        node.stop()
        node.join()

    def close(self) -> None:
        for process in self._processes:
            process.close()
        for node in self._nodes:
            node.stop()
        for node in self._nodes:
            node.join()
        self.tail.close()
        self._forget_checkpoint_topic()
        if self._kazoo is not None:
            self._kazoo.stop()
            self._kazoo.close()
