"""The broker of a target alone dies: Kafka commits a transaction without its marker there."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Iterator
from contextlib import ExitStack, closing
from pathlib import Path
from typing import Final, NamedTuple

import pytest

from bench.second_broker import SECOND, SecondBroker
from node.core.steps import Step
from node.kafka.fetch.brokers import Brokers
from node.kafka.fetch.coordinators import COMMITTED, ONGOING, TransactionState, open_in
from ops.stack import LocalStack
from tests.support.cluster import Cluster
from tests.support.process import NodeProcess
from tests.support.requests import Sender, now_ms
from tests.support.tail import Tail
from tests.support.transactions import last_transactions
from tests.support.waiting import eventually

LOG_APPEND: Final = {"message.timestamp.type": "LogAppendTime"}
MESSAGES: Final = 20
SOON_MS: Final = 300


class Story(NamedTuple):
    """A target, and how many messages it is to have."""

    sick: Tail
    messages: int


@pytest.fixture
def story(tmp_path: Path) -> Iterator[Story]:
    """The last messages were committed while their target had no leader; it has one again. None follow."""
    with ExitStack() as open_until_end:
        stack = open_until_end.enter_context(LocalStack(tmp_path / "stack"))
        second = SecondBroker(stack, tmp_path / "second")
        open_until_end.callback(second.kill)
        (tmp_path / "cluster").mkdir()
        cluster = open_until_end.enter_context(Cluster(stack, "t-committed", tmp_path / "cluster"))
        second.start()
        target = cluster.target("sick")
        second.make_topic(target, [[SECOND]], LOG_APPEND)
        messages = _commit_without_marker(second, cluster, target)
        second.start()
        tail = Tail(cluster.bootstrap, [target])
        open_until_end.callback(tail.close)
        yield Story(tail, messages)


def _commit_without_marker(second: SecondBroker, cluster: Cluster, target: str) -> int:
    """Returns how many messages the target is to have."""
    leader, sent = _pause_in_transaction(cluster, target)
    (id_,) = (one for one, last in last_transactions(cluster).items() if last and last.state == ONGOING)
    second.kill()
    eventually(lambda: not second.is_counted(), "the second broker is given up")
    begun = last_transactions(cluster)[id_]
    assert begun is not None, "it is open"
    leader.resume()
    eventually(lambda: _is_committed(begun, last_transactions(cluster)[id_]), "it is committed")
    return sent


def _is_committed(begun: TransactionState, last: TransactionState | None) -> bool:
    """Who aborts for a producer raises the epoch."""
    assert last is not None, "it was open"
    return last.epoch == begun.epoch and (last.state == COMMITTED or last.since_ms > begun.since_ms)


def _pause_in_transaction(cluster: Cluster, target: str) -> tuple[NodeProcess, int]:
    """A leader that stands still in a transaction whose messages the target has; and how many were sent. None
    of them comes later.
    """
    leader = cluster.start(
        "a", step=Step.AFTER_PRODUCE, signal_name="SIGSTOP", acknowledged=True,
        transaction_timeout_ms=60_000, session_timeout_s=30.0,
    )  # fmt: skip
    cluster.wait_epoch(1)
    sent = 0
    with Sender(cluster) as sender, closing(Tail(cluster.bootstrap, [target])) as tail:
        while True:
            leader.arm()
            at_ms = now_ms() + SOON_MS
            for number in range(sent, sent + MESSAGES):
                sender.schedule(b"%d" % number, at_ms=at_ms, target="sick")
            sent += MESSAGES
            leader.wait_paused()
            if _has_open(cluster, target):
                return leader, sent
            leader.resume()  # it was a heartbeat
            _wait_delivered(tail, target, sent)


def _wait_delivered(tail: Tail, target: str, count: int) -> None:
    tail.wait(lambda: len(tail.records[target]) >= count, "what was sent is delivered")


def _has_open(cluster: Cluster, target: str) -> bool:
    async def ask() -> bool:
        brokers = Brokers({"bootstrap.servers": cluster.bootstrap})
        try:
            await brokers.lead(target)
            return bool(await open_in(brokers, SECOND, target, 0))
        finally:
            await brokers.close()

    return asyncio.run(ask())


def test_what_was_committed_where_no_marker_could_be_written_arrives_once(story: Story) -> None:
    ((_, records),) = story.sick.records.items()
    story.sick.wait(lambda: len(records) >= story.messages, "what was committed shows")
    story.sick.catch_up()
    assert set(Counter(got.value for got in records).values()) == {1}
