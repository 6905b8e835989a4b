"""What the tests of the retrying consumer share: a service with a short ladder, topics, consumers at work."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Self

from confluent_kafka import Consumer, Producer, TopicPartition
from confluent_kafka.admin import (
    AdminClient,
    AlterConfigOpType,
    ConfigEntry,
    ConfigResource,
    ResourceType,
)
from confluent_kafka.cimpl import NewTopic

from delayline.headers import Header
from delayline.retry import Attempt, Handler, Ladder, RetryingConsumer, RetryLater, create_topics
from tests.support.cluster import Cluster, is_there, wait_led
from tests.support.tail import Got, Tail
from tests.support.waiting import PATIENCE_S, eventually

_ROOT = Path(__file__).parents[2]
STEP_MS = 100
SHORT = Ladder((RetryLater(after=STEP_MS), RetryLater(level=1), RetryLater(after=STEP_MS)))


class Work:
    """A topic with its retry and dead-letter topics, and the group that reads it.

    The group has committed the beginning, which librdkafka finds a second sooner than it looks it up; if it
    `is_new`, nothing.
    """

    def __init__(
        self,
        cluster: Cluster,
        name: str,
        partitions: int = 1,
        *,
        is_new: bool = False,
        settings: Mapping[str, str] | None = None,
    ) -> None:
        self.cluster = cluster
        self.topic = name
        self.group = f"{name}-g"  # a group of its own: a killed member stays in it for a while
        self.retries = f"{name}.retry.{self.group}"
        self.dead = f"{name}.dlq.{self.group}"
        self.config: dict[str, object] = {
            "bootstrap.servers": cluster.bootstrap,
            "group.id": self.group,
            "log_level": 0,
        }
        self._admin = AdminClient({"bootstrap.servers": cluster.bootstrap, "log_level": 0})
        topic = NewTopic(name, partitions, 1, config=dict(settings or {}))
        self._admin.create_topics([topic])[name].result(PATIENCE_S)
        wait_led(self._admin, {name: partitions})
        create_topics(self.config, [name])
        wait_led(self._admin, {self.retries: partitions})
        self._producer = Producer({"bootstrap.servers": cluster.bootstrap, "linger.ms": 0, "log_level": 0})
        self._tail: Tail | None = None
        if not is_new:
            self._commit_beginning(partitions)

    def _commit_beginning(self, partitions: int) -> None:
        consumer = Consumer(self.config)
        topics = (self.topic, self.retries)
        offsets = [TopicPartition(topic, number, 0) for topic in topics for number in range(partitions)]
        consumer.committed(
            offsets, PATIENCE_S
        )  # unlike a commit, it does not sleep while the group's broker is sought
        consumer.commit(offsets=offsets, asynchronous=False)
        consumer.close()

    def _wait_for(self, topic: str) -> None:
        eventually(lambda: is_there(self._admin, topic), f"{topic} is there")

    def send(
        self,
        *values: bytes,
        key: bytes | None = None,
        headers: list[Header] | None = None,
        partition: int = 0,
        topic: str | None = None,
    ) -> None:
        """Sends records to a partition; returns when they are acknowledged."""
        for value in values:
            given: Any = headers
            self._producer.produce(topic or self.topic, value, key, partition, headers=given)
        assert self._producer.flush(PATIENCE_S) == 0

    def settings(self, topic: str, *names: str) -> list[str]:
        """What a topic has been set to."""
        self._wait_for(topic)
        resource = ConfigResource(ResourceType.TOPIC, topic)
        found = self._admin.describe_configs([resource])[resource].result(PATIENCE_S)
        return [found[name].value for name in names]

    def set(self, topic: str, setting: str, value: str) -> None:
        """Change a topic's setting."""
        self._wait_for(topic)
        entry = ConfigEntry(setting, value, incremental_operation=AlterConfigOpType.SET)
        resource = ConfigResource(ResourceType.TOPIC, topic, incremental_configs=[entry])
        self._admin.incremental_alter_configs([resource])[resource].result(PATIENCE_S)

    def consumer(self, handler: Handler, **options: Any) -> RetryingConsumer:
        config = options.pop("config", {})
        return RetryingConsumer(
            {**self.config, **config},
            [self.topic],
            handler,
            **{"cluster": self.cluster.name, "ladder": SHORT, **options},
        )

    @contextmanager
    def consuming(self, handler: Handler, **options: Any) -> Iterator[RetryingConsumer]:
        """A consumer on a thread of its own, stopped at the end; what it raised is raised here."""
        consumer = self.consumer(handler, **options)
        with running(consumer):
            yield consumer

    def dead_letters(self, count: int) -> list[Got]:
        """Waits until there are so many."""
        if self._tail is None:
            self._tail = Tail(self.cluster.bootstrap, [self.dead, self.retries])
        records = self._tail.records[self.dead]
        self._tail.wait(lambda: len(records) >= count, f"{count} dead letters are there")
        return records

    def retried(self) -> list[Got]:
        """All that has come back so far."""
        self.dead_letters(0)
        assert self._tail is not None
        self._tail.catch_up()
        return self._tail.records[self.retries]

    def committed(self, topic: str | None = None, partition: int = 0) -> tuple[int, str | None]:
        """The group's offset, and its metadata."""
        consumer = Consumer(self.config)
        try:
            (at,) = consumer.committed([TopicPartition(topic or self.topic, partition)], PATIENCE_S)
        finally:
            consumer.close()
        return at.offset, at.metadata

    def close(self) -> None:
        if self._tail is not None:
            self._tail.close()


