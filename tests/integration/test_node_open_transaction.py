"""A foreign transaction left open in the buffer holds back what comes behind it, and nothing else."""

from __future__ import annotations

from tests.support.cluster import Cluster
from tests.support.fates import check_exactly_once
from tests.support.requests import Ledger, OpenTransaction, Sender, key_in, now_ms


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
