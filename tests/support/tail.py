"""What read_committed consumers see of some topics."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable
from functools import partial
from typing import NamedTuple

from confluent_kafka import Consumer, KafkaError, KafkaException, Message, TopicPartition

from delayline.wire import Header, Reject, read_headers
from tests.support.waiting import PATIENCE_S, eventually

LOOKUP_TIMEOUT_S = 10.0
_CONFIG = {
    "group.id": "tests",
    "enable.auto.commit": False,
    "enable.partition.eof": True,  # the end may be transaction markers, which no message shows
    "auto.offset.reset": "error",
    "allow.auto.create.topics": False,
    "fetch.wait.max.ms": 50,  # an end is told so late; asked more often, a broker does little else
    "log_level": 0,
}


class Got(NamedTuple):
    """One record that was read."""

    topic: str
    partition: int
    offset: int
    timestamp_ms: int
    key: bytes | None
    value: bytes | None
    headers: list[Header]

    def text(self, header: str) -> str | None:
        """The last header of this name."""
        values = [value for name, value in self.headers if name == header]
        return values[-1].decode() if values and values[-1] is not None else None

    def number(self, header: str) -> int:
        text = self.text(header)
        assert text is not None, f"{self} has no {header}"
        return int(text)


class Tail:
    """Reads some topics from their beginning on, what was aborted only if asked for. For one thread."""

    def __init__(self, bootstrap: str, topics: Iterable[str], *, and_aborted: bool = False) -> None:
        isolation = "read_uncommitted" if and_aborted else "read_committed"
        self._consumer = Consumer(_CONFIG | {"bootstrap.servers": bootstrap, "isolation.level": isolation})
        self.records: dict[str, list[Got]] = {topic: [] for topic in topics}
        self._partitions = [
            TopicPartition(topic, partition, 0)
            for topic in self.records
            for partition in self._consumer.list_topics(topic, LOOKUP_TIMEOUT_S).topics[topic].partitions
        ]
        self._reached = {(at.topic, at.partition): 0 for at in self._partitions}
        self._consumer.assign(self._partitions)

    def poll(self, timeout_s: float = 0.0) -> None:
        """Takes what has come, waiting for the first record."""
        first = self._consumer.poll(timeout_s)
        for message in [] if first is None else [first, *self._consumer.consume(1000, 0)]:
            self._take(message)

    def wait(
        self, holds: Callable[[], object], what: str | Callable[[], str], timeout_s: float = PATIENCE_S
    ) -> None:
        """Reads on until it holds; AssertionError with `what` should have come true if it does not."""
        deadline_s = time.monotonic() + timeout_s
        while not holds():
            if time.monotonic() > deadline_s:
                raise AssertionError(f"not within {timeout_s} s: {what if isinstance(what, str) else what()}")
            self.poll(0.05)

    def catch_up(self) -> None:
        """Reads all that is there now."""
        for at in self._partitions:
            marks = eventually(partial(self._watermarks, at), f"the end of {at.topic}/{at.partition} is told")
            assert marks is not None, "eventually returns what is true"
            _, end = marks
            self._read_to(at, end)

    def reached(self, topic: str, partition: int) -> int:
        """Behind what it has read of it, markers included."""
        return self._reached[topic, partition]

    def leave(self, topic: str) -> None:
        """Reads no further in a topic, which is to go; what was read of it stays."""
        left = [at for at in self._partitions if at.topic == topic]
        self._partitions = [at for at in self._partitions if at.topic != topic]
        self._consumer.incremental_unassign(left)

    def close(self) -> None:
        self._consumer.close()

    def _watermarks(self, at: TopicPartition) -> tuple[int, int] | None:
        """None while the client has no broker for it, or the broker has not heard yet that it leads."""
        try:
            return self._consumer.get_watermark_offsets(at, timeout=LOOKUP_TIMEOUT_S)
        except KafkaException as error:
            if error.args[0].code() not in _NOT_LED_YET:
                raise
            return None

    def _read_to(self, at: TopicPartition, end: int) -> None:
        place = at.topic, at.partition
        self.wait(lambda: self._reached[place] >= end, f"{at.topic}/{at.partition} is read to {end}")

    def _take(self, message: Message) -> None:
        error = message.error()
        if error is None:
            got = read(message)
            assert got.offset >= self._reached[got.topic, got.partition], f"the client gave {got} twice"
            self.records[got.topic].append(got)
            self._reached[got.topic, got.partition] = got.offset + 1
        elif error.code() == KafkaError._PARTITION_EOF:
            topic, partition, offset = message.topic(), message.partition(), message.offset()
            assert topic is not None and partition is not None and offset is not None  # noqa: PT018
            self._reached[topic, partition] = offset
        elif error.code() not in _PASSING:
            raise KafkaException(error)


_PASSING = (
    KafkaError._ALL_BROKERS_DOWN,
    KafkaError._TRANSPORT,
    KafkaError._RESOLVE,
)
_NOT_LED_YET = (
    *_PASSING,
    KafkaError._UNKNOWN_PARTITION,
    KafkaError.NOT_LEADER_FOR_PARTITION,
    KafkaError.LEADER_NOT_AVAILABLE,
)


def read(message: Message) -> Got:
    """A message without an error, as a value."""
    headers = read_headers(message)
    assert not isinstance(headers, Reject), "what the service writes has readable headers"
    topic, partition, offset = message.topic(), message.partition(), message.offset()
    assert topic is not None, "a message has a topic"
    assert partition is not None, "a message has a partition"
    assert offset is not None, "a message has an offset"
    timestamp_ms = message.timestamp()[1]
    return Got(topic, partition, offset, timestamp_ms, message.key(), message.value(), headers or [])


def read_all(bootstrap: str, topic: str, *, and_aborted: bool = False) -> list[Got]:
    """The whole topic, as it is now."""
    tail = Tail(bootstrap, [topic], and_aborted=and_aborted)
    try:
        tail.catch_up()
        return tail.records[topic]
    finally:
        tail.close()
