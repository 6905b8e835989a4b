"""Zigzag varints, as records of format 2 have them: https://protobuf.dev/programming-guides/encoding/#varints."""

from __future__ import annotations

from typing import Final

_SMALL: Final = 64


def _encoded(number: int) -> bytes:
    zigzag = number << 1 if number >= 0 else (-number << 1) - 1
    out = bytearray()
    while zigzag > 0x7F:
        out.append(zigzag & 0x7F | 0x80)
        zigzag >>= 7
    out.append(zigzag)
    return bytes(out)


_KNOWN: Final = {number: _encoded(number) for number in range(-_SMALL, _SMALL)}


def varint(number: int) -> bytes:
    """The shortest form, of any size: Kafka reads numbers of 32 or 64 bits."""
    return _KNOWN.get(number) or _encoded(number)


def overlong(number: int, size: int) -> bytes:
    """The same number in so many bytes, more than it needs."""
    shortest = varint(number)
    missing = size - len(shortest)
    if missing <= 0:
        return shortest
    return shortest[:-1] + bytes([shortest[-1] | 0x80]) + b"\x80" * (missing - 1) + b"\x00"
