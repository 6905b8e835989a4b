"""What cannot be delivered goes to the dead-letter topic alone, at once, with its code; no other waits."""

from __future__ import annotations

from typing import Any, cast

import pytest
from confluent_kafka import Producer
from confluent_kafka.admin import (
    AclOperation,
    AlterConfigOpType,
    ConfigEntry,
    ConfigResource,
    ResourceType,
)

from delayline.settings import FIRST_MEANING
from delayline.wire import H_ERROR, H_ERROR_DETAIL
from node.kafka.target_bounds import MISSING_FOR_S
from tests.integration.raw_produce import produce_raw
from tests.support.cluster import Cluster
from tests.support.fates import check_exactly_once, settle
from tests.support.fixtures import MakeCluster
from tests.support.requests import Sender, now_ms
from tests.support.tail import Got
from tests.support.waiting import eventually

LATEST_MS = 5_000
"""How late a sound message may be beside a poisoned one: several recoveries, on a busy machine."""

LARGEST_VALUE_BYTES = 999_700
"""Just what the buffer takes, with a small key and the headers of a schedule."""

HOUR_MS = 3_600_000


@pytest.fixture
def cluster(make_cluster: MakeCluster) -> Cluster:
    """A cluster with a leader, and a target that takes 2,000 bytes at most. In the first meaning a request
    may be so large that it cannot be written again.
    """
    targets = {"target": {}, "small": {"max.message.bytes": "2000"}}
    cluster = make_cluster(targets=targets, meaning=FIRST_MEANING)
    cluster.start_here("a")
    cluster.wait_epoch(1)
    return cluster


def test_a_missing_target_costs_only_its_own_messages(cluster: Cluster) -> None:
    fates = _with_neighbours(cluster, lambda sender, at_ms: sender.schedule(at_ms=at_ms, target="missing"))
    assert fates == ["target-missing"]


def test_a_partition_that_the_target_does_not_have_costs_only_that_message(cluster: Cluster) -> None:
    fates = _with_neighbours(cluster, lambda sender, at_ms: sender.schedule(at_ms=at_ms, partition=2))
    assert fates == ["target-partition"]


def test_a_target_that_may_not_be_written_to_costs_only_its_own_messages(cluster: Cluster) -> None:
    closed = cluster.target("closed")
    cluster.make_topics({closed: {}})
    cluster.allow_only(closed, AclOperation.DESCRIBE)
    fates = _with_neighbours(cluster, lambda sender, at_ms: sender.schedule(at_ms=at_ms, target="closed"))
    assert fates == ["target-forbidden"]


def test_a_message_too_large_for_its_target_goes_alone(cluster: Cluster) -> None:
    fates = _with_neighbours(
        cluster, lambda sender, at_ms: sender.schedule(b"x" * 3_000, at_ms=at_ms, target="small")
    )
    assert fates == ["too-large"]


@pytest.mark.parametrize("told", [True, False], ids=["told", "refused"])
def test_a_message_without_a_key_for_a_compacted_topic_goes_alone(
    make_cluster: MakeCluster, *, told: bool
) -> None:
    """Whether the topic's settings may be read or not; the broker refuses the whole batch then."""
    cluster = make_cluster(targets={"compacted": {"cleanup.policy": "compact"}})
    if not told:
        allowed = (AclOperation.DESCRIBE, AclOperation.WRITE, AclOperation.READ)
        cluster.allow_only(cluster.target("compacted"), *allowed)
    cluster.start_here("a")
    cluster.wait_epoch(1)
    fates = _with_neighbours(
        cluster, lambda sender, at_ms: sender.schedule(at_ms=at_ms, keyless=True, partition=0)
    )
    assert fates == ["undeliverable"]


def test_a_dead_letter_is_the_whole_request_with_a_code_and_a_reason(cluster: Cluster) -> None:
    with Sender(cluster) as sender:
        receipt = sender.schedule(b"v", key=b"k", target="missing", headers=[("own", b"\xff")])
        ledger = sender.flush()
    settle(cluster, ledger)
    (letter,) = cluster.dead_letters
    assert (letter.key, letter.value, letter.headers[:2]) == (
        b"k",
        b"v",
        [("own", b"\xff"), ("delay-target-topic", cluster.target("missing").encode())],
    )
    assert letter.text("delay-source") == receipt.result()
    assert letter.text(H_ERROR) == "target-missing"
    assert cluster.target("missing") in (letter.text(H_ERROR_DETAIL) or "")


