"""Sending many records in a transaction: how large they are, and what came of them."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, Final

from confluent_kafka import KafkaError, Message, Producer

from delayline.wire import Header
from ops.pending.line import MessageLine

_WAIT_S: Final = 0.2
_HEADER_BYTES: Final = 10
"""What a header takes beside its key and value."""


class Sent:
    """The acknowledgements of some records, by the numbers that they have for who sends them: the offsets of
    those that were taken, and the first one that was not.
    """

    def __init__(self) -> None:
        self.offsets: dict[int, int] = {}
        self.error: KafkaError | None = None
        self.number = 0

    def answers(self, number: int) -> Any:
        """What the client is to call for a record."""

        def answered(error: KafkaError | None, message: Message) -> None:
            if error is None:
                self.offsets[number] = message.offset() or 0
            elif self.error is None:
                self.error, self.number = error, number

        return answered


def send(
    producer: Producer,
    topic: str,
    key: bytes | None,
    value: bytes | None,
    headers: Any,
    partition: int,
    on_delivery: Any = None,
) -> None:
    """Sends a record; waits where the queue is full."""
    while True:
        try:
            producer.produce(
                topic,
                partition=partition,
                key=key,
                value=value,
                headers=headers,
                **({} if on_delivery is None else {"on_delivery": on_delivery}),
            )
            return
        except BufferError:
            producer.poll(_WAIT_S)


def bytes_of(key: bytes | None, value: bytes | None, headers: Iterable[Header]) -> int:
    """Of a record, as far as that can be told before it is sent."""
    of_headers = sum(len(name.encode()) + len(content or b"") + _HEADER_BYTES for name, content in headers)
    return len(key or b"") + len(value or b"") + of_headers


def bytes_of_line(message: MessageLine) -> int:
    """The same of what a line brings."""
    return bytes_of(message.key, message.value, [(one.key, one.value) for one in message.headers])
