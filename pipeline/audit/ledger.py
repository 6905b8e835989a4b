"""The ledger: what producers saw acknowledged, kept outside Kafka, to hold the buffer against.

One JSON object a line: `{"source": "topic/partition/offset", "sha256": "..."}`; the hash is of key, value and
headers (`pipeline.audit.content.content_of`).
"""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from pathlib import Path
from threading import Lock
from types import TracebackType
from typing import Protocol, Self, TypeAlias

from confluent_kafka import KafkaError, Message
from pyspark.sql import DataFrame, SparkSession

from delayline.names import source
from delayline.receipt import Receipt
from delayline.wire import Header
from pipeline.audit.content import content_of

_LINE = "source string, sha256 string"


class Content(Protocol):
    """What is hashed of a request: `delayline.requests.BufferRecord` is one."""

    @property
    def key(self) -> bytes | None: ...
    @property
    def value(self) -> bytes | None: ...
    @property
    def headers(self) -> Sequence[Header]: ...


DeliveryReport: TypeAlias = Callable[[KafkaError | None, Message], None]


class LedgerWriter:
    """Writes down what is acknowledged, and nothing else. Any number of producers and threads may share one.

    With `DelayProducer`: `producer.send(request, on_delivery=ledger.on_receipt(request))`; with
    confluent-kafka's own: `producer.produce(..., on_delivery=ledger.on_report(request))`, whose delivery
    report has no headers.
    """

    def __init__(self, path: Path) -> None:
        self.lines = 0
        self._lock = Lock()
        self._file = path.open("w", encoding="utf-8")

    def on_receipt(self, request: Content) -> Callable[[Receipt], None]:
        """The callback for one request to a DelayProducer."""

        def acknowledged(receipt: Receipt) -> None:
            if receipt.source is not None:
                self.add(receipt.source, request)

        return acknowledged

    def on_report(self, request: Content) -> DeliveryReport:
        """The callback for one request to a producer of confluent-kafka's."""

        def acknowledged(error: KafkaError | None, message: Message) -> None:
            topic, partition, offset = message.topic(), message.partition(), message.offset()
            if error is None and topic is not None and partition is not None and offset is not None:
                self.add(source(topic, partition, offset), request)

        return acknowledged

    def add(self, request_source: str, request: Content) -> None:
        """Write one line: this request was acknowledged, and is there."""
        sha256 = content_of(request.key, request.value, request.headers)
        line = json.dumps({"source": request_source, "sha256": sha256})
        with self._lock:
            self._file.write(line + "\n")
            self.lines += 1

    def close(self) -> None:
        """The file is complete only now."""
        self._file.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()


def read_ledger(spark: SparkSession, path: Path) -> DataFrame:
    """A ledger's lines, as columns `source` and `sha256`; null where a line is none."""
    return spark.read.schema(_LINE).json(str(path))
