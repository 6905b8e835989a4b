"""Kafka's wire format by hand, plain sockets and bytes, with every field free: what anybody may send."""

from tests.support.raw.batch import Attribute, RawBatch, batch_of, batches_in
from tests.support.raw.codecs import Codec, Framing, compress
from tests.support.raw.connection import Connection, Produced, Refused
from tests.support.raw.crc32c import crc32c
from tests.support.raw.record import Odd, RawRecord, records_bytes
from tests.support.raw.varint import overlong, varint

__all__ = [
    "Attribute",
    "Codec",
    "Connection",
    "Framing",
    "Odd",
    "Produced",
    "RawBatch",
    "RawRecord",
    "Refused",
    "batch_of",
    "batches_in",
    "compress",
    "crc32c",
    "overlong",
    "records_bytes",
    "varint",
]
