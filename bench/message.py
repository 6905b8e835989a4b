"""The message that everything here is measured with: 300 bytes that no compression shrinks, a key of 8, and
three headers.

As a request it has `delay-target-topic`, `delay-deliver-at` and one header of the user's own. The plain
producer sends the same record with the same headers.
"""

from __future__ import annotations

import random
from typing import Final

from delayline.headers import H_DELIVER_AT, H_TARGET_TOPIC, Header

VALUE_BYTES: Final = 300
TRACE: Final = ("trace", b"4bf92f3577b34da6")
_POOL: Final = random.Random(1).randbytes(1 << 20)
_STRIDE: Final = 7_919  # prime: the same bytes do not come again at once
_LAST: Final = len(_POOL) - VALUE_BYTES


def value(number: int) -> bytes:
    """The value of message `number`."""
    begin = number * _STRIDE % _LAST
    return _POOL[begin : begin + VALUE_BYTES]


def dated_value(number: int, due_ms: int) -> bytes:
    """The same, with its due time in the first 13 bytes: its reader need not look through headers."""
    begin = number * _STRIDE % _LAST
    return b"%013d" % due_ms + _POOL[begin + 13 : begin + VALUE_BYTES]


def due_in(raw_value: bytes) -> int:
    """The due time that a dated value begins with, epoch ms."""
    return int(raw_value[:13])


def key(number: int) -> bytes:
    """Its key."""
    return b"%08d" % (number % 100_000_000)


def headers(target: str, due_ms: int) -> list[Header]:
    """Its headers as a request."""
    return [TRACE, (H_TARGET_TOPIC, target.encode()), (H_DELIVER_AT, b"%d" % due_ms)]
