"""A partition that loses its end, as where a broker comes to lead it that had not copied all."""

from __future__ import annotations

from collections.abc import Callable
from struct import Struct
from typing import Final

from ops.stack import LocalStack

FRAME: Final = Struct(">qi")  # of a batch: its first offset, and how many bytes follow


def lose_end(stack: LocalStack, topic: str, kept: Callable[[bytes], int]) -> None:
    """The topic's first partition keeps so many of the bytes that it has. The broker dies for it; what else
    it has noted of the partition, it makes anew.
    """
    stack.kafka.kill()
    folder = stack.kafka.data / "log" / f"{topic}-0"
    (segment,) = folder.glob("*.log")
    raw = segment.read_bytes()
    segment.write_bytes(raw[: kept(raw)])
    for pattern in ("*.index", "*.timeindex", "*.txnindex", "*.snapshot"):
        for file in folder.glob(pattern):
            file.unlink()
    stack.kafka.start()


def behind(raw: bytes, at: int) -> int:
    """The end of the batch that begins there."""
    return at + FRAME.size + int(FRAME.unpack_from(raw, at)[1])
