"""Lines of an export that the cluster has refused, in a file of their own: so they hold no other line back.

They were taken out of another cluster, and wait nowhere. The file is an export of its own, with the places
that its lines have in the other one: once the cluster takes them, it is imported as any other. It has just
those that an import has passed without sending them, as the topic says in which the import tells how far it
is (ops/pending/progress.py): what was sent after all, by whichever run and of whichever file, would be there
twice. So it is made from the other file at the end of each run, and of one that was killed by the next one.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from heapq import merge
from itertools import groupby
from operator import attrgetter
from typing import Final

import msgspec

from ops.pending.again import id_of, left_of
from ops.pending.file import ExportFile
from ops.pending.line import MessageLine
from ops.pending.pace import Say
from ops.pending.progress import Passed

_SHOWN: Final = 5
_PLACE: Final = attrgetter("place")


def beside(file: ExportFile) -> ExportFile:
    """Where the refused lines of an export's file go."""
    return file.beside("refused")


def require_beside(file: ExportFile, export: str | None) -> None:
    """ConflictError if something else stands where the refused lines of this export's file go."""
    beside(file).require_free(None if export is None else _name(export))


def write_aside(file: ExportFile, export: str, passed: Callable[[], Iterable[Passed]]) -> int:
    """Adds to what is beside the export's `file` those of its lines that were `passed`, by rising places; how
    many it has gained. What is there already stays as it is: somebody may have mended it.
    """
    out, name = beside(file), _name(export)
    had = sum(1 for _ in _there(out))

    def lines() -> Iterator[MessageLine]:
        both = merge(_there(out), _lines(file, name, iter(passed())), key=_PLACE)
        return (next(same) for _, same in groupby(both, _PLACE))

    gained = sum(1 for _ in lines()) - had
    if gained:
        out.write(name, lines())
    return gained


def _there(out: ExportFile) -> Iterator[MessageLine]:
    return (line for _, line in out.read()) if out.path.exists() else iter(())


def _lines(file: ExportFile, name: str, passed: Iterator[Passed]) -> Iterator[MessageLine]:
    one = next(passed, None)
    for _, line in file.read():
        while one is not None and one.place < line.place:  # of a line that another file of the export has
            one = next(passed, None)
        if one is None:
            return
        if one.place == line.place:
            left = line if one.rest is None else left_of(line, one.rest)
            yield msgspec.structs.replace(left, export=name)


def _name(export: str) -> str:
    return f"refused-{export}"


class Refusals:
    """The first lines that one run has refused."""

    def __init__(self) -> None:
        self._shown: list[str] = []

    def add(self, line: MessageLine, code: str, detail: str) -> None:
        """One line more."""
        if len(self._shown) < _SHOWN:
            self._shown.append(f"{id_of(line)} ({code}: {detail})")

    def told(self, out: ExportFile, gained: int, say: Say) -> None:
        """Says where they are, and how many: those of a run before that was killed may be among them."""
        among = f", among them {', '.join(self._shown)}" if self._shown else ""
        if gained:
            say(
                f"{gained} messages are refused{among}: they are in {out} alone, to be imported from there"
                " once the cluster takes them"
            )
