"""Which partition a key belongs to, as the Java client's default partitioner says.

A request with an id must be in the partition of its id, so that everything said of one id is in one order.
"""

from __future__ import annotations

from confluent_kafka import murmur2

partition_for = murmur2
"""The partition of a key, of so many (1 to 2**31 - 1): murmur2(key), its sign bit masked off, modulo them."""
