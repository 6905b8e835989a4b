"""What a real coordinator says of the lane's own ids, on which node/kafka/own_transactions.py relies."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from typing import Any

import pytest
from confluent_kafka import KafkaError, KafkaException, Producer

from node.core.ports import Doubtful
from node.kafka.fetch.coordinators import (
    ABORTED,
    COMMITTED,
    ONGOING,
    Coordinators,
    ProducerAt,
    TransactionState,
)
from node.kafka.own_transactions import OwnTransactions
from tests.support.cluster import TARGET, Cluster
from tests.support.keys import KEYRING, FixedKeys
from tests.support.transactions import last_transactions
from tests.support.waiting import PATIENCE_S


@pytest.fixture
def own(cluster: Cluster) -> Iterator[OwnTransactions]:
    config = cluster.node_config("n").client_config()
    made = OwnTransactions(config, cluster.names, 0, 10_000, FixedKeys(KEYRING))
    yield made
    made.close()


def begun(cluster: Cluster) -> Producer:
    """A producer on the lane's first id, whose transaction has a record."""
    id_ = cluster.names.transactional_id(0, "a")
    producer = Producer({"bootstrap.servers": cluster.bootstrap, "transactional.id": id_, "log_level": 0})
    producer.init_transactions(PATIENCE_S)
    producer.begin_transaction()
    producer.produce(cluster.target(), b"x", partition=0)
    assert producer.flush(PATIENCE_S) == 0
    return producer


def state(cluster: Cluster) -> str | None:
    last = last_transactions(cluster)["a"]
    return None if last is None else last.state


def settle(own: OwnTransactions) -> None:
    own.settle(lambda: False, str)


def test_what_is_open_is_aborted_and_that_is_known_from_then_on(
    cluster: Cluster, own: OwnTransactions
) -> None:
    begun(cluster)
    settle(own)
    assert state(cluster) == ABORTED


def test_its_producer_commits_no_more(cluster: Cluster, own: OwnTransactions) -> None:
    producer = begun(cluster)
    settle(own)
    with pytest.raises(KafkaException) as caught:
        producer.commit_transaction(PATIENCE_S)
    assert caught.value.args[0].code() == KafkaError._FENCED


def test_what_was_committed_is_known_from_then_on(cluster: Cluster, own: OwnTransactions) -> None:
    begun(cluster).commit_transaction(PATIENCE_S)
    settle(own)
    assert state(cluster) == COMMITTED


def test_an_id_that_was_never_used_is_left_as_it_is(cluster: Cluster, own: OwnTransactions) -> None:
    settle(own)
    assert state(cluster) is None


def test_a_transaction_that_only_ends_writes_a_marker_and_no_record(
    cluster: Cluster, own: OwnTransactions
) -> None:
    begun(cluster).commit_transaction(PATIENCE_S)
    settle(own)
    own.abort(0, [(cluster.target(), 1)])
    settle(own)
    cluster.tail.catch_up()
    assert cluster.tail.reached(cluster.target(), 1) == 1
    assert [got.partition for got in cluster.delivered_to(TARGET)] == [0]


def test_a_transaction_that_only_commits_writes_a_marker_and_no_record(
    cluster: Cluster, own: OwnTransactions
) -> None:
    begun(cluster).commit_transaction(PATIENCE_S)
    settle(own)
    own.commit(0, [(cluster.target(), 1)])
    settle(own)
    assert state(cluster) == COMMITTED
    cluster.tail.catch_up()
    assert cluster.tail.reached(cluster.target(), 1) == 1
    assert [got.partition for got in cluster.delivered_to(TARGET)] == [0]


def test_who_has_initialised_the_id_meanwhile_is_not_committed_for(
    cluster: Cluster, own: OwnTransactions, monkeypatch: pytest.MonkeyPatch
) -> None:
    begun(cluster).commit_transaction(PATIENCE_S)
    settle(own)
    initialise = Coordinators.initialise

    async def and_another(*of: Any) -> ProducerAt:
        at = await initialise(*of)
        await asyncio.to_thread(begun, cluster)
        return at

    monkeypatch.setattr(Coordinators, "initialise", and_another)
    with pytest.raises(Doubtful):
        own.commit(0, [(cluster.target(), 1)])
    assert state(cluster) == ONGOING


def last(cluster: Cluster) -> TransactionState:
    found = last_transactions(cluster)["a"]
    assert found is not None, "the id was used"
    return found


def test_a_commit_leaves_the_epoch_and_the_time_at_which_the_transaction_began(
    cluster: Cluster, own: OwnTransactions
) -> None:
    producer = begun(cluster)
    before = last(cluster)
    producer.commit_transaction(PATIENCE_S)
    settle(own)
    assert last(cluster) == before._replace(state=COMMITTED)


def test_who_aborts_for_a_producer_raises_the_epoch_by_one_and_leaves_the_time(
    cluster: Cluster, own: OwnTransactions
) -> None:
    begun(cluster)
    before = last(cluster)
    settle(own)
    assert last(cluster) == before._replace(state=ABORTED, epoch=before.epoch + 1)


def test_a_transaction_that_follows_on_the_id_has_the_same_epoch(
    cluster: Cluster, own: OwnTransactions
) -> None:
    """So that the epoch does not tell of which of them the coordinator speaks."""
    producer = begun(cluster)
    before = last(cluster)
    producer.commit_transaction(PATIENCE_S)
    producer.begin_transaction()
    producer.produce(cluster.target(), b"x", partition=0)
    assert producer.flush(PATIENCE_S) == 0
    assert last(cluster).epoch == before.epoch
