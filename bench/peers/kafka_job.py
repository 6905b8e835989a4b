"""delayline by its users' own client: requests as Kafka headers, read by a read_committed consumer. A job; a
topic to send to is `BUFFER/TARGET`.
"""

from __future__ import annotations

from typing import Any, Final

from confluent_kafka import Consumer, Producer, TopicPartition

from bench import message
from bench.loader import CONFIG, FAST, send_all
from bench.peers.job import Arrivals, Reading, Ready, Sending, messages, serve_jobs
from bench.reader import BATCH
from bench.reader import CONFIG as READER

_AT_RATE: Final[dict[str, Any]] = {}  # the client's defaults


def _load(address: str, topic: str, sending: Sending, ready: Ready) -> float:
    buffer, target = topic.split("/")
    producer = Producer({"bootstrap.servers": address, **CONFIG, **(_AT_RATE if sending.rate else FAST)})
    producer.list_topics(buffer, timeout=10)
    key, headers = message.key, message.headers
    records = ((key(number), value, headers(target, due_ms)) for number, due_ms, value in messages(sending))
    ready()
    return send_all(producer, buffer, records, at_rate=sending.rate > 0)


def _read(address: str, topic: str, reading: Reading, ready: Ready) -> dict[str, Any]:
    consumer = Consumer({"bootstrap.servers": address, **READER})
    partitions = consumer.list_topics(topic, timeout=10).topics[topic].partitions
    consumer.assign([TopicPartition(topic, partition, 0) for partition in partitions])
    arrivals = Arrivals(reading)
    ready()
    while arrivals.go_on:
        first = consumer.poll(0.1)
        if first is not None:  # poll, then what is there: consume(n, t) alone would wait t for a full batch
            arrivals.take([one.value() or b"" for one in (first, *consumer.consume(BATCH, 0))])
    return arrivals.read()


if __name__ == "__main__":
    serve_jobs(_load, _read)
