"""What says how far an export of tables has come, and what a run is about to do to the tables.

A run that has written its rows aside writes an *intent*: which files go to their places, which go away, and
the *marker* that then counts. What an intent says may be done any number of times. So a run that is killed
has done nothing to the tables before its intent is there, and after that the next run does the rest.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final, TypeVar

import msgspec

from pipeline.errors import NewerRecord, WrongInput
from pipeline.watch.marker import Marker, NewerMarker

FORMAT: Final = 1
"""Of the tables, and of what stands beside them."""


class Card(msgspec.Struct, frozen=True, kw_only=True):
    """Whose tables these are. `buffer`: the id of the buffer topic. `place` tells them from all others."""

    format: int = FORMAT
    cluster: str
    buffer: str
    place: str


class Counts(msgspec.Struct, frozen=True):
    """Rows of one table: `closed` so far, of these `new` by the last run; and `open`."""

    closed: int
    new: int
    open: int


class Done(msgspec.Struct, frozen=True, kw_only=True):
    """The marker: run `number` has ended, and has kept `folder` for the next. All that was due before
    `proven_up_to_ms` is accounted for. `round`: where that of the watch's engine has come to
    (pipeline/watch/marker.py), as JSON of its own.
    """

    format: int = FORMAT
    number: int
    folder: str
    proven_up_to_ms: int
    rows: Mapping[str, Counts]
    round: msgspec.Raw

    @property
    def marker(self) -> Marker:
        """Raises `NewerRecord`, or `WrongInput` if it is none."""
        try:
            return Marker.decode(bytes(self.round))
        except NewerMarker as error:
            raise NewerRecord(f"the tables' last run: {error}") from error
        except (ValueError, msgspec.MsgspecError) as error:
            raise WrongInput(f"the tables' last run cannot be read: {error}") from error


class Intent(msgspec.Struct, frozen=True, kw_only=True):
    """`staging`: the folder from which the files `moves` go to the same names beside the others. `deletions`:
    what was open before. Then `done` counts.
    """

    format: int = FORMAT
    staging: str
    moves: tuple[str, ...]
    deletions: tuple[str, ...]
    done: Done


class _Format(msgspec.Struct):
    format: int


_Kind = TypeVar("_Kind", Card, Done, Intent)


def encode(said: Card | Done | Intent) -> bytes:
    """As JSON."""
    return msgspec.json.encode(said)


def decode(raw: bytes, kind: type[_Kind], where: str) -> _Kind:
    """Reads `encode`'s bytes. Raises `NewerRecord`, or `WrongInput` if it is none; `where` it stands."""
    try:
        number = msgspec.json.decode(raw, type=_Format).format
        if number > FORMAT:
            raise NewerRecord(f"{where} has format {number}, this version reads {FORMAT}: upgrade it")
        return msgspec.json.decode(raw, type=kind)
    except msgspec.MsgspecError as error:
        raise WrongInput(f"{where} cannot be read: {error}") from error
