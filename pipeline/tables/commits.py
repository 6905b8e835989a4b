"""How a run changes the tables: all at once, as far as what counts is concerned.

A run writes its rows aside, into a folder of its own below `staging`. Then it writes an intent
(pipeline/tables/marker.py), moves the files to their places, deletes what was open before, and writes the
marker. One that finds an intent does the rest of it first; what is aside without an intent goes.

All that a run writes has the number of the marker that it would end with, and no name is written a second
time: so it does not matter whether a file system renames over what is there.

A run whose turn is over without its knowing does no harm, wherever it goes on. It takes away nothing of a
higher number than its own; and it moves nothing unless its intent is there, alone of its number, once it is
written, and no marker of that number is. Of two runs with an intent of one number the later one sees the
other's: so at most one of them has moved anything. If one has, the next run ends it, and else forgets both.
What is aside of runs that were killed goes when one of their number has ended.
"""

from __future__ import annotations

import re
import uuid
from itertools import groupby
from operator import itemgetter
from typing import Final

from pipeline.errors import Conflict
from pipeline.files import HALF, Files
from pipeline.tables.marker import Done, Intent, decode, encode
from pipeline.tables.schema import OPEN

OWN: Final = "_delayline"
STAGING: Final = f"{OWN}/staging"
STATE: Final = f"{OWN}/state"
PARQUET: Final = ".parquet"
_NUMBERED: Final = re.compile(r"(marker|intent)-(\d+)(?:-\w+)?\.json")
_ASIDE: Final = re.compile(r"(?:round-)?(\d+)(?:-.*)?")


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

    def aside(self, number: int) -> str:
        """A folder of its own for what the run of this number writes before its intent."""
        return f"{STAGING}/{number:09d}-{uuid.uuid4().hex}"

    def settle(self) -> Done | None:
        """Does the rest of what a run has begun that was killed; then as `last`."""
        done = self.last()
        intents = self._numbered("intent")
        for number, of_number in groupby(intents, key=itemgetter(0)):
            if done is None or number > done.number:
                done = self._settled([name for _, name in of_number]) or done
        for _, name in intents:
            self._files.delete(name)
        self._clean(done)
        return done

    def commit(self, staging: str, before: Done | None, done: Done) -> None:
        """What is aside in `staging` becomes part of the tables. Raises `Conflict` if they have come further
        than `before` meanwhile, or another run is about to.
        """
        intent = Intent(
            staging=staging,
            moves=tuple(self._files.walk(staging, PARQUET)),
            deletions=tuple(self._open_files(tuple(done.rows))),
            done=done,
        )
        name = f"{OWN}/intent-{done.number:09d}-{uuid.uuid4().hex}.json"
        self._files.write(name, encode(intent))
        there = [one for number, one in self._numbered("intent") if number == done.number]
        # In this order: an intent goes when its marker is there.
        if there != [name] or self.last() != before:
            self._files.delete(name)
            raise Conflict(f"{self._files.path}: another run has come first: begin again")
        self._do(intent)
        self._files.delete(name)
        self._clean(done)

    def _settled(self, names: list[str]) -> Done | None:
        """Of intents of one number, what is done of the one that was begun; None: none is."""
        intents = [decode(self._files.read(name), Intent, self._where(name)) for name in names]
        begun = [one for one in intents if len(intents) == 1 or self._is_begun(one)]
        return self._do(begun[0]) if begun else None

    def _is_begun(self, intent: Intent) -> bool:
        return set(self._files.walk(intent.staging, PARQUET)) != set(intent.moves)

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
            self._files.delete_empty(folder)
        marker = f"{OWN}/marker-{intent.done.number:09d}.json"
        if not self._files.exists(marker):
            self._files.write(marker, encode(intent.done))
        return intent.done

    def _clean(self, done: Done | None) -> None:
        """What no marker names goes, as far as the tables have come: what is aside, and what was kept for
        runs that have ended.
        """
        if done is None:
            return
        for number, name in self._numbered("marker"):
            if number < done.number:
                self._files.delete(name)
        for name in self._files.names(OWN):
            if name.startswith(HALF):
                self._files.delete(f"{OWN}/{name}")
        for place in (STAGING, STATE):
            for folder in self._files.names(place):
                number_of = _ASIDE.fullmatch(folder)
                if number_of is not None and int(number_of[1]) <= done.number and folder != done.folder:
                    self._files.delete(f"{place}/{folder}")
        self._files.delete_empty(STAGING)

    def _numbered(self, kind: str) -> list[tuple[int, str]]:
        """The markers or the intents that are there, in order."""
        matches = [_NUMBERED.fullmatch(name) for name in self._files.names(OWN)]
        return sorted(
            (int(one[2]), f"{OWN}/{one[0]}") for one in matches if one is not None and one[1] == kind
        )

    def _where(self, name: str) -> str:
        return f"{self._files.path}/{name}"
