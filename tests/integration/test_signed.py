"""What only the service may say, on real nodes: forgeries, copies, strangers' checkpoints, and keys."""

from __future__ import annotations

import json
import shutil
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import pytest
from confluent_kafka import Producer
from msgspec import structs

from delayline import DelayProducer, every
from delayline.headers import H_DELIVER_AT, H_PARENT, H_ROOT, H_SIGNATURE, H_TARGET_TOPIC
from delayline.signing import Keyring
from delayline.wire import Header, signed_headers
from election.errors import ElectionError
from election.operators import Author
from node.kafka.checkpoints import read_last
from node.kafka.own_checkpoints import headers_of
from node.node import Node
from node.status import CAUGHT_UP, NodeState
from ops.clients.zookeeper import registry
from ops.errors import ConflictError, UnavailableError
from ops.key import rotate
from ops.topics import cluster_topics
from tests.integration.test_node_refusals import refused
from tests.support.aborted import abort
from tests.support.cluster import Cluster
from tests.support.fates import outcome_of
from tests.support.fixtures import MakeCluster
from tests.support.keys import STRANGER
from tests.support.requests import now_ms
from tests.support.retention import alter_buffer, rebuild_behind_retention
from tests.support.tail import Got, read_all
from tests.support.waiting import PATIENCE_S, eventually

HOUR_MS = 3_600_000
PROBE = b"behind all that was there"


@pytest.fixture
def producer(cluster: Cluster) -> Iterator[DelayProducer]:
    config = {"bootstrap.servers": cluster.bootstrap, "linger.ms": 0, "log_level": 0}
    with DelayProducer(config, cluster=cluster.name) as made:
        yield made


def send(
    cluster: Cluster,
    partition: int,
    key: bytes | None,
    value: bytes | None,
    headers: Any,
    compression: str = "none",
) -> str:
    """Writes a record into the buffer; its source."""
    placed: list[str] = []
    producer = Producer(
        {
            "bootstrap.servers": cluster.bootstrap,
            "linger.ms": 0,
            "compression.type": compression,
            "message.max.bytes": 10_000_000,
        }
    )
    producer.produce(
        cluster.names.buffer,
        value,
        key,
        partition,
        headers=headers,
        on_delivery=lambda _, sent: placed.append(f"{sent.topic()}/{sent.partition()}/{sent.offset()}"),
    )
    assert producer.flush(PATIENCE_S) == 0
    return placed[0]


def forged(cluster: Cluster, source: str) -> list[Header]:
    """As if the service had written it back after the request at `source`, now."""
    _, _, offset = source.rpartition("/")
    return [
        (H_TARGET_TOPIC, cluster.target().encode()),
        (H_DELIVER_AT, b"0"),
        (H_PARENT, offset.encode()),
        (H_ROOT, source.encode()),
    ]


def wait_letter(cluster: Cluster, source: str) -> Got:
    def found() -> Got | None:
        return next((got for got in cluster.dead_letters if got.text("delay-source") == source), None)

    cluster.tail.wait(lambda: found() is not None, f"{source} is a dead letter")
    letter = found()
    assert letter is not None
    return letter


def wait_applied(cluster: Cluster, partition: int) -> None:
    """Waits until all that is in a partition has been applied, and what had to come of it at once has come:
    a message that is sent behind it is delivered, and a request without a target is a dead letter.
    """
    sound, reject = (
        send(cluster, partition, b"k", PROBE, headers)
        for headers in ([(H_TARGET_TOPIC, cluster.target().encode())], [])
    )
    cluster.tail.wait(
        lambda: sound in {got.text("delay-source") for got in cluster.delivered}, f"{sound} is delivered"
    )
    wait_letter(cluster, reject)


def but_probes(found: list[Got]) -> list[Got]:
    return [got for got in found if got.value != PROBE]


