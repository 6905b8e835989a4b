"""Kafka over SASL and TLS, where nobody may do anything but what docs/operations.md says is needed."""

from __future__ import annotations

import argparse
import json
import re
import shlex
import subprocess
import sys
import uuid
from collections.abc import Iterator, Sequence
from contextlib import closing
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import msgspec
import pytest
import yaml
from confluent_kafka.admin import (
    AclBinding,
    AclBindingFilter,
    AclOperation,
    AclPermissionType,
    AdminClient,
    NewTopic,
    ResourcePatternType,
    ResourceType,
)
from kazoo.client import KazooClient
from pyspark.sql import SparkSession

from delayline import DelayProducer
from delayline.names import ClusterNames
from node.config import ConnectionConfig, NodeConfig
from node.node import Node
from node.status import NodeState
from ops.checkpoint import export
from ops.cli.main import run
from ops.config import load
from ops.forecast.rooms import Rooms, rooms
from ops.stack.ports import HOST, free_port
from ops.topics import cluster_topics
from tests.logging_state import restored_logging
from tests.stacks import Stack
from tests.support.certificates import self_signed
from tests.support.checkpoints import sample_checkpoint
from tests.support.hurry import hurry
from tests.support.sasl import ClosedKafka
from tests.support.tail import Tail
from tests.support.waiting import PATIENCE_S, becomes, eventually

PAGE = Path(__file__).parents[2] / "docs" / "operations.md"
NAMES = ClusterNames()
TARGET = "orders.timeout"
USERS = ("app", "delayline", "operator")


@dataclass(frozen=True)
class Right:
    """One line of the page: what one user may do with one resource."""

    user: str
    operations: Sequence[AclOperation]
    resource: ResourceType
    name: str
    pattern: ResourcePatternType

    def bindings(self) -> list[AclBinding]:
        return [
            AclBinding(self.resource, self.name, self.pattern, self.user, "*", one, AclPermissionType.ALLOW)
            for one in self.operations
        ]

    def filters(self) -> list[AclBindingFilter]:
        return [
            AclBindingFilter(
                self.resource, self.name, self.pattern, self.user, "*", one, AclPermissionType.ALLOW
            )
            for one in self.operations
        ]


def rights_on_the_page() -> list[Right]:
    lines = re.findall(r"`(--allow-principal [^`]+)`", PAGE.read_text())
    parser = argparse.ArgumentParser()
    parser.add_argument("--allow-principal", required=True)
    parser.add_argument("--operation", action="append", required=True)
    resource = parser.add_mutually_exclusive_group(required=True)
    resource.add_argument("--topic")
    resource.add_argument("--transactional-id")
    resource.add_argument("--cluster", action="store_true")
    parser.add_argument("--resource-pattern-type", default="literal")
    return [_right(parser.parse_args(shlex.split(line))) for line in lines]


def _right(given: argparse.Namespace) -> Right:
    if given.cluster:
        resource, name = ResourceType.BROKER, "kafka-cluster"  # as Kafka's own tool calls it
    elif given.topic:
        resource, name = ResourceType.TOPIC, given.topic
    else:
        resource, name = ResourceType.TRANSACTIONAL_ID, given.transactional_id
    return Right(
        given.allow_principal,
        [AclOperation[re.sub("(?<!^)(?=[A-Z])", "_", one).upper()] for one in given.operation],
        resource,
        name,
        ResourcePatternType[given.resource_pattern_type.upper()],
    )


@dataclass
class Closed:
    """A cluster on a closed broker. `said`: what its node said while it lacked the right to its transactional
    ids.
    """

    broker: ClosedKafka
    zookeeper: str
    folder: Path
    rights: list[Right]
    said: Any = None
    admin: AdminClient = field(init=False)

    def __post_init__(self) -> None:
        self.admin = AdminClient({"bootstrap.servers": self.broker.address, "log_level": 0})

    @property
    def app(self) -> dict[str, str]:
        """The configuration of a producer of the application's."""
        return {"bootstrap.servers": self.broker.sasl_address, **self.broker.client("app")}

    def allow(self, *rights: Right) -> None:
        wanted = {one for right in rights for one in right.bindings()}
        for made in self.admin.create_acls(list(wanted)).values():
            made.result(PATIENCE_S)

    def forbid(self, *rights: Right) -> None:
        wanted = {one for right in rights for one in right.filters()}
        for done in self.admin.delete_acls(list(wanted)).values():
            done.result(PATIENCE_S)

    def config(self, user: str) -> Path:
        """A configuration file as that user would write it."""
        file = self.folder / f"{user}.yaml"
        content = {
            "bootstrap_servers": self.broker.sasl_address,
            "zookeeper": self.zookeeper,
            "kafka": self.broker.client(user),
            "zookeeper_auth": {"scheme": "digest", "credential": "delayline:secret"},
            "node_id": "n1",
            "data_dir": str(self.folder / "data"),
            "peer_host": HOST,
            "peer_port": free_port(),
        }
        file.write_text(yaml.safe_dump(content))
        return file