def test_a_request_that_no_dead_letter_can_hold_leaves_one_that_says_where_it_is(cluster: Cluster) -> None:
    _limit(cluster, cluster.names.dead_letter, 2_000)
    with Sender(cluster) as sender:
        large = [
            sender.schedule(b"v" * 3_000, target="missing"),
            sender.schedule(key=b"k" * 3_000, target="missing"),
            sender.schedule(headers=[("own", b"h" * 3_000)], target="missing"),
        ]
        sender.schedule()
        sender.flush()
    cluster.wait_delivered(1)
    cluster.tail.wait(lambda: len(cluster.dead_letters) == len(large), "each has a dead letter")
    assert {letter.text("delay-source") for letter in cluster.dead_letters} == {r.result() for r in large}
    assert {letter.text(H_ERROR) for letter in cluster.dead_letters} == {"target-missing"}


def test_a_message_is_too_large_from_the_byte_on_that_the_broker_refuses(cluster: Cluster) -> None:
    """What arrived as the largest one, a plain producer cannot send either with one byte more."""
    sizes = range(1_600, 1_950)
    with Sender(cluster) as sender:
        for size in sizes:
            sender.schedule(b"v" * size, key=b"key", target="small")
        ledger = sender.flush()
    fates = settle(cluster, ledger)
    arrived = cluster.delivered_to("small")
    largest = max(arrived, key=lambda got: len(got.value or b""))
    size = len(largest.value or b"")
    assert sizes[0] < size < sizes[-1]
    assert (fates.count("delivered"), fates.count("too-large")) == (size - sizes[0] + 1, sizes[-1] - size)
    assert _takes(cluster, largest)
    assert not _takes(cluster, largest._replace(value=b"v" * (size + 1)))


def _takes(cluster: Cluster, record: Got) -> bool:
    """Whether the broker takes such a record, alone."""
    refused: list[object] = []
    producer = Producer({"bootstrap.servers": cluster.bootstrap, "log_level": 0})
    producer.produce(
        record.topic,
        record.value,
        record.key,
        headers=cast("Any", record.headers),
        on_delivery=lambda error, _: refused.append(error) if error else None,
    )
    assert producer.flush(10) == 0
    return not refused


def test_small_messages_that_fill_a_batch_reach_a_target_with_a_small_limit(cluster: Cluster) -> None:
    """The broker's limit is on the batch: messages that fit one by one must not be refused together."""
    at_ms = now_ms() + 500
    with Sender(cluster) as sender:
        for number in range(100):
            sender.schedule(b"%0500d" % number, at_ms=at_ms, target="small", key=b"the same")
        for _ in range(20):
            sender.schedule(at_ms=at_ms)
        ledger = sender.flush()
    fates = check_exactly_once(cluster, ledger)
    assert fates.count("delivered") == 120
    assert _latest(cluster.delivered, at_ms) < LATEST_MS


def test_a_limit_lowered_after_it_was_looked_up_costs_only_what_is_too_large(cluster: Cluster) -> None:
    with Sender(cluster) as sender:
        sender.schedule(b"x" * 3_000)
        sender.flush()
        cluster.wait_delivered(1)
        _limit(cluster, cluster.target(), 2_000)
        at_ms = now_ms() + 1_000
        for number in range(100):
            sender.schedule(b"%0500d" % number, at_ms=at_ms)
        large = [sender.schedule(b"x" * 3_000, at_ms=at_ms) for _ in range(2)]
        ledger = sender.flush()
    fates = check_exactly_once(cluster, ledger)
    assert {tuple(fates.of[receipt.result()]) for receipt in large} == {("too-large",)}
    assert fates.count("delivered") == 101
    assert _latest(cluster.delivered[1:], at_ms) < LATEST_MS