def written_back(cluster: Cluster) -> list[Got]:
    return [got for got in read_all(cluster.bootstrap, cluster.names.buffer) if H_PARENT in dict(got.headers)]


@pytest.mark.parametrize("keyring", [None, STRANGER], ids=["unsigned", "signed by a stranger"])
def test_nobody_delivers_or_ends_anothers_message_with_headers_of_the_service(
    cluster: Cluster, producer: DelayProducer, keyring: Keyring | None
) -> None:
    cluster.start_here("a")
    mine = producer.schedule(cluster.target(), b"mine", key=b"k", id="mine", after="1h").result(PATIENCE_S)
    partition = int(mine.split("/")[1])
    headers: list[Header] = [*forged(cluster, mine), ("delay-id", b"mine")]
    if keyring is not None:
        headers = signed_headers(headers, keyring, (10, 10), partition, b"mine", b"theirs")
    letter = wait_letter(cluster, send(cluster, partition, b"mine", b"theirs", headers))
    assert letter.text("delay-error") == "bad-parent"
    cancel = producer.cancel("mine").result(PATIENCE_S)
    assert outcome_of(cluster, cancel)["outcome"] == "cancelled"
    assert cluster.delivered == []


def test_a_copy_of_what_the_service_has_written_back_changes_nothing(
    cluster: Cluster, producer: DelayProducer
) -> None:
    cluster.start_here("a")
    producer.schedule(cluster.target(), b"again", key=b"k", repeat=every("1s", times=3))
    cluster.wait_delivered(1)
    found = eventually(lambda: written_back(cluster), "the next one is written back")[0]
    for _ in range(2):
        send(cluster, found.partition, found.key, found.value, found.headers)
    cluster.wait_delivered(3)
    for got in written_back(cluster):
        send(cluster, got.partition, got.key, got.value, got.headers)
    wait_applied(cluster, found.partition)
    assert [got.number("delay-occurrence") for got in but_probes(cluster.delivered)] == [1, 2, 3]
    assert but_probes(cluster.dead_letters) == []


def test_a_copy_of_what_the_service_has_aborted_changes_nothing(
    cluster: Cluster, producer: DelayProducer
) -> None:
    cluster.start_here("a")
    mine = producer.schedule(cluster.target(), b"mine", key=b"k", after="1h").result(PATIENCE_S)
    partition = int(mine.split("/")[1])
    headers = signed_headers(forged(cluster, mine), cluster.keys, (1, 1), partition, b"k", b"moved")
    abort(cluster, cluster.names.buffer, partition, b"k", b"moved", headers)
    send(cluster, partition, b"k", b"moved", headers)
    wait_applied(cluster, partition)
    assert (but_probes(cluster.delivered), but_probes(cluster.dead_letters)) == ([], [])


def test_for_a_rebuilt_node_a_copy_of_what_is_gone_is_a_copy(make_cluster: MakeCluster) -> None:
    cluster = make_cluster(max_delay_ms=7_200_000)
    alter_buffer(cluster, "retention.ms", "-1")
    running = cluster.start_here("a")
    mine = send(cluster, 0, None, b"mine", [("delay-target-topic", cluster.target().encode())])
    headers = signed_headers(forged(cluster, mine), cluster.keys, (1, 1), 0, b"k", b"again")
    send(cluster, 0, b"k", b"again", headers)
    cluster.wait_delivered(2)
    rebuild_behind_retention(cluster, "a", running)
    send(cluster, 0, b"k", b"again", headers)
    wait_applied(cluster, 0)
    values = [got.value for got in but_probes(cluster.delivered)]
    assert sorted(values, key=str) == [b"again", b"mine", b"v", b"v"]
    assert but_probes(cluster.dead_letters) == []