@pytest.fixture(scope="module")
def closed(stack: Stack, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Closed]:
    folder = tmp_path_factory.mktemp("closed")
    broker = ClosedKafka(folder / "kafka", dict.fromkeys(USERS, uuid.uuid4().hex), self_signed(folder))
    try:
        broker.launch()
        zookeeper = _chroot(stack)
        broker.wait_ready()
        closed = Closed(broker, zookeeper, folder, rights_on_the_page())
        closed.allow(*(one for one in closed.rights if not _is_nodes_own(one)))
        cluster_topics.create(
            load(NodeConfig, file=closed.config("operator"), environment={}), {"partitions": 2}
        )
        closed.admin.create_topics([NewTopic(TARGET, 1, 1)])[TARGET].result(PATIENCE_S)
        yield closed
    finally:
        broker.stop()


def _is_nodes_own(right: Right) -> bool:
    """What the node lacks at first."""
    return right.resource is ResourceType.TRANSACTIONAL_ID and right.user == "User:delayline"


def _chroot(stack: Stack) -> str:
    chroot = f"/t-acls-{uuid.uuid4().hex[:8]}"
    kazoo = KazooClient(stack.zookeeper)
    kazoo.start()
    kazoo.create(chroot)
    kazoo.stop()
    kazoo.close()
    return stack.zookeeper + chroot


@pytest.fixture(scope="module")
def node(closed: Closed) -> Iterator[Node]:
    """A node that has become leader, as soon as it was allowed to."""
    hurry()
    node = Node(load(NodeConfig, file=closed.config("delayline"), environment={}))
    node.start()
    try:
        closed.said = eventually(lambda: _refusal(node), "it refuses")
        closed.allow(*(one for one in closed.rights if one.resource is ResourceType.TRANSACTIONAL_ID))
        eventually(lambda: node.state == NodeState.LEADER, "it is leader")
        yield node
    finally:
        node.stop()
        node.join()


def _refusal(node: Node) -> Any:
    status = node.status()
    return status if status.state == NodeState.REFUSING else None


def test_an_operator_may_import_checkpoints_before_a_node_begins(closed: Closed) -> None:
    mine = (one for one in closed.rights if one.user == "User:operator")
    closed.allow(*(one for one in mine if one.resource is ResourceType.TRANSACTIONAL_ID))
    none = {0: 0, 1: 0}
    last = sample_checkpoint(applied=none, seen=none, read=none, written_back=none)
    exported = export.CheckpointFile("delay", 1, [export.LaneFile(0, last, [])])
    file = closed.folder / "checkpoints.json"
    file.write_bytes(msgspec.json.encode(exported))
    agreed = ("--execute", "--reason", "it was lost", "--confirm", "delay")
    with restored_logging():
        code = run(["checkpoint", "import", str(file), *agreed, "--config", str(closed.config("operator"))])
    assert code == 0


def test_a_node_that_may_not_use_its_transactional_ids_says_what_to_do_and_goes_on_by_itself(
    closed: Closed, node: Node
) -> None:
    assert closed.said.reason == (
        "transactional-id-forbidden: this node may not use the transactional ids delay-0-a and delay-0-b"
    )
    assert "Give its user Write on the transactional ids delay-0-a and delay-0-b" in closed.said.way_out
    assert node.status().reason is None


def test_what_a_producer_schedules_is_delivered_and_what_it_cancels_is_not(
    closed: Closed, node: Node
) -> None:
    with DelayProducer(closed.app, outcomes=True) as producer:
        producer.schedule(TARGET, b"later", id="order-1", after="1h")
        answer = producer.cancel("order-1").outcome(PATIENCE_S)
        producer.schedule(TARGET, b"now")
    assert answer.outcome == "cancelled"
    tail = Tail(closed.broker.address, [TARGET])
    tail.wait(lambda: tail.records[TARGET], "it is delivered")
    tail.close()
    assert [got.value for got in tail.records[TARGET]] == [b"now"]


