"""The checkpoint topic as a node reads it: past markers and open transactions, deleted and made anew."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from functools import partial
from typing import Any

import pytest
from confluent_kafka import Producer

from delayline.signing import Keyring
from node.core.ports import Unanswered
from node.kafka.checkpoints import CheckpointReader, KafkaLog, read_last
from node.kafka.own_checkpoints import headers_of
from node.refusal import Refusing
from node.worker import Roster
from ops.checkpoint import show
from ops.clients.zookeeper import registry
from store.checkpoint import Checkpoint
from tests.support.checkpoints import sample_checkpoint
from tests.support.cluster import Cluster
from tests.support.fixtures import MakeCluster
from tests.support.keys import FixedKeys
from tests.support.requests import OpenTransaction, Sender, key_in
from tests.support.waiting import PATIENCE_S, becomes, eventually


class Writer:
    """Writes checkpoints as a leader does."""

    def __init__(self, cluster: Cluster, id_: str | None = None) -> None:
        self._topic = cluster.names.checkpoint
        self.keys = cluster.keys
        self._producer = Producer(
            {
                "bootstrap.servers": cluster.bootstrap,
                "transactional.id": id_ or f"{cluster.name}-writer",
                "linger.ms": 0,
                "log_level": 0,
            }
        )
        self._producer.list_topics(self._topic, timeout=PATIENCE_S)
        self._producer.init_transactions(PATIENCE_S)

    def commit(self, epoch: int, lane: int = 0) -> None:
        self.begin(epoch, lane)
        self.commit_open()

    def commit_open(self) -> None:
        self._producer.commit_transaction(PATIENCE_S)

    def abort(self, epoch: int) -> None:
        self.begin(epoch)
        self.end()

    def begin(self, epoch: int, lane: int = 0) -> None:
        """Leaves it open."""
        written = sample_checkpoint(lane, epoch=epoch)
        self._producer.begin_transaction()
        raw = written.encode()
        headers = headers_of(written, raw, self._topic, self.keys)
        self._producer.produce(self._topic, raw, written.record_key, lane, headers=headers)
        assert self._producer.flush(PATIENCE_S) == 0

    def end(self) -> None:
        self._producer.abort_transaction(PATIENCE_S)


@pytest.fixture
def writer(cluster: Cluster) -> Writer:
    return Writer(cluster)


@pytest.fixture
def follower(cluster: Cluster) -> Iterator[CheckpointReader]:
    config = cluster.node_config("n").client_config()
    follower = CheckpointReader(config, cluster.names, 0, FixedKeys(cluster.keys), lambda: None)
    follower.start(Roster())
    yield follower
    follower.stop()
    follower.join()


@pytest.fixture
def kafka_log(cluster: Cluster, follower: CheckpointReader) -> KafkaLog:
    return KafkaLog(cluster.node_config("n").client_config(), cluster.names, 0, [0, 1], follower)


def last(cluster: Cluster, lane: int = 0) -> int | None:
    """The epoch of the last checkpoint that is found."""
    found = read_last(cluster.connection.client_config(), cluster.names.checkpoint, lane, cluster.keys)
    return None if found is None else found.epoch


def test_an_empty_topic_has_no_last_checkpoint(cluster: Cluster) -> None:
    assert last(cluster) is None


def test_the_last_checkpoint_is_the_last_one_committed(cluster: Cluster, writer: Writer) -> None:
    for epoch in (1, 2, 3):
        writer.commit(epoch)
    writer.abort(4)
    assert last(cluster) == 3


def test_the_last_checkpoint_is_found_behind_many_aborted_ones(cluster: Cluster, writer: Writer) -> None:
    writer.commit(1)
    for epoch in range(2, 102):
        writer.abort(epoch)
    assert last(cluster) == 1


def test_an_open_transaction_does_not_hold_the_reader_up(cluster: Cluster, writer: Writer) -> None:
    writer.commit(1)
    writer.begin(2)
    assert last(cluster) == 1
    writer.end()


def test_a_mirror_that_is_there_before_its_commit_can_be_read_is_no_alarm(
    cluster: Cluster, writer: Writer, monkeypatch: pytest.MonkeyPatch
) -> None:
    written = [writer.commit_open]

    def looked(*place: Any) -> Checkpoint | None:
        found = read_last(*place)
        if written:
            written.pop()()
        return found

    monkeypatch.setattr(show, "read_last", looked)
    writer.begin(1)
    with registry(cluster.connection) as znodes:
        znodes.mirror(0).write(sample_checkpoint(0, epoch=1).encode())
    (pair,) = show.show(cluster.connection).pairs
    assert (pair.in_topic, pair.alarming) == (pair.in_znode, False)


class ChangingKeys:
    """Implements `node.core.ports.KeyringSource`: others become known."""

    def __init__(self, ring: Keyring) -> None:
        self.ring = ring


def test_what_is_signed_with_a_key_that_is_not_known_yet_is_waited_for(
    cluster: Cluster, writer: Writer
) -> None:
    both = cluster.keys.with_another(0)
    writer.commit(1)
    writer.keys = replace(both, signs=both.keys[-1].id)
    writer.commit(2)
    Writer(cluster)  # waits for the markers
    keys = ChangingKeys(cluster.keys)
    config = cluster.node_config("n").client_config()
    follower = CheckpointReader(config, cluster.names, 0, keys, lambda: None)
    kafka_log = KafkaLog(config, cluster.names, 0, [0, 1], follower)
    follower.start(Roster())
    try:
        with pytest.raises(Refusing, match="keys-behind"):
            kafka_log.last_checkpoint()
        assert follower.latest() is None
        keys.ring = both
        found = kafka_log.last_checkpoint()
        assert found is not None
        assert found.epoch == 2
        assert follower.refusal is None
    finally:
        follower.stop()
        follower.join()


def test_each_lane_has_its_own_last_checkpoint(make_cluster: MakeCluster) -> None:
    cluster = make_cluster(lanes=2)
    writer = Writer(cluster)
    writer.commit(1, lane=0)
    writer.commit(2, lane=1)
    Writer(cluster)  # waits for the markers
    assert (last(cluster, 0), last(cluster, 1)) == (1, 2)


def test_a_recovery_reads_what_was_committed_a_moment_ago(
    cluster: Cluster, follower: CheckpointReader, kafka_log: KafkaLog
) -> None:
    """A commit returns before its markers are written; `init_transactions` waits for them."""
    eventually(follower.started, "it has read to the end once")
    writer = Writer(cluster)
    for epoch in range(1, 6):
        writer.commit(epoch)
        writer = Writer(cluster)
        assert kafka_log.last_checkpoint() == sample_checkpoint(epoch=epoch)


def test_a_recovery_waits_for_the_end_of_a_strangers_transaction_and_goes_on_from_what_is_behind_it(
    cluster: Cluster, writer: Writer, kafka_log: KafkaLog, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("node.kafka.checkpoints.TIMEOUT_S", 0.5)
    writer.commit(1)
    stranger = Producer(
        {"bootstrap.servers": cluster.bootstrap, "transactional.id": f"{cluster.name}-s", "log_level": 0}
    )
    stranger.init_transactions(PATIENCE_S)
    stranger.begin_transaction()
    stranger.produce(cluster.names.checkpoint, b"x", b"x", 0)
    assert stranger.flush(PATIENCE_S) == 0
    writer.commit(2)
    with pytest.raises(Unanswered, match="a transaction is open there, at offset 2, "):
        kafka_log.last_checkpoint()
    stranger.abort_transaction(PATIENCE_S)
    monkeypatch.undo()
    assert kafka_log.last_checkpoint() == sample_checkpoint(epoch=2)


def test_a_recovery_goes_on_from_nothing_while_a_transaction_of_the_lanes_own_lacks_its_marker(
    cluster: Cluster, kafka_log: KafkaLog
) -> None:
    """It is a later leader's, which has fenced this one, or was left open since."""
    id_ = cluster.names.transactional_id(0, "b")
    writer = Writer(cluster, id_)
    writer.commit(1)
    writer.begin(2)
    with pytest.raises(Unanswered, match=f"lacks a marker of {id_}$"):
        kafka_log.last_checkpoint()
    writer.end()


