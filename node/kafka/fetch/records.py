"""What a record of the log is to whoever reads it, and how much of it a reader takes."""

from __future__ import annotations

from typing import Final, NamedTuple

from delayline.headers import H_OP, H_PARENT, OP_CARRY
from delayline.rejects import RejectCode
from delayline.wire import Header, Reject

MOST_RECORDS: Final = 100_000
"""In one batch. Of a batch with more, whatever its size, none is read."""

MOST_UNPACKED_BYTES: Final = 16 << 20
"""What a compressed batch may unpack to. Of a larger one no record is read."""

SERVICE_BYTES: Final = 64 << 10
SERVICE_HEADERS: Final = 32
"""So much more may a record have that says it is the service's own: what is written back has headers of its
own beside those of the request, and could else not be read where the request could. A carry has few headers:
its value has those of the request, and what the store has beside them.
"""

LARGEST_RECORD_BYTES: Final = MOST_UNPACKED_BYTES - SERVICE_BYTES
"""Key, value and headers of one record. A larger one is not read."""

MOST_HEADERS: Final = 20_000
"""In one record. Of a record with more, no header is read."""

MOST_BATCH_HEADERS: Final = 1_000_000
"""In all records of a batch: a header takes two bytes there, and a hundred once it is read. Of a record that
has more than are left, no header is read.
"""

HEADER_BYTES: Final = 100
"""About what a header takes in memory, beside its key and value."""


ABORTED: Final = Reject(RejectCode.UNDECODABLE, "its transaction was aborted")
"""The flaw of a signed record that was aborted, for who asks for these: it is whole, and no message."""


def says_it_is_the_services(headers: list[Header]) -> bool:
    """Whether a record says so, be it true or not."""
    return any(name == H_PARENT or (name == H_OP and value == OP_CARRY) for name, value in headers)


class LogRecord(NamedTuple):
    """A record, or what is left of one that cannot be read: then `flaw` says why, and it has no headers. See
    `ABORTED` for what is a flaw as well.
    """

    partition: int
    offset: int
    timestamp_ms: int
    key: bytes | None
    value: bytes | None
    headers: list[Header]
    flaw: Reject | None = None
