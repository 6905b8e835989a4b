"""Where a round has come to. The next one begins from it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import chain
from typing import Final

import msgspec

from pipeline.audit.checkpoints import LastCheckpoint
from pipeline.audit.classes import OCCURRENCE
from pipeline.audit.meaning import Serial

FORMAT: Final = 1
FOUND, CLEARED = "found", "cleared"
"""What is told of a violation."""


class NewerMarker(ValueError):
    """A newer version has written it."""


class Counted(msgspec.Struct, frozen=True):
    """So many requests of a kind, or occurrences (kind `occurrence`), are of a class."""

    kind: str
    ended: str
    count: int


class Marker(msgspec.Struct, frozen=True, kw_only=True):
    """The end of one round.

    `number`: how many there were before. `folder`: what it has kept, under the watch's state. `taken_ms`:
    when the offsets were noted up to which it has read. `proven_up_to_ms`: all that was due before is
    accounted for. `begins`: of each partition of the buffer the first offset that the watch has read.
    `serials`: of each the highest one. `newest_ms`: of each the newest timestamp. `edges_ms`: of topics, see
    pipeline/audit/bounds.py. `last`: of each lane. `closed`: what was counted and is judged no more;
    `standing`: the others. `found`: how many violations of each kind were told so far; `open`: how many of
    them stand.
    """

    format: int = FORMAT
    number: int
    folder: str
    taken_ms: int
    proven_up_to_ms: int
    begins: Mapping[int, int]
    serials: Mapping[int, Serial]
    newest_ms: Mapping[int, int]
    edges_ms: Mapping[str, int]
    last: Mapping[int, LastCheckpoint]
    closed: tuple[Counted, ...]
    standing: tuple[Counted, ...]
    found: Mapping[str, int]
    open: Mapping[str, int]

    @property
    def requests(self) -> int:
        """How many there were, of users."""
        return _requests(self.closed) + self.open_requests

    @property
    def open_requests(self) -> int:
        """Those of them that may still change, or may be asked for."""
        return _requests(self.standing)

    @property
    def open_violations(self) -> int:
        """How many violations stand."""
        return sum(self.open.values())

    def encode(self) -> bytes:
        return _ENCODER.encode(self)

    @classmethod
    def decode(cls, raw: bytes) -> Marker:
        """Raises `NewerMarker`, or ValueError if it is none."""
        number = msgspec.json.decode(raw, type=_Format).format
        if number > FORMAT:
            raise NewerMarker(f"round of format {number}: watch with the version that wrote it")
        return _DECODER.decode(raw)


def summed(*counts: Sequence[Counted]) -> tuple[Counted, ...]:
    """All of them, each kind and class once."""
    totals: dict[tuple[str, str], int] = {}
    for one in chain(*counts):
        totals[one.kind, one.ended] = totals.get((one.kind, one.ended), 0) + one.count
    return tuple(Counted(*key, totals[key]) for key in sorted(totals))


def _requests(counts: Sequence[Counted]) -> int:
    return sum(one.count for one in counts if one.kind != OCCURRENCE)


class _Format(msgspec.Struct):
    format: int


_ENCODER: Final = msgspec.json.Encoder()
_DECODER: Final = msgspec.json.Decoder(Marker)
