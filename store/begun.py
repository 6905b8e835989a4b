"""Where a view has begun, if not at the log's beginning (docs/design.md, rule 12)."""

from __future__ import annotations

from collections.abc import Container
from typing import Final, NamedTuple

from store.checkpoint import Vector
from store.keys import RecordId


class Begun(NamedTuple):
    """What decides over the requests that ask to keep, below `to`, per partition: what they may be duplicates
    of has not been read. `duplicates`: those of them that are, as the outcomes topic says.
    """

    to: Vector
    duplicates: Container[RecordId] = frozenset()


AT_THE_BEGINNING: Final = Begun({})
