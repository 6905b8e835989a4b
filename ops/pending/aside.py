"""Lines of an export that the cluster would refuse, in a file of their own: so they hold no other line back.

They were taken out of another cluster, and wait nowhere. The file is an export of its own, with the places
that its lines have in the other one: once the cluster takes them, it is imported as any other. It has but
what an import has passed: what one that is killed would send after all, and the other file has, too, would be
there twice. So it bears another name until all of it is passed.
"""

from __future__ import annotations

from array import array
from bisect import bisect_left
from collections.abc import Callable, Iterable, Iterator, Mapping
from itertools import chain
from typing import Final

import msgspec

from ops.pending.again import Rest, id_of, left_of
from ops.pending.file import ExportFile
from ops.pending.line import MessageLine
from ops.pending.pace import Say
from ops.pending.progress import Imported

_SHOWN: Final = 5

Refusal = Callable[[MessageLine, Rest | None], tuple[str, str] | None]
"""Why what is left of a line would be refused, if it would: code and detail."""


def beside(file: ExportFile) -> ExportFile:
    """Where the refused lines of an export's file go."""
    return file.beside("refused")


def unfinished(file: ExportFile) -> ExportFile:
    """The same until an import has passed all of them."""
    return beside(file).beside("unfinished")


def require_beside(file: ExportFile, export: str | None) -> None:
    """ConflictError if something else stands where the refused lines of this export's file go."""
    for one in (beside(file), unfinished(file)):
        one.require_free(None if export is None else _name(export))


def _name(export: str) -> str:
    return f"refused-{export}"


class Aside:
    """The lines of one file that are refused. Eight bytes each."""

    def __init__(self, file: ExportFile, known: Mapping[str, Imported], refusal: Refusal, say: Say) -> None:
        """`known`: how far imports are."""
        self._file = file
        self._known = known
        self._refusal = refusal
        self._say = say
        self._places = array("q")  # they rise
        self._shown: list[str] = []
        self._before = 0

    def __len__(self) -> int:
        return len(self._places)

    def has(self, place: int) -> bool:
        """Whether the line at that place is one."""
        index = bisect_left(self._places, place)
        return index < len(self._places) and self._places[index] == place

    def tidy(self) -> None:
        """Ends what a run has begun that was killed, before anything is sent: of its lines those count that
        it has passed.
        """
        begun, first = unfinished(self._file), next(self._file.read(), None)
        if first is None or not begun.path.exists():
            return
        export, out = first.message.export, beside(self._file)
        require_beside(self._file, export)
        passed = self._passed(begun, export)
        head = next(passed, None)
        if head is not None:
            _write(out, export, chain((head,), passed))
        begun.path.unlink()

    def write(self) -> None:
        """Finds them, and has them on the disk before anything says that they are done with. Those that an
        import has passed before stay.
        """
        first = next(self._file.read(), None)
        if first is None:
            return
        export, out = first.message.export, beside(self._file)
        require_beside(self._file, export)
        refused = self._refused()
        head = next(refused, None)
        if head is None and not out.path.exists():
            return
        now = () if head is None else chain((head,), refused)
        self._before = sum(1 for _ in self._passed(out, export))
        _write(unfinished(self._file), export, chain(self._passed(out, export), now))

    def finish(self) -> None:
        """All of them are passed."""
        begun, out = unfinished(self._file), beside(self._file)
        if begun.path.exists():
            begun.rename(out)
            self._say_all(out)

    def _refused(self) -> Iterator[MessageLine]:
        for _, line in self._file.read():
            done = self._known.get(line.export)
            if done is not None and done.has(line.place):
                continue
            rest = None if done is None else done.rest_at(line.place)
            refusal = self._refusal(line, rest)
            if refusal is None:
                continue
            self._places.append(line.place)
            if len(self._shown) < _SHOWN:
                self._shown.append(f"{id_of(line)} ({': '.join(refusal)})")
            yield line if rest is None else left_of(line, rest)

    def _passed(self, file: ExportFile, export: str) -> Iterator[MessageLine]:
        """Not what a run has written that was killed before it had passed it: it may be taken by now."""
        done = self._known.get(export)
        if done is None or not file.path.exists():
            return
        for _, line in file.read():
            if done.has(line.place):
                yield line

    def _say_all(self, out: ExportFile) -> None:
        if self._before:
            self._say(f"{out} has {self._before} messages that were refused before")
        if self._places:
            self._say(
                f"{len(self._places)} messages are refused, among them {', '.join(self._shown)}: they are in"
                f" {out} alone, to be imported from there once the cluster takes them"
            )


def _write(file: ExportFile, export: str, lines: Iterable[MessageLine]) -> None:
    file.write(_name(export), (msgspec.structs.replace(one, export=_name(export)) for one in lines))