def test_a_target_deleted_after_it_was_looked_up_costs_only_its_own_messages(cluster: Cluster) -> None:
    cluster.make_topics({cluster.target("going"): {}})
    with Sender(cluster) as sender:
        sender.schedule(target="going")
        sender.schedule()
        sender.flush()
        cluster.wait_delivered(1)
        eventually(lambda: _end(cluster, cluster.target("going")) == 1, "it has been looked up")
        cluster.delete_topic(cluster.target("going"))
        at_ms = now_ms() + 500
        gone = [sender.schedule(at_ms=at_ms, target="going") for _ in range(3)]
        for _ in range(50):
            sender.schedule(at_ms=at_ms)
        sender.flush()
        cluster.tail.wait(lambda: len(cluster.dead_letters) == 3, "they are dead letters")
        cluster.wait_delivered(51)
    assert {letter.text(H_ERROR) for letter in cluster.dead_letters} == {"target-missing"}
    assert {letter.text("delay-source") for letter in cluster.dead_letters} == {r.result() for r in gone}
    assert _latest(cluster.delivered[1:], at_ms) < LATEST_MS


def test_a_target_made_anew_with_fewer_partitions_costs_only_what_was_for_those(cluster: Cluster) -> None:
    narrow = cluster.target("narrow")
    cluster.make_topics({narrow: {}}, partitions=4)
    with Sender(cluster) as sender:
        for partition in range(4):
            sender.schedule(target="narrow", partition=partition)
        sender.flush()
        eventually(lambda: _end(cluster, narrow) == 4, "each partition has been written to")
        cluster.delete_topic(narrow)
        cluster.make_topics({narrow: {}}, partitions=1)
        # The node may have seen that it was missing, and takes that for true for a while.
        at_ms = now_ms() + int(MISSING_FOR_S * 1000) + 1_500
        for _ in range(20):
            sender.schedule(at_ms=at_ms, target="narrow", partition=0)
        gone = [sender.schedule(at_ms=at_ms, target="narrow", partition=3) for _ in range(2)]
        sender.flush()
    cluster.tail.wait(lambda: len(cluster.dead_letters) == 2, "two are dead letters")
    assert {letter.text("delay-source") for letter in cluster.dead_letters} == {r.result() for r in gone}
    assert {letter.text(H_ERROR) for letter in cluster.dead_letters} == {"target-partition"}
    eventually(lambda: _end(cluster, narrow) == 20, "the others are delivered")


def test_a_target_made_after_it_was_missing_is_seen(cluster: Cluster) -> None:
    with Sender(cluster) as sender:
        sender.schedule(target="late")
        sender.flush()
        cluster.tail.wait(lambda: cluster.dead_letters, "the first one is a dead letter")
        cluster.make_topics({cluster.target("late"): {}})
        eventually(lambda: _is_delivered_now(cluster, sender), "messages reach the new topic")


def test_a_message_too_large_for_the_buffer_again_keeps_its_time_when_it_is_rescheduled(
    cluster: Cluster,
) -> None:
    """It was accepted compressed, or just fits: written back it has more headers, and is not compressed."""
    with Sender(cluster) as sender:
        large = sender.schedule(b"v" * LARGEST_VALUE_BYTES, at_ms=now_ms() + HOUR_MS, id="large")
        sender.schedule(id="other", at_ms=now_ms() + 500)
        moved = sender.run_now("large")
        for _ in range(20):
            sender.schedule()
        sender.flush()
        cluster.tail.wait(lambda: cluster.dead_letters, "what is to move it is a dead letter")
        sender.cancel("large")
        ledger = sender.flush()
        ledger.rejects.add(moved.result())
        del ledger.reschedules[moved.result()]
    fates = check_exactly_once(cluster, ledger)
    assert fates.of[moved.result()] == ["too-large"]
    assert fates.of[large.result()] == ["cancelled"], "it has waited on for its own time"
    assert cluster.names.buffer in (cluster.dead_letters[0].text(H_ERROR_DETAIL) or "")


def test_what_is_too_large_to_be_written_back_is_known_before_it_is_sent(cluster: Cluster) -> None:
    """However many there are, the leader goes on: no transaction is given up for them."""
    ids = [f"large {number}" for number in range(20)]
    with Sender(cluster) as sender:
        for id_ in ids:
            sender.schedule(b"v" * LARGEST_VALUE_BYTES, at_ms=now_ms() + HOUR_MS, id=id_)
        sender.flush()
        moved = [sender.run_now(id_) for id_ in ids]
        for _ in range(20):
            sender.schedule()
        sender.flush()
        cluster.tail.wait(lambda: len(cluster.dead_letters) == len(ids), "what moves them is dead letters")
        for id_ in ids:
            sender.cancel(id_)
        ledger = sender.flush()
        for one in moved:
            ledger.rejects.add(one.result())
            del ledger.reschedules[one.result()]
    check_exactly_once(cluster, ledger)
    assert cluster.mirrored().epoch == 1


