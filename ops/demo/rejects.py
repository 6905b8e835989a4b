"""Requests that the service must reject, by the code that each of them earns.

`DelayProducer` would refuse to make them, so they are plain records, as any other client could send them.
"""

from __future__ import annotations

from collections.abc import Callable
from itertools import count
from typing import Final

from delayline.headers import (
    H_AFTER,
    H_CRON,
    H_DELIVER_AT,
    H_EXPIRE_AT,
    H_ID,
    H_IF_EXISTS,
    H_INTERVAL,
    H_INTERVAL_FACTOR,
    H_LEVEL,
    H_MISSED,
    H_OP,
    H_PARENT,
    H_TARGET_PARTITION,
    H_TARGET_TOPIC,
    H_TIME_ZONE,
    H_TIMES,
    H_UNTIL,
    Header,
)
from delayline.partitioner import partition_for
from delayline.rejects import RejectCode
from delayline.requests import BufferRecord

_Maker = Callable[[str, int, bytes | None], BufferRecord]
"""Takes the target topic, the buffer's partitions and a value."""


def _with(*wrong: Header) -> _Maker:
    """A request whose only fault is in these headers."""

    def make(topic: str, _: int, value: bytes | None) -> BufferRecord:
        return BufferRecord(b"k", value, [("own", b"1"), (H_TARGET_TOPIC, topic.encode()), *wrong])

    return make


def _for(*target: Header) -> _Maker:
    """A request with this target, or none."""
    return lambda _, __, value: BufferRecord(b"k", value, [("own", b"1"), *target])


def _wrong_partition(topic: str, partitions: int, value: bytes | None) -> BufferRecord:
    """The key, and with it the partition, is not the id's."""
    key = next(
        key
        for key in (b"k%d" % number for number in count())
        if partition_for(key, partitions) != partition_for(b"id", partitions)
    )
    return BufferRecord(key, value, [(H_TARGET_TOPIC, topic.encode()), (H_ID, b"id")])


WRONG: Final[dict[str, _Maker]] = {
    RejectCode.UNKNOWN_HEADER: _with(("delay-untill", b"5s")),
    RejectCode.DUPLICATE_HEADER: _with((H_LEVEL, b"1"), (H_LEVEL, b"2")),
    RejectCode.NULL_HEADER: _with((H_LEVEL, None)),
    RejectCode.HEADER_NOT_ALLOWED: _with((H_OP, b"cancel"), (H_ID, b"k")),
    RejectCode.BAD_OP: _with((H_OP, b"postpone")),
    RejectCode.TIME_CONFLICT: _with((H_LEVEL, b"1"), (H_AFTER, b"5s")),
    RejectCode.BAD_DELIVER_AT: _with((H_DELIVER_AT, b"tomorrow")),
    RejectCode.BAD_AFTER: _with((H_AFTER, b"soon")),
    RejectCode.BAD_LEVEL: _with((H_LEVEL, b"high")),
    RejectCode.DELAY_TOO_LONG: _with((H_AFTER, b"9999d")),
    RejectCode.BAD_EXPIRE_AT: _with((H_EXPIRE_AT, b"never")),
    RejectCode.BAD_TARGET_PARTITION: _with((H_TARGET_PARTITION, b"-1")),
    RejectCode.BAD_RECURRENCE: _with((H_INTERVAL, b"5s"), (H_CRON, b"* * * * *")),
    RejectCode.BAD_CRON: _with((H_CRON, b"0 0 30 2 *")),
    RejectCode.BAD_INTERVAL: _with((H_INTERVAL, b"999ms")),
    RejectCode.BAD_INTERVAL_FACTOR: _with((H_INTERVAL, b"5s"), (H_INTERVAL_FACTOR, b"0.5")),
    RejectCode.BAD_TIMES: _with((H_INTERVAL, b"5s"), (H_TIMES, b"0")),
    RejectCode.BAD_UNTIL: _with((H_INTERVAL, b"5s"), (H_UNTIL, b"some day")),
    RejectCode.BAD_TIME_ZONE: _with((H_CRON, b"* * * * *"), (H_TIME_ZONE, b"../etc")),
    RejectCode.BAD_MISSED: _with((H_INTERVAL, b"5s"), (H_MISSED, b"first")),
    RejectCode.NO_OCCURRENCE: _with((H_INTERVAL, b"5s"), (H_UNTIL, b"1")),
    RejectCode.BAD_IF_EXISTS: _with((H_ID, b"k"), (H_IF_EXISTS, b"ignore")),
    RejectCode.NO_ID: _with((H_IF_EXISTS, b"keep")),
    RejectCode.BAD_PARENT: _with((H_PARENT, b"the last one")),
    RejectCode.BAD_ID: _with((H_ID, b"")),
    RejectCode.NO_TARGET: _for(),
    RejectCode.BAD_TARGET_TOPIC: _for((H_TARGET_TOPIC, b"orders?")),
    RejectCode.TARGET_FORBIDDEN: _for((H_TARGET_TOPIC, b"delay.outcomes")),
    RejectCode.WRONG_PARTITION: _wrong_partition,
}
