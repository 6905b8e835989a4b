"""Unpacking a batch into memory that is set aside once, so that no batch can ask for more."""

from __future__ import annotations

import mmap
from collections.abc import Callable
from struct import Struct
from typing import Final

import cramjam

from node.kafka.fetch.records import MOST_UNPACKED_BYTES

NONE, GZIP, SNAPPY, LZ4, ZSTD = range(5)
NAMES: Final = {GZIP: "gzip", SNAPPY: "snappy", LZ4: "lz4", ZSTD: "zstd"}

# How Java's clients frame snappy: this, two version numbers, then blocks with their size before them.
_FRAMED_SNAPPY: Final = b"\x82SNAPPY\x00"
_FRAME_HEADER_BYTES: Final = 16
_block_size = Struct(">i")
_KEPT_BYTES: Final = 4 << 20

_SLACK_BYTES: Final = 16
"""Behind what was unpacked: where a number is cut off there, the library's decoder reads on, and only then
sees that it is too far. (Behind Python's own bytes there is a zero, at which it stops.)
"""


class UnpackError(ValueError):
    """A batch cannot be unpacked, or not to what is set aside for it."""


_INTO: Final[dict[int, Callable[[memoryview, memoryview], int]]] = {
    GZIP: cramjam.gzip.decompress_into,
    LZ4: cramjam.lz4.decompress_into,
    ZSTD: cramjam.zstd.decompress_into,
}


class Scratch:
    """The memory of one reader. What is unpacked next takes the place of what was unpacked before."""

    def __init__(self, limit_bytes: int = MOST_UNPACKED_BYTES) -> None:
        self._limit_bytes = limit_bytes
        self._memory: mmap.mmap | None = None  # untouched pages of it cost nothing
        self._touched_bytes = 0

    def unpack(self, codec: int, head: bytes, packed: memoryview) -> memoryview:
        """`head` and what `packed` unpacks to. Raises `UnpackError`."""
        if codec not in NAMES:
            raise UnpackError(f"its compression {codec} is none that Kafka has")
        if self._memory is None:
            self._memory = mmap.mmap(-1, len(head) + self._limit_bytes + _SLACK_BYTES)
        whole = memoryview(self._memory)
        whole[: len(head)] = head
        room = whole[len(head) : len(head) + self._limit_bytes]
        self._touched_bytes = self._limit_bytes  # as far as is known until it has been unpacked
        try:
            size_bytes = _snappy(packed, room) if codec == SNAPPY else _INTO[codec](packed, room)
        except (cramjam.DecompressionError, ValueError) as error:
            raise UnpackError(
                f"it does not unpack by {NAMES[codec]} to {self._limit_bytes} bytes or less: {error}"
            ) from error
        self._touched_bytes = size_bytes
        return whole[: len(head) + size_bytes]

    def release(self) -> None:
        """Gives memory back that only a large batch has needed. Nothing of what was unpacked may be used
        from then on.
        """
        if self._memory is not None and self._touched_bytes > _KEPT_BYTES:
            self._memory.madvise(mmap.MADV_DONTNEED, _KEPT_BYTES, len(self._memory) - _KEPT_BYTES)
            self._touched_bytes = 0


def _snappy(packed: memoryview, room: memoryview) -> int:
    """Blocks as Java's clients frame them, or one block as the others send it."""
    if bytes(packed[: len(_FRAMED_SNAPPY)]) != _FRAMED_SNAPPY:
        return _snappy_block(packed, room)
    at, size_bytes = 0, 0
    while at < len(packed):
        if bytes(packed[at : at + len(_FRAMED_SNAPPY)]) == _FRAMED_SNAPPY:  # one stream, or another
            at += _FRAME_HEADER_BYTES
            continue
        if at + _block_size.size > len(packed):
            raise UnpackError("a block's size is cut off")
        (block_bytes,) = _block_size.unpack_from(packed, at)
        at += _block_size.size
        if not 0 <= block_bytes <= len(packed) - at:
            raise UnpackError(f"a block of {block_bytes} bytes where {len(packed) - at} are left")
        size_bytes += _snappy_block(packed[at : at + block_bytes], room[size_bytes:])
        at += block_bytes
    return size_bytes


def _snappy_block(block: memoryview, room: memoryview) -> int:
    return cramjam.snappy.decompress_raw_into(block, room)
