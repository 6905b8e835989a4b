"""A foreign transaction left open in the buffer blocks what comes behind it, and nothing else."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from delayline import DelayProducer, Receipt, every
from tests.support.cluster import Cluster
from tests.support.fates import check_exactly_once
from tests.support.requests import Ledger, OpenTransaction, Sender, key_in, now_ms
from tests.support.waiting import PATIENCE_S, eventually


@pytest.fixture
def producer(cluster: Cluster) -> Iterator[DelayProducer]:
    with DelayProducer(cluster.bootstrap, cluster=cluster.name, outcomes=True) as producer:
        yield producer


def test_an_open_transaction_delays_only_what_is_behind_it(cluster: Cluster) -> None:
    cluster.start_here("a")
    cluster.wait_epoch(1)
    foreign = OpenTransaction(cluster)
    held, free = key_in(0), key_in(1)
    with Sender(cluster) as sender:
        due_ms = now_ms() + 500
        before = [sender.schedule(at_ms=due_ms, key=held) for _ in range(5)]
        sender.flush()
        foreign.begin([b"aborted"], key=held)
        behind = [sender.schedule(key=held) for _ in range(5)]
        beside = [sender.schedule(key=free) for _ in range(5)]
        ledger = sender.flush()
        cluster.wait_delivered(10)
        arrived = {got.text("delay-source") for got in cluster.delivered}
        assert arrived == {receipt.result() for receipt in before + beside}
        foreign.abort()
        cluster.wait_delivered(15)
    check_exactly_once(cluster, ledger)
    assert {receipt.result() for receipt in behind} <= {got.text("delay-source") for got in cluster.delivered}


def test_what_an_open_transaction_commits_at_last_is_late_and_delivered_once(cluster: Cluster) -> None:
    cluster.start_here("a")
    cluster.wait_epoch(1)
    foreign = OpenTransaction(cluster)
    ledger = Ledger()
    with Sender(cluster) as sender:
        foreign.begin([b"late %d" % number for number in range(50)])
        for number in range(50):
            sender.schedule(key=key_in(number % 2), at_ms=now_ms() + 200)
        ledger.add(foreign.commit())
        ledger.add(sender.flush())
    check_exactly_once(cluster, ledger)


def test_a_node_that_starts_behind_an_open_transaction_catches_up(cluster: Cluster) -> None:
    foreign = OpenTransaction(cluster)
    with Sender(cluster) as sender:
        first = sender.schedule(b"before", key=key_in(0))
        sender.flush()
        foreign.begin([b"open"], key=key_in(0))
        cluster.start_here("a")
        cluster.wait_delivered(1)
        ledger = sender.flush()
    assert cluster.delivered[0].text("delay-source") == first.result()
    ledger.add(foreign.commit())
    check_exactly_once(cluster, ledger)


def test_what_follows_behind_an_open_transaction_holds_up_nothing_else(
    cluster: Cluster, producer: DelayProducer
) -> None:
    """The next occurrence stands behind a transaction that is open, where no node can read it."""
    cluster.start_here("a")
    cluster.wait_epoch(1)
    foreign = OpenTransaction(cluster)
    held, free = key_in(0), key_in(1)
    chain = producer.schedule(cluster.target(), b"tick", id=held.decode(), repeat=every("1s", times=600))
    cluster.wait_delivered(1)
    foreign.begin([b"open"], key=held)
    wait_written_behind(cluster, foreign)
    with Sender(cluster) as sender:
        beside = [sender.schedule(key=free, after_ms=number) for number in range(20)]
        ledger = sender.flush()
    cluster.tail.wait(lambda: arrived(cluster, beside), "they are delivered while the transaction is open")
    ledger.add(foreign.commit())
    assert producer.cancel(held.decode()).outcome(PATIENCE_S).outcome == "cancelled"
    cluster.tail.catch_up()
    numbers = [got.number("delay-occurrence") for got in cluster.delivered if got.value == b"tick"]
    assert numbers == list(range(1, len(numbers) + 1)), f"each occurrence of {chain.result()} once"


def test_a_message_that_was_moved_behind_an_open_transaction_waits_alone(cluster: Cluster) -> None:
    """The second leader knows from the checkpoint, and from nothing else, that it was moved."""
    held, free = key_in(0), key_in(1)
    foreign, due_ms = OpenTransaction(cluster), now_ms() + 3_000
    with Sender(cluster) as sender:
        moved = sender.schedule(b"moved", id=held.decode(), key=held, at_ms=due_ms)
        sender.reschedule(held.decode(), at_ms=due_ms + 500)
        sender.flush()
        foreign.begin([b"open"], key=held)
        first = cluster.start_here("a")
        wait_written_behind(cluster, foreign)
        before = [sender.schedule(key=free, at_ms=due_ms + number) for number in range(10)]
        sender.flush()
        cluster.stop_here(first)
        cluster.start_here("b")
        cluster.wait_leadership(2)
        behind = [sender.schedule(key=free, at_ms=due_ms + 1_000 + number) for number in range(10)]
        sender.flush()
        cluster.tail.wait(lambda: arrived(cluster, before + behind), "the others are delivered meanwhile")
        assert not arrived(cluster, [moved]), "where it was is not where it is"
        ledger = sender.flush()
    ledger.add(foreign.commit())
    fates = check_exactly_once(cluster, ledger)
    (got,) = fates.deliveries[moved.result()]
    assert got.number("delay-scheduled-for") == due_ms + 500


def wait_written_behind(cluster: Cluster, foreign: OpenTransaction) -> None:
    """Until something has been written back that no node can read yet."""

    def is_behind() -> bool:
        last = cluster.checkpoints()[-1:]
        return any(one.written_back[0] > foreign.first_offset for one in last)

    eventually(is_behind, "something is written back behind the open transaction")


def arrived(cluster: Cluster, receipts: list[Receipt]) -> bool:
    """Whether all of them were delivered."""
    there = {got.text("delay-source") for got in cluster.delivered}
    return {receipt.result() for receipt in receipts} <= there
