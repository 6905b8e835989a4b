"""The retrying consumer on a real Kafka, with a real node behind it."""

from __future__ import annotations

import contextlib
import json
import threading
import time
import uuid
from collections.abc import Iterator
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from random import Random
from typing import NamedTuple

import pytest
from confluent_kafka.admin import AdminClient

from delayline.errors import ConsumeError, RetryTopicsError
from delayline.headers import Header
from delayline.retry import create_topics, retry_later
from tests.integration.raw_produce import produce_raw
from tests.stacks import Stack
from tests.support.cluster import Cluster
from tests.support.retries import SHORT, STEP_MS, Calls, ConsumerProcess, Work, running
from tests.support.tail import Got
from tests.support.waiting import PATIENCE_S, eventually

SHORTEST_SESSION_MS = 6_000  # that brokers grant; and no poll interval is shorter than a session
SOON_TOLD = {"heartbeat.interval.ms": 100}  # of rebalances, and of the loss of one's place
LARGE = Random(0).randbytes(999_800)  # for a topic, not for the buffer; and nothing makes it smaller
OWN: list[Header] = [("trace", b"1"), ("bin", b"\xff\x00"), ("trace", None), ("retry-attempt", b"9")]


@pytest.fixture(scope="module")
def service(stack: Stack, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    """One cluster with one node for all tests here; every level is short."""
    name, folder = f"t-retry-{uuid.uuid4().hex[:8]}", tmp_path_factory.mktemp("retry")
    cluster = Cluster(stack, name, folder, targets=(), levels_ms=(STEP_MS,) * 18, max_request_bytes=990_000)
    cluster.start_here("a")
    cluster.wait_epoch(1)
    yield cluster
    cluster.close()


@dataclass
class SlowHandlers:
    handlers: list[Calls]
    released: threading.Event
    since_s: float = 0.0

    def wait(self, duration_s: float) -> None:
        """Until they are slow for so long."""
        threading.Event().wait(self.since_s + duration_s - time.monotonic())


@pytest.fixture
def work(service: Cluster, cluster_name: str) -> Iterator[Work]:
    with closing(Work(service, cluster_name)) as work:
        yield work


@pytest.fixture(scope="module", autouse=True)
def slow_handlers(service: Cluster) -> Iterator[SlowHandlers]:
    """Two consumers with a message in hand since before all other tests here: the last one waits less."""
    with contextlib.ExitStack() as ending:
        slow = SlowHandlers([], threading.Event())
        for strategy in ("range", "cooperative-sticky"):
            work = ending.enter_context(closing(Work(service, f"{service.name}.{strategy}")))
            work.send(b"slow", b"a", b"b")
            slow.handlers.append(Calls(at={b"slow": slow.released.wait}))
            config = {
                "session.timeout.ms": SHORTEST_SESSION_MS,
                "max.poll.interval.ms": SHORTEST_SESSION_MS,
                "partition.assignment.strategy": strategy,
            }
            ending.enter_context(work.consuming(slow.handlers[-1], config=config))
        for handler in slow.handlers:
            handler.wait(1)
        slow.since_s = time.monotonic()
        yield slow
        slow.released.set()


class Batch(NamedTuple):
    """One consumer's life, with messages that end in different ways."""

    topic: str
    handler: Calls
    dead_letters: list[Got]
    committed: tuple[int, str | None]


@pytest.fixture(scope="module")
def batch(service: Cluster) -> Iterator[Batch]:
    with closing(Work(service, f"{service.name}.batch", is_new=True)) as work:
        work.send(b"twice", b"always", key=b"k", headers=[*OWN, ("delay-id", b"another's")])
        work.send(b"later", b"last", key=b"k")
        produce_raw(service.bootstrap, work.topic, b"unreadable", [(b"\xff\xfe", b"1")], b"k")
        handler = Calls({b"twice": 2, b"always": 100}, {b"later": lambda: retry_later(after="700ms")})
        with work.consuming(handler):
            eventually(lambda: len(handler.of(b"later")) == 2, "the one that is asked for is there")
            letters = work.dead_letters(2)
            eventually(lambda: len(handler.of(b"twice")) == 3, "the one that succeeds is there")
        yield Batch(work.topic, handler, letters, work.committed())


def test_what_fails_comes_back_as_it_was_until_it_succeeds(batch: Batch) -> None:
    first, second, third = batch.handler.of(b"twice")
    assert (first.number, second.number, third.number) == (1, 2, 3)
    assert {(a.topic, a.key, a.headers, a.first_source) for a in (first, second, third)} == {
        (batch.topic, b"k", tuple(OWN), f"{batch.topic}/0/0")
    }
    assert [(f.attempt, f.error, f.text, f.source) for f in third.history] == [
        (1, "ValueError", "failure 1", first.source),
        (2, "ValueError", "failure 2", second.source),
    ]


def test_after_the_last_rung_it_is_a_dead_letter_with_its_history(batch: Batch) -> None:
    (letter,) = [letter for letter in batch.dead_letters if letter.value == b"always"]
    steps = len(SHORT.rungs)
    assert [attempt.number for attempt in batch.handler.of(b"always")] == list(range(1, steps + 2))
    assert (letter.key, letter.headers[: len(OWN)]) == (b"k", OWN)
    assert letter.text("retry-first-source") == f"{batch.topic}/0/1"
    assert letter.text("retry-error-type") == "ValueError"
    assert letter.text("retry-error-text") == f"failure {steps + 1}"
    history = json.loads(letter.text("retry-history") or "")
    assert [failure["text"] for failure in history] == [f"failure {n + 1}" for n in range(steps + 1)]


def test_the_handler_says_when_it_wants_it_again(batch: Batch) -> None:
    first, second = batch.handler.of(b"later")
    assert first.history == ()
    assert second.timestamp_ms - second.history[0].at_ms >= 700
    assert second.history[0].error == "retry-later"


def test_others_of_the_key_do_not_wait_for_a_failed_one(batch: Batch) -> None:
    assert batch.handler.values[:4] == [b"twice", b"always", b"later", b"last"]


def test_a_message_whose_headers_cannot_be_read_is_a_dead_letter(batch: Batch) -> None:
    (letter,) = [letter for letter in batch.dead_letters if letter.value == b"unreadable"]
    assert (letter.text("retry-error-type"), batch.handler.of(b"unreadable")) == ("header-key", [])


def test_a_consumer_that_stops_has_committed_what_it_handled(batch: Batch) -> None:
    assert batch.committed == (5, "delayline-retry closed")


def test_a_retry_that_came_while_nobody_read_is_handled_whatever_the_reset(
    service: Cluster, cluster_name: str
) -> None:
    handler = Calls()
    with closing(Work(service, cluster_name, is_new=True)) as work:
        work.send(b"sent before", topic=work.retries)
        with work.consuming(handler, config={"auto.offset.reset": "latest"}):
            handler.wait(1)


def test_a_stop_waits_no_longer_than_its_grace_and_leaves_the_message_to_the_next_one(work: Work) -> None:
    def fail_at_last() -> None:
        released.wait(PATIENCE_S)
        raise ValueError("too late")

    released = threading.Event()
    first, second = Calls(at={b"x": fail_at_last}), Calls({b"bad": 1})
    work.send(b"x")
    with work.consuming(first, grace_s=0.1):
        first.wait(1)
    assert work.committed() == (0, "delayline-retry closed")
    work.send(b"bad")
    with work.consuming(second):
        second.wait(2)
        released.set()
        second.wait(3)
    assert second.values == [b"x", b"bad", b"bad"]
    assert [got.value for got in work.retried()] == [b"bad"]


def test_a_stop_waits_for_the_message_in_hand(work: Work, monkeypatch: pytest.MonkeyPatch) -> None:
    def stop_and_go_on() -> None:
        consumer.stop()
        threading.Event().wait(0.3)  # long enough to be slow

    monkeypatch.setattr("delayline.retry.consumer._SLOW_S", 0.01)
    consumer = work.consumer(Calls(at={b"x": stop_and_go_on}))
    work.send(b"x")
    consumer.run()
    assert work.committed() == (1, "delayline-retry closed")


def test_a_consumer_whose_place_is_taken_commits_nothing_more_and_says_so(work: Work) -> None:
    def lose_place() -> None:
        with work.consuming(second, config=member):
            work.send(b"y")
            second.wait(2)

    first, second = Calls(at={b"x": lose_place}), Calls()
    member = {"group.instance.id": "one", **SOON_TOLD}
    work.send(b"x")
    with pytest.raises(ConsumeError, match="cannot read on"):
        work.consumer(first, config=member).run()
    assert second.values == [b"x", b"y"]
    assert work.committed()[0] == 2


def test_a_rebalance_loses_nothing_and_doubles_nothing(service: Cluster, cluster_name: str) -> None:
    with closing(Work(service, cluster_name, partitions=2)) as work:
        values: list[bytes] = []
        first, second = Calls(pace_s=0.004), Calls(pace_s=0.004)

        def left() -> int:
            return len(values) - len(first.attempts) - len(second.attempts)

        def is_shared() -> bool:
            """Until it is, there is always something to do in both partitions."""
            for partition in range(2 if left() < 100 else 0):
                more = [b"%d/%d" % (partition, len(values) + number) for number in range(100)]
                work.send(*more, partition=partition)
                values.extend(more)
            return bool(second.attempts)

        with work.consuming(first, config=SOON_TOLD):
            eventually(lambda: is_shared() or len(first.attempts) >= 10, "the first one is at work")
            with work.consuming(second):
                eventually(is_shared, "the second one has its share")
                eventually(lambda: left() <= 0, "all is handled")
    assert sorted([*first.values, *second.values]) == sorted(values)


def test_a_handler_that_is_slow_through_rebalances_loses_nothing(service: Cluster, cluster_name: str) -> None:
    with closing(Work(service, cluster_name, partitions=2)) as work:
        for partition in range(2):
            work.send(*[b"%d/%d" % (partition, number) for number in range(3)], partition=partition)
        released = threading.Event()
        slow = {b"%d/0" % partition: lambda: released.wait(PATIENCE_S) for partition in range(2)}
        first, second = Calls(at=slow), Calls()
        with work.consuming(first, config=SOON_TOLD, grace_s=0.1) as consumer:
            first.wait(1)
            with work.consuming(second, config=SOON_TOLD):
                second.wait(3)
            eventually(lambda: len(consumer._partitions) == 4, "all is the first one's again")
            released.set()
            eventually(lambda: len({*first.values, *second.values}) == 6, "all is handled")
        assert [work.committed(partition=partition)[0] for partition in range(2)] == [3, 3]


def test_a_message_that_kills_its_process_becomes_a_dead_letter(work: Work, tmp_path: Path) -> None:
    work.send(b"good 1", b"good 2", b"poison", b"good 3")
    for _ in range(3):
        with ConsumerProcess(work, tmp_path, dies_of=b"poison") as process:
            process.wait_killed()
    with ConsumerProcess(work, tmp_path, dies_of=b"poison") as process:
        (letter,) = work.dead_letters(1)
        eventually(lambda: b"1 good 3" in process.attempts, "it goes on")
    assert (letter.value, letter.text("retry-error-type")) == (b"poison", "process-died")
    assert process.attempts.count(b"1 poison") == 3
    assert {b"1 good 1", b"1 good 2", b"1 good 3"} <= set(process.attempts)
    assert len(work.dead_letters(1)) == 1


def test_killed_when_a_retry_is_acknowledged_and_not_committed_it_comes_back_once(
    work: Work, tmp_path: Path
) -> None:
    work.send(b"bad")
    with ConsumerProcess(work, tmp_path, dies_answered=True, delays_ms=[60_000]) as process:
        process.wait_killed()
    with ConsumerProcess(work, tmp_path) as process:
        work.dead_letters(1)
    assert process.attempts == [b"1 bad", b"1 bad", b"2 bad", b"3 bad", b"4 bad"]
    name, service = f"{work.group}/{work.topic}/0/0@", work.cluster
    service.tail.catch_up()
    outcomes = [outcome["outcome"] for outcome in service.outcomes if (outcome["id"] or "").startswith(name)]
    assert outcomes == ["replaced"], "the first one, which nobody had committed, does not come any more"


@pytest.mark.parametrize("config", [{}, {"message.max.bytes": 2_000_000}], ids=["client", "brokers"])
def test_a_failed_message_that_the_buffer_does_not_take_is_a_dead_letter(
    work: Work, config: dict[str, object]
) -> None:
    handler = Calls({LARGE: 1, b"next": 1})
    work.send(LARGE, b"next", key=b"k", headers=OWN)
    with work.consuming(handler, config=config):
        (letter,) = work.dead_letters(1)
        handler.wait(3)
    assert handler.values == [LARGE, b"next", b"next"]
    assert (letter.key, letter.value, letter.headers[: len(OWN)]) == (b"k", LARGE, OWN)
    assert letter.text("retry-left-out") == "nothing"
    assert letter.text("retry-error-type") == "ValueError"
    assert work.committed() == (2, "delayline-retry closed")


def test_a_dead_letter_leaves_out_what_its_topic_is_too_small_for(work: Work) -> None:
    work.set(work.dead, "max.message.bytes", "5000")
    handler = Calls(9)
    work.send(LARGE, key=b"k")
    work.send(LARGE[9_000:], key=LARGE[:9_000])
    with work.consuming(handler):
        letters = work.dead_letters(2)
    assert [(letter.key, letter.value) for letter in letters] == [(b"k", None), (None, None)]
    assert [letter.text("retry-left-out") for letter in letters] == ["value", "key, value, headers"]
    assert [letter.text("retry-first-source") for letter in letters] == [
        f"{work.topic}/0/0",
        f"{work.topic}/0/1",
    ]


def test_the_buffer_is_found_before_anything_fails_so_that_no_outage_is_taken_for_its_absence(
    work: Work,
) -> None:
    handler = Calls(at={b"x": lambda: found.append(consumer._sender._requests._buffer_found)})
    consumer, found = work.consumer(handler), list[bool]()
    work.send(b"x")
    with running(consumer):
        eventually(lambda: found, "it is handled")
    assert found == [True]


def test_a_missing_topic_is_named_with_the_command_that_makes_it(work: Work) -> None:
    admin = AdminClient({"bootstrap.servers": work.cluster.bootstrap})
    admin.delete_topics([work.dead])[work.dead].result(PATIENCE_S)
    eventually(lambda: work.dead not in admin.list_topics(timeout=PATIENCE_S).topics, "it is gone")
    with pytest.raises(
        RetryTopicsError, match=rf"{work.dead} is missing.*create_topics.*kafka-topics\.sh.*--partitions 1"
    ):
        work.consumer(Calls()).run()


def test_a_missing_service_is_said_before_anything_is_handled(work: Work) -> None:
    with pytest.raises(RetryTopicsError, match=r"no-such\.buffer is missing.*delayline topics create"):
        work.consumer(Calls(), cluster="no-such").run()


def test_the_topics_are_made_once_as_wide_as_their_own(service: Cluster, cluster_name: str) -> None:
    with closing(Work(service, cluster_name, partitions=3)) as work:
        assert create_topics(work.config, [work.topic]) == []
        there = AdminClient({"bootstrap.servers": service.bootstrap}).list_topics(timeout=PATIENCE_S).topics
    assert [len(there[topic].partitions) for topic in (work.retries, work.dead)] == [3, 3]


def test_the_topics_are_as_safe_as_their_own_and_take_its_messages_with_a_history(
    service: Cluster, cluster_name: str
) -> None:
    settings = {"max.message.bytes": "5000000", "min.insync.replicas": "2"}
    with closing(Work(service, cluster_name, is_new=True, settings=settings)) as work:
        found = [work.settings(topic, *settings, "retention.ms") for topic in (work.retries, work.dead)]
    week_ms = str(7 * 24 * 3_600_000)
    assert found == [["5131072", "2", week_ms], ["5131072", "2", "-1"]]


def test_a_handler_slower_than_the_poll_interval_stays_in_the_group(slow_handlers: SlowHandlers) -> None:
    slow_handlers.wait(SHORTEST_SESSION_MS / 1000 + 0.7)
    slow_handlers.released.set()
    for handler in slow_handlers.handlers:
        handler.wait(3)
    assert [handler.values for handler in slow_handlers.handlers] == [[b"slow", b"a", b"b"]] * 2
