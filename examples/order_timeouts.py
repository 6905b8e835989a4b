"""Scheduling inside a Kafka transaction of one's own: consume, act, schedule, commit; all of it or nothing.

Each order that is read is acted upon, its time-out is scheduled, and its offset is committed, in one
transaction: an order has exactly one time-out, whatever fails in between. A request in a transaction that is
aborted is never seen by the service; one in a transaction that is committed is handled as any other.

    python examples/order_timeouts.py localhost:9092 orders orders.timeout

It takes confluent-kafka and `delayline.requests`, which only builds records.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from types import TracebackType
from typing import Any, Self

from confluent_kafka import Consumer, KafkaException, Message, Producer, TopicPartition

from delayline import requests

TIMEOUT = "30m"
_KAFKA_S = 30.0

Act = Callable[[Message, Producer], None]


class OrderTimeouts:
    """Handles the orders of one topic; for one thread.

    Args:
        bootstrap_servers: the brokers.
        orders: the topic to consume; the key of each record is the order's number.
        timeouts: the topic where time-outs are to arrive.
        act: what to do with an order; what it produces belongs to the transaction, what it raises aborts it.
        cluster: the name of the delay service.
        after: how long an order has.
    """

    def __init__(
        self,
        bootstrap_servers: str,
        orders: str,
        timeouts: str,
        act: Act,
        *,
        cluster: str = "delay",
        after: str = TIMEOUT,
    ) -> None:
        self._timeouts, self._act, self._after = timeouts, act, after
        self._buffer = f"{cluster}.buffer"
        self._producer = Producer(
            {
                "bootstrap.servers": bootstrap_servers,
                "transactional.id": f"{orders}-timeouts",  # of one process; each further one needs its own
                "partitioner": "murmur2_random",  # a request belongs into the partition of its id
                # The service reads on past a request when its transaction has ended: keep transactions short.
                "transaction.timeout.ms": 10_000,
            }
        )
        self._consumer = Consumer(
            {
                "bootstrap.servers": bootstrap_servers,
                "group.id": f"{orders}-timeouts",
                "isolation.level": "read_committed",
                "enable.auto.commit": False,  # the transaction commits the offset
                "auto.offset.reset": "earliest",
            }
        )
        self._producer.init_transactions(_KAFKA_S)
        self._consumer.subscribe([orders])

    def handle_next(self, wait_s: float) -> bool:
        """Handle one order; False if none came in time. After an error, whoever reads next has it again."""
        order = self._consumer.poll(wait_s)
        if order is None:
            return False
        if (error := order.error()) is not None:
            raise KafkaException(error)
        self._producer.begin_transaction()
        try:
            self._schedule_timeout(order)
            self._act(order, self._producer)
            self._producer.send_offsets_to_transaction(
                [_after(order)], self._consumer.consumer_group_metadata(), _KAFKA_S
            )
            self._producer.commit_transaction(_KAFKA_S)
        except BaseException:
            self._producer.abort_transaction(_KAFKA_S)
            raise
        return True

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._consumer.close()

    def _schedule_timeout(self, order: Message) -> None:
        number = (order.key() or b"").decode()
        request = requests.schedule(
            self._timeouts, order.value(), key=order.key(), id=f"timeout-{number}", after=self._after
        )
        headers: Any = request.headers
        self._producer.produce(self._buffer, request.value, request.key, headers=headers)


def _after(order: Message) -> TopicPartition:
    topic, partition, offset = order.topic(), order.partition(), order.offset()
    assert topic is not None and partition is not None and offset is not None  # noqa: PT018 - a record's place
    return TopicPartition(topic, partition, offset + 1)


def _print(order: Message, _producer: Producer) -> None:
    sys.stdout.write(f"order {order.key()!r}\n")


if __name__ == "__main__":
    with OrderTimeouts(sys.argv[1], sys.argv[2], sys.argv[3], _print) as timeouts:
        while True:
            timeouts.handle_next(1.0)
