"""Reading partitions of a topic by hand: explicit offsets, read_committed, and where the reader stands.

A consumer's own `position()` stays below transaction markers; what has been reached is known from the
messages and from the end-of-partition events together (rule 7).
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from typing import Any

import structlog
from confluent_kafka import Consumer, KafkaError, KafkaException, Message, TopicPartition

from node.ports import Doubtful
from store.checkpoint import Vector

log = structlog.get_logger("delayline.reader")

BATCH_MESSAGES = 500
LOOKUP_TIMEOUT_S = 5.0
TROUBLE_S = 5.0

_CONFIG: dict[str, Any] = {
    "group.id": "delayline",  # the library asks for one; no offset is ever committed to it
    "enable.auto.commit": False,
    "enable.auto.offset.store": False,
    "enable.partition.eof": True,
    "isolation.level": "read_committed",
    "auto.offset.reset": "error",  # anything else may skip messages in silence
    "allow.auto.create.topics": False,
    # The end of a partition is told at the end of a fetch that found nothing: a new master waits that long to
    # know that it has read all, where the last record is a transaction's marker.
    "fetch.wait.max.ms": 20,
    "fetch.min.bytes": 1,
    # How long fetching rests once the queue is full: a second by default, in which a fast reader runs dry.
    "fetch.queue.backoff.ms": 2,
    # A batch may be a thousand times larger once it is decompressed; above this the client would not read on.
    "receive.message.max.bytes": 2_147_483_647,
    "queued.min.messages": 20_000,
    "queued.max.messages.kbytes": 16_384,  # bounds memory, whatever the log holds
}


class OffsetsGone(Exception):
    """The log no longer has the offsets to read: retention has passed them, or the topic was recreated."""


class Forbidden(Doubtful):
    """Who reads may not read the topic."""


class TopicReader:
    """Reads some partitions of one topic. Used by one thread; `reached` may be read by any."""

    def __init__(self, client_config: dict[str, Any], topic: str) -> None:
        self.topic = topic
        self.reached: Vector = {}
        self._trouble: KafkaError | None = None
        self._trouble_s = 0.0
        self._consumer = Consumer(client_config | _CONFIG)

    @property
    def trouble(self) -> KafkaError | None:
        """Why nothing comes, as far as the client has said lately; it says so again and again."""
        return self._trouble if time.monotonic() - self._trouble_s < TROUBLE_S else None

    @property
    def forbidden(self) -> bool:
        """Whether the brokers refuse it: nothing comes until somebody allows it."""
        trouble = self.trouble
        return trouble is not None and trouble.code() == KafkaError.TOPIC_AUTHORIZATION_FAILED

    def expect_allowed(self) -> None:
        """Raises `Forbidden`."""
        if self.forbidden:
            raise Forbidden(f"topic {self.topic} may not be read by this user: give it Read there")

    def bounds(self, partition: int) -> tuple[int, int]:
        """The partition's first offset and its high watermark. Raises `Doubtful`."""
        try:
            low, high = self._consumer.get_watermark_offsets(
                TopicPartition(self.topic, partition), timeout=LOOKUP_TIMEOUT_S
            )
        except KafkaException as error:
            raise Doubtful(f"{self.topic}/{partition}: its bounds are not known: {error}") from error
        return int(low), int(high)

    def first_since(self, partition: int, at_ms: int) -> int | None:
        """The first offset whose record is of that time or later; None if there is none yet. Raises
        `Doubtful`.
        """
        try:
            (found,) = self._consumer.offsets_for_times(
                [TopicPartition(self.topic, partition, at_ms)], timeout=LOOKUP_TIMEOUT_S
            )
        except KafkaException as error:
            raise Doubtful(f"{self.topic}/{partition}: offsets by time are not known: {error}") from error
        return int(found.offset) if found.offset >= 0 else None

    def start(self, offsets: Vector) -> None:
        """Reads on from these offsets, of these partitions alone."""
        self.reached = dict(offsets)
        self._consumer.assign([TopicPartition(self.topic, p, offset) for p, offset in offsets.items()])

    def poll(self, timeout_s: float) -> list[Message]:
        """The messages that are there, or the first ones to come; in order for each partition.

        Raises `OffsetsGone`; other errors are the client's to retry.
        """
        first = self._consumer.poll(timeout_s)
        if first is None:
            return []
        # consume() alone would wait its whole timeout for a batch that does not fill.
        polled = [first, *self._consumer.consume(BATCH_MESSAGES - 1, 0)]
        messages = [message for message in polled if message.error() is None]
        for partition, last in {_partition(message): message for message in messages}.items():
            self.reached[partition] = _offset(last) + 1
        if len(messages) < len(polled):
            for event in polled:
                self._heed(event)
        return messages

    def read_to(self, ends: Vector, *, poll_s: float, patience_s: float) -> Iterator[list[Message]]:
        """Batch after batch of the messages below `ends`, until all of these are reached; some are empty.

        Raises `OffsetsGone`, and `Doubtful` if none of them comes nearer for so long.
        """
        reached, moved_s = dict(self.reached), time.monotonic()
        while any(self.reached[partition] < end for partition, end in ends.items()):
            yield [one for one in self.poll(poll_s) if _offset(one) < ends[_partition(one)]]
            if self.reached != reached:
                reached, moved_s = dict(self.reached), time.monotonic()
            elif time.monotonic() - moved_s > patience_s:
                raise Doubtful(
                    f"topic {self.topic} could not be read on in {patience_s:g} s: see to the brokers"
                )

    def _heed(self, event: Message) -> None:
        """Looks at what is no message: an end of a partition, or an error."""
        error = event.error()
        if error is None:
            return
        if error.code() == KafkaError._PARTITION_EOF:  # noqa: SLF001
            partition = _partition(event)
            self.reached[partition] = max(_offset(event), self.reached[partition])
        elif error.code() in _GONE:
            raise OffsetsGone(f"{self.topic}/{event.partition()}: {error.str()}")
        elif error.code() != KafkaError.GROUP_AUTHORIZATION_FAILED:  # no group is used: it reads without
            self._complain(error)

    def _complain(self, error: KafkaError) -> None:
        """The client tries again by itself; what is wrong is said once."""
        last = self.trouble
        if last is None or error.code() != last.code():
            log.warning("topic-unreadable", topic=self.topic, code=error.name(), detail=error.str())
        self._trouble, self._trouble_s = error, time.monotonic()

    def close(self) -> None:
        """Ends the reader."""
        self._consumer.close()


_GONE = (
    KafkaError.OFFSET_OUT_OF_RANGE,
    KafkaError._AUTO_OFFSET_RESET,  # noqa: SLF001 (what auto.offset.reset=error turns it into)
)


def place_of(message: Message) -> tuple[int, int]:
    """The partition and the offset of a message."""
    return _partition(message), _offset(message)


def _partition(message: Message) -> int:
    partition = message.partition()
    assert partition is not None, "messages and end-of-partition events have a partition"
    return partition


def _offset(message: Message) -> int:
    offset = message.offset()
    assert offset is not None, "messages and end-of-partition events have an offset"
    return offset