def test_a_chain_goes_on_after_another_node_has_taken_over_and_no_link_is_taken_for_a_copy(
    cluster: Cluster, producer: DelayProducer
) -> None:
    for node in ("a", "b"):
        cluster.start(node)
    cluster.wait_candidates(2)
    producer.schedule(cluster.target(), b"again", key=b"k", repeat=every("1s", times=4))
    cluster.wait_delivered(2)
    cluster.leader().kill()
    cluster.wait_delivered(4)
    assert [got.number("delay-occurrence") for got in cluster.delivered] == [1, 2, 3, 4]
    assert cluster.dead_letters == []


def test_strangers_records_in_the_checkpoint_topic_are_passed_over_and_reported(
    cluster: Cluster, producer: DelayProducer
) -> None:
    running = cluster.start_here("a")
    producer.schedule(cluster.target(), b"before").result(PATIENCE_S)
    cluster.wait_delivered(1)
    cluster.stop_here(running)
    last = cluster.checkpoints()[-1]
    for raw in (b"{}", b"\xff", json.dumps(json.loads(last.encode()) | {"epoch": 1_000_000}).encode()):
        cluster.append_checkpoint(raw, signed=False)
    cluster.start_here("b")
    producer.schedule(cluster.target(), b"after").result(PATIENCE_S)
    cluster.wait_delivered(2)
    assert cluster.mirrored().epoch < 1_000_000
    eventually(lambda: cluster.member("b").get("rejected_checkpoints") == 3, "it says so")


def test_copies_of_old_checkpoints_move_nothing_back_even_for_a_new_node(
    cluster: Cluster, producer: DelayProducer
) -> None:
    running = cluster.start_here("a")
    cluster.wait_epoch(1)
    for number in range(5):
        producer.schedule(cluster.target(), b"%d" % number).result(PATIENCE_S)
        cluster.wait_delivered(number + 1)
    cluster.stop_here(running)
    own = read_all(cluster.bootstrap, cluster.names.checkpoint)
    copier = Producer({"bootstrap.servers": cluster.bootstrap})
    for got in own[:3] * 20:  # more than a reader looks at from the end
        headers: Any = got.headers
        copier.produce(cluster.names.checkpoint, got.value, got.key, got.partition, headers=headers)
    assert copier.flush(PATIENCE_S) == 0
    cluster.kazoo.delete(cluster.znodes.checkpoint(0))
    cluster.start_here("b")
    producer.schedule(cluster.target(), b"after").result(PATIENCE_S)
    cluster.tail.wait(lambda: any(got.value == b"after" for got in cluster.delivered), "it goes on")
    assert sorted(got.value or b"" for got in cluster.delivered) == [b"0", b"1", b"2", b"3", b"4", b"after"]


def test_a_copy_of_a_checkpoint_that_was_aborted_moves_nothing_for_who_reads_on_or_begins(
    cluster: Cluster, producer: DelayProducer
) -> None:
    cluster.start_here("a")
    producer.schedule(cluster.target(), b"before").result(PATIENCE_S)
    cluster.wait_delivered(1)
    topic, last = cluster.names.checkpoint, cluster.checkpoints()[-1]
    never = structs.replace(last, epoch=1_000_000, first=False)
    headers = headers_of(never, never.encode(), topic, cluster.keys)
    abort(cluster, topic, 0, never.record_key, never.encode(), headers)
    copier = Producer({"bootstrap.servers": cluster.bootstrap})
    for _ in range(20):  # more than a reader looks at from the end
        copier.produce(topic, never.encode(), never.record_key, 0, headers=headers)
    assert copier.flush(PATIENCE_S) == 0
    eventually(lambda: cluster.member("a").get("rejected_checkpoints") == 20, "it says so")
    found = read_last(cluster.connection.client_config(), topic, 0, cluster.keys)
    assert found is not None
    assert found.epoch == last.epoch


def run_without_a_trace(cluster: Cluster) -> None:
    """But the checkpoints: a node has led, and its store is gone."""
    leading = cluster.start_here("a")
    cluster.wait_epoch(1)
    cluster.stop_here(leading)
    eventually(lambda: cluster.member("a") == {}, "it has gone")
    shutil.rmtree(cluster.data_dir("a"))


