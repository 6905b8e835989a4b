"""One cluster's ZooKeeper and another's Kafka: a node refuses, commands too, and a Kafka that was restored
under another id is accepted by the command that operators type.
"""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from pathlib import Path

import msgspec
import pytest

from election.operators import KafkaIds
from node.config import ConnectionConfig
from node.status import NodeState
from ops.clients.kafka import KafkaAdmin
from ops.errors import ConflictError
from ops.stack.kafka import KafkaServer
from ops.stack.ports import free_port
from ops.topics import cluster_topics
from tests.integration.test_node_refusals import refused, run_once
from tests.stacks import GivenStack, Stack
from tests.support.cluster import Cluster
from tests.support.commands import operator_of
from tests.support.fates import check_exactly_once
from tests.support.fixtures import MakeCluster
from tests.support.requests import Sender, key_in, now_ms
from tests.support.waiting import eventually


@pytest.fixture(scope="module")
def elsewhere(tmp_path_factory: pytest.TempPathFactory) -> Iterator[KafkaServer]:
    """Another Kafka than that of the stack."""
    server = KafkaServer(tmp_path_factory.mktemp("elsewhere"), free_port(), free_port())
    server.launch()
    try:
        server.wait_ready()
        yield server
    finally:
        server.stop()


@pytest.fixture
def in_turn(tmp_path: Path) -> Iterator[tuple[KafkaServer, KafkaServer]]:
    """Two Kafkas at one address."""
    ports = free_port(), free_port()
    first, second = (KafkaServer(tmp_path / name, *ports) for name in ("first", "second"))
    yield first, second
    first.stop()
    second.stop()


def tied(cluster: Cluster) -> KafkaIds | None:
    """What stands in ZooKeeper."""
    path = cluster.znodes.kafka
    raw = cluster.kazoo.get(path)[0] if cluster.kazoo.exists(path) else None
    return None if raw is None else msgspec.json.decode(raw, type=KafkaIds)


def ids(cluster: Cluster) -> KafkaIds:
    admin, buffer = KafkaAdmin(cluster.connection), cluster.names.buffer
    return KafkaIds(admin.cluster_id(), admin.described([buffer])[buffer].id)


def staged(cluster: Cluster, elsewhere: KafkaServer) -> ConnectionConfig:
    """A cluster of the same name in the other Kafka, with a ZooKeeper of its own."""
    cluster.kazoo.ensure_path(f"/{cluster.name}-staging")
    connection = cluster.connection.model_copy(
        update={
            "bootstrap_servers": elsewhere.address,
            "zookeeper": f"{cluster.zookeeper}/{cluster.name}-staging",
        }
    )
    cluster_topics.create(connection, {"partitions": 2})
    return connection


def test_a_node_of_another_kafka_refuses_to_lead_the_lane(cluster: Cluster, elsewhere: KafkaServer) -> None:
    staged(cluster, elsewhere)
    cluster.start_here("staging", bootstrap_servers=elsewhere.address)
    said = refused(cluster, "staging", "other-kafka")
    found = KafkaAdmin(ConnectionConfig(bootstrap_servers=elsewhere.address, zookeeper="z:1")).cluster_id()
    assert (ids(cluster).cluster in said["reason"], found in said["reason"]) == (True, True)


def test_a_node_that_is_told_the_right_kafka_delivers(cluster: Cluster, elsewhere: KafkaServer) -> None:
    staged(cluster, elsewhere)
    with Sender(cluster) as sender:
        for _ in range(10):
            sender.schedule()
        refusing = cluster.start_here("a", bootstrap_servers=elsewhere.address)
        refused(cluster, "a", "other-kafka")
        cluster.stop_here(refusing)
        cluster.start_here("a")
        ledger = sender.flush()
    check_exactly_once(cluster, ledger)


@pytest.mark.parametrize("command", ["create", "check"])
def test_no_command_looks_at_topics_of_another_kafka(
    cluster: Cluster, elsewhere: KafkaServer, command: str
) -> None:
    wrong = cluster.connection.model_copy(update={"bootstrap_servers": elsewhere.address})
    with pytest.raises(ConflictError, match="correct bootstrap_servers or zookeeper"):
        getattr(cluster_topics, command)(wrong)


