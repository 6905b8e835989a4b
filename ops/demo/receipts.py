"""The latency consumer: reads the targets as an application would (read_committed), and notes when.

It runs in a process of its own, `python -m ops.demo.receipts BOOTSTRAP TOPIC...`, so that what the demo
itself does beside it does not count as lateness. One line a message on stdout; it ends when its stdin does,
so with the demo, however that ends. `Receipts` is the demo's side of it.
"""

from __future__ import annotations

import gc
import subprocess
import sys
import threading
import time
from collections.abc import Sequence
from types import TracebackType
from typing import Final, Self, cast

from confluent_kafka import Consumer, Message, TopicPartition

from delayline.headers import H_SCHEDULED_FOR, Header
from ops.demo.measure import ReceivedMessage
from ops.demo.workload import KIND_HEADER

BATCH: Final = 500
END_S: Final = 10.0
_CONSUMER: Final = {
    "group.id": "delayline-demo",  # required by the client, never joined
    "enable.auto.commit": False,
    "auto.offset.reset": "error",
    "isolation.level": "read_committed",
    "fetch.wait.max.ms": 20,  # it bounds what a consumer adds where the broker does not answer sooner
    "fetch.queue.backoff.ms": 5,
}


class Receipts:
    """Collects what the consumer's process reports; as a context manager it starts and ends it."""

    def __init__(self, bootstrap: str, topics: Sequence[str]) -> None:
        self.received: list[ReceivedMessage] = []  # appended to by the reading thread only
        self._command = [sys.executable, "-m", "ops.demo.receipts", bootstrap, *topics]
        self._thread = threading.Thread(target=self._read, name="receipts", daemon=True)

    def __enter__(self) -> Self:
        # A session of its own: a terminal's Ctrl-C reaches the demo only, which ends this.
        self._process = subprocess.Popen(
            self._command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, start_new_session=True
        )
        self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        assert self._process.stdin is not None
        self._process.stdin.close()
        try:
            self._process.wait(END_S)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
        self._thread.join()

    @property
    def running(self) -> bool:
        """Whether the consumer's process is there."""
        return self._process.poll() is None

    def _read(self) -> None:
        assert self._process.stdout is not None
        for line in self._process.stdout:
            at_ms, scheduled_for_ms, kind = line.split()
            self.received.append(ReceivedMessage(float(at_ms), int(scheduled_for_ms), sys.intern(kind)))


def main() -> None:
    """Read the topics from their first offsets until stdin ends."""
    bootstrap, *topics = sys.argv[1:]
    ending = threading.Event()
    threading.Thread(target=_wait_for_end, args=[ending], daemon=True).start()
    gc.disable()  # a collection would be measured
    consumer = Consumer({"bootstrap.servers": bootstrap, **_CONSUMER})
    consumer.assign(_places(consumer, topics))
    while not ending.is_set():
        first = consumer.poll(0.1)
        # poll, then what is there: consume(n, t) alone would wait t for a full batch.
        messages = [] if first is None else [first, *consumer.consume(BATCH, 0)]
        at_ms = time.time_ns() / 1e6
        if lines := [_line(at_ms, message) for message in messages if message.error() is None]:
            sys.stdout.write("".join(lines))
            sys.stdout.flush()


def _wait_for_end(ending: threading.Event) -> None:
    sys.stdin.read()
    ending.set()


def _places(consumer: Consumer, topics: Sequence[str]) -> list[TopicPartition]:
    known = {topic: consumer.list_topics(topic, timeout=10).topics[topic] for topic in topics}
    return [TopicPartition(topic, partition, 0) for topic in topics for partition in known[topic].partitions]


def _line(at_ms: float, message: Message) -> str:
    headers = cast("list[Header]", message.headers() or [])  # the stub has more than a consumer ever gives
    found = {key: value for key, value in headers if value is not None}
    scheduled_for_ms, kind = found.get(H_SCHEDULED_FOR, b"0"), found.get(KIND_HEADER, b"-")
    return f"{at_ms:.3f} {scheduled_for_ms.decode()} {kind.decode()}\n"


if __name__ == "__main__":
    main()
