"""`frame.write.format("delayline")`: records into the buffer, from wherever Spark runs a task.

Options: `bootstrap.servers`; `partitions`, as many as the cluster's settings say, by which an id's is told;
`cluster` (default: delay); `rate`, records a second of each task; `kafka.*`, librdkafka's properties; `held`,
by which a bulk job's tasks know whether they may send (pipeline/bulk/lease.py).

Each task has a producer of its own, which keeps its order and writes nothing twice. A task that Spark runs
again would send again what it has sent before. Of a bulk job it does not: it fails, and with it the writing,
and whoever has begun that looks for what is lacking. Elsewhere an id with `delay-if-exists: keep` makes the
second one nothing (docs/wire-format.md).
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack
from typing import TYPE_CHECKING, Any, Final

from confluent_kafka import KafkaError, KafkaException, Producer
from pyspark import TaskContext
from pyspark.sql.datasource import DataSource, DataSourceArrowWriter, WriterCommitMessage
from pyspark.sql.types import StructType

from delayline.names import ClusterNames
from delayline.partitioner import partition_for
from delayline.producer import FIXED
from pipeline.bulk.lease import Held, Lease
from pipeline.errors import KafkaFailed, SendingEnded, WrongInput

if TYPE_CHECKING:
    import pyarrow as pa

FORMAT: Final = "delayline"
KAFKA_PREFIX: Final = "kafka."
_PRODUCER: Final = {
    **FIXED,
    "batch.size": 1_000_000,
    "linger.ms": 20,
    "message.max.bytes": 16 << 20,  # the largest that nodes read; the brokers' limits decide below that
    "queue.buffering.max.kbytes": 65_536,
    "queue.buffering.max.messages": 100_000,
}
_REQUIRED: Final = {
    "bootstrap.servers": "Kafka's brokers, host:port,...",
    "partitions": "as many as the cluster's settings say",
}
_COLUMNS: Final = ("key", "value", "headers")
_ANY: Final = -1
"""Librdkafka's word for: whichever it likes."""
_WAIT_S: Final = 0.1
_PACED_S: Final = 0.1

Record = tuple[bytes | None, bytes | None, list[tuple[str, bytes | None]], int]


class DelaylineSink(DataSource):
    """Spark makes it, by its name, once it is registered: `spark.dataSource.register(DelaylineSink)`."""

    @classmethod
    def name(cls) -> str:
        """As in `frame.write.format(...)`."""
        return FORMAT

    def writer(self, schema: StructType, overwrite: bool) -> DataSourceArrowWriter:  # noqa: FBT001 - Spark's
        """Raises `WrongInput`: an option that is missing, or a frame of something else."""
        if overwrite:
            raise WrongInput("the mode is overwrite: a buffer is only appended to")
        for name in _COLUMNS:
            if name not in schema.names:
                raise WrongInput(f"column {name!r} is missing: write what requests(frame).records has")
        return _Writer(self.options)


class _Writer(DataSourceArrowWriter):
    def __init__(self, options: Mapping[str, str]) -> None:
        for name, meaning in _REQUIRED.items():
            if name not in options:
                raise WrongInput(f"option {name!r} is missing: give {meaning}")
        self._partitions = int(options["partitions"])
        self._bootstrap = options["bootstrap.servers"]
        self._topic = ClusterNames(options.get("cluster", "delay")).buffer
        own = {
            key.removeprefix(KAFKA_PREFIX): value
            for key, value in options.items()
            if key.startswith(KAFKA_PREFIX)
        }
        servers = {"bootstrap.servers": self._bootstrap, "log_level": 0}
        self._config: dict[str, Any] = {**own, **_PRODUCER, **servers}
        self._rate = float(options.get("rate", 0))
        self._held = options.get("held")

    def write(self, iterator: Iterator[pa.RecordBatch]) -> WriterCommitMessage:
        """Sends the records of a task. Raises `KafkaFailed`: one was not taken; those before it may have
        been. `SendingEnded`: it may not send, or no more.
        """
        with ExitStack() as ends:
            require = self._required(ends)
            task = _Task(self._config, self._topic, self._bootstrap, require)
            ends.callback(task.abandon)
            pace, sent = _Pace(self._rate), 0
            for batch in iterator:
                for record in _records(batch, self._partitions):
                    task.send(*record)
                    sent += 1
                    if sent % pace.every == 0:
                        pace.wait(sent)
            pace.wait(sent)
            task.end()
        return WriterCommitMessage()

    def _required(self, ends: ExitStack) -> Callable[[], None]:
        """What raises once the task may not send."""
        if self._held is None:
            return lambda: None
        context = TaskContext.get()
        if context is not None and context.attemptNumber() > 0:
            raise SendingEnded("Spark has lost a task that may have sent, and runs it again")
        return ends.enter_context(Lease(Held.from_json(self._held))).require


def _records(batch: pa.RecordBatch, of: int) -> Iterator[Record]:
    """Column by column: what costs is a Python object for each row. What has no partition is in that of its
    key, of so many.
    """
    keys, values, headers = (batch.column(name) for name in _COLUMNS)
    entries = headers.values
    pairs = list(zip(entries.field("key").to_pylist(), entries.field("value").to_pylist(), strict=True))
    ends = headers.offsets.to_pylist()
    has_partitions = "partition" in batch.schema.names
    given = batch.column("partition").to_pylist() if has_partitions else [None] * batch.num_rows
    for key, value, begin, end, partition in zip(
        keys.to_pylist(), values.to_pylist(), ends[:-1], ends[1:], given, strict=True
    ):
        by_key = _ANY if key is None else partition_for(key, of)
        yield key, value, pairs[begin:end], by_key if partition is None else partition


class _Task:
    """A producer, and the first error that it has had."""

    def __init__(
        self, config: dict[str, Any], topic: str, bootstrap: str, require: Callable[[], None]
    ) -> None:
        self._producer = Producer(config)
        self._topic, self._bootstrap, self._require = topic, bootstrap, require
        self._error: KafkaError | None = None

    def send(
        self, key: bytes | None, value: bytes | None, headers: list[tuple[str, bytes | None]], partition: int
    ) -> None:
        given: Any = headers  # the client's type says str | bytes, invariantly
        while True:
            self._go_on()
            try:
                self._producer.produce(
                    self._topic, value, key, partition, on_delivery=self._note, headers=given
                )
            except BufferError:
                self._producer.poll(_WAIT_S)
            except KafkaException as error:
                raise KafkaFailed(error.args[0], self._bootstrap) from error
            else:
                self._producer.poll(0)
                return

    def end(self) -> None:
        """All that was sent is on the brokers."""
        while self._producer.flush(_WAIT_S) > 0:
            self._go_on()
        self._go_on()

    def abandon(self) -> None:
        """Nothing more is sent; what is on its way may arrive. After `end`, nothing is left."""
        self._producer.purge()

    def _note(self, error: KafkaError | None, _: Any) -> None:
        self._error = self._error or error

    def _go_on(self) -> None:
        self._require()
        if self._error is not None:
            raise KafkaFailed(self._error, self._bootstrap)


class _Pace:
    """No more than so many a second; 0: as fast as it goes."""

    def __init__(self, rate: float) -> None:
        self.every = max(1, int(rate * _PACED_S)) if rate > 0 else 1_000_000
        self._rate, self._begun_s = rate, time.monotonic()

    def wait(self, sent: int) -> None:
        ahead_s = sent / self._rate - (time.monotonic() - self._begun_s) if self._rate > 0 else 0.0
        if ahead_s > 0:
            time.sleep(ahead_s)
