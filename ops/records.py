"""Reading records of a topic as they are now: all from some offsets on, or those at some places.

As read_committed readers see them, by hand: no consumer group, no offset committed.
"""

from __future__ import annotations

import time
from collections.abc import Iterable, Iterator, Mapping
from contextlib import closing
from typing import Final

from confluent_kafka import Message

from node.config import KafkaConfig
from node.ports import Doubtful
from node.reader import TopicReader
from ops.errors import OperatorError, UnavailableError, from_kafka

Place = tuple[int, int]
"""(partition, offset) of a record."""

_WAIT_S: Final = 0.2
_PATIENCE_S: Final = 10.0  # for the next record or the end of a partition


def records_from(config: KafkaConfig, topic: str, begins: Mapping[int, int]) -> Iterator[Message]:
    """The records of some partitions from these offsets to their ends, each partition's in order.

    Raises UnavailableError, NotAuthorisedError and what else says why a partition cannot be read.
    """
    with closing(_reader(config, topic)) as reader:
        bounds = {partition: _bounds(reader, partition) for partition in begins}
        reader.start({p: max(begins[p], low) for p, (low, end) in bounds.items() if begins[p] < end})
        ends = {partition: bounds[partition][1] for partition in reader.reached}
        patience_s = time.monotonic() + _PATIENCE_S
        while any(reader.reached[partition] < end for partition, end in ends.items()):
            before = dict(reader.reached)
            for message in reader.poll(_WAIT_S):
                partition, offset = place_of(message)
                if offset < ends[partition]:
                    yield message
            if reader.reached != before:
                patience_s = time.monotonic() + _PATIENCE_S
            elif time.monotonic() > patience_s:
                raise _unread(config, reader)


def records_at(config: KafkaConfig, topic: str, places: Iterable[Place]) -> Iterator[Message]:
    """The records at these places, in the order of places; those that are not there are left out.

    Raises as `records_from`.
    """
    with closing(_reader(config, topic)) as reader:
        bounds: dict[int, tuple[int, int]] = {}
        for partition, offset in sorted(places):
            if partition not in bounds:
                bounds[partition] = _bounds(reader, partition)
            low, end = bounds[partition]
            found = _at(config, reader, partition, offset) if low <= offset < end else None
            if found is not None:
                yield found


def _at(config: KafkaConfig, reader: TopicReader, partition: int, offset: int) -> Message | None:
    reader.start({partition: offset})
    patience_s = time.monotonic() + _PATIENCE_S
    while reader.reached[partition] == offset:
        for message in reader.poll(_WAIT_S):
            return message if place_of(message) == (partition, offset) else None
        if time.monotonic() > patience_s:
            raise _unread(config, reader)
    return None  # a transaction's marker, and nothing behind it


def place_of(message: Message) -> Place:
    """The place of a record."""
    partition, offset = message.partition(), message.offset()
    assert partition is not None, "a record has a partition"
    assert offset is not None, "a record has an offset"
    return partition, offset


def _reader(config: KafkaConfig, topic: str) -> TopicReader:
    return TopicReader(config.client_config() | {"log_level": 0}, topic)


def _bounds(reader: TopicReader, partition: int) -> tuple[int, int]:
    try:
        return reader.bounds(partition)
    except Doubtful as error:
        raise UnavailableError(str(error)) from error


def _unread(config: KafkaConfig, reader: TopicReader) -> OperatorError:
    if reader.trouble is not None:
        return from_kafka(reader.trouble, config.bootstrap_servers)
    return UnavailableError(
        f"topic {reader.topic} could not be read on in {_PATIENCE_S:g} s: see to the brokers"
    )