def test_keys_are_made_for_a_cluster_that_is_older_once_its_nodes_are_stopped(
    cluster: Cluster, producer: DelayProducer
) -> None:
    """As an upgrade from a version without keys finds it."""
    run_without_a_trace(cluster)
    mine = producer.schedule(cluster.target(), b"mine", after="1h").result(PATIENCE_S)
    partition = int(mine.split("/")[1])
    before = send(cluster, partition, None, b"written back before", forged(cluster, mine))
    cluster.kazoo.delete(cluster.znodes.keys)
    running = cluster.start_here("a")
    refused(cluster, "a", "keys-missing")
    with pytest.raises(ConflictError, match="nodes are running"):
        cluster_topics.create(cluster.connection)
    cluster.stop_here(running)
    eventually(lambda: cluster.member("a") == {}, "it has gone")
    assert cluster_topics.create(cluster.connection).keys_made
    cluster.start_here("a")
    after = send(cluster, partition, None, b"forged since", forged(cluster, mine))
    wait_letter(cluster, after)
    cluster.wait_delivered(1)
    assert [got.value for got in cluster.delivered] == [b"written back before"]
    assert before not in {got.text("delay-source") for got in cluster.dead_letters}


def test_no_keys_are_made_where_zookeeper_has_lost_everything_and_the_buffer_is_used(
    cluster: Cluster, producer: DelayProducer
) -> None:
    run_without_a_trace(cluster)
    producer.schedule(cluster.target(), b"mine", deliver_at=now_ms() + HOUR_MS).result(PATIENCE_S)
    cluster.kazoo.delete(cluster.znodes.keys)
    cluster.kazoo.delete(cluster.znodes.settings)
    cluster.restore_settings()
    with pytest.raises(ElectionError, match="no keys"):
        _ = cluster.keys
    assert cluster_topics.create(cluster.connection, {"partitions": 2}, new_keys=True).keys_there


def test_the_key_is_changed_while_the_service_runs(cluster: Cluster, producer: DelayProducer) -> None:
    for node in ("a", "b"):
        cluster.start_here(node)
    cluster.wait_candidates(2)
    producer.schedule(cluster.target(), b"again", key=b"k", repeat=every("1s", times=6))
    cluster.wait_delivered(2)
    before = cluster.keys.signs
    after = rotate.rotate(cluster.connection, Author("me", "a test", now_ms()), PATIENCE_S).ring
    assert (before in after.ids, after.signs != before) == (True, True)
    cluster.wait_delivered(6)
    assert [got.number("delay-occurrence") for got in cluster.delivered] == list(range(1, 7))
    assert cluster.dead_letters == []
    signed_with = [(got.text("delay-signature") or "").partition(":")[0] for got in written_back(cluster)]
    assert set(signed_with) == {before, after.signs}
    assert all(known == sorted(after.ids) for known in rotate.key_status(cluster.connection).known.values())


def test_what_is_signed_with_a_key_that_a_node_does_not_know_yet_is_taken_in_once_it_does(
    cluster: Cluster, producer: DelayProducer
) -> None:
    cluster.start_here("a")
    mine = producer.schedule(cluster.target(), b"mine", after="1h").result(PATIENCE_S)
    partition = int(mine.split("/")[1])
    both = cluster.keys.with_another(now_ms())
    newer = replace(both, signs=both.keys[-1].id)
    headers = signed_headers(forged(cluster, mine), newer, (1, 1), partition, None, b"the service's")
    send(cluster, partition, None, b"the service's", headers)
    said = cluster.wait_state("a", NodeState.REFUSING)
    assert said["reason"].startswith("keys-behind: ")
    cluster.kazoo.set(cluster.znodes.keys, newer.to_json().encode())
    cluster.wait_delivered(1)
    assert [got.value for got in cluster.delivered] == [b"the service's"]
    assert cluster.dead_letters == []


