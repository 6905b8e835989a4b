"""The lane's two transactional producers on a real broker: fencing, turns, refusals, what becomes visible."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Iterator

import pytest

from node.core.ports import ANY_PARTITION, Doubtful, Fenced, OutboxError, Outgoing, RecordRefused
from node.kafka.broker_links import BrokerLinks
from node.kafka.outbox import KafkaOutbox, KafkaTransaction
from node.kafka.target_answers import TargetAnswers
from node.kafka.target_watch import TargetWatch
from node.kafka.targets import KafkaTargets
from node.worker import Roster
from tests.support.checkpoints import sample_checkpoint
from tests.support.cluster import Cluster
from tests.support.keys import KEYRING, FixedKeys
from tests.support.listed_records import ListedRecords
from tests.support.tail import read_all
from tests.support.waiting import becomes

MakeOutbox = Callable[[], KafkaOutbox]


@pytest.fixture
def make_outbox(cluster: Cluster) -> Iterator[MakeOutbox]:
    """Each is another node's: they share the transactional ids and nothing else."""
    made: list[KafkaOutbox] = []
    watches: list[TargetWatch] = []

    def make() -> KafkaOutbox:
        config = cluster.node_config(f"node-{len(made)}").client_config()
        links = BrokerLinks()
        targets = KafkaTargets(TargetAnswers(config, cluster.names.checkpoint), links.reach, links.poke)
        watches.append(TargetWatch(targets, links))
        watches[-1].start(Roster())
        made.append(
            KafkaOutbox(
                config, cluster.names, 0, 10_000, targets, lambda: None, lambda: False, FixedKeys(KEYRING)
            )
        )
        return made[-1]

    yield make
    for outbox in made:
        outbox.close()
    for watch in watches:
        watch.stop()
    for watch in watches:
        watch.join()


def outgoing(topic: str, value: bytes, partition: int = ANY_PARTITION) -> Outgoing:
    return Outgoing(topic, partition, b"key", value, [], int(time.time() * 1000), None)


def deliver(transaction: KafkaTransaction, *records: Outgoing, flushed: bool = True) -> None:
    """All of one transaction, to its commit; without `flushed` as a small one is, which flushes once."""
    transaction.send(ListedRecords(records))
    if flushed:
        transaction.flush()
    transaction.checkpoint(sample_checkpoint())
    transaction.commit().result()


def sent(outbox: KafkaOutbox, *records: Outgoing) -> KafkaTransaction:
    """A transaction with these and a checkpoint, to be committed."""
    transaction = outbox.begin()
    transaction.send(ListedRecords(records))
    transaction.flush()
    transaction.checkpoint(sample_checkpoint())
    return transaction


def visible(cluster: Cluster) -> list[bytes | None]:
    """What read_committed consumers see: it may be nothing yet of a commit that was just answered."""
    return [got.value for got in read_all(cluster.bootstrap, cluster.target())]


def test_a_transaction_shows_its_records_and_its_checkpoint_once_it_is_committed(
    cluster: Cluster, make_outbox: MakeOutbox
) -> None:
    outbox = make_outbox()
    outbox.open()
    transaction = sent(outbox, outgoing(cluster.target(), b"1"), outgoing(cluster.target(), b"2"))
    assert (visible(cluster), cluster.checkpoints()) == ([], [])
    transaction.commit().result()
    becomes(lambda: visible(cluster), [b"1", b"2"])
    becomes(cluster.checkpoints, [sample_checkpoint()])


def test_the_first_transaction_is_on_a_then_strictly_in_turn(make_outbox: MakeOutbox) -> None:
    outbox = make_outbox()
    for _ in range(2):
        outbox.open()
        a, b = outbox._pair
        used = []
        for _ in range(3):
            transaction = outbox.begin()
            used.append(transaction._ref)
            deliver(transaction)
        assert used == [a, b, a]


def test_opening_aborts_what_a_dead_leader_left_open(cluster: Cluster, make_outbox: MakeOutbox) -> None:
    dead, successor = make_outbox(), make_outbox()
    dead.open()
    for value in (b"on a", b"on b"):
        sent(dead, outgoing(cluster.target(), value))
    while successor.warm_up():
        pass
    successor.open()
    deliver(successor.begin(), outgoing(cluster.target(), b"the successor's"))
    becomes(lambda: visible(cluster), [b"the successor's"])


def test_the_next_transaction_may_be_sent_while_the_one_before_commits(
    cluster: Cluster, make_outbox: MakeOutbox
) -> None:
    outbox = make_outbox()
    outbox.open()
    commit = sent(outbox, outgoing(cluster.target(), b"first")).commit()
    second = outbox.begin()
    second.send(ListedRecords([outgoing(cluster.target(), b"second")]))
    second.flush()
    commit.result()
    second.checkpoint(sample_checkpoint())
    second.commit().result()
    becomes(lambda: sorted(filter(None, visible(cluster))), [b"first", b"second"])


