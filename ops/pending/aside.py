"""Lines of an export that the cluster has refused, in a file of their own: so they hold no other line back.

They were taken out of another cluster, and wait nowhere. The file is an export of its own, with the places
that its lines have in the other one: once the cluster takes them, it is imported as any other. It has just
those that an import has passed without sending them, as the topic says in which the import tells how far it
is (ops/pending/progress.py): what was sent after all, by whichever run and of whichever file, would be there
twice. So it is made from the other file at the end of each run, and of one that was killed by the next one.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from itertools import chain
from typing import Final

import msgspec

from ops.pending.again import id_of, left_of
from ops.pending.file import ExportFile
from ops.pending.line import MessageLine
from ops.pending.pace import Say
from ops.pending.progress import Passed

_SHOWN: Final = 5


def beside(file: ExportFile) -> ExportFile:
    """Where the refused lines of an export's file go."""
    return file.beside("refused")


def require_beside(file: ExportFile, export: str | None) -> None:
    """ConflictError if something else stands where the refused lines of this export's file go."""
    beside(file).require_free(None if export is None else _name(export))


def write_aside(file: ExportFile, export: str, passed: Iterable[Passed]) -> int:
    """Puts the lines of the export's `file` that were `passed`, by rising places, beside it; how many they
    are. If there are none, no file is made.
    """
    lines = _lines(file, _name(export), iter(passed))
    first = next(lines, None)
    return 0 if first is None else beside(file).write(_name(export), chain((first,), lines))


def _lines(file: ExportFile, name: str, passed: Iterator[Passed]) -> Iterator[MessageLine]:
    one = next(passed, None)
    for _, line in file.read():
        while one is not None and one.place < line.place:  # of a line that a copy of the file has
            one = next(passed, None)
        if one is None:
            return
        if one.place == line.place:
            left = line if one.rest is None else left_of(line, one.rest)
            yield msgspec.structs.replace(left, export=name)


def _name(export: str) -> str:
    return f"refused-{export}"


class Refusals:
    """What one run has refused: how many lines, and the first of them."""

    def __init__(self) -> None:
        self.count = 0
        self._shown: list[str] = []

    def add(self, line: MessageLine, code: str, detail: str) -> None:
        """One line more."""
        self.count += 1
        if len(self._shown) < _SHOWN:
            self._shown.append(f"{id_of(line)} ({code}: {detail})")

    def told(self, out: ExportFile, in_all: int, say: Say) -> None:
        """Says where they are; `in_all`: how many `out` has."""
        before = in_all - self.count
        if before > 0:
            say(f"{out} has {before} messages that were refused before")
        if self.count:
            say(
                f"{self.count} messages are refused, among them {', '.join(self._shown)}: they are in"
                f" {out} alone, to be imported from there once the cluster takes them"
            )
