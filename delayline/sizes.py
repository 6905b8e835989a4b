"""How large a request may be: what waits has to fit into the buffer when it is written there again.

A producer's batch may be compressed, and the buffer's limit is on what arrives. What the service writes back,
and carries, is not. So a request is measured as it is unpacked, with room for how a row is written: rule 12
in docs/design.md.
"""

from __future__ import annotations

from collections.abc import Sequence
from enum import IntEnum
from typing import Final

from delayline.headers import PREFIX, Header
from delayline.names import ClusterNames
from delayline.parser import parse
from delayline.record import ConsumerRecord, Reject, Request, Reschedule, Schedule
from delayline.rejects import RejectCode
from delayline.settings import FIRST_MEANING, OVERHEAD_BYTES, ClusterSettings

HEADER_BYTES: Final = 11
"""At most so much does a row have beside a header's key and value."""


def request_bytes(key_bytes: int, value_bytes: int, headers: Sequence[Header]) -> int:
    """The size of a request: its key twice, its value, and its headers, each with 11 bytes beside it. The
    value of a delay- header counts twice, too: a row has it as a header, and as what it says. The key is the
    delivered message's, where no header says another one, and what is written back names that.
    """
    sizes = 2 * key_bytes + value_bytes + HEADER_BYTES * len(headers)
    for name, value in headers:
        value_size = 0 if value is None else len(value)
        sizes += len(name.encode()) + value_size
        if name.startswith(PREFIX):
            sizes += value_size
    return sizes


def may_be_too_large(row_bytes: int, headers: int, settings: ClusterSettings) -> bool:
    """False only if a request is not too large, by the size of its row and the number of its headers: the
    row has all of it, so twice the row and what counts beside each header is no less than its size.
    """
    return 2 * row_bytes + HEADER_BYTES * headers > settings.max_request_bytes


def weighed(
    request: Request,
    key: bytes | None,
    value_bytes: int,
    headers: Sequence[Header],
    settings: ClusterSettings,
) -> Request:
    """The request; a reject if it is a user's own schedule or reschedule that could not be written again.
    What the service has written back was accepted.
    """
    is_own = isinstance(request, (Schedule, Reschedule)) and request.parent is None
    if settings.meaning == FIRST_MEANING or not is_own:
        return request
    size_bytes = request_bytes(len(key or b""), value_bytes, headers)
    if size_bytes <= settings.max_request_bytes:
        return request
    return Reject(
        RejectCode.REQUEST_TOO_LARGE,
        f"the request has {size_bytes} bytes, unpacked: the cluster takes {settings.max_request_bytes}",
    )


REJECT_BYTES: Final = OVERHEAD_BYTES - 1024
"""So much more may be kept of a request that is rejected: its row has it once, and little beside it."""


class Kept(IntEnum):
    """How much is kept of a request that is rejected, for its dead letter."""

    NOTHING = 0
    ALL_BUT_VALUE = 1
    ALL = 2


def kept_of(key_bytes: int, value_bytes: int, headers: Sequence[Header], settings: ClusterSettings) -> Kept:
    """As much as could be written again: a reject may wait, too, and be carried. In the first meaning all."""
    room = settings.max_request_bytes + REJECT_BYTES - key_bytes
    room -= sum(len(name.encode()) + len(value or b"") + HEADER_BYTES for name, value in headers)
    if settings.meaning == FIRST_MEANING or room >= value_bytes:
        return Kept.ALL
    return Kept.ALL_BUT_VALUE if room >= 0 else Kept.NOTHING


def parse_weighed(record: ConsumerRecord, settings: ClusterSettings, names: ClusterNames) -> Request:
    """What a user's record asks for, and a reject, too, if it is too large."""
    value_bytes, headers = len(record.value or b""), record.headers or ()
    return weighed(parse(record, settings, names), record.key, value_bytes, headers, settings)
