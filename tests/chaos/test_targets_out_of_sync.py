"""A broker goes, and a target keeps its leader but has fewer replicas in sync than it asks for.

One story for all: what the tests look at happens side by side, once.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from contextlib import ExitStack
from typing import NamedTuple

import pytest
from confluent_kafka.admin import AdminClient

from bench.second_broker import SECOND, SecondBroker
from ops.stack import LocalStack
from tests.support.cluster import Cluster
from tests.support.requests import Sender, now_ms
from tests.support.tail import Got, Tail
from tests.support.waiting import eventually

FIRST = 1
STRICT = {"message.timestamp.type": "LogAppendTime", "min.insync.replicas": "2"}
SOUND = [f"sound-{number}" for number in range(9)]
EACH_MS = 20
ROUNDS = 250
SOON_MS = 1_500
LATEST_MS = 2_000


class Story(NamedTuple):
    """What happened, as `read_committed` consumers see it at the end."""

    sound: list[Got]  # at the nine targets that have all they need, while the tenth had not
    strict: list[Got]  # at the tenth
    codes: Counter[str]  # of what was parked
    epochs: set[int]


@pytest.fixture(scope="module")
def story(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Story]:
    folder = tmp_path_factory.mktemp("out-of-sync")
    with ExitStack() as open_until_end:
        stack = open_until_end.enter_context(LocalStack(folder / "stack"))
        second = SecondBroker(stack, folder / "second")
        open_until_end.callback(second.kill)
        # Made while there is one broker: its own topics are to stay.
        cluster = open_until_end.enter_context(Cluster(stack, "t-sync", folder, targets=SOUND))
        second.start()
        yield _told(second, cluster)


def _told(second: SecondBroker, cluster: Cluster) -> Story:
    strict = cluster.target("strict")
    second.make_topic(strict, [[FIRST, SECOND], [FIRST, SECOND]], STRICT)
    cluster.start_here("a")
    cluster.wait_epoch(1)
    tail = Tail(cluster.bootstrap, [strict])
    with Sender(cluster) as sender:
        _send(sender, now_ms(), rounds=1)
        sender.flush()
        tail.wait(lambda: tail.records[strict], "all is well")
        cluster.wait_delivered(len(SOUND))
        second.kill()
        _send(sender, now_ms() + SOON_MS, ROUNDS)
    cluster.wait_delivered(len(SOUND) * (ROUNDS + 1))
    assert len(tail.records[strict]) == 1, "the other broker is still away"
    _wait_out_of_sync(cluster, strict)
    second.start()
    tail.wait(
        lambda: len({got.value for got in tail.records[strict]}) == ROUNDS + 1, "what was parked arrives"
    )
    tail.catch_up()
    tail.close()
    cluster.tail.catch_up()
    return Story(
        [got for short in SOUND for got in cluster.delivered_to(short)],
        tail.records[strict],
        Counter(one["code"] for one in cluster.outcomes if one["outcome"] == "parked"),
        {one.epoch for one in cluster.checkpoints()},
    )


def _send(sender: Sender, begin_ms: int, rounds: int) -> None:
    """A message to each target every so often."""
    for number in range(rounds):
        for target in (*SOUND, "strict"):
            sender.schedule(target=target, at_ms=begin_ms + number * EACH_MS)


def _wait_out_of_sync(cluster: Cluster, topic: str) -> None:
    """Until the brokers themselves know that one is away."""
    admin = AdminClient({"bootstrap.servers": cluster.bootstrap, "log_level": 0})

    def in_sync() -> list[int]:
        return [
            len(one.isrs) for one in admin.list_topics(topic, timeout=5).topics[topic].partitions.values()
        ]

    eventually(lambda: in_sync() == [1, 1], "the brokers know that one is away")


def test_the_others_do_not_wait_for_a_target_that_lacks_replicas(story: Story) -> None:
    late_ms = max(got.timestamp_ms - got.number("delay-scheduled-for") for got in story.sound)
    assert late_ms < LATEST_MS


def test_no_transaction_is_given_up_for_it(story: Story) -> None:
    assert story.epochs == {1}


def test_what_goes_to_a_target_that_lacks_replicas_is_parked(story: Story) -> None:
    assert set(story.codes) == {"target-unavailable"}


def test_what_was_parked_for_want_of_replicas_arrives_once(story: Story) -> None:
    assert {
        value: count for value, count in Counter(got.value for got in story.strict).items() if count > 1
    } == {}
