"""An export as text: a JSON object a line. The last one says how many are before it."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import BinaryIO, Final

from ops.pending.file import ExportFile
from ops.pending.line import EndLine, Line, LineError, MessageLine, NoExport, decode_line, encode_line

MOST_LINE_BYTES: Final = 64 << 20
"""More than any request can be, written in base64."""
_OF_A_TABLE: Final = b"PAR1"
"""What a Parquet file begins with."""


class JsonLines:
    """The form."""

    def write(self, out: BinaryIO, export: str, messages: Iterable[MessageLine]) -> int:
        count = 0
        for message in messages:
            out.write(encode_line(message) + b"\n")
            count += 1
        out.write(encode_line(EndLine(export=export, messages=count)) + b"\n")
        return count

    def read(self, raw: BinaryIO) -> Iterator[Line]:
        while text := raw.readline(MOST_LINE_BYTES):
            if text.startswith(_OF_A_TABLE):
                raise NoExport("it is a table: give it as parquet:PATH, with --from")
            yield decode_line(text)

    def export_of(self, raw: BinaryIO) -> str | None:
        try:
            return decode_line(raw.readline(MOST_LINE_BYTES)).export
        except LineError:
            return None


def in_lines(path: Path) -> ExportFile:
    """The file of an export, as text."""
    return ExportFile(path, JsonLines())
