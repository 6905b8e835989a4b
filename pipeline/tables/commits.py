"""How a run changes the tables: all at once, as far as what counts is concerned.

A run writes its rows aside, into a folder of its own below `staging`. Then it writes an intent
(pipeline/tables/marker.py), moves the files to their places, deletes what was open before, and writes the
marker. One that finds an intent does the rest of it first; what is aside without an intent goes.

Intents and markers are numbered, and no name is written a second time: so it does not matter whether a file
system renames over what is there, and of a run whose turn was over without its knowing, an intent of a number
that has a marker already is nothing.
"""

from __future__ import annotations

import re
from typing import Final

from pipeline.errors import Conflict
from pipeline.files import HALF, Files
from pipeline.tables.marker import Done, Intent, decode, encode
from pipeline.tables.schema import OPEN

OWN: Final = "_delayline"
STAGING: Final = f"{OWN}/staging"
STATE: Final = f"{OWN}/state"
PARQUET: Final = ".parquet"
_NUMBERED: Final = re.compile(r"(marker|intent)-(\d+)\.json")


class Commits:
    """Of the tables in one folder."""

    def __init__(self, files: Files) -> None:
        self._files = files

    def last(self) -> Done | None:
        """How far the tables have come; None: no run has ended yet."""
        markers = self._numbered("marker")
        if not markers:
            return None
        name = markers[-1][1]
        return decode(self._files.read(name), Done, self._where(name))

    def settle(self) -> Done | None:
        """Does the rest of what a run has begun that was killed; then as `last`."""
        done = self.last()
        for number, name in self._numbered("intent"):
            if done is None or number > done.number:
                done = self._do(decode(self._files.read(name), Intent, self._where(name)))
            self._files.delete(name)
        self._clean(done)
        return done

    def commit(self, staging: str, before: Done | None, done: Done) -> None:
        """What is aside in `staging` becomes part of the tables. Raises `Conflict` if they have come further
        than `before` meanwhile.
        """
        if self.last() != before:
            raise Conflict(f"{self._files.path}: another run has ended meanwhile: begin again")
        intent = Intent(
            staging=staging,
            moves=tuple(self._files.walk(staging, PARQUET)),
            deletions=tuple(self._open_files(tuple(done.rows))),
            done=done,
        )
        name = f"{OWN}/intent-{done.number:09d}.json"
        self._files.write(name, encode(intent))
        self._do(intent)
        self._files.delete(name)
        self._clean(done)

    def _open_files(self, tables: tuple[str, ...]) -> list[str]:
        folders = [f"{table}/state={OPEN}" for table in tables]
        return [f"{folder}/{file}" for folder in folders for file in self._files.walk(folder, PARQUET)]

    # ---- steps that may be done again

    def _do(self, intent: Intent) -> Done:
        for file in intent.moves:
            self._files.move(f"{intent.staging}/{file}", file)
        for file in intent.deletions:
            self._files.delete(file)
        for folder in sorted({file.rpartition("/")[0] for file in intent.deletions}):
            if not self._files.names(folder):
                self._files.delete(folder)
        marker = f"{OWN}/marker-{intent.done.number:09d}.json"
        if not self._files.exists(marker):
            self._files.write(marker, encode(intent.done))
        return intent.done

    def _clean(self, done: Done | None) -> None:
        """What no marker names goes: what is aside, and what was kept for runs that have ended."""
        self._files.delete(STAGING)
        for number, name in self._numbered("marker"):
            if done is not None and number < done.number:
                self._files.delete(name)
        for name in self._files.names(OWN):
            if name.startswith(HALF):
                self._files.delete(f"{OWN}/{name}")
        for folder in self._files.names(STATE):
            if done is None or folder != done.folder:
                self._files.delete(f"{STATE}/{folder}")

    def _numbered(self, kind: str) -> list[tuple[int, str]]:
        """The markers or the intents that are there, in order."""
        matches = [_NUMBERED.fullmatch(name) for name in self._files.names(OWN)]
        return sorted(
            (int(one[2]), f"{OWN}/{one[0]}") for one in matches if one is not None and one[1] == kind
        )

    def _where(self, name: str) -> str:
        return f"{self._files.path}/{name}"
