"""Sends requests with plain confluent-kafka: at full speed, or at a rate. A job (bench/job.py).

The job is a `Load`; the result, the seconds from the first one sent to the last one acknowledged.
"""

from __future__ import annotations

import random
import time
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any, Final, cast

from confluent_kafka import Producer

from bench import message
from bench.job import JobProcess, python_job, serve, work
from delayline import requests
from delayline.headers import Header

TICK_S: Final = 0.001
FLUSH_S: Final = 120.0
CONFIG: Final = {"acks": "all", "enable.idempotence": True, "partitioner": "murmur2_random"}
FAST: Final = {"linger.ms": 20, "batch.size": 1_000_000, "queue.buffering.max.messages": 1_000_000}
_SPREAD: Final = 0x9E3779B97F4A7C15  # odd: no id comes twice


@dataclass(frozen=True, slots=True)
class Load:
    """What is to be sent."""

    bootstrap: str
    topic: str
    target: str
    count: int
    first_due_ms: int = 0
    span_ms: int = 1
    order: str = "rising"
    rate: int = 0  # a second; 0: at full speed
    lead_ms: int = 0  # with a rate: due so long after it is sent
    op: str = "schedule"
    ids: bool = False
    if_exists: str = "replace"  # with ids: what becomes of the one that is known
    targets: Sequence[str] = ()  # with a rate: in turn, instead of `target`
    settings: dict[str, Any] = field(default_factory=lambda: dict(FAST))

    def send(self) -> float:
        """Sends it; returns the seconds that it took."""
        return float(work("bench.loader", asdict(self)))

    def begin(self) -> JobProcess:
        """Sends it beside what else is going on; returns once the first is about to be sent."""
        process = python_job("bench.loader", asdict(self))
        process.wait_ready()
        return process


Payload = tuple[bytes, bytes | None, list[Header]]
"""Key, value and headers of a request."""


def _records(load: Load) -> Iterator[Payload]:
    if load.op == "move":
        return _moves(load)
    if load.op != "schedule":
        return _controls(load)
    if load.rate:
        return _at_rate(load)
    return _with_ids(load) if load.ids else _plain(load)


def _dues_ms(load: Load) -> Iterator[int]:
    if load.order == "random":
        dice = random.Random(2)
        return (load.first_due_ms + int(dice.random() * load.span_ms) for _ in range(load.count))
    return (load.first_due_ms + number * load.span_ms // load.count for number in range(load.count))


def _plain(load: Load) -> Iterator[Payload]:
    headers = message.headers
    for number, due_ms in enumerate(_dues_ms(load)):
        yield message.key(number), message.value(number), headers(load.target, due_ms)


def _with_ids(load: Load) -> Iterator[Payload]:
    for number, due_ms in enumerate(_dues_ms(load)):
        request = requests.schedule(
            load.target,
            message.value(number),
            headers=[message.TRACE],
            deliver_at=due_ms,
            id=_id(number),
            if_exists=load.if_exists,
        )
        assert request.key is not None, "the id is the key"
        yield request.key, request.value, request.headers


def _controls(load: Load) -> Iterator[Payload]:
    for number in range(load.count):
        if load.op == "cancel":
            request = requests.cancel(_id(number))
        else:
            request = requests.reschedule(_id(number), deliver_at=load.first_due_ms)
        assert request.key is not None, "the id is the key"
        yield request.key, None, request.headers


def _moves(load: Load) -> Iterator[Payload]:
    """One message, moved again and again."""
    for number in _paced(load):
        request = requests.reschedule(_id(0), deliver_at=load.first_due_ms + number)
        assert request.key is not None, "the id is the key"
        yield request.key, None, request.headers


def _paced(load: Load) -> Iterator[int]:
    begin_s = time.monotonic()
    for number in range(load.count):
        while number > (time.monotonic() - begin_s) * load.rate:
            time.sleep(TICK_S)
        yield number


def _at_rate(load: Load) -> Iterator[Payload]:
    targets = load.targets or [load.target]
    for number in _paced(load):
        due_ms = time.time_ns() // 1_000_000 + load.lead_ms
        headers = message.headers(targets[number % len(targets)], due_ms)
        yield message.key(number), message.dated_value(number, due_ms), headers


def _id(number: int) -> str:
    """Neighbours have ids that lie far apart, as users' own do that come from elsewhere."""
    return f"order-{number * _SPREAD % (1 << 64):016x}"


def send(job: dict[str, Any], ready: Any) -> float:
    """What the job's process does."""
    load = Load(**job)
    producer = Producer({"bootstrap.servers": load.bootstrap, **CONFIG, **load.settings})
    producer.list_topics(load.topic, timeout=10)
    records = _records(load)
    ready()
    return send_all(producer, load.topic, records, at_rate=load.rate > 0)


def send_all(producer: Producer, topic: str, records: Iterable[Payload], *, at_rate: bool) -> float:
    """The seconds until the last was acknowledged. At a rate it looks for answers meanwhile."""
    produce = producer.produce
    begin_s = time.perf_counter()
    for number, (key, value, headers) in enumerate(records):
        while True:
            try:
                produce(topic, value, key, headers=cast("Any", headers))  # the stub's list is invariant
                break
            except BufferError:
                producer.poll(0.01)
        if at_rate and number % 100 == 0:
            producer.poll(0)
    if producer.flush(FLUSH_S):
        raise TimeoutError(f"not all of it was acknowledged in {FLUSH_S} s")
    return time.perf_counter() - begin_s


if __name__ == "__main__":
    serve(send)
