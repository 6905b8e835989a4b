"""The ways in which a batch's records may be compressed, as brokers read them; little memory for much."""

from __future__ import annotations

import struct
import zlib
from collections.abc import Callable, Iterable
from enum import Enum, IntEnum
from typing import Final, Protocol

import cramjam

_XERIAL: Final = b"\x82SNAPPY\x00" + struct.pack(">ii", 1, 1)
_XERIAL_BLOCK_BYTES: Final = 32 * 1024  # as the Java client cuts them


class Codec(IntEnum):
    """The lowest three bits of a batch's attributes; those above 4 mean nothing."""

    NONE = 0
    GZIP = 1
    SNAPPY = 2
    LZ4 = 3
    ZSTD = 4


class Framing(Enum):
    """How snappy is cut into blocks: as the Java client does it, or not at all, as some others do."""

    XERIAL = "xerial"
    RAW = "raw"


class _Stream(Protocol):
    def compress(self, data: bytes) -> object: ...

    def finish(self) -> bytes: ...


def compress(codec: Codec, data: bytes, framing: Framing = Framing.XERIAL) -> bytes:
    """The payload of a batch."""
    if codec is Codec.SNAPPY and framing is Framing.RAW:
        return bytes(cramjam.snappy.compress_raw(data))
    return compress_all(codec, [data])


def compress_all(codec: Codec, pieces: Iterable[bytes]) -> bytes:
    """What is compressed together, piece by piece: only the compressed bytes are held."""
    if codec is Codec.NONE:
        return b"".join(pieces)
    stream = _STREAMS[codec]()
    for piece in pieces:
        stream.compress(piece)
    return stream.finish()


class _Gzip:
    def __init__(self) -> None:
        self._stream = zlib.compressobj(6, zlib.DEFLATED, 31)
        self._out = bytearray()

    def compress(self, data: bytes) -> None:
        self._out += self._stream.compress(data)

    def finish(self) -> bytes:
        return bytes(self._out + self._stream.flush())


class _Xerial:
    def __init__(self) -> None:
        self._out = bytearray(_XERIAL)
        self._rest = b""

    def compress(self, data: bytes) -> None:
        data = self._rest + data
        whole = len(data) - len(data) % _XERIAL_BLOCK_BYTES
        for begin in range(0, whole, _XERIAL_BLOCK_BYTES):
            self._block(data[begin : begin + _XERIAL_BLOCK_BYTES])
        self._rest = data[whole:]

    def finish(self) -> bytes:
        if self._rest:
            self._block(self._rest)
        return bytes(self._out)

    def _block(self, data: bytes) -> None:
        block = bytes(cramjam.snappy.compress_raw(data))
        self._out += struct.pack(">i", len(block)) + block


class _Frame:
    """A frame of lz4, its blocks apart from one another as brokers ask, or of zstd."""

    def __init__(self, stream: cramjam.lz4.Compressor | cramjam.zstd.Compressor) -> None:
        self._stream = stream

    def compress(self, data: bytes) -> None:
        self._stream.compress(data)

    def finish(self) -> bytes:
        return bytes(self._stream.finish())


def _lz4() -> _Stream:
    return _Frame(cramjam.lz4.Compressor(level=9, content_checksum=False, block_linked=False))


def _zstd() -> _Stream:
    return _Frame(cramjam.zstd.Compressor(level=1))


_STREAMS: Final[dict[Codec, Callable[[], _Stream]]] = {
    Codec.GZIP: _Gzip,
    Codec.SNAPPY: _Xerial,
    Codec.LZ4: _lz4,
    Codec.ZSTD: _zstd,
}