def test_a_missing_topic_is_told_from_an_empty_one(
    cluster: Cluster, follower: CheckpointReader, kafka_log: KafkaLog
) -> None:
    assert kafka_log.last_checkpoint() is None
    cluster.delete_topic(cluster.names.checkpoint)
    with pytest.raises(Refusing, match="checkpoint-topic-missing"):
        kafka_log.last_checkpoint()


def test_a_topic_made_anew_has_none_of_the_old_checkpoints(
    cluster: Cluster, writer: Writer, follower: CheckpointReader, kafka_log: KafkaLog
) -> None:
    writer.commit(1)
    Writer(cluster)  # waits for the markers
    assert kafka_log.last_checkpoint() == sample_checkpoint(epoch=1)
    cluster.delete_topic(cluster.names.checkpoint)
    cluster.create_again()
    becomes(follower.latest, None)
    assert kafka_log.last_checkpoint() is None
    Writer(cluster).commit(7)
    Writer(cluster)  # waits for the markers
    assert kafka_log.last_checkpoint() == sample_checkpoint(epoch=7)


def test_a_follower_that_begins_without_the_topic_finds_it_when_it_is_made(cluster: Cluster) -> None:
    cluster.delete_topic(cluster.names.checkpoint)
    follower = CheckpointReader(
        cluster.node_config("n").client_config(), cluster.names, 0, FixedKeys(cluster.keys), lambda: None
    )
    follower.start(Roster())
    eventually(lambda: follower.refusal, "it says that the topic is missing")
    cluster.create_again()
    eventually(follower.started, "it reads the new topic")
    becomes(lambda: follower.refusal, None)
    follower.stop()
    follower.join()


def test_stable_ends_stop_at_an_open_transaction_and_high_watermarks_do_not(
    cluster: Cluster, kafka_log: KafkaLog
) -> None:
    with Sender(cluster) as sender:
        sender.schedule(key=key_in(0))
        sender.flush()
    foreign = OpenTransaction(cluster)
    foreign.begin([b"open"], key=key_in(0))
    becomes(partial(_ends, kafka_log), ({0: 1, 1: 0}, {0: 2, 1: 0}))
    foreign.commit()
    becomes(partial(_ends, kafka_log), ({0: 3, 1: 0}, {0: 3, 1: 0}))


def _ends(kafka_log: KafkaLog) -> tuple[dict[int, int], dict[int, int]]:
    return kafka_log.last_stable_offsets(), kafka_log.high_watermarks()
