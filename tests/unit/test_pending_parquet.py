"""An export as a table: it has what lines have, and is whole or none."""

from __future__ import annotations

import errno
import io
import json
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyarrow import compute, parquet

from ops.errors import ConfigError, ConflictError
from ops.pending import parquet as form
from ops.pending.jsonl import in_lines
from ops.pending.line import FORMAT, EndLine, HeaderColumn, MessageLine, encode_line
from ops.pending.parquet import SCHEMA, Parquet, in_parquet
from tests.unit.test_pending_line import CHAIN, line

PAGE = Path(__file__).parents[2] / "docs" / "pending.md"
HEADERS = [HeaderColumn("h", b"\xff\x00"), HeaderColumn("h", None), HeaderColumn("ü", b"")]
KINDS = [
    line(place=1),
    line(place=2, id="ü", key=b"", value=b"\xff\x00", headers=HEADERS, target_partition=0, attempt=3),
    line(place=3, recurrence=CHAIN, occurrence=4, expire_at_ms=9_000, value=b"x" * 2_000_000),
]


@pytest.fixture
def file(tmp_path: Path) -> Path:
    file = tmp_path / "out.parquet"
    assert in_parquet(file).write("e", KINDS) == len(KINDS)
    return file


def messages_in(file: Path) -> list[MessageLine]:
    return [one.message for one in in_parquet(file).read()]


def test_what_is_read_is_what_was_written(file: Path) -> None:
    assert messages_in(file) == KINDS


def test_its_columns_are_those_of_a_line() -> None:
    said = json.loads(encode_line(line(recurrence=CHAIN, headers=HEADERS)))
    assert list(said) == SCHEMA.names
    for name, of in (("recurrence", said["recurrence"]), ("headers", said["headers"][0])):
        type_ = SCHEMA.field(name).type
        inner = type_.value_type if pa.types.is_list(type_) else type_
        assert [field.name for field in inner] == list(of)


def test_the_page_has_every_column_in_their_order() -> None:
    named = [row.split("`")[1] for row in PAGE.read_text().splitlines() if row.startswith("| `")]
    of_lines = [*SCHEMA.names, *(name for name in EndLine.__struct_fields__ if name not in SCHEMA.names)]
    assert [name for name in named if name in of_lines] == of_lines


def test_others_read_bytes_as_bytes_and_times_as_milliseconds(file: Path) -> None:
    _, named, chain = parquet.read_table(file).to_pylist()
    assert (named["key"], named["value"], named["id"]) == (b"", b"\xff\x00", "ü")
    assert named["headers"] == [
        {"key": "h", "value": b"\xff\x00"},
        {"key": "h", "value": None},
        {"key": "ü", "value": b""},
    ]
    assert (chain["scheduled_for_ms"], chain["due_ms"], chain["expire_at_ms"]) == (1_000, 2_000, 9_000)
    assert (chain["recurrence"]["times"], chain["recurrence"]["cron"]) == (3, None)


def test_an_export_of_nothing_is_a_table_without_rows_and_says_which_it_is(tmp_path: Path) -> None:
    file = in_parquet(tmp_path / "out.parquet")
    assert file.write("e", []) == 0
    assert list(file.read()) == []
    file.require_free("e")


def test_a_row_group_is_bounded_in_rows_and_in_bytes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(form, "_GROUP_ROWS", 3)
    monkeypatch.setattr(form, "_GROUP_BYTES", 1_000)
    file = tmp_path / "out.parquet"
    large, small = (line(value=b"x" * size) for size in (1_000, 1))
    in_parquet(file).write("e", [large, small, large, small, small, small, small])
    groups = parquet.ParquetFile(file).metadata
    assert [groups.row_group(n).num_rows for n in range(groups.num_row_groups)] == [1, 2, 3, 1]


