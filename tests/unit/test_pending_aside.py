"""Which lines are set aside, and what their file has, however often that is made."""

from __future__ import annotations

import base64
import json
from collections.abc import Mapping
from pathlib import Path

import pytest

from delayline.recurrence import SAME_INTERVAL
from ops.errors import ConflictError
from ops.pending.again import Rest
from ops.pending.aside import Aside
from ops.pending.jsonl import in_lines
from ops.pending.line import MessageLine, RecurrenceColumns
from ops.pending.progress import Imported
from tests.unit.test_pending_line import line


def imported(place: int, rest: Rest | None = None) -> Mapping[str, Imported]:
    return {"e": Imported(export="e", place=place, rest=rest, messages=1, at_ms=1, run="r")}


class Run:
    """One import of a file of lines with these values, of which some are refused; of one that is `killed`
    nothing is passed any more.
    """

    def __init__(
        self,
        folder: Path,
        *values: bytes,
        refused: set[bytes],
        known: Mapping[str, Imported] | None = None,
        killed: bool = False,
    ) -> None:
        self.file, self.beside = folder / "f", folder / "f.refused"
        self.said: list[str] = []
        in_lines(self.file).write("e", [line(place=n, value=value) for n, value in enumerate(values)])
        self._refused = refused
        self.aside = Aside(in_lines(self.file), known or {}, self._refusal, self.said.append)
        self.aside.tidy()
        self.aside.write()
        if not killed:
            self.aside.finish()

    def _refusal(self, one: MessageLine, _: Rest | None) -> tuple[str, str] | None:
        return ("no", "it is not wanted") if one.value in self._refused else None

    @property
    def places(self) -> list[int]:
        return [one.message.place for one in in_lines(self.beside).read()]


def test_what_is_refused_is_set_aside_and_nothing_else(tmp_path: Path) -> None:
    run = Run(tmp_path, b"a", b"b", b"c", refused={b"b"})
    assert [run.aside.has(place) for place in range(4)] == [False, True, False, False]
    assert [base64.b64decode(json.loads(raw).get("value", "")) for raw in run.beside.open()] == [b"b", b""]
    assert (run.places, len(run.aside)) == ([1], 1)
    assert [said.count("(no: it is not wanted)") for said in run.said] == [1]


def test_where_nothing_is_refused_no_file_is_made(tmp_path: Path) -> None:
    run = Run(tmp_path, b"a", refused=set())
    assert (len(run.aside), run.beside.exists(), run.said) == (0, False, [])


def test_what_an_import_has_passed_stays_and_what_is_refused_later_is_added(tmp_path: Path) -> None:
    Run(tmp_path, b"a", b"b", refused={b"a"})
    run = Run(tmp_path, b"a", b"b", b"c", refused={b"a", b"c"}, known=imported(1))
    assert (run.places, len(run.aside)) == ([0, 2], 1)
    assert f"{run.beside} has 1 messages that were refused before" in run.said


def test_what_is_taken_after_all_since_nobody_has_passed_it_is_set_aside_no_more(tmp_path: Path) -> None:
    Run(tmp_path, b"a", b"b", refused={b"a", b"b"})
    run = Run(tmp_path, b"a", b"b", refused={b"b"})
    assert (run.places, len(run.aside)) == ([1], 1)


def test_what_no_import_has_passed_is_in_no_file_that_can_be_imported(tmp_path: Path) -> None:
    run = Run(tmp_path, b"a", b"b", b"c", refused={b"a", b"b"}, killed=True)
    assert (run.beside.exists(), run.said) == (False, [])
    again = Run(tmp_path, b"a", b"b", b"c", refused=set(), known=imported(0), killed=True)
    assert (again.places, len(again.aside)) == ([0], 0)


def test_what_a_killed_import_has_passed_is_kept_beside_what_was_there(tmp_path: Path) -> None:
    Run(tmp_path, b"a", b"b", b"c", refused={b"a"})
    run = Run(tmp_path, b"a", b"b", b"c", refused={b"b"}, known=imported(0), killed=True)
    assert run.places == [0]
    assert Run(tmp_path, b"a", b"b", b"c", refused={b"c"}, known=imported(1)).places == [0, 1, 2]
    assert sorted(path.name for path in tmp_path.iterdir()) == ["f", "f.refused"]


def test_of_a_line_that_was_sent_in_part_the_rest_is_set_aside(tmp_path: Path) -> None:
    file, rest = tmp_path / "f", Rest(at_ms=9_000, interval_ms=2_000, times=3)
    recurrence = RecurrenceColumns(None, 1_000, SAME_INTERVAL, None, 5, None, "all")
    in_lines(file).write("e", [line(occurrence=1, expire_at_ms=1, recurrence=recurrence)])
    aside = Aside(in_lines(file), imported(7, rest), lambda *_: ("no", "n"), print)
    aside.write()
    aside.finish()
    (left,) = [one.message for one in in_lines(tmp_path / "f.refused").read()]
    assert (left.scheduled_for_ms, left.due_ms, left.expire_at_ms) == (9_000, 9_000, None)
    assert left.recurrence is not None
    assert (left.recurrence.interval_ms, left.recurrence.times) == (2_000, 3)


def test_a_file_of_something_else_is_left_alone(tmp_path: Path) -> None:
    beside = tmp_path / "f.refused"
    beside.write_text("mine")
    with pytest.raises(ConflictError, match="is there already"):
        Run(tmp_path, b"a", refused=set())
    assert beside.read_text() == "mine"
