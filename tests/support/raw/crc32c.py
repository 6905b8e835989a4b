"""CRC-32C (Castagnoli, RFC 3720 appendix B.4), which zlib has not: two bytes at a time by a table."""

from __future__ import annotations

from array import array
from functools import cache
from typing import Final

_POLYNOMIAL: Final = 0x82F63B78


@cache
def _table() -> array[int]:
    """What two bytes do to the sum."""
    one = array("I", range(256))
    for byte in range(256):
        crc = byte
        for _ in range(8):
            crc = crc >> 1 ^ _POLYNOMIAL if crc & 1 else crc >> 1
        one[byte] = crc
    return array("I", ((low := one[pair & 0xFF] ^ pair >> 8) >> 8 ^ one[low & 0xFF] for pair in range(65536)))


def crc32c(data: bytes) -> int:
    """The checksum that brokers expect in a batch."""
    table = _table()
    crc = 0xFFFFFFFF
    even = len(data) & ~1
    pairs = array("H", data[:even])
    if pairs.itemsize != 2 or array("H", b"\x01\x00")[0] != 1:
        raise OSError("the checksum reads pairs of bytes as a little-endian machine does")
    for pair in pairs:
        crc = crc >> 16 ^ table[(crc ^ pair) & 0xFFFF]
    if even < len(data):
        crc ^= data[even]
        for _ in range(8):
            crc = crc >> 1 ^ _POLYNOMIAL if crc & 1 else crc >> 1
    return crc ^ 0xFFFFFFFF
