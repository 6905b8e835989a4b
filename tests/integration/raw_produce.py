"""One record as no client library sends it, such as with header keys that are not UTF-8."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TypeAlias

from tests.support.raw import Connection, RawRecord, batch_of

RawHeaders: TypeAlias = Sequence[tuple[bytes, bytes | None]]


def produce_raw(
    bootstrap: str, topic: str, value: bytes | None, headers: RawHeaders, key: bytes | None = None
) -> int:
    """Append one record to partition 0; its offset. AssertionError with the broker's error code if it
    refuses.
    """
    with Connection(bootstrap) as connection:
        produced = connection.produce(topic, 0, batch_of([RawRecord(key, value, headers)]))
    assert produced.error == 0, f"the broker refused the record: error code {produced.error}"
    return produced.base_offset


def batch_bytes(key: bytes | None, value: bytes | None, headers: RawHeaders) -> int:
    """The size of a batch of this record alone, which is what the brokers' limits are on."""
    return len(batch_of([RawRecord(key, value, headers)]).encode())
