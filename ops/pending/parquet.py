"""An export as a table: one Parquet file, of the columns that a line has, with bytes as bytes.

It is written a row group at a time, and has its footer, without which nobody reads it, once all are there.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any, BinaryIO, Final

import msgspec
import pyarrow as pa
from msgspec import inspect
from pyarrow import parquet

from ops.pending.file import ExportFile
from ops.pending.formats import newer
from ops.pending.line import FORMAT, EndLine, Line, MessageLine, NoExport, line_of
from ops.pending.sending import bytes_of_line

_GROUP_ROWS: Final = 10_000
_GROUP_BYTES: Final = 16 << 20
"""Of keys, values and headers: whoever reads the file holds a row group in memory, unpacked."""
_READ_ROWS: Final = 1_000
_EXPORT: Final = b"delayline.export"
_FORMAT: Final = b"delayline.format"


def _type(of: inspect.Type) -> pa.DataType:
    """What stands in a column for a type of a line. All may be null here: the line says what may."""
    match of:
        case inspect.IntType():
            return pa.int64()
        case inspect.StrType():
            return pa.string()
        case inspect.BytesType():
            return pa.binary()
        case inspect.ListType():
            return pa.list_(_type(of.item_type))
        case inspect.StructType():
            return pa.struct(_fields(of))
        case inspect.UnionType():
            (there,) = (one for one in of.types if not isinstance(one, inspect.NoneType))
            return _type(there)
        case _:
            raise TypeError(f"no column for {of}")


def _fields(of: inspect.StructType) -> list[pa.Field]:
    return [pa.field(one.encode_name, _type(one.type)) for one in of.fields]


def _schema() -> pa.Schema:
    of = inspect.type_info(MessageLine)
    assert isinstance(of, inspect.StructType), "a line has columns"
    return pa.schema([pa.field(of.tag_field, pa.string()), *_fields(of)])


SCHEMA: Final = _schema()


class Parquet:
    """The form."""

    def write(self, out: BinaryIO, export: str, messages: Iterable[MessageLine]) -> int:
        count = 0
        schema = SCHEMA.with_metadata({_EXPORT: export, _FORMAT: str(FORMAT)})
        with parquet.ParquetWriter(out, schema, compression="zstd") as writer:
            for group in _groups(messages):
                rows = msgspec.to_builtins(group, builtin_types=(bytes,))
                writer.write_batch(pa.RecordBatch.from_pylist(rows, SCHEMA))
                count += len(group)
        return count

    def read(self, raw: BinaryIO) -> Iterator[Line]:
        file, export = _opened(raw), ""
        _require_known(file)
        for row in _rows(file):
            line = line_of(row)
            export = line.export
            yield line
        yield EndLine(export=export, messages=file.metadata.num_rows)

    def export_of(self, raw: BinaryIO) -> str | None:
        try:
            said: bytes | None = _said(_opened(raw)).get(_EXPORT)
        except NoExport:
            return None
        return None if said is None else said.decode(errors="replace")


def in_parquet(path: Path) -> ExportFile:
    """The file of an export, as a table."""
    return ExportFile(path, Parquet())


def _groups(messages: Iterable[MessageLine]) -> Iterator[list[MessageLine]]:
    group: list[MessageLine] = []
    size_bytes = 0
    for message in messages:
        group.append(message)
        size_bytes += bytes_of_line(message)
        if len(group) == _GROUP_ROWS or size_bytes >= _GROUP_BYTES:
            yield group
            group, size_bytes = [], 0
    if group:
        yield group


def _opened(raw: BinaryIO) -> parquet.ParquetFile:
    try:
        return parquet.ParquetFile(raw)
    except pa.ArrowException:
        raise NoExport("it is no whole Parquet file: export it again") from None
    except OSError as error:
        raise NoExport(f"it cannot be read: {_first_line(error)}") from None


def _said(file: parquet.ParquetFile) -> dict[bytes, bytes]:
    """What is said of the file as a whole. A tool that has written it anew may have left that out."""
    said: dict[bytes, bytes] = file.metadata.metadata or {}
    return said


def _require_known(file: parquet.ParquetFile) -> None:
    number = _said(file).get(_FORMAT, b"")
    too_new = newer(int(number), FORMAT) if number.isdigit() else None
    if too_new is not None:
        raise NoExport(too_new)
    known, there = set(SCHEMA.names), set(file.schema_arrow.names)
    missing, others = sorted(known - there), sorted(there - known)
    if missing:
        raise NoExport(f"it is no export of pending messages: it has no column {missing[0]!r}")
    if others:
        raise NoExport(f"column {others[0]!r} is none of an export: take it out")


def _rows(file: parquet.ParquetFile) -> Iterator[dict[str, Any]]:
    """A row group after the other: no more than that is in memory."""
    try:
        for group in range(file.num_row_groups):
            for batch in file.iter_batches(_READ_ROWS, row_groups=[group]):
                yield from batch.select(SCHEMA.names).cast(SCHEMA).to_pylist()
    except (pa.ArrowException, OSError, UnicodeDecodeError) as error:
        raise NoExport(f"it cannot be read: {_first_line(error)}") from None


def _first_line(error: Exception) -> str:
    return str(error).partition("\n")[0].rstrip(".")
