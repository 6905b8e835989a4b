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
    "unknown-header": _with(("delay-untill", b"5s")),
    "duplicate-header": _with((H_LEVEL, b"1"), (H_LEVEL, b"2")),
    "null-header": _with((H_LEVEL, None)),
    "header-not-allowed": _with((H_OP, b"cancel"), (H_ID, b"k")),
    "bad-op": _with((H_OP, b"postpone")),
    "time-conflict": _with((H_LEVEL, b"1"), (H_AFTER, b"5s")),
    "bad-deliver-at": _with((H_DELIVER_AT, b"tomorrow")),
    "bad-after": _with((H_AFTER, b"soon")),
    "bad-level": _with((H_LEVEL, b"high")),
    "delay-too-long": _with((H_AFTER, b"9999d")),
    "bad-expire-at": _with((H_EXPIRE_AT, b"never")),
    "bad-target-partition": _with((H_TARGET_PARTITION, b"-1")),
    "bad-recurrence": _with((H_INTERVAL, b"5s"), (H_CRON, b"* * * * *")),
    "bad-cron": _with((H_CRON, b"0 0 30 2 *")),
    "bad-interval": _with((H_INTERVAL, b"999ms")),
    "bad-interval-factor": _with((H_INTERVAL, b"5s"), (H_INTERVAL_FACTOR, b"0.5")),
    "bad-times": _with((H_INTERVAL, b"5s"), (H_TIMES, b"0")),
    "bad-until": _with((H_INTERVAL, b"5s"), (H_UNTIL, b"some day")),
    "bad-time-zone": _with((H_CRON, b"* * * * *"), (H_TIME_ZONE, b"../etc")),
    "bad-missed": _with((H_INTERVAL, b"5s"), (H_MISSED, b"first")),
    "no-occurrence": _with((H_INTERVAL, b"5s"), (H_UNTIL, b"1")),
    "bad-if-exists": _with((H_ID, b"k"), (H_IF_EXISTS, b"ignore")),
    "no-id": _with((H_IF_EXISTS, b"keep")),
    "bad-parent": _with((H_PARENT, b"the last one")),
    "bad-id": _with((H_ID, b"")),
    "no-target": _for(),
    "bad-target-topic": _for((H_TARGET_TOPIC, b"orders?")),
    "target-forbidden": _for((H_TARGET_TOPIC, b"delay.outcomes")),
    "wrong-partition": _wrong_partition,
}
