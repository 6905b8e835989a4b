"""What the ways to start wrong meet: ports that answer wrongly, folders, clusters, one node that is as it
must be; and the words by which the page calls them.
"""

from __future__ import annotations

import json
import re
import socket
import uuid
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, replace
from pathlib import Path

import msgspec
from confluent_kafka.admin import (
    AdminClient,
    NewTopic,
)
from filelock import FileLock
from kazoo.client import KazooClient

from delayline.names import ClusterNames
from delayline.settings import ClusterSettings
from election.znodes import Znodes
from node.config import ConnectionConfig, NodeConfig, ZookeeperAuth
from node.kafka.topics import describe
from node.node import Node
from node.own_stores import store_folder
from ops.clients.zookeeper import registry
from ops.setup.cache import cache_folder
from ops.stack.ports import HOST, free_port
from ops.topics import cluster_topics
from store.identity import FORMAT, Identity, write
from store.rocks import RocksStore
from tests.stacks import Stack
from tests.support.cluster import wait_led
from tests.support.sasl import SaslKafka
from tests.support.strangers import http_stranger
from tests.support.waiting import PATIENCE_S, eventually


@dataclass(frozen=True, slots=True)
class Ground:
    """`words`: what rows call by name; `spoken`: what stands on a screen, and what the page says for it."""

    words: dict[str, str]
    spoken: dict[str, str]
    folder: Path

    def plain(self, text: str) -> str:
        """A screen's text without what differs from run to run."""
        for said, word in self.spoken.items():
            text = text.replace(said, word)
        for pattern, word in _VARIES:
            text = re.sub(pattern, word, text)
        return text


_VARIES = (
    (r"(?:\[Errno -\d+\] )?Name or service not known", "unknown name"),
    (r"(?:\[Errno -\d+\] )?Temporary failure in name resolution", "unknown name"),
    # A listener that waits for SASL may close the connection, or not, before the client has given up.
    (r"secured:9093/bootstrap: (?:Send|Receive|Disconnected)[^;]*", "no broker answers there in time"),
    (r"(?:SSL handshake failed: )?Disconnected: [^;]*", "SSL handshake failed"),  # in words that change
    (r" \(_ssl\.c:\d+\)", ""),
    (r"peer port \d+", "peer port 17400"),
    (r"HTTP port \d+", "HTTP port 17500"),
    (r"process \d+", "process 4242"),
    (r"told of itself \d+ s ago", "told of itself 0 s ago"),
    (r"/dir/\d+\.yaml", "/dir/node.yaml"),
    (r"/dir/n\d+\b", "/dir/n1"),
    (r"~[0-9a-f]{8}", "~RUN"),
    (r"topic id \S+", "topic id ID"),
)


@contextmanager
def prepared(stack: Stack, folder: Path) -> Iterator[Ground]:
    """All of it, until the end of the block."""
    name = f"t-wrong-{uuid.uuid4().hex[:8]}"
    connection = ConnectionConfig(cluster=name, bootstrap_servers=stack.bootstrap, zookeeper=stack.zookeeper)
    with ExitStack() as ends:
        broker = SaslKafka(folder / "sasl", {"delay": "right"})
        ends.callback(broker.stop)
        broker.launch()
        silent, http_port = ends.enter_context(_silent_port()), ends.enter_context(http_stranger())
        _make_clusters(connection)
        ends.enter_context(_folders(folder, connection, silent))
        words = {
            "kafka": stack.bootstrap,
            "zookeeper": stack.zookeeper,
            "silent": f"{HOST}:{silent}",
            "silent_port": str(silent),
            "http": f"{HOST}:{http_port}",
            "sasl": broker.sasl_address,
            "cluster": name,
            "dir": str(folder),
            "javas": str(_javas(folder)),
            "cache": str(cache_folder()),
        }
        spoken = {
            words["kafka"]: "kafka:9092",
            words["zookeeper"]: "zookeeper:2181",
            words["silent"]: "silent:1234",
            str(silent): "1234",
            words["http"]: "web:80",
            words["sasl"]: "secured:9093",
            name: "delay",
            words["dir"]: "/dir",
        }
        ends.enter_context(_first_node(connection, folder))
        ends.enter_context(_half_dead(connection, silent))
        broker.wait_ready()
        yield Ground(words, spoken, folder)


@contextmanager
def _first_node(connection: ConnectionConfig, folder: Path) -> Iterator[None]:
    """The one whose name another takes."""
    config = NodeConfig(
        **connection.model_dump(exclude_none=True),
        node_id="first",
        data_dir=folder / "first",
        peer_host=HOST,
        peer_port=free_port(),
    )
    node = Node(config)
    node.start()
    with registry(connection) as znodes:
        eventually(lambda: "first" in znodes.members(), "the first node is there")
    yield
    node.stop()
    node.join()