@contextmanager
def running(consumer: RetryingConsumer) -> Iterator[None]:
    """Runs it on a thread, and stops it at the end; what it raised is raised here."""
    raised: list[BaseException] = []

    def run() -> None:
        try:
            consumer.run()
        except BaseException as error:
            raised.append(error)

    thread = threading.Thread(target=run)
    thread.start()
    try:
        yield
    finally:
        consumer.stop()
        thread.join(PATIENCE_S)
        assert not thread.is_alive(), "run ends soon after stop"
    if raised:
        raise raised[0]


class Calls:
    """A handler that keeps what it was called with.

    Args:
        failures: how many attempts at a message it fails at, of all messages or by their values.
        at: what it does with a message, by its value.
        pace_s: how long each takes it.
    """

    def __init__(
        self,
        failures: Mapping[bytes, int] | int = 0,
        at: Mapping[bytes, Callable[[], object]] | None = None,
        pace_s: float = 0.0,
    ) -> None:
        self.attempts: list[Attempt] = []
        self._failures = failures
        self._at = at or {}
        self._pace_s = pace_s

    def __call__(self, attempt: Attempt) -> RetryLater | None:
        self.attempts.append(attempt)
        value = attempt.value or b""
        failures = self._failures if isinstance(self._failures, int) else self._failures.get(value, 0)
        if attempt.number <= failures:
            raise ValueError(f"failure {attempt.number}")
        if self._pace_s:
            time.sleep(self._pace_s)
        asked = self._at[value]() if value in self._at else None
        return asked if isinstance(asked, RetryLater) else None

    @property
    def values(self) -> list[bytes]:
        return [attempt.value or b"" for attempt in self.attempts]

    def of(self, value: bytes) -> list[Attempt]:
        """The attempts at one message."""
        return [attempt for attempt in self.attempts if attempt.value == value]

    def wait(self, count: int) -> list[Attempt]:
        eventually(lambda: len(self.attempts) >= count, f"the handler is called {count} times")
        return self.attempts


class ConsumerProcess:
    """A running tests/integration/retry_process.py.

    A static member of its group: the next one with its name takes its place at once.
    """

    def __init__(
        self,
        work: Work,
        folder: Path,
        *,
        dies_of: bytes = b"",
        dies_answered: bool = False,
        delays_ms: Sequence[int] = (STEP_MS,) * 3,
    ) -> None:
        self._log = folder / "attempts"
        given = {
            "config": {**work.config, "group.instance.id": "only"},
            "topic": work.topic,
            "cluster": work.cluster.name,
            "log": str(self._log),
            "dies_of": dies_of.decode(),
            "dies_answered": dies_answered,
            "delays_ms": delays_ms,
        }
        self._process = subprocess.Popen(
            [sys.executable, "-m", "tests.integration.retry_process", json.dumps(given)], cwd=_ROOT
        )

    @property
    def attempts(self) -> list[bytes]:
        """What the processes of this folder were given, each as `number value`."""
        return self._log.read_bytes().splitlines() if self._log.exists() else []

    def wait_killed(self) -> None:
        assert self._process.wait(PATIENCE_S) == -signal.SIGKILL

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._process.terminate()
        self._process.wait(PATIENCE_S)
