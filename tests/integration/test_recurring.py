"""Recurring messages and duplicates on real nodes: chains through a kill, controls, what was missed, keep."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import pairwise

import pytest

from delayline import DelayProducer, cron, every
from delayline.headers import H_OCCURRENCE, H_SCHEDULED_FOR, H_SOURCE
from tests.support.cluster import Cluster
from tests.support.fates import outcome_of
from tests.support.requests import now_ms
from tests.support.tail import Got
from tests.support.waiting import eventually

SECOND_MS = 1_000
ONE = b"one"
"""A key: what has it arrives in one partition, and so is read in its order, while it still comes."""


@pytest.fixture
def producer(cluster: Cluster) -> Iterator[DelayProducer]:
    config = {"bootstrap.servers": cluster.bootstrap, "linger.ms": 0, "log_level": 0}
    with DelayProducer(config, cluster=cluster.name) as made:
        yield made


def of(cluster: Cluster, value: bytes) -> list[Got]:
    """The deliveries of the message with this value, in order."""
    found = [got for got in cluster.delivered if got.value == value]
    return sorted(found, key=lambda got: got.number(H_OCCURRENCE))


def times_of(cluster: Cluster, value: bytes) -> list[int]:
    return [got.number(H_SCHEDULED_FOR) for got in of(cluster, value)]


def numbers_of(cluster: Cluster, value: bytes) -> list[int]:
    return [got.number(H_OCCURRENCE) for got in of(cluster, value)]


def wait_for(cluster: Cluster, value: bytes, count: int) -> None:
    cluster.tail.wait(lambda: len(of(cluster, value)) >= count, f"{count} deliveries of {value!r}")


def wait_until(cluster: Cluster, value: bytes, at_ms: int) -> None:
    """Waits for a delivery of the message with this value that is for that time or later."""
    cluster.tail.wait(
        lambda: max(times_of(cluster, value), default=0) >= at_ms, f"{value!r} has come as far as {at_ms}"
    )


def pass_by(cluster: Cluster, producer: DelayProducer, at_ms: int) -> None:
    """Waits until all that is due by then has been delivered, and reads it."""
    value = b"by %d" % at_ms
    producer.schedule(cluster.target(), value, deliver_at=at_ms)
    cluster.tail.wait(lambda: any(got.value == value for got in cluster.delivered), "the time has passed")
    cluster.tail.catch_up()


def test_a_chain_goes_on_through_a_killed_leader_with_no_gap_and_no_double(
    cluster: Cluster, producer: DelayProducer
) -> None:
    for node_id in ("a", "b"):
        cluster.start(node_id)
    cluster.wait_candidates(2)
    named, nameless, crony = b"named", b"nameless", b"cron"
    producer.schedule(cluster.target(), named, id="n", key=b"k", repeat=every("1s", times=5))
    for _ in range(3):
        producer.schedule(cluster.target(), nameless, repeat=every("1s", times=5))
    producer.schedule(cluster.target(), crony, repeat=cron("* * * * * *", times=4))
    wait_for(cluster, named, 2)
    cluster.leader().kill()
    wait_for(cluster, named, 5)
    pass_by(cluster, producer, now_ms() + 2 * SECOND_MS)
    assert numbers_of(cluster, named) == [1, 2, 3, 4, 5]
    assert {after - before for before, after in pairwise(times_of(cluster, named))} == {SECOND_MS}
    assert numbers_of(cluster, nameless) == [number for number in range(1, 6) for _ in range(3)]
    assert len({(got.text(H_SOURCE), got.number(H_OCCURRENCE)) for got in of(cluster, nameless)}) == 15
    assert numbers_of(cluster, crony) == [1, 2, 3, 4]
    assert {at_ms % SECOND_MS for at_ms in times_of(cluster, crony)} == {0}
    assert {
        (got.key, len({source.text(H_SOURCE) for source in of(cluster, named)})) for got in of(cluster, named)
    } == {(b"k", 1)}
    assert all(got.timestamp_ms >= got.number(H_SCHEDULED_FOR) for got in cluster.delivered)


def test_controls_concern_the_next_delivery_and_what_comes_after_it(
    cluster: Cluster, producer: DelayProducer
) -> None:
    cluster.start_here("a")
    cluster.wait_epoch(1)
    for id_ in ("ended", "moved", "replaced"):
        producer.schedule(cluster.target(), id_.encode(), id=id_, key=ONE, repeat=every("1s"))
    for value in (b"ended", b"moved", b"replaced"):
        wait_for(cluster, value, 1)
    moved_ms = now_ms() + 2 * SECOND_MS
    cancel = producer.cancel("ended")
    move = producer.reschedule("moved", deliver_at=moved_ms)
    replace = producer.schedule(cluster.target(), b"once", id="replaced")
    next_ms = moved_ms + SECOND_MS
    cluster.tail.wait(lambda: next_ms in times_of(cluster, b"moved"), "it goes on from where it was moved to")
    outcomes = [outcome_of(cluster, receipt.result())["outcome"] for receipt in (cancel, move, replace)]
    assert outcomes == ["cancelled", "rescheduled", "replaced"]
    times_ms = times_of(cluster, b"moved")
    moved = times_ms.index(moved_ms)  # others may have come before the reschedule
    assert {after - before for before, after in pairwise(times_ms[:moved])} <= {SECOND_MS}
    assert times_ms[moved + 1] == next_ms
    assert numbers_of(cluster, b"moved") == list(range(1, len(times_ms) + 1))
    cluster.tail.catch_up()
    before = [len(of(cluster, value)) for value in (b"ended", b"replaced")]
    pass_by(cluster, producer, now_ms() + SECOND_MS + 100)
    assert [len(of(cluster, value)) for value in (b"ended", b"replaced")] == before
    assert len([got for got in cluster.delivered if got.value == b"once"]) == 1


def test_what_was_missed_is_delivered_as_asked(cluster: Cluster, producer: DelayProducer) -> None:
    node = cluster.start_here("a")
    cluster.wait_epoch(1)
    for missed in ("all", "latest", "skip"):
        repeat = every("1s", times=1_000, missed=missed)
        producer.schedule(cluster.target(), missed.encode(), key=ONE, repeat=repeat)
    for value in (b"all", b"latest", b"skip"):
        wait_for(cluster, value, 1)
    cluster.stop_here(node)
    cluster.tail.catch_up()
    stopped_ms = max(max(times_of(cluster, value)) for value in (b"all", b"latest", b"skip"))
    eventually(lambda: now_ms() > stopped_ms + 3_500, "three more of each are due")
    back_ms = now_ms()
    cluster.start_here("a")
    for value in (b"all", b"latest", b"skip"):
        wait_until(cluster, value, back_ms - SECOND_MS)
    for value in (b"all", b"latest", b"skip"):
        assert numbers_of(cluster, value) == list(range(1, len(of(cluster, value)) + 1))
    steps = {
        value: {b - a for a, b in pairwise(times_of(cluster, value))}
        for value in (b"all", b"latest", b"skip")
    }
    assert steps[b"all"] == {SECOND_MS}
    assert max(steps[b"latest"]) >= 3 * SECOND_MS
    assert max(steps[b"skip"]) >= 3 * SECOND_MS
    missed_ms = range(stopped_ms + SECOND_MS, back_ms - SECOND_MS)
    assert [at_ms for at_ms in times_of(cluster, b"skip") if at_ms in missed_ms] == []


def test_a_load_that_is_repeated_with_keep_delivers_each_message_once(
    cluster: Cluster, producer: DelayProducer
) -> None:
    cluster.start_here("a")
    cluster.wait_epoch(1)
    count, due_ms = 200, now_ms() + 1_500
    sent = [
        producer.schedule(
            cluster.target(), b"%d" % number, id=f"load-{number}", deliver_at=due_ms, if_exists="keep"
        )
        for _ in range(2)
        for number in range(count)
    ]
    pass_by(cluster, producer, due_ms + 1)
    again = producer.schedule(cluster.target(), b"0", id="load-0", if_exists="keep")
    repeated = [*sent[count:], again]
    assert {outcome_of(cluster, receipt.result())["outcome"] for receipt in repeated} == {"duplicate"}
    pass_by(cluster, producer, now_ms() + 100)
    loaded = sorted(
        int(got.value or b"") for got in cluster.delivered if not (got.value or b"").startswith(b"by")
    )
    assert loaded == list(range(count))
