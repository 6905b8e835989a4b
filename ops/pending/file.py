"""The file of an export, in whatever form: written whole or not at all, and read message by message."""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO, Final, NamedTuple, Protocol

from node.snapshot.folders import sync
from ops.errors import ConfigError, ConflictError
from ops.pending.line import EndLine, Line, LineError, MessageLine, NoExport

_NEW: Final = os.O_WRONLY | os.O_CREAT | os.O_EXCL
_OWNER_ALONE: Final = 0o600
"""It has what messages have."""


class Form(Protocol):
    """How messages stand in a file."""

    def write(self, out: BinaryIO, export: str, messages: Iterable[MessageLine]) -> int:
        """Writes an export; how many messages it has."""

    def read(self, raw: BinaryIO) -> Iterator[Line]:
        """What `write` has written, in order; at the end, unless it is cut, an `EndLine`. Raises `LineError`
        for the line that would be next, `NoExport` where it is no such file.
        """

    def export_of(self, raw: BinaryIO) -> str | None:
        """Which export it is of; None if it is none."""


class Numbered(NamedTuple):
    """A line of a file, with its number, from 1 on. What is a row of a table is a line, too."""

    number: int
    message: MessageLine


@dataclass(frozen=True, slots=True)
class ExportFile:
    """Where an export is, or is to be."""

    path: Path
    form: Form

    def __str__(self) -> str:
        return str(self.path)

    def beside(self, what: str) -> ExportFile:
        """Another one, of the same form, named after it."""
        return ExportFile(self.path.with_name(f"{self.path.name}.{what}"), self.form)

    def write(self, export: str, messages: Iterable[MessageLine]) -> int:
        """Writes an export, and puts it in place of what stands there once it is on the disk; how many
        messages it has. Its owner alone may read it.

        Raises OSError, which names the file; nothing is left beside it.
        """
        part = self.beside("part").path
        try:
            count = self._write(part, export, messages)
            part.replace(self.path)
            sync(self.path.parent)  # what the file has may be deleted elsewhere from now on
        except OSError as error:  # that of a write has no name
            raise OSError(error.errno, error.strerror, str(self)) from error
        finally:
            part.unlink(missing_ok=True)
        return count

    def _write(self, part: Path, export: str, messages: Iterable[MessageLine]) -> int:
        part.unlink(missing_ok=True)  # of another run: whoever may read that reads nothing of this
        with os.fdopen(os.open(part, _NEW, _OWNER_ALONE), "wb") as out:
            count = self.form.write(out, export, messages)
            out.flush()
            os.fsync(out.fileno())
        return count

    def require_free(self, export: str | None) -> None:
        """ConflictError if a file stands there that is not of this export."""
        try:
            with self.path.open("rb") as raw:
                is_of = export is not None and self.form.export_of(raw) == export
        except FileNotFoundError:
            return
        if not is_of:
            raise ConflictError(f"{self} is there already, and not of this export: name another file")

    def read(self) -> Iterator[Numbered]:
        """The messages of an export, in order.

        Raises ConfigError, with the number of the line, for a file that is broken, cut, or of a newer
        version.
        """
        export: str | None = None
        place, count, end = -1, 0, None
        with self._opened() as raw:
            for number, line in enumerate(self._lines(raw), 1):
                if end is not None:
                    raise ConfigError(
                        f"{self}, line {number}: it stands behind the end: import one file at a time"
                    )
                if export not in {None, line.export}:
                    raise ConfigError(
                        f"{self}, line {number}: it is of another export: import one file at a time"
                    )
                export = line.export
                if isinstance(line, EndLine):
                    end = line
                    continue
                if line.place <= place:
                    raise ConfigError(
                        f"{self}, line {number}: its place, {line.place}, is not after {place}: the lines"
                        " were changed; put them in the order of their places"
                    )
                place, count = line.place, count + 1
                yield Numbered(number, line)
        if end is None:
            raise ConfigError(f"{self} has no last line that says `end`: it is cut; export it again")
        if end.messages != count:
            raise ConfigError(
                f"{self} says that it has {end.messages} messages, and has {count}: export it again (or, if"
                " you have taken lines out, correct `messages` in the last line)"
            )

    def _opened(self) -> BinaryIO:
        try:
            return self.path.open("rb")
        except OSError as error:
            raise ConfigError(f"{self}: {error.strerror}: name the file of an export") from None

    def _lines(self, raw: BinaryIO) -> Iterator[Line]:
        number = 1
        try:
            for line in self.form.read(raw):
                yield line
                number += 1
        except LineError as error:
            raise ConfigError(f"{self}, line {number}: {error}") from None
        except NoExport as error:
            raise ConfigError(f"{self}: {error}") from None
