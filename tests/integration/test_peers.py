"""What users of RocketMQ, Pulsar and DDMQ rely on: one node, one batch, and what became of it.

What else those rely on is shown elsewhere: docs/migration.md names it.
"""

from __future__ import annotations

import uuid
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import pytest

from delayline import DelayProducer, Receipt, every
from delayline.headers import H_OCCURRENCE, H_SCHEDULED_FOR, H_SOURCE
from delayline.settings import ROCKETMQ_LEVELS_MS
from node.node import Node
from store import keys
from store.kv import KeyValue
from tests.stacks import Stack
from tests.support.cluster import Cluster
from tests.support.requests import now_ms
from tests.support.tail import Got, read_all
from tests.support.waiting import PATIENCE_S

LEVELS = "levels"
MIXED = "mixed"
EQUAL = "equal"
LOOPS = "loops"

EQUAL_COUNT = 1_000
MIXED_COUNT = 60
LEAD_MS = 2_500
HOUR_MS = 3_600_000
LOOP_LASTS_MS = 3_000


@dataclass
class Batch:
    """What was sent, by its value, and what has come of it once the last of it was due."""

    cluster: Cluster
    node: Node
    sent: dict[bytes, Receipt]
    equal_ms: int
    loops_ms: int
    cancel_outcome: str

    def got(self, short: str) -> list[Got]:
        return self.cluster.delivered_to(short)

    @cached_property
    def asked_at_ms(self) -> dict[str | None, int]:
        """The time of each request, which the broker has given it, by source."""
        buffer = self.cluster.names.buffer
        records = read_all(self.cluster.bootstrap, buffer)
        return {f"{buffer}/{one.partition}/{one.offset}": one.timestamp_ms for one in records}

    @cached_property
    def due_ms(self) -> dict[str, int]:
        """When the leader has each request down for, delivered or not, by source."""
        parts: Any = self.node._progress.parts
        kv: KeyValue = parts.view._kv
        buffer = self.cluster.names.buffer
        rows = [keys.timed(raw) for raw, _ in kv.scan(keys.ROW, keys.end_of(keys.ROW))]
        return {f"{buffer}/{partition}/{offset}": due_ms for due_ms, partition, offset in rows}

    def source(self, value: bytes) -> str:
        return self.sent[value].result()

    def delay_ms(self, value: bytes) -> int:
        """From a request to when it is due."""
        return self.due_ms[self.source(value)] - self.asked_at_ms[self.source(value)]

    def loop(self, value: bytes) -> list[Got]:
        """The deliveries of a recurring message, in the order of their numbers."""
        found = [got for got in self.got(LOOPS) if got.value == value]
        return sorted(found, key=lambda got: got.number(H_OCCURRENCE))

    def loop_times(self, value: bytes) -> list[int]:
        """When they were meant for, from the first one's time on."""
        return [got.number(H_SCHEDULED_FOR) - self.loops_ms for got in self.loop(value)]


class _Sending:
    def __init__(self, cluster: Cluster, producer: DelayProducer) -> None:
        self.sent: dict[bytes, Receipt] = {}
        self._cluster = cluster
        self._producer = producer

    def __call__(self, short: str, value: bytes, **when: Any) -> None:
        self.sent[value] = self._producer.schedule(self._cluster.target(short), value, **when)


@pytest.fixture(scope="module")
def batch(stack: Stack, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Batch]:
    name, folder = f"t-peers-{uuid.uuid4().hex[:8]}", tmp_path_factory.mktemp("peers")
    with Cluster(stack, name, folder, targets=(LEVELS, MIXED, EQUAL, LOOPS)) as cluster:
        node = cluster.start_here("a")
        cluster.wait_epoch(1)
        config = {"bootstrap.servers": stack.bootstrap, "linger.ms": 0, "log_level": 0}
        with DelayProducer(config, cluster=name, outcomes=True) as producer:
            send = _Sending(cluster, producer)
            _send_levels(send)
            _send_mixed(send)
            equal_ms = now_ms() + LEAD_MS
            for number in range(EQUAL_COUNT):
                send(EQUAL, b"%d" % number, key=b"one key", deliver_at=equal_ms)
            producer.flush(PATIENCE_S)
            loops_ms = now_ms() + LEAD_MS
            _send_loops(send, loops_ms)
            producer.flush(PATIENCE_S)
            send(LOOPS, b"end", deliver_at=loops_ms + LOOP_LASTS_MS + 1_000)
            cancelled = producer.cancel("loop").outcome(PATIENCE_S).outcome
        made = Batch(cluster, node, send.sent, equal_ms, loops_ms, cancelled)
        cluster.tail.wait(lambda: _is_over(made), "all is over")
        yield made


def _send_levels(send: _Sending) -> None:
    for level in (-1, 0, *range(1, 21)):
        send(LEVELS, b"level %d" % level, level=level)


def _send_mixed(send: _Sending) -> None:
    """At once, after a delay and at a time, in turn; the later ones of these are due first."""
    at_ms = now_ms() + LEAD_MS
    for number in range(0, MIXED_COUNT, 3):
        send(MIXED, b"now %d" % number, key=b"k")
        send(MIXED, b"after %d" % number, key=b"k", after=LEAD_MS - 10 * number)
        send(MIXED, b"at %d" % number, key=b"k", deliver_at=at_ms - 10 * number)
    send(MIXED, b"past", key=b"k", deliver_at=1)


