"""The number of a format, which stands in all that is written here: read before anything else is."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar

import msgspec

from ops.errors import ConflictError

T = TypeVar("T")


class _Numbered(msgspec.Struct):
    format: int = 1


_decode = msgspec.json.Decoder(_Numbered).decode


def newer_than(raw: bytes, known: int) -> str | None:
    """What is to be said of it, if a newer version has written it. What says no number has the first; what
    cannot be read is left to who decodes it.
    """
    try:
        return newer(_decode(raw).format, known)
    except (msgspec.MsgspecError, UnicodeError, RecursionError):
        return None


def newer(number: int, known: int) -> str | None:
    """The same of a number that was read."""
    return (
        f"its format is {number}, and this version reads {known}: upgrade delayline"
        if number > known
        else None
    )


def decode_entry(raw: bytes, decode: Callable[[bytes], T], known: int, where: str) -> T:
    """An entry of a topic that only operators' commands write. Raises ConflictError where it is a newer
    version's.
    """
    newer = newer_than(raw, known)
    if newer is not None:
        raise ConflictError(f"{where}: {newer}")
    try:
        return decode(raw)
    except msgspec.MsgspecError as error:
        raise ConflictError(f"{where}: this version cannot read it ({error}): upgrade delayline") from None