def lose_zookeeper_after_a_rotation(cluster: Cluster, producer: DelayProducer) -> Node:
    """Starts node a, which was away while the key was changed, and b alone has delivered since."""
    away, rotating = cluster.start_here("a"), cluster.start_here("b")
    cluster.wait_candidates(2)
    cluster.stop_here(away)
    eventually(lambda: cluster.member("a") == {}, "it has gone")
    new = rotate.rotate(cluster.connection, Author("me", "a test", now_ms()), PATIENCE_S).ring.signs.encode()

    def signs() -> bool:
        last = read_all(cluster.bootstrap, cluster.names.checkpoint)[-1:]
        return any((dict(one.headers)[H_SIGNATURE] or b"").startswith(new) for one in last)

    eventually(signs, "the new key signs")
    producer.schedule(cluster.target(), b"before").result(PATIENCE_S)
    cluster.wait_delivered(1)
    cluster.stop_here(rotating)
    cluster.kazoo.delete(cluster.znodes.keys.rpartition("/")[0], recursive=True)
    cluster.restore_settings()
    return cluster.start_here("a")


@pytest.mark.walks("keys-behind")
def test_a_node_that_lacks_the_newest_key_does_not_lead_before_another_one_has_put_it_back(
    cluster: Cluster, producer: DelayProducer
) -> None:
    lose_zookeeper_after_a_rotation(cluster, producer)
    assert "puts the key back" in refused(cluster, "a", "keys-behind")["way_out"]
    cluster.start_here("b")
    cluster.wait_candidates(2)
    with registry(cluster.connection) as znodes:
        assert [(entry.what, entry.author.by) for entry in znodes.history()] == [
            ("settings restored", "somebody"),
            ("keys put back", "b"),
        ]
    producer.schedule(cluster.target(), b"after").result(PATIENCE_S)
    cluster.wait_delivered(2)
    cluster.tail.catch_up()
    assert [got.value for got in cluster.delivered] == [b"before", b"after"]
    eventually(lambda: {cluster.member(node).get("state") for node in "ab"} == CAUGHT_UP, "none refuses")


def test_where_no_node_has_the_newest_key_any_more_the_way_out_leads_on(
    cluster: Cluster, producer: DelayProducer
) -> None:
    refusing = lose_zookeeper_after_a_rotation(cluster, producer)
    assert cluster.znodes.keys in refused(cluster, "a", "keys-behind")["way_out"]
    cluster.stop_here(refusing)
    eventually(lambda: cluster.member("a") == {}, "it has gone")
    cluster.kazoo.delete(cluster.znodes.keys)
    assert cluster_topics.create(cluster.connection, new_keys=True).keys_made
    shutil.rmtree(cluster.data_dir("a"))
    cluster.start_here("a")
    producer.schedule(cluster.target(), b"after").result(PATIENCE_S)
    cluster.wait_delivered(2)
    cluster.tail.catch_up()
    assert [got.value for got in cluster.delivered] == [b"before", b"after"]


def test_a_key_that_not_every_node_knows_does_not_sign(
    cluster: Cluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    cluster.start_here("a")
    monkeypatch.setattr("node.inspection.INSPECT_EVERY_S", 3_600.0)
    cluster.wait_state("a", NodeState.LEADER)
    before = cluster.keys.signs
    with pytest.raises(UnavailableError, match="signs nothing yet: a has not said"):
        rotate.rotate(cluster.connection, Author("me", "a test", now_ms()), 0.5)
    assert cluster.keys.signs == before
    monkeypatch.setattr("node.inspection.INSPECT_EVERY_S", 0.0)
    ring = rotate.rotate(cluster.connection, Author("me", "a test", now_ms()), PATIENCE_S).ring
    assert len(ring.keys) == 2, "the one that waited is taken"