def test_a_file_of_another_export_or_of_something_else_is_not_written_over(
    file: Path, tmp_path: Path
) -> None:
    in_parquet(file).require_free("e")
    lines, table = tmp_path / "lines", tmp_path / "table"
    in_lines(lines).write("e", [])
    parquet.write_table(pa.table({"a": [1]}), table)
    for other, export in ((file, "f"), (file, None), (lines, "e"), (table, "e")):
        with pytest.raises(ConflictError, match="is there already, and not of this export"):
            in_parquet(other).require_free(export)
    with pytest.raises(ConflictError, match="is there already, and not of this export"):
        in_lines(file).require_free("e")


def rewritten(change: Callable[[pa.Table], pa.Table]) -> Callable[[Path], None]:
    """Reads the table, and writes another one in its place."""
    return lambda file: parquet.write_table(change(parquet.read_table(file)), file)


def with_column(name: str, values: list[Any]) -> Callable[[Path], None]:
    def changed(table: pa.Table) -> pa.Table:
        return table.set_column(table.column_names.index(name), name, pa.array(values))

    return rewritten(changed)


@pytest.mark.parametrize(
    ("change", "why"),
    [
        (lambda file: file.write_bytes(file.read_bytes()[:-9]), "no whole Parquet file"),
        (lambda file: file.write_bytes(b""), "no whole Parquet file"),
        (lambda file: in_lines(file).write("e", KINDS), "no whole Parquet file"),
        (rewritten(lambda table: table.drop_columns(["place"])), "no column 'place'"),
        (rewritten(lambda table: table.append_column("x", pa.array([1] * 3))), "column 'x' is none"),
        (rewritten(lambda table: table.take([1, 0, 2])), "line 2: its place, 1, is not after 2"),
        (with_column("export", ["e", "f", "e"]), "line 2: it is of another export"),
        (with_column("place", ["a", "b", "c"]), "it cannot be read: Failed to parse string: '[abc]'"),
        (with_column("source", ["s", None, "s"]), "line 2: it is no line of an export: Expected `str`"),
        (with_column("op", ["schedule", "cancel", "schedule"]), "line 2: it is no line of an export"),
        (with_column("scheduled_for_ms", [1, 1, -1]), "line 3: scheduled_for_ms is -1"),
        (with_column("format", [1, 1, FORMAT + 1]), "line 3: its format is 2.*upgrade delayline"),
        (
            rewritten(lambda table: table.replace_schema_metadata({"delayline.format": str(FORMAT + 1)})),
            "its format is 2.*upgrade delayline",
        ),
    ],
)
def test_what_is_none_is_refused_with_why(file: Path, change: Callable[[Path], object], why: str) -> None:
    change(file)
    with pytest.raises(ConfigError, match=why) as caught:
        messages_in(file)
    assert str(caught.value).startswith(str(file))


def test_a_page_that_is_damaged_is_said_of_the_file(file: Path) -> None:
    raw = bytearray(file.read_bytes())
    raw[4:400] = b"\xff" * 396
    file.write_bytes(raw)
    with pytest.raises(ConfigError, match=f"^{file}: it cannot be read: "):
        messages_in(file)


def test_a_table_that_is_given_as_lines_is_told_what_it_is(file: Path) -> None:
    with pytest.raises(ConfigError, match=f"^{file}: it is a table: give it as parquet:PATH, with --from$"):
        list(in_lines(file).read())


def test_rows_may_be_taken_out_and_other_tools_may_write_it_anew(file: Path) -> None:
    def changed(table: pa.Table) -> pa.Table:
        columns = list(reversed(table.column_names))
        return table.filter(compute.field("place") > 1).select(columns).replace_schema_metadata(None)

    rewritten(changed)(file)
    assert messages_in(file) == KINDS[1:]


class Full(io.RawIOBase):
    """A disk with no room."""

    def writable(self) -> bool:
        return True

    def write(self, _: Any) -> int:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))


def test_a_full_disk_is_an_error_of_the_system_as_it_is_of_lines() -> None:
    with pytest.raises(OSError, match="No space left on device") as caught:
        Parquet().write(Full(), "e", KINDS)  # type: ignore[arg-type]
    assert caught.value.errno == errno.ENOSPC