def test_an_operator_sees_and_changes_what_is_there(
    closed: Closed, node: Node, capsys: pytest.CaptureFixture[str]
) -> None:
    config = str(closed.config("operator"))

    def command(*arguments: str) -> Any:
        with restored_logging():
            assert run([*arguments, "--config", config, "-o", "json"]) == 0
        return json.loads(capsys.readouterr().out)

    command("message", "schedule", TARGET, "hello", "--after", "1h", "--id", "order-2")
    assert command("message", "cancel", "order-2", "--wait", "30")["outcome"] == "cancelled"
    assert command("message", "show", "order-2")["message"]["state"] == "cancelled"
    assert command("topics", "check", "--target", TARGET) == []
    command("dead-letter", "list")
    assert command("checkpoint", "show")[0]["topic"]["node"] == "n1"
    becomes(lambda: command("cluster", "status")["members"][0]["lag"], 0)
    with restored_logging():
        run(["doctor", "--all", "--config", config, "-o", "json"])
    found = {one["check"]: one["level"] for one in json.loads(capsys.readouterr().out)}
    assert (found["topics"], found["rights"]) == ("ok", "ok")


def test_an_operator_takes_what_waits_out_and_puts_it_back(
    closed: Closed, node: Node, capsys: pytest.CaptureFixture[str]
) -> None:
    file = str(closed.folder / "pending.jsonl")

    def command(*arguments: str) -> Any:
        with restored_logging():
            assert run([*arguments, "--config", str(closed.config("operator"))]) == 0
        return capsys.readouterr().out

    command("message", "schedule", TARGET, "hello", "--after", "1h")
    exported = json.loads(command("pending", "export", file, "--confirm", "delay", "-o", "json"))
    assert exported["messages"] == 1
    imported = json.loads(command("pending", "import", file, "-o", "json"))
    line = json.loads(Path(file).read_text().splitlines()[0])
    assert imported == {"export": line["export"], "messages": 1, "imported": 1, "refused": 0, "before": 0}
    command("pending", "forget", "--confirm", "delay")
    command("message", "cancel", f"moved/{line['buffer_id']}/{line['source']}")


def test_an_operator_moves_what_waits_into_a_cluster_where_the_same_is_allowed(
    closed: Closed, node: Node, capsys: pytest.CaptureFixture[str]
) -> None:
    new, file, config = "delay2", closed.folder / "moved.jsonl", closed.config("operator")
    closed.allow(*(_in(new, one) for one in closed.rights if one.user == "User:operator"))
    cluster_topics.create(load(NodeConfig, file=config, environment={}, flags={"cluster": new}))

    def command(*arguments: str) -> str:
        with restored_logging():
            assert run([*arguments, "--config", str(config)]) == 0
        return capsys.readouterr().out

    command("message", "schedule", TARGET, "hello", "--after", "1h", "--id", "order-3")
    agreed = ("--confirm", "delay", "--to-cluster", new)
    moved = json.loads(command("pending", "move", str(file), *agreed, "-o", "json"))
    ids = [json.loads(line).get("id") for line in file.read_text().splitlines()]
    command("pending", "forget", "--confirm", "delay")
    assert "order-3" in ids
    assert moved["imported"] == moved["messages"]


def test_an_operator_who_may_not_write_requests_is_told_before_a_bulk_load_begins(
    closed: Closed, node: Node, capsys: pytest.CaptureFixture[str]
) -> None:
    (right,) = (one for one in closed.rights if one.name == NAMES.buffer and one.user == "User:operator")
    words = ("bulk", "schedule", "--from", "csv:none", "--job", "forbidden")

    def told() -> str:
        with restored_logging():
            code = run([*words, "--config", str(closed.config("operator"))])
        err = capsys.readouterr().err
        return err if code == 4 else ""

    closed.forbid(right)
    try:
        said = eventually(told, "it is refused") or ""
    finally:
        closed.allow(right)
    assert said.endswith(
        "this user may not Write delay.buffer, so nothing was begun: give it Write on delay.buffer\n"
    )