FLUSHED = pytest.mark.parametrize("flushed", [True, False], ids=["flushed", "flushed once"])


@pytest.mark.parametrize(
    ("sent_before", "flushed", "reported"),
    [(True, True, True), (False, True, True), (False, False, True), (True, False, False)],
)
def test_a_leader_that_was_succeeded_is_fenced_and_commits_nothing(
    cluster: Cluster, make_outbox: MakeOutbox, *, sent_before: bool, flushed: bool, reported: bool
) -> None:
    succeeded, successor = make_outbox(), make_outbox()
    succeeded.open()
    succeeded._reported_left *= reported
    transaction = succeeded.begin()
    if sent_before:
        transaction.send(ListedRecords([outgoing(cluster.target(), b"too late")]))
        transaction.flush()
    successor.open()
    late = [outgoing(cluster.target(), b"too late %d" % number) for number in range(100)]
    with pytest.raises(Fenced):
        deliver(transaction, *late, flushed=flushed)
    assert visible(cluster) == []


class NodesLogger(logging.Logger):
    """A node's logger is of a class of its own, whose methods are not found while an exception is set."""


def test_a_leader_is_fenced_also_where_the_client_logs_it_first(
    cluster: Cluster, make_outbox: MakeOutbox
) -> None:
    succeeded, successor = make_outbox(), make_outbox()
    succeeded._config["logger"] = NodesLogger("of a node")
    succeeded.open()
    succeeded._reported_left = 0
    transaction = succeeded.begin()
    transaction.send(ListedRecords([outgoing(cluster.target(), b"too late")]))
    transaction.flush()
    successor.open()
    late = [outgoing(cluster.target(), b"too late %d" % number) for number in range(100)]
    with pytest.raises(Fenced):
        deliver(transaction, *late, flushed=False)


def test_flush_tells_where_in_the_buffer_was_written(cluster: Cluster, make_outbox: MakeOutbox) -> None:
    outbox = make_outbox()
    outbox.open()
    transaction = outbox.begin()
    buffer = cluster.names.buffer
    transaction.send(
        ListedRecords(
            [outgoing(buffer, b"1", 1), outgoing(buffer, b"2", 1), outgoing(cluster.target(), b"3")]
        )
    )
    assert transaction.flush() == {1: [0, 1]}


def test_more_records_than_the_clients_queue_holds_are_sent(
    cluster: Cluster, make_outbox: MakeOutbox
) -> None:
    outbox = make_outbox()
    outbox._config["queue.buffering.max.messages"] = 100
    outbox.open()
    deliver(outbox.begin(), *[outgoing(cluster.target(), b"%d" % number) for number in range(2_000)])
    becomes(lambda: len(visible(cluster)), 2_000)


@FLUSHED
def test_a_record_too_large_for_its_topic_is_refused_with_its_code(
    cluster: Cluster, make_outbox: MakeOutbox, *, flushed: bool
) -> None:
    outbox = opened_with_a_small_target(cluster, make_outbox)
    with pytest.raises(RecordRefused) as refused:
        deliver(outbox.begin(), outgoing(cluster.target("small"), b"x" * 3_000), flushed=flushed)
    assert refused.value.code == "too-large"


@FLUSHED
def test_a_refusal_that_is_not_reported_fails_the_transaction_all_the_same(
    cluster: Cluster, make_outbox: MakeOutbox, *, flushed: bool
) -> None:
    outbox = opened_with_a_small_target(cluster, make_outbox)
    outbox._reported_left = 0
    good, bad = outgoing(cluster.target(), b"1"), outgoing(cluster.target("small"), b"x" * 3_000)
    with pytest.raises(OutboxError):
        deliver(outbox.begin(), good, bad, flushed=flushed)
    assert visible(cluster) == []


def opened_with_a_small_target(cluster: Cluster, make_outbox: MakeOutbox) -> KafkaOutbox:
    cluster.make_topics({cluster.target("small"): {"max.message.bytes": "2000"}})
    outbox = make_outbox()
    outbox.open()
    return outbox


def test_a_partition_that_is_not_there_leaves_the_fate_in_doubt_at_once(
    cluster: Cluster, make_outbox: MakeOutbox
) -> None:
    outbox = make_outbox()
    outbox.open()
    with pytest.raises(Doubtful):
        deliver(outbox.begin(), outgoing(cluster.target(), b"nowhere", 7))


def test_a_commit_tells_the_clocks_difference(make_outbox: MakeOutbox) -> None:
    outbox = make_outbox()
    outbox.clock_offset_ms = 99
    outbox.open()
    deliver(outbox.begin())
    assert abs(outbox.clock_offset_ms) <= 1, "one machine, one clock"