def test_the_doctor_says_which_kafka_is_which(
    cluster: Cluster,
    elsewhere: KafkaServer,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    wrong = cluster.connection.model_copy(update={"bootstrap_servers": elsewhere.address})
    with operator_of(wrong, monkeypatch, capsys) as operator:
        done = operator("doctor", "-o", "json")
    found = [one["found"] for one in done.data if (one["check"], one["level"]) == ("kafka", "problem")]
    assert any(ids(cluster).cluster in text for text in found)


def test_a_running_node_to_whom_another_kafka_answers_by_now_does_not_take_its_buffer_for_lost(
    in_turn: tuple[KafkaServer, KafkaServer],
    make_cluster: MakeCluster,
    stack: Stack,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("node.inspection.INSPECT_EVERY_S", 0.0)
    first, second = in_turn
    first.launch()
    first.wait_ready()
    cluster = make_cluster(GivenStack(first.address, stack.zookeeper))
    cluster.start_here("a")
    cluster.wait_state("a", NodeState.LEADER)
    first.stop()
    second.launch()
    second.wait_ready()
    refused_for(cluster, "other-kafka")


def refused_for(cluster: Cluster, code: str) -> None:
    eventually(lambda: (cluster.member("a").get("reason") or "").startswith(f"{code}: "), f"it says {code}")


def test_a_cluster_is_tied_to_its_kafka_when_it_is_made(cluster: Cluster) -> None:
    assert tied(cluster) == ids(cluster)


def test_a_cluster_that_is_older_is_tied_by_its_first_node(
    cluster: Cluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("node.inspection.INSPECT_EVERY_S", 0.0)
    run_once(cluster)
    cluster.kazoo.delete(cluster.znodes.kafka)
    cluster.start_here("a")
    eventually(lambda: tied(cluster) == ids(cluster), "it is written down")


def test_a_node_that_finds_no_checkpoint_of_its_own_ties_nothing(
    cluster: Cluster, elsewhere: KafkaServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A cluster older than the znode, and the first new node is one of another Kafka."""
    monkeypatch.setattr("node.inspection.INSPECT_EVERY_S", 0.0)
    cluster.start_here("a")
    cluster.wait_state("a", NodeState.LEADER)
    cluster.kazoo.delete(cluster.znodes.kafka)
    staged(cluster, elsewhere)
    cluster.start_here("b", bootstrap_servers=elsewhere.address)
    refused(cluster, "b", "other-kafka")
    assert tied(cluster) == ids(cluster)


def test_a_rebuilt_node_refuses_a_buffer_that_was_made_anew_and_has_grown_beyond_the_old_one(
    cluster: Cluster,
) -> None:
    """No offset tells it, and no store."""
    run_once(cluster, 5)
    ends = KafkaAdmin(cluster.connection).ends(cluster.names.buffer)
    shutil.rmtree(cluster.data_dir("a"))
    cluster.delete_topic(cluster.names.buffer)
    cluster.create_again()
    with Sender(cluster) as sender:
        for number in range(2 * max(ends.values()) + 2):
            sender.schedule(key=key_in(number % 2), at_ms=now_ms() + 3_600_000)
    cluster.start_here("a")
    refused(cluster, "a", "buffer-recreated")


def test_a_buffer_that_is_not_the_one_written_down_is_no_harm_to_who_has_read_it(cluster: Cluster) -> None:
    """As when somebody has made topics in another Kafka for a cluster that ZooKeeper had half lost."""
    run_once(cluster)
    found = ids(cluster)
    cluster.kazoo.set(cluster.znodes.kafka, msgspec.json.encode(KafkaIds(found.cluster, "another")))
    cluster.start_here("a")
    cluster.wait_state("a", NodeState.LEADER)


def test_settings_that_are_restored_tie_a_cluster_to_nothing(cluster: Cluster) -> None:
    """The command may be told another Kafka; the nodes know theirs."""
    run_once(cluster)
    cluster.kazoo.delete(cluster.znodes.root, recursive=True)
    cluster.restore_settings()
    assert tied(cluster) is None


@pytest.mark.walks("other-kafka")
def test_a_kafka_that_was_restored_under_another_id_is_accepted(
    elsewhere: KafkaServer,
    make_cluster: MakeCluster,
    stack: Stack,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    cluster = make_cluster(GivenStack(elsewhere.address, stack.zookeeper))
    with Sender(cluster) as sender:
        running = cluster.start_here("a")
        for number in range(20):
            sender.schedule()
            sender.schedule(at_ms=now_ms() + 3_600_000, id=f"later-{number}")
        sender.flush()
        cluster.wait_delivered(20)
        cluster.stop_here(running)
        move(elsewhere)
        refusing = cluster.start_here("a")
        assert "accept-kafka" in refused(cluster, "a", "other-kafka")["way_out"]
        with operator_of(cluster.connection, monkeypatch, capsys) as operator:
            why = ("--reason", "it was restored", "-o", "json")
            dry = operator("cluster", "accept-kafka", *why)
            assert (dry.code, dry.data["buffer"], dry.data["accepted"]) == (0, "the same", False)
            done = operator("cluster", "accept-kafka", *why, "--execute", "--confirm", cluster.name)
            assert done.code == 0, done.err
        cluster.stop_here(refusing)
        cluster.start_here("a")
        for number in range(20):
            sender.run_now(f"later-{number}")
        ledger = sender.flush()
    assert check_exactly_once(cluster, ledger).count("delivered") == 40


def move(server: KafkaServer) -> None:
    """Its topics are there again, in a Kafka of another id."""
    server.stop()
    for file in server.data.rglob("meta.properties"):
        lines = file.read_text().splitlines()
        moved = ["cluster.id=anotherKafkaAltogether" if "cluster.id=" in line else line for line in lines]
        file.write_text("\n".join(moved) + "\n")
    server.launch()
    server.wait_ready()


def test_no_other_kafka_is_accepted_while_a_node_works_where_the_cluster_is(
    cluster: Cluster,
    elsewhere: KafkaServer,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    cluster.start_here("a")
    cluster.wait_state("a", NodeState.LEADER)
    wrong = cluster.connection.model_copy(update={"bootstrap_servers": elsewhere.address})
    with operator_of(wrong, monkeypatch, capsys) as operator:
        done = operator("cluster", "accept-kafka", "--reason", "by mistake")
    assert (done.code, "a does not refuse" in done.err) == (5, True)