def with_spark(closed: Closed, *command: str) -> subprocess.CompletedProcess[str]:
    """A command in a process of its own: another test of this one may have a Spark."""
    words = [sys.executable, "-m", "ops.cli.main", *command, "--config", str(closed.config("operator"))]
    done = subprocess.run(words, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return done


@pytest.mark.timeout(300)  # with Spark
def test_an_operator_exports_tables(closed: Closed, node: Node) -> None:
    done = with_spark(closed, "tables", "export", "--to", f"parquet:{closed.folder / 'tables'}", "-o", "json")
    counts = {one["table"]: one["new"] + one["open"] for one in json.loads(done.stdout)["tables"]}
    assert counts["messages"] == 1
    assert counts["requests"] > 3


@pytest.mark.timeout(300)  # with Spark
def test_an_operator_audits_without_end(closed: Closed, node: Node) -> None:
    done = with_spark(closed, "audit", "watch", "--once", "--state", str(closed.folder / "state"))
    assert re.search(r"^round 0: [1-9][0-9]* requests, ", done.stderr, re.MULTILINE), done.stderr


@pytest.mark.timeout(300)  # with Spark
def test_nothing_is_said_of_a_target_that_the_auditor_may_not_see(
    closed: Closed, node: Node, lent: None, capsys: pytest.CaptureFixture[str]
) -> None:
    watch = ("audit", "watch", "--once", "--anew", "--state", str(closed.folder / "another state"))
    goes_on = tuple(word for word in watch if word != "--anew")

    def code_of(*command: str) -> int:
        with restored_logging():
            return run([*command, "--config", str(closed.config("operator"))])

    def deliver(value: bytes) -> None:
        with DelayProducer(closed.app) as producer:
            producer.schedule(TARGET, value)
        with closing(Tail(closed.broker.address, [TARGET])) as tail:
            tail.wait(lambda: value in [got.value for got in tail.records[TARGET]], "it is delivered")

    deliver(b"seen")
    assert code_of(*watch) == 0
    rights = [one for one in closed.rights if one.user == "User:operator" and one.name == TARGET]
    closed.forbid(*rights)
    try:
        eventually(lambda: code_of("audit") == 4, "an audit is refused")
        assert f"error: this user may not see {TARGET}, and what" in capsys.readouterr().err
        assert code_of(*goes_on) == 0, "what the last round has seen is known"
        said = capsys.readouterr().err
        assert re.search(
            rf"^round 1: .*; this user may not see {re.escape(TARGET)}, and what", said, re.MULTILINE
        )
        deliver(b"not seen")
        for command in (goes_on, watch):
            assert code_of(*command) == 4
            assert f"this user may not see {TARGET}, and what" in capsys.readouterr().err
    finally:
        closed.allow(*rights)
    eventually(lambda: code_of(*goes_on) == 0, "it goes on where the last round has ended")
    last = re.findall(r"^round .*$", capsys.readouterr().err, re.MULTILINE)[-1]
    assert (last.startswith("round 2: "), "violations" in last, "may not" in last) == (True, False, False)


def disks(closed: Closed, spark: SparkSession) -> Rooms:
    """What a forecast of the operator's knows of them."""
    return rooms(spark, load(ConnectionConfig, file=closed.config("operator"), environment={}), None)


def test_an_operator_who_forecasts_knows_the_brokers_disks(
    closed: Closed, node: Node, spark: SparkSession
) -> None:
    found = disks(closed, spark)
    assert ([disk.part for disk in found.known], found.unknown) == (["log", "view"], [])


def test_an_operator_who_may_not_describe_the_cluster_is_told_that_its_disks_are_not_known(
    closed: Closed, node: Node, spark: SparkSession
) -> None:
    (right,) = (one for one in closed.rights if one.resource is ResourceType.BROKER)
    closed.forbid(right)
    try:
        found = eventually(lambda: _without_the_log(disks(closed, spark)), "it is refused")
    finally:
        closed.allow(right)
    assert found is not None
    (why,) = found.unknown
    assert why.startswith("the log's disk is not known: the brokers do not tell it: ")


def _without_the_log(found: Rooms) -> Rooms | None:
    return found if [disk.part for disk in found.known] == ["view"] else None


def _in(cluster: str, right: Right) -> Right:
    """The same right in another cluster."""
    name = right.name
    return replace(right, name=cluster + name.removeprefix("delay") if name.startswith("delay") else name)


def test_an_operator_whom_kafka_refuses_sees_what_zookeeper_has(
    closed: Closed, node: Node, capsys: pytest.CaptureFixture[str]
) -> None:
    config = ["--config", str(closed.config("operator")), "-X", "sasl.password=another", "-o", "json"]

    def warned() -> str:
        with restored_logging():
            assert run(["cluster", "status", *config]) == 0
        said = capsys.readouterr()
        assert [one["node"] for one in json.loads(said.out)["members"]] == ["n1"]
        return said.err

    refused = re.compile("warning: no lag is known: Kafka at .* refuses: ")
    eventually(lambda: refused.match(warned()), "Kafka refuses within the status's time")


@pytest.mark.parametrize(
    ("topic", "code"), [(NAMES.buffer, "buffer-forbidden"), (NAMES.checkpoint, "checkpoint-forbidden")]
)
def test_a_node_that_may_no_longer_read_a_topic_says_so_and_goes_on_when_it_may(
    closed: Closed, node: Node, topic: str, code: str
) -> None:
    (right,) = (one for one in closed.rights if one.name == topic and one.user == "User:delayline")
    read = Right(right.user, [AclOperation.READ], right.resource, right.name, right.pattern)
    closed.forbid(read)
    said = eventually(lambda: _refusal(node), "it refuses")
    closed.allow(read)
    assert said.reason == f"{code}: this node may not read {topic}"
    assert f"Give its user Read on {topic}" in said.way_out
    eventually(lambda: node.state == NodeState.LEADER, "it is leader again")