def _is_over(batch: Batch) -> bool:
    """Whether the last delivery of each loop is there, and all else that is due soon."""
    loops = {(got.value, got.text(H_OCCURRENCE)) for got in batch.got(LOOPS)}
    levels = {got.value for got in batch.got(LEVELS)}
    return (
        loops >= {(b"times", "3"), (b"expires", "2"), (b"grows", "3"), (b"end", None)}
        and levels >= {b"level 0", b"level -1"}
        and len(batch.got(EQUAL)) >= EQUAL_COUNT
        and len(batch.got(MIXED)) > MIXED_COUNT
    )


def _send_loops(send: _Sending, at_ms: int) -> None:
    send(LOOPS, b"times", deliver_at=at_ms, repeat=every("1s", times=3))
    send(LOOPS, b"expires", deliver_at=at_ms, repeat=every("1s", times=10, until=at_ms + 1_000))
    send(LOOPS, b"cancelled", id="loop", deliver_at=at_ms + HOUR_MS, repeat=every("1s"))
    send(LOOPS, b"grows", deliver_at=at_ms, repeat=every("1s", factor=2, times=3))


def test_rocketmq_each_of_its_18_levels_has_its_delay(batch: Batch) -> None:
    delays = tuple(batch.delay_ms(b"level %d" % level) for level in range(1, 19))
    assert delays == ROCKETMQ_LEVELS_MS


@pytest.mark.parametrize("level", [19, 20])
def test_rocketmq_a_level_above_the_highest_is_the_highest(batch: Batch, level: int) -> None:
    assert batch.delay_ms(b"level %d" % level) == ROCKETMQ_LEVELS_MS[-1]


@pytest.mark.parametrize("level", [0, -1])
def test_rocketmq_a_level_of_none_is_delivered_at_once(batch: Batch, level: int) -> None:
    (got,) = (one for one in batch.got(LEVELS) if one.value == b"level %d" % level)
    assert got.number(H_SCHEDULED_FOR) == batch.asked_at_ms[got.text(H_SOURCE)]


def test_pulsar_immediate_messages_do_not_wait_for_delayed_ones_sent_between_them(batch: Batch) -> None:
    kinds = [(got.value or b"").split()[0] for got in batch.got(MIXED)]
    assert kinds[: MIXED_COUNT // 3 + 1] == [b"now"] * (MIXED_COUNT // 3) + [b"past"]
    assert sorted(kinds[MIXED_COUNT // 3 + 1 :]) == [b"after"] * (MIXED_COUNT // 3) + [b"at"] * (
        MIXED_COUNT // 3
    )


def test_pulsar_deliver_at_and_deliver_after_arrive_in_the_order_of_their_times(batch: Batch) -> None:
    delayed = [got for got in batch.got(MIXED) if (got.value or b"").startswith((b"after", b"at"))]
    times = [got.number(H_SCHEDULED_FOR) for got in delayed]
    assert times == sorted(times)


def test_pulsar_a_time_that_is_past_means_at_once(batch: Batch) -> None:
    (got,) = (one for one in batch.got(MIXED) if one.value == b"past")
    assert got.number(H_SCHEDULED_FOR) == 1


def test_pulsar_messages_of_one_time_and_partition_arrive_as_they_were_sent(batch: Batch) -> None:
    assert [got.value for got in batch.got(EQUAL)] == [b"%d" % number for number in range(EQUAL_COUNT)]
    assert {got.number(H_SCHEDULED_FOR) for got in batch.got(EQUAL)} == {batch.equal_ms}


def test_pulsar_no_message_is_early_by_the_brokers_clock_not_even_by_a_tick(batch: Batch) -> None:
    early = [got for got in batch.cluster.delivered if got.timestamp_ms < got.number(H_SCHEDULED_FOR)]
    assert early == []


def test_ddmq_a_loop_message_comes_at_its_timestamp_and_after_each_interval_so_many_times(
    batch: Batch,
) -> None:
    assert batch.loop_times(b"times") == [0, 1_000, 2_000]


def test_ddmq_a_loop_message_ends_with_what_is_due_when_it_expires(batch: Batch) -> None:
    assert batch.loop_times(b"expires") == [0, 1_000]


def test_ddmq_the_intervals_of_an_exponential_loop_grow_by_a_factor(batch: Batch) -> None:
    assert batch.loop_times(b"grows") == [0, 1_000, 3_000]


def test_ddmq_the_deliveries_of_a_loop_have_one_source_and_numbers(batch: Batch) -> None:
    numbers = [(got.text(H_SOURCE), got.number(H_OCCURRENCE)) for got in batch.loop(b"times")]
    assert numbers == [(batch.source(b"times"), number) for number in (1, 2, 3)]


def test_ddmq_a_loop_that_is_cancelled_by_its_id_before_it_begins_delivers_nothing(batch: Batch) -> None:
    assert (batch.cancel_outcome, batch.loop(b"cancelled")) == ("cancelled", [])
