"""Cancels by source on real nodes: what waits, chains that have no id, and what is too late."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from delayline import DelayProducer, cron, every
from delayline.headers import H_OCCURRENCE, H_SOURCE
from delayline.receipt import Receipt
from ops.clients.nodes import lanes_of
from ops.message.lookup import show_source
from tests.support.cluster import Cluster
from tests.support.requests import now_ms
from tests.support.waiting import PATIENCE_S, becomes, eventually

SECOND_MS = 1_000


@pytest.fixture
def producer(cluster: Cluster) -> Iterator[DelayProducer]:
    config = {"bootstrap.servers": cluster.bootstrap, "linger.ms": 0, "log_level": 0}
    with DelayProducer(config, cluster=cluster.name, outcomes=True) as made:
        yield made


def count(cluster: Cluster, value: bytes) -> int:
    return sum(got.value == value for got in cluster.delivered)


def told(receipt: Receipt) -> tuple[str, str | None]:
    """What became of a cancel, and the source that it names."""
    outcome = receipt.outcome(PATIENCE_S)
    return outcome.outcome, outcome.root


def pass_by(cluster: Cluster, producer: DelayProducer, at_ms: int) -> None:
    """Waits until all that is due by then has been delivered, and reads it."""
    value = b"by %d" % at_ms
    producer.schedule(cluster.target(), value, deliver_at=at_ms)
    cluster.tail.wait(lambda: count(cluster, value) == 1, "the time has passed")
    cluster.tail.catch_up()


def test_messages_without_an_id_are_cancelled_and_the_others_arrive(
    cluster: Cluster, producer: DelayProducer
) -> None:
    cluster.start_here("a")
    made = [producer.schedule(cluster.target(), b"%d" % n, after="8s") for n in range(200)]
    cancelled, arriving = made[::2], made[1::2]
    answers = [told(producer.cancel(source=receipt)) for receipt in cancelled]
    assert answers == [("cancelled", receipt.source) for receipt in cancelled]
    assert told(producer.cancel(source=str(cancelled[0].source))) == ("unknown", cancelled[0].source)
    pass_by(cluster, producer, now_ms() + 8 * SECOND_MS)
    assert sorted(int(got.value or b"") for got in cluster.delivered if (got.value or b"").isdigit()) == list(
        range(1, 200, 2)
    )
    late = arriving[0]
    assert told(producer.cancel(source=late)) == ("too-late", late.source)


def test_chains_without_an_id_end_with_a_cancel_of_their_source_through_a_killed_leader(
    cluster: Cluster, producer: DelayProducer
) -> None:
    for node_id in ("a", "b"):
        cluster.start(node_id)
    cluster.wait_candidates(2)
    chains = [
        producer.schedule(cluster.target(), b"chain", repeat=every("1s", times=1_000)),
        producer.schedule(cluster.target(), b"chain", repeat=cron("* * * * * *", times=1_000)),
    ]
    cluster.tail.wait(lambda: count(cluster, b"chain") >= 4, "both have begun")
    cluster.leader().kill()
    assert [told(producer.cancel(source=one)) for one in chains] == [
        ("cancelled", one.source) for one in chains
    ]
    cluster.tail.catch_up()
    before = count(cluster, b"chain")
    pass_by(cluster, producer, now_ms() + 3 * SECOND_MS)
    assert count(cluster, b"chain") == before
    numbers = [
        (got.text(H_SOURCE), got.number(H_OCCURRENCE)) for got in cluster.delivered if got.value == b"chain"
    ]
    assert len(numbers) == len(set(numbers))


def test_a_source_that_is_not_there_yet_is_rejected(cluster: Cluster, producer: DelayProducer) -> None:
    cluster.start_here("a")
    outcome = producer.cancel(source=f"{cluster.name}.buffer/0/99999").outcome(PATIENCE_S)
    assert (outcome.outcome, outcome.code) == ("dead-lettered", "bad-source")


def test_the_message_of_a_source_is_looked_up(cluster: Cluster, producer: DelayProducer) -> None:
    cluster.start_here("a")
    times = {"waits": "1h", "gone": "1h", "there": "1ms"}
    made = {name: producer.schedule(cluster.target(), name, after=after) for name, after in times.items()}
    assert told(producer.cancel(source=made["gone"]))[0] == "cancelled"
    cluster.wait_delivered(1)
    eventually(lambda: lanes_of(cluster.connection, None)[1][0].nodes, "the node says where it answers")

    def states() -> dict[str, str]:
        sources = {name: receipt.result(PATIENCE_S) for name, receipt in made.items()}
        shown = {name: show_source(cluster.connection, at, None, "recent") for name, at in sources.items()}
        return {name: answer.message.state for name, answer in shown.items()}

    becomes(states, {"waits": "pending", "gone": "cancelled", "there": "delivered"})


def test_a_message_with_an_id_is_cancelled_by_its_source_until_it_is_replaced(
    cluster: Cluster, producer: DelayProducer
) -> None:
    cluster.start_here("a")
    first = producer.schedule(cluster.target(), b"first", id="x", after="1h")
    second = producer.schedule(cluster.target(), b"second", id="x", after="1h")
    producer.reschedule("x", after="2h").outcome(PATIENCE_S)
    assert told(producer.cancel(source=first)) == ("unknown", first.source)
    assert told(producer.cancel(source=second)) == ("cancelled", second.source)
    assert producer.cancel("x").outcome(PATIENCE_S).outcome == "unknown"
