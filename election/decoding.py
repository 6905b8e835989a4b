"""Reading the JSON of a znode. Anybody may have written there: whatever stands there ends no thread."""

from __future__ import annotations

from typing import Final, TypeVar

import msgspec

from election.errors import Malformed

Said = TypeVar("Said")

UNDECODABLE: Final = (msgspec.MsgspecError, UnicodeError, RecursionError)
"""What msgspec raises for bytes that are no such JSON: the last one where it is nested too deeply."""


def decoded(data: bytes, of: type[Said], otherwise: str) -> Said:
    """Raises Malformed, which begins with `otherwise`."""
    try:
        return msgspec.json.decode(data, type=of)
    except UNDECODABLE as error:
        raise Malformed(f"{otherwise}: {error}") from error
