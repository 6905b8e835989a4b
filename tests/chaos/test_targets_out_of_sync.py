"""A broker goes, and a target keeps its leader but has fewer replicas in sync than it asks for.

One story for all: what the tests look at happens side by side, once.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from contextlib import ExitStack
from typing import NamedTuple

import pytest
from confluent_kafka.admin import (
    AdminClient,
    AlterConfigOpType,
    ConfigEntry,
    ConfigResource,
    ResourceType,
)

from bench.second_broker import SECOND, SecondBroker
from ops.clients.kafka import KafkaAdmin
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
IN_FLIGHT = 300
SOON_MS = 1_500


class Story(NamedTuple):
    """What happened, as `read_committed` consumers see it at the end."""

    meanwhile: int  # came to the nine targets that have all they need, while the tenth had not
    strict: list[Got]  # at the tenth
    codes: Counter[str]  # of what was parked
    unavailable: tuple[int, ...]  # of the tenth, as operators are told
    in_flight: list[Got]  # at another cluster's target that lost a replica in the middle


@pytest.fixture(scope="module")
def story(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Story]:
    folder = tmp_path_factory.mktemp("out-of-sync")
    with ExitStack() as open_until_end:
        stack = open_until_end.enter_context(LocalStack(folder / "stack"))
        second = SecondBroker(stack, folder / "second")
        open_until_end.callback(second.kill)
        # Made while there is one broker: its own topics are to stay.
        quiet, flight = (
            open_until_end.enter_context(Cluster(stack, f"t-{name}", folder / name, targets=targets))
            for name, targets in (("quiet", SOUND), ("flight", ["target"]))
        )
        second.start()
        yield _told(second, quiet, flight)


def _told(second: SecondBroker, cluster: Cluster, flight: Cluster) -> Story:
    for one in (cluster, flight):
        second.make_topic(one.target("strict"), [[FIRST, SECOND], [FIRST, SECOND]], STRICT)
        one.start_here("a")
        one.wait_epoch(1)
    strict = Tail(cluster.bootstrap, [cluster.target("strict")])
    meanwhile, unavailable = _lose_replicas(second, cluster, strict)
    second.start()
    strict.wait(lambda: len(_values(strict)) == ROUNDS + 1, "what was parked arrives")
    in_flight = _stop_in_transaction(second, flight)
    with Sender(cluster) as sender:
        for target in SOUND:
            sender.schedule(target=target)
    cluster.wait_delivered(len(SOUND) * (ROUNDS + 2))
    _ask_for_fewer_replicas(flight)
    in_flight.wait(lambda: len(_values(in_flight)) == IN_FLIGHT, "what was under way arrives")
    for tail in (strict, in_flight, cluster.tail):
        tail.catch_up()
    for tail in (strict, in_flight):
        tail.close()
    return Story(
        meanwhile,
        strict.records[cluster.target("strict")],
        Counter(one["code"] for one in cluster.outcomes if one["outcome"] == "parked"),
        unavailable,
        in_flight.records[flight.target("strict")],
    )


def _lose_replicas(second: SecondBroker, cluster: Cluster, strict: Tail) -> tuple[int, tuple[int, ...]]:
    """While nothing is on its way. Returns how many come to the others meanwhile, and what takes nothing,
    once the brokers themselves know.
    """
    with Sender(cluster) as sender:
        _send(sender, now_ms(), rounds=1)
        sender.flush()
        strict.wait(lambda: _values(strict), "all is well")
        cluster.wait_delivered(len(SOUND))
        second.kill()
        _send(sender, now_ms() + SOON_MS, ROUNDS)
    meanwhile = len(cluster.wait_delivered(len(SOUND) * (ROUNDS + 1))) - len(SOUND)
    target = cluster.target("strict")
    _wait_out_of_sync(cluster, target)
    return meanwhile, KafkaAdmin(cluster.connection).topics([target])[target].unavailable


def _stop_in_transaction(second: SecondBroker, cluster: Cluster) -> Tail:
    """It ends in good order while a message is on its way every so often."""
    strict = cluster.target("strict")
    tail = Tail(cluster.bootstrap, [strict])
    begin_ms = now_ms() + SOON_MS
    with Sender(cluster) as sender:
        for number in range(IN_FLIGHT):
            sender.schedule(b"%d" % number, at_ms=begin_ms + number * EACH_MS, target="strict")
    tail.wait(lambda: _values(tail), "the first ones have arrived")
    second.stop()
    _wait_out_of_sync(cluster, strict)
    return tail


def _values(tail: Tail) -> set[bytes | None]:
    return {got.value for records in tail.records.values() for got in records}


def _ask_for_fewer_replicas(cluster: Cluster) -> None:
    """The way out while a broker is away."""
    admin = AdminClient({"bootstrap.servers": cluster.bootstrap, "log_level": 0})
    change = ConfigEntry("min.insync.replicas", "1", incremental_operation=AlterConfigOpType.SET)
    topic = ConfigResource(ResourceType.TOPIC, cluster.target("strict"), incremental_configs=[change])
    admin.incremental_alter_configs([topic])[topic].result()


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
    assert story.meanwhile == len(SOUND) * ROUNDS


def test_what_goes_to_a_target_that_lacks_replicas_is_parked(story: Story) -> None:
    assert set(story.codes) == {"target-unavailable"}


def test_what_was_parked_for_want_of_replicas_arrives_once(story: Story) -> None:
    assert {
        value: count for value, count in Counter(got.value for got in story.strict).items() if count > 1
    } == {}


def test_operators_are_told_which_partitions_take_nothing(story: Story) -> None:
    assert story.unavailable == (0, 1)


def test_what_was_under_way_to_a_target_arrives_once_when_it_asks_for_fewer_replicas(story: Story) -> None:
    arrived = Counter(got.value for got in story.in_flight)
    assert {value: count for value, count in arrived.items() if count > 1} == {}
