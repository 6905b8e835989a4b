"""Which partition a key belongs to, as the Java client's default partitioner says.

A request with an id must be in the partition of its id, so that everything said of one id is in one order.
"""

from __future__ import annotations

from confluent_kafka import murmur2


def partition_for(key: bytes, partitions: int) -> int:
    """The partition of `key`: murmur2(key), its sign bit masked off, modulo `partitions` (1 to 2**31 - 1)."""
    return murmur2(key, partitions)
