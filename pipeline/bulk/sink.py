"""`frame.write.format("delayline")`: records into the buffer, by the client that applications use.

Options: `bootstrap.servers`; `cluster` (default: delay); `rate`, records a second of all tasks together;
`kafka.*`, librdkafka's properties. Each task has a producer of its own, which keeps its order and writes nothing
twice. A task that Spark runs again sends what it has sent before again: ids and `delay-if-exists: keep` make that
nothing (docs/wire-format.md).
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from pyspark.sql.datasource import DataSource, DataSourceArrowWriter, WriterCommitMessage
from pyspark.sql.types import StructType

from delayline.names import ClusterNames
from pipeline.errors import KafkaFailed, WrongInput

if TYPE_CHECKING:
    import pyarrow as pa

FORMAT: Final = "delayline"
_PREFIX: Final = "kafka."
_PRODUCER: Final = {
    "acks": "all",
    "batch.size": 1_000_000,
    "enable.idempotence": True,
    "linger.ms": 20,
    "partitioner": "murmur2_random",  # as Java's: an id's requests are in one partition
    "queue.buffering.max.kbytes": 65_536,
    "queue.buffering.max.messages": 100_000,
}
_POLL_S: Final = 0.1
_PACED_EVERY: Final = 50


@dataclass(frozen=True, slots=True)
class Sent(WriterCommitMessage):
    """What a task has sent."""

    records: int


class DelaylineSink(DataSource):
    """Spark makes it by its name: `spark.dataSource.register(DelaylineSink)`."""

    @classmethod
    def name(cls) -> str:
        return FORMAT

    def writer(self, schema: StructType, overwrite: bool) -> DataSourceArrowWriter:
        """Raises `WrongInput`: an option that is missing, or a frame of something else."""
        if overwrite:
            raise WrongInput("the mode is overwrite: a buffer is only appended to")
        missing = {"key", "value", "headers"} - set(schema.names)
        if missing:
            raise WrongInput(
                f"column {sorted(missing)[0]!r} is missing: write what pipeline.requests(frame).records has"
            )
        return _Writer(self.options)


class _Writer(DataSourceArrowWriter):
    def __init__(self, options: Mapping[str, str]) -> None:
        if "bootstrap.servers" not in options:
            raise WrongInput("option 'bootstrap.servers' is missing: give Kafka's brokers, host:port,...")
        self._bootstrap = options["bootstrap.servers"]
        self._topic = ClusterNames(options.get("cluster", "delay")).buffer
        own = {key.removeprefix(_PREFIX): value for key, value in options.items() if key.startswith(_PREFIX)}
        self._config: dict[str, Any] = {
            **_PRODUCER,
            **own,
            "bootstrap.servers": self._bootstrap,
            "log_level": 0,
        }
        self._rate = float(options.get("rate", 0))

    def write(self, iterator: Iterator[pa.RecordBatch]) -> Sent:
        """Raises `KafkaFailed`: a record was not taken. Those before it may have been."""
        task = _Task(self._config, self._topic, self._bootstrap)
        pace = _Pace(self._rate)
        sent = 0
        for batch in iterator:
            for record in _records(batch):
                task.send(*record)
                sent += 1
                if sent % _PACED_EVERY == 0:
                    pace.wait(sent)
        task.end()
        return Sent(sent)


def _records(batch: pa.RecordBatch) -> Iterator[tuple[Any, Any, list[tuple[str, Any]], int]]:
    """Key, value, headers and partition, column by column: a list for each record is what costs."""
    size = batch.num_rows
    keys, values, headers = (batch.column(name) for name in ("key", "value", "headers"))
    pairs = list(
        zip(headers.values.field("key").to_pylist(), headers.values.field("value").to_pylist(), strict=True)
    )
    ends = headers.offsets.to_pylist()
    has_partitions = "partition" in batch.schema.names
    partitions = batch.column("partition").fill_null(-1).to_pylist() if has_partitions else [-1] * size
    rows = zip(keys.to_pylist(), values.to_pylist(), ends[:-1], ends[1:], partitions, strict=True)
    return ((key, value, pairs[begin:end], partition) for key, value, begin, end, partition in rows)


class _Task:
    """A producer, and whether it has failed."""

    def __init__(self, config: dict[str, Any], topic: str, bootstrap: str) -> None:
        from confluent_kafka import Producer  # where Spark runs it

        self._producer, self._topic, self._bootstrap = Producer(config), topic, bootstrap
        self._error: Any = None

    def send(self, key: bytes, value: bytes, headers: list[tuple[str, Any]], partition: int) -> None:
        while True:
            try:
                self._producer.produce(self._topic, value, key, partition, self._note, headers=headers)
            except BufferError:
                self._producer.poll(_POLL_S)
            else:
                break
            self._require_no_error()

    def end(self) -> None:
        """All that was sent is on the brokers' disks."""
        self._producer.flush()
        self._require_no_error()

    def _note(self, error: Any, _: Any) -> None:
        self._error = self._error or error

    def _require_no_error(self) -> None:
        if self._error is not None:
            self._producer.purge()
            raise KafkaFailed(self._error, self._bootstrap)


class _Pace:
    """No more than so many a second."""

    def __init__(self, rate: float) -> None:
        self._rate, self._began_s = rate, time.monotonic()

    def wait(self, sent: int) -> None:
        if self._rate > 0:
            ahead_s = sent / self._rate - (time.monotonic() - self._began_s)
            if ahead_s > 0:
                time.sleep(ahead_s)
