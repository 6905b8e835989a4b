"""Which lines are set aside, and what their file has, however often that is made."""

from __future__ import annotations

import base64
import json
from collections.abc import Sequence
from pathlib import Path

import msgspec
import pytest

from delayline.recurrence import SAME_INTERVAL
from ops.errors import ConflictError
from ops.pending.again import Rest
from ops.pending.aside import Refusals, beside, require_beside, write_aside
from ops.pending.file import ExportFile
from ops.pending.jsonl import in_lines
from ops.pending.line import RecurrenceColumns
from ops.pending.progress import Passed
from tests.unit.test_pending_line import line


@pytest.fixture
def file(tmp_path: Path) -> ExportFile:
    """Four lines, at the places 0, 1, 2 and 3."""
    made = in_lines(tmp_path / "f")
    made.write("e", [line(place=n, value=b"%d" % n) for n in range(4)])
    return made


def places(file: ExportFile) -> Sequence[int]:
    return [one.message.place for one in beside(file).read()]


def test_what_was_passed_is_set_aside_and_nothing_else(file: ExportFile) -> None:
    assert write_aside(file, "e", lambda: [Passed(1), Passed(3)]) == 2
    raw = beside(file).path.read_bytes().splitlines()
    assert [base64.b64decode(json.loads(one).get("value", "")) for one in raw] == [b"1", b"3", b""]
    assert places(file) == [1, 3]


def test_where_nothing_was_passed_no_file_is_made(file: ExportFile) -> None:
    assert (write_aside(file, "e", list), beside(file).path.exists()) == (0, False)


def test_what_a_run_passes_later_comes_beside_what_was_there(file: ExportFile) -> None:
    write_aside(file, "e", lambda: [Passed(1)])
    (first,) = [one.message for one in beside(file).read()]
    beside(file).write("refused-e", [msgspec.structs.replace(first, target_topic="mended")])
    both = [Passed(n) for n in (0, 1, 2)]
    assert [write_aside(file, "e", lambda: both) for _ in range(2)] == [2, 0]
    assert places(file) == [0, 1, 2]
    assert [one.message.target_topic == "mended" for one in beside(file).read()] == [False, True, False]


def test_what_another_part_of_the_export_had_stays(file: ExportFile) -> None:
    write_aside(file, "e", lambda: [Passed(0)])
    file.write("e", [line(place=5), line(place=6)])
    assert (write_aside(file, "e", lambda: [Passed(0), Passed(6)]), places(file)) == (1, [0, 6])


def test_what_was_passed_of_lines_that_this_file_lacks_is_not_its_own(tmp_path: Path) -> None:
    part = in_lines(tmp_path / "part")
    part.write("e", [line(place=2), line(place=5)])
    assert (write_aside(part, "e", lambda: map(Passed, range(5))), places(part)) == (1, [2])


def test_of_a_line_that_was_sent_in_part_the_rest_is_set_aside(tmp_path: Path) -> None:
    file, rest = in_lines(tmp_path / "f"), Rest(at_ms=9_000, interval_ms=2_000, times=3)
    recurrence = RecurrenceColumns(None, 1_000, SAME_INTERVAL, None, 5, None, "all")
    file.write("e", [line(occurrence=1, expire_at_ms=1, recurrence=recurrence)])
    (whole,) = [one.message for one in file.read()]
    write_aside(file, "e", lambda: [Passed(whole.place, rest)])
    (left,) = [one.message for one in beside(file).read()]
    assert (left.scheduled_for_ms, left.due_ms, left.expire_at_ms) == (9_000, 9_000, None)
    assert left.recurrence is not None
    assert (left.recurrence.interval_ms, left.recurrence.times) == (2_000, 3)


def test_a_file_of_something_else_is_left_alone(file: ExportFile) -> None:
    require_beside(file, "e")
    write_aside(file, "e", lambda: [Passed(0)])
    require_beside(file, "e")
    for other in ("another", None):
        with pytest.raises(ConflictError, match="is there already"):
            require_beside(file, other)


def test_the_first_refused_lines_are_named(tmp_path: Path) -> None:
    said: list[str] = []
    refusals, out = Refusals(), in_lines(tmp_path / "f.refused")
    refusals.told(out, 0, said.append)
    assert said == []
    for n in range(7):
        refusals.add(line(id=f"m{n}"), "no", "it is not wanted")
    refusals.told(out, 9, said.append)
    (now,) = said
    assert now.startswith("9 messages are refused, among them m0 (no: it is not wanted), m1 ")
    assert ("m4 (" in now, "m5" in now, f"{out} alone" in now) == (True, False, True)