@contextmanager
def _half_dead(connection: ConnectionConfig, silent_port: int) -> Iterator[None]:
    """A node of a cluster of its own: its znode is there, its port takes questions and answers none."""
    name = f"{connection.cluster}-half"
    said = {"node": "half", "lane": 0, "state": "follower", "http_host": HOST, "http_port": silent_port}
    with registry(connection.model_copy(update={"cluster": name})) as znodes:
        znodes.create_settings(ClusterSettings(name))
        znodes.publish_member("half", json.dumps(said).encode())
        yield


@contextmanager
def _silent_port() -> Iterator[int]:
    """Accepts, by its backlog, and says nothing."""
    with socket.create_server((HOST, free_port()), backlog=100) as server:
        yield server.getsockname()[1]


def _make_clusters(connection: ConnectionConfig) -> None:
    def named(suffix: str, **more: object) -> ConnectionConfig:
        return connection.model_copy(update={"cluster": f"{connection.cluster}-{suffix}", **more})

    admin = AdminClient({"bootstrap.servers": connection.bootstrap_servers, "log_level": 0})
    cluster_topics.create(connection, {"partitions": 2})
    auth = ZookeeperAuth.model_validate({"scheme": "digest", "credential": "u:p"})
    with registry(named("guarded", zookeeper_auth=auth)) as znodes:
        znodes.create_settings(ClusterSettings(f"{connection.cluster}-guarded"))
    with registry(named("bare")) as znodes:
        znodes.create_settings(ClusterSettings(f"{connection.cluster}-bare"))
    with registry(named("wider")) as znodes:
        znodes.create_settings(ClusterSettings(f"{connection.cluster}-wider", partitions=4))
    buffers = [ClusterNames(named(suffix).cluster).buffer for suffix in ("wide", "wider")]
    for made in admin.create_topics([NewTopic(buffer, 3, 1) for buffer in buffers]).values():
        made.result(PATIENCE_S)
    wait_led(admin, dict.fromkeys(buffers, 3))
    kazoo = KazooClient(connection.zookeeper)
    kazoo.start()
    newer = json.loads(ClusterSettings(f"{connection.cluster}-newer").to_json()) | {"format_version": 99}
    kazoo.create(Znodes(newer["cluster"]).settings, json.dumps(newer).encode(), makepath=True)
    kazoo.stop()
    kazoo.close()


def _javas(folder: Path) -> Path:
    """A folder of PATHs, each with a Java of its version or none; none is looked for elsewhere."""
    javas = folder / "javas"
    for version in ("none", "broken", "11.0.2", "25.0.1"):
        (javas / version).mkdir(parents=True)
        if version != "none":
            program = javas / version / "java"
            says = "exit 1" if version == "broken" else f"echo 'openjdk version \"{version}\"' >&2"
            program.write_text(f"#!/bin/sh\n{says}\n")
            program.chmod(0o755)
    (javas / "sitecustomize.py").write_text("from ops.setup import java\n\njava._FOLDERS = ()\n")
    return javas


@contextmanager
def _folders(folder: Path, connection: ConnectionConfig, silent_port: int) -> Iterator[None]:
    (folder / "file").touch()
    (folder / "secret.yaml").touch(mode=0)
    (folder / "sealed").mkdir(mode=0o555)
    store_folder(folder / "full").mkdir(parents=True)
    for number in range(20):  # one of them is the first file that RocksDB makes
        (store_folder(folder / "full") / f"{number:06d}.dbtmp").symlink_to("/dev/full")
    for name, ports in (("damaged", "{"), ("taken", json.dumps({"zookeeper": silent_port}))):
        (folder / name).mkdir()
        (folder / name / "ports.json").write_text(ports)
    buffer = describe(
        AdminClient({"bootstrap.servers": connection.bootstrap_servers}),
        ClusterNames(connection.cluster).buffer,
    )
    settings = ClusterSettings(connection.cluster, partitions=2)
    ours = Identity(FORMAT, connection.cluster, 0, buffer.id, settings.to_json())
    other_settings = replace(settings, max_delay_ms=86_400_000).to_json()
    for name, changed in (
        ("other-cluster", {"cluster": "other"}),
        ("other-lane", {"lane": 1}),
        ("other-settings", {"settings": other_settings}),
    ):
        store = RocksStore(store_folder(folder / name))
        write(store, msgspec.structs.replace(ours, **changed))
        store.close()
    (folder / "used").mkdir()
    held = RocksStore(store_folder(folder / "open"))
    with FileLock(folder / "used" / "stack.lock"):
        yield
    held.close()
