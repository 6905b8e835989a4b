"""What callers learn of their requests, from a real node's answers."""

from __future__ import annotations

import json
import threading
from collections import Counter
from collections.abc import Iterator
from dataclasses import asdict

import pytest
from confluent_kafka import Consumer, Producer, TopicPartition
from confluent_kafka.admin import AclOperation

from delayline import DelayProducer, NoOutcomeError, Outcome, Receipt, UnansweredError
from delayline.names import parse_source
from delayline.requests import BufferRecord
from store.checkpoint import Checkpoint
from tests.support.cluster import Cluster
from tests.support.fixtures import MakeCluster
from tests.support.requests import now_ms
from tests.support.waiting import PATIENCE_S, eventually

PENDING = 2_000
HOUR_MS = 3_600_000
UNKNOWN = Outcome("unknown", code=None, detail=None, epoch=1, at_ms=1, message=None, root=None)


@pytest.fixture
def served(make_cluster: MakeCluster) -> Cluster:
    """A cluster with a leader."""
    cluster = make_cluster(lanes=2)
    for lane, node_id in enumerate("ab"):
        cluster.start_here(node_id, lane=lane)
        cluster.wait_epoch(1, lane)
    return cluster


@pytest.fixture
def producer(served: Cluster) -> Iterator[DelayProducer]:
    with DelayProducer(served.bootstrap, cluster=served.name, outcomes=True) as producer:
        yield producer


def results(receipts: list[Receipt]) -> list[str]:
    return [receipt.result(PATIENCE_S) for receipt in receipts]


def outcomes(receipts: list[Receipt]) -> list[tuple[str, str | None]]:
    """What became of each, and of which message."""
    return [(said.outcome, said.message) for said in (receipt.outcome(PATIENCE_S) for receipt in receipts)]


def test_half_is_cancelled_and_exactly_the_other_half_arrives_at_its_new_time(
    served: Cluster, producer: DelayProducer
) -> None:
    ids = [f"order-{number}" for number in range(PENDING)]
    pending = [producer.schedule(served.target(), id_, id=id_, after="1h") for id_ in ids]
    sources = results(pending)
    cancels = [producer.cancel(id_) for id_ in ids[::2]]
    begin_ms = now_ms() + 500
    times_ms = {id_: begin_ms + number for number, id_ in enumerate(ids[1::2])}
    moves = [producer.reschedule(id_, deliver_at=at_ms) for id_, at_ms in times_ms.items()]

    assert outcomes(cancels) == [("cancelled", source) for source in sources[::2]]
    assert outcomes(moves) == [("rescheduled", source) for source in sources[1::2]]
    served.wait_delivered(len(moves))
    arrived = Counter((got.text("delay-id"), got.number("delay-scheduled-for")) for got in served.delivered)
    assert arrived == Counter(times_ms.items())


def test_each_request_learns_what_became_of_it(served: Cluster, producer: DelayProducer) -> None:
    target = served.target()
    (first, gone) = (producer.schedule(target, b"v", id=id_, after="1h") for id_ in ("a", "gone"))
    kept = producer.schedule(target, b"v", id="a", after="2h", if_exists="keep")
    second = producer.schedule(target, b"v", id="a", after="3h")
    now = producer.run_now("gone")
    assert outcomes([kept, second, now]) == [
        ("duplicate", first.result()),
        ("replaced", first.result()),
        ("rescheduled", gone.result()),
    ]
    served.wait_delivered(1)

    late, nobody = producer.cancel("gone"), producer.reschedule("nobody", after="1h")
    rejected = producer.send(BufferRecord(b"k", b"v", [("delay-oops", b"")]))
    expired = producer.schedule(target, b"v", expire_at=1)
    assert outcomes([nobody, rejected, expired]) == [
        ("unknown", None),
        ("dead-lettered", rejected.result()),
        ("expired", expired.result()),
    ]
    too_late, reject = late.outcome(PATIENCE_S), rejected.outcome(0)
    assert (too_late.outcome, too_late.root) == ("too-late", gone.result())
    assert too_late.epoch == answering(served, late.result()).epoch
    assert (reject.code, "delay-oops" in (reject.detail or "")) == ("unknown-header", True)


def answering(cluster: Cluster, control: str) -> Checkpoint:
    """That of the transaction in which a cancel is answered."""
    _, partition, offset = parse_source(control)
    found = eventually(
        lambda: [one for one in cluster.checkpoints(partition % 2) if one.seen[partition] > offset],
        "it is answered",
    )
    return found[0]


