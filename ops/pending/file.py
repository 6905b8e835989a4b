"""The file of an export: written whole or not at all, and read line by line."""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import BinaryIO, Final, NamedTuple

from node.snapshot.folders import sync
from ops.errors import ConfigError, ConflictError
from ops.pending.line import MOST_LINE_BYTES, EndLine, LineError, MessageLine, decode_line, encode_line

_NEW: Final = os.O_WRONLY | os.O_CREAT | os.O_EXCL
_OWNER_ALONE: Final = 0o600
"""It has what messages have."""


class Numbered(NamedTuple):
    """A line of a file, with its number, from 1 on."""

    number: int
    message: MessageLine


def write_file(file: Path, export: str, messages: Iterable[MessageLine]) -> int:
    """Writes an export, and puts it in place of what stands there once it is on the disk; how many messages
    it has. Its owner alone may read it.

    Raises OSError, which names the file; nothing is left beside it.
    """
    part = file.with_name(file.name + ".part")
    try:
        count = _write(part, export, messages)
        part.replace(file)
        sync(file.parent)  # what the file has may be deleted elsewhere from now on
    except OSError as error:  # that of a write has no name
        raise OSError(error.errno, error.strerror, str(file)) from error
    finally:
        part.unlink(missing_ok=True)
    return count


def _write(part: Path, export: str, messages: Iterable[MessageLine]) -> int:
    count = 0
    part.unlink(missing_ok=True)  # of another run: whoever may read that reads nothing of this
    with os.fdopen(os.open(part, _NEW, _OWNER_ALONE), "wb") as out:
        for message in messages:
            out.write(encode_line(message) + b"\n")
            count += 1
        out.write(encode_line(EndLine(export=export, messages=count)) + b"\n")
        out.flush()
        os.fsync(out.fileno())
    return count


def require_free(file: Path, export: str | None) -> None:
    """ConflictError if a file stands there that is not of this export."""
    try:
        with file.open("rb") as raw:
            first = raw.readline(MOST_LINE_BYTES)
    except FileNotFoundError:
        return
    try:
        if export is not None and decode_line(first).export == export:
            return
    except LineError:
        pass
    raise ConflictError(f"{file} is there already, and not of this export: name another file")


def read_file(file: Path) -> Iterator[Numbered]:
    """The messages of an export, in order.

    Raises ConfigError, with the number of the line, for a file that is broken, cut, or of a newer version.
    """
    export: str | None = None
    place, count, end = -1, 0, None
    with _opened(file) as raw:
        for number, line in enumerate(_lines(file, raw), 1):
            if end is not None:
                raise ConfigError(
                    f"{file}, line {number}: it stands behind the end: import one file at a time"
                )
            if export not in {None, line.export}:
                raise ConfigError(
                    f"{file}, line {number}: it is of another export: import one file at a time"
                )
            export = line.export
            if isinstance(line, EndLine):
                end = line
                continue
            if line.place <= place:
                raise ConfigError(
                    f"{file}, line {number}: its place, {line.place}, is not after {place}: the lines were"
                    " changed; put them in the order of their places"
                )
            place, count = line.place, count + 1
            yield Numbered(number, line)
    if end is None:
        raise ConfigError(f"{file} has no last line that says `end`: it is cut; export it again")
    if end.messages != count:
        raise ConfigError(
            f"{file} says that it has {end.messages} messages, and has {count}: export it again (or, if you"
            " have taken lines out, correct `messages` in the last line)"
        )


def _opened(file: Path) -> BinaryIO:
    try:
        return file.open("rb")
    except OSError as error:
        raise ConfigError(f"{file}: {error.strerror}: name the file of an export") from None


def _lines(file: Path, raw: BinaryIO) -> Iterator[MessageLine | EndLine]:
    number = 0
    while text := raw.readline(MOST_LINE_BYTES):
        number += 1
        try:
            yield decode_line(text)
        except LineError as error:
            raise ConfigError(f"{file}, line {number}: {error}") from None