def test_an_expired_message_is_a_dead_letter_and_a_timely_one_is_not(cluster: Cluster) -> None:
    at_ms = now_ms() + 300
    with Sender(cluster) as sender:
        expired = sender.schedule(at_ms=at_ms, expire_at_ms=at_ms - 200, id="expired")
        timely = sender.schedule(at_ms=at_ms, expire_at_ms=at_ms + 60_000)
        ledger = sender.flush()
    fates = check_exactly_once(cluster, ledger)
    assert fates.of[expired.result()] == ["expired"]
    assert fates.of[timely.result()] == ["delivered"]
    (outcome,) = cluster.outcomes
    assert (outcome["outcome"], outcome["code"], outcome["id"]) == ("expired", "expired", "expired")


def test_records_that_are_no_requests_are_dead_letters_and_nothing_else_suffers(cluster: Cluster) -> None:
    buffer = cluster.names.buffer
    produce_raw(cluster.bootstrap, buffer, b"bad key", [(b"\xff\xfe", b"1")])
    produce_raw(cluster.bootstrap, buffer, b"", [])
    produce_raw(cluster.bootstrap, buffer, bytes(range(256)), [(b"delay-op", b"\x00")])
    produce_raw(cluster.bootstrap, buffer, b"half", [(b"delay-op", b"cancel")])
    produce_raw(cluster.bootstrap, buffer, b"own", [(b"delay-target-topic", buffer.encode())])
    with Sender(cluster) as sender:
        for _ in range(5):
            sender.schedule()
        sender.flush()
    cluster.wait_delivered(5)
    cluster.tail.wait(lambda: len(cluster.dead_letters) >= 5, "each is a dead letter")
    cluster.tail.wait(lambda: len(cluster.outcomes) >= 5, "each has an outcome")
    codes = {letter.value: letter.text(H_ERROR) for letter in cluster.dead_letters}
    assert codes == {
        b"bad key": "header-key",
        b"": "no-target",
        bytes(range(256)): "bad-op",
        b"half": "no-id",
        b"own": "target-forbidden",
    }
    answered = {outcome["request"]: outcome["code"] for outcome in cluster.outcomes}
    assert answered == {letter.text("delay-source"): letter.text(H_ERROR) for letter in cluster.dead_letters}


def _with_neighbours(cluster: Cluster, poison: object) -> list[str]:
    """The fate of a poisoned message due among 40 sound ones, which arrive once and in time."""
    at_ms = now_ms() + 500
    with Sender(cluster) as sender:
        for number in range(40):
            sender.schedule(at_ms=at_ms)
            if number == 20:
                receipt = poison(sender, at_ms)  # type: ignore[operator]
        ledger = sender.flush()
    fates = check_exactly_once(cluster, ledger)
    assert fates.count("delivered") == 40
    assert _latest(cluster.delivered, at_ms) < LATEST_MS
    return fates.of[receipt.result()]


def _latest(delivered: list[Got], at_ms: int) -> int:
    return max(got.timestamp_ms for got in delivered) - at_ms


def _limit(cluster: Cluster, topic: str, limit_bytes: int) -> None:
    entry = ConfigEntry("max.message.bytes", str(limit_bytes), incremental_operation=AlterConfigOpType.SET)
    resource = ConfigResource(ResourceType.TOPIC, topic, incremental_configs=[entry])
    for future in cluster.admin.incremental_alter_configs([resource]).values():
        future.result()
    shown = ConfigResource(ResourceType.TOPIC, topic)
    eventually(
        lambda: (
            cluster.admin.describe_configs([shown])[shown].result()["max.message.bytes"].value
            == str(limit_bytes)
        ),
        "the broker has the limit",
    )


def _is_delivered_now(cluster: Cluster, sender: Sender) -> bool:
    """Whether a message to the topic `late` goes there; those before it are dead letters."""
    letters = len(cluster.dead_letters)
    sender.schedule(target="late")
    sender.flush()
    cluster.tail.wait(
        lambda: len(cluster.dead_letters) > letters or _end(cluster, cluster.target("late")) > 0,
        "it is dealt with",
    )
    return _end(cluster, cluster.target("late")) > 0


def _end(cluster: Cluster, topic: str) -> int:
    from tests.support.tail import read_all

    return len(read_all(cluster.bootstrap, topic))