def test_an_outcome_that_is_there_before_the_acknowledgement_was_looked_at_is_not_missed(
    served: Cluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    looking = True

    class Blinking(Producer):
        def poll(self, timeout: float = -1) -> int:
            return super().poll(timeout) if looking else 0

    monkeypatch.setattr("delayline.producer.Producer", Blinking)
    with DelayProducer(served.bootstrap, cluster=served.name, outcomes=True) as producer:
        producer.cancel("warm").outcome(PATIENCE_S)
        looking = False
        cancel = producer.cancel("nobody")
        served.tail.wait(lambda: len(served.outcomes) == 2, "both are answered")
        assert not cancel.done()
        looking = True
        assert cancel.outcome(PATIENCE_S).outcome == "unknown"


def test_threads_wait_for_outcomes_of_a_producer_that_they_share(producer: DelayProducer) -> None:
    learned: list[Outcome] = []

    def cancel(number: int) -> None:
        learned.extend(producer.cancel(f"{number}-{i}").outcome(PATIENCE_S) for i in range(20))

    threads = [threading.Thread(target=cancel, args=(number,)) for number in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert Counter(said.outcome for said in learned) == {"unknown": 80}


def test_an_outcome_can_be_waited_for_again(cluster: Cluster) -> None:
    with DelayProducer(cluster.bootstrap, cluster=cluster.name, outcomes=True) as producer:
        cancel = producer.cancel("a")
        cancel.result(PATIENCE_S)
        with pytest.raises(UnansweredError, match="a lane without a leader"):
            cancel.outcome(0.1)
        cluster.start_here("a")
        assert cancel.outcome(PATIENCE_S).outcome == "unknown"


def test_a_closed_producer_keeps_the_outcomes_that_it_has_read_and_its_thread_has_ended(
    served: Cluster,
) -> None:
    with DelayProducer(served.bootstrap, cluster=served.name, outcomes=True) as closing:
        asked = closing.cancel("a")
        asked.outcome(PATIENCE_S)
        assert reading_threads(served) == 1
    assert reading_threads(served) == 0
    assert asked.outcome(0).outcome == "unknown"


def reading_threads(cluster: Cluster) -> int:
    return sum(cluster.names.outcomes in thread.name for thread in threading.enumerate())


def test_no_outcome_is_waited_for_once_the_producer_is_closed(cluster: Cluster) -> None:
    with DelayProducer(cluster.bootstrap, cluster=cluster.name, outcomes=True) as producer:
        unanswered = producer.cancel("a")
    with pytest.raises(NoOutcomeError, match="closed or dropped"):
        unanswered.outcome(PATIENCE_S)


def test_a_producer_that_is_dropped_reads_no_further(cluster: Cluster) -> None:
    receipt = DelayProducer(cluster.bootstrap, cluster=cluster.name, outcomes=True).cancel("a")
    with pytest.raises(NoOutcomeError, match="closed or dropped"):
        receipt.outcome(PATIENCE_S)


def test_where_reading_begins_is_known_before_the_first_request_is_sent(
    cluster: Cluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    """An end that is looked up later may be behind the answer."""
    begins: list[int] = []

    class Watched(Consumer):
        def assign(self, partitions: list[TopicPartition]) -> None:
            begins.extend(partition.offset for partition in partitions)
            super().assign(partitions)

    monkeypatch.setattr("delayline.outcome_reader.Consumer", Watched)
    write(cluster, b"?", b"?")
    with DelayProducer(cluster.bootstrap, cluster=cluster.name, outcomes=True) as producer:
        producer.cancel("a")
    assert begins == [1]


def test_outcomes_that_were_deleted_unread_are_said_to_be_lost_and_later_ones_are_read(
    cluster: Cluster,
) -> None:
    write(cluster, b"?", b"?")
    with DelayProducer(cluster.bootstrap, cluster=cluster.name, outcomes=True) as producer:
        cancel = producer.cancel("a")
        cancel.result(PATIENCE_S)
        cluster.delete_topic(cluster.names.outcomes)
        cluster.create_again()
        with pytest.raises(NoOutcomeError, match=r"no longer read.*those of later requests are read"):
            cancel.outcome(PATIENCE_S)
        later = producer.cancel("a")
        write(cluster, later.result(PATIENCE_S).encode(), json.dumps(asdict(UNKNOWN)).encode())
        assert later.outcome(PATIENCE_S) == UNKNOWN


def test_an_outcomes_topic_that_may_not_be_read_is_said_at_once(cluster: Cluster) -> None:
    cluster.allow_only(cluster.names.outcomes, AclOperation.DESCRIBE)
    with (
        DelayProducer(cluster.bootstrap, cluster=cluster.name, outcomes=True) as producer,
        pytest.raises(NoOutcomeError, match=r"Topic authorization failed; make a new producer"),
    ):
        producer.cancel("a").outcome(PATIENCE_S)


def write(cluster: Cluster, key: bytes, value: bytes) -> None:
    """To the outcomes topic, which is then no longer empty."""
    producer = Producer({"bootstrap.servers": cluster.bootstrap})
    producer.produce(cluster.names.outcomes, value, key)
    assert producer.flush(PATIENCE_S) == 0
