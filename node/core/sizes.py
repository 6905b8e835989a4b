"""How large a record is to a broker."""

from __future__ import annotations

from delayline.rejects import Code, RejectCode
from node.core.ports import ANY_PARTITION, Outgoing, TargetSnapshot

BATCH_HEADER_BYTES = 61
ATTRIBUTES_BYTES = 3
"""The attributes and the two deltas, which are 0 where a batch has one record."""


def batch_bytes(record: Outgoing) -> int:
    """The size of a batch of this record alone, to the byte, as the broker counts it uncompressed (record
    format v2).
    """
    sizes = [len(record.key or b""), len(record.value or b"")]
    for name, value in record.headers:
        sizes += [len(name.encode()), len(value or b"")]
    framing = sum(_varint_bytes(size) for size in (*sizes, len(record.headers)))
    record_bytes = ATTRIBUTES_BYTES + framing + sum(sizes)
    return BATCH_HEADER_BYTES + _varint_bytes(record_bytes) + record_bytes


def too_large(targets: TargetSnapshot, record: Outgoing) -> tuple[Code, str] | None:
    """Why one of the service's own topics would refuse a record for its size, if it would."""
    problem = targets.problem(record.topic, ANY_PARTITION, record.key, batch_bytes(record))
    return problem if problem is not None and problem[0] == RejectCode.TOO_LARGE else None


def _varint_bytes(number: int) -> int:
    """Of a number from 0, in zigzag; -1, which stands for null, is as long as 0."""
    return max(1, ((number << 1).bit_length() + 6) // 7)
