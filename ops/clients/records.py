"""Reading records of a topic as they are now: all from some offsets on, or some by their ids.

As read_committed readers see them, by hand: no consumer group, no offset committed.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from contextlib import closing
from typing import Final

from node.config import KafkaConfig
from node.core.ports import Unanswered
from node.kafka.fetch.records import LogRecord
from node.kafka.reader import TopicReader
from ops.errors import UnavailableError, from_kafka
from store.keys import RecordId

_WAIT_S: Final = 0.2
_PATIENCE_S: Final = 10.0  # for the next record or the end of a partition


def records_from(config: KafkaConfig, topic: str, begins: Mapping[int, int]) -> Iterator[LogRecord]:
    """The records of some partitions from these offsets to their ends, each partition's in order.

    Raises UnavailableError, NotAuthorisedError and what else says why a partition cannot be read.
    """
    with closing(_reader(config, topic)) as reader:
        bounds = {partition: _bounds(reader, partition) for partition in begins}
        reader.start({p: max(begins[p], low) for p, (low, end) in bounds.items() if begins[p] < end})
        yield from _below(config, reader, {partition: bounds[partition][1] for partition in reader.reached})


def records_at(config: KafkaConfig, topic: str, record_ids: Iterable[RecordId]) -> Iterator[LogRecord]:
    """The records with these ids, in the order of ids; those that are not there are left out.

    Raises as `records_from`.
    """
    with closing(_reader(config, topic)) as reader:
        bounds: dict[int, tuple[int, int]] = {}
        for partition, offset in sorted(record_ids):
            if partition not in bounds:
                bounds[partition] = _bounds(reader, partition)
            low, end = bounds[partition]
            if low <= offset < end:
                reader.start({partition: offset})
                yield from _below(config, reader, {partition: offset + 1})


def _below(config: KafkaConfig, reader: TopicReader, ends: dict[int, int]) -> Iterator[LogRecord]:
    try:
        for records in reader.read_to(ends, poll_s=_WAIT_S, patience_s=_PATIENCE_S):
            yield from records
    except Unanswered as error:
        if reader.trouble is not None:
            raise from_kafka(reader.trouble, config.bootstrap_servers) from error
        raise UnavailableError(str(error)) from error


def _reader(config: KafkaConfig, topic: str) -> TopicReader:
    return TopicReader(config.client_config(), topic)


def _bounds(reader: TopicReader, partition: int) -> tuple[int, int]:
    try:
        return reader.bounds(partition)
    except Unanswered as error:
        raise UnavailableError(str(error)) from error
