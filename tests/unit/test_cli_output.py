"""How data looks: on a terminal, a narrow one, in a pipe, as JSON."""

from __future__ import annotations

import json

import pytest
import yaml
from rich.text import Text
from syrupy.assertion import SnapshotAssertion

from ops.cli.output import age, emit, emit_one, say, size

ROWS = [
    {"node": "n1", "lag": 5, "reason": None, "up": True},
    {
        "node": "n2",
        "lag": 1200,
        "reason": "the clock is off by 700 ms, more than max_clock_skew_ms",
        "up": False,
    },
]
COLUMNS = {"node": "node", "lag": "lag", "up": "up", "reason": "reason"}


@pytest.fixture
def terminal(monkeypatch: pytest.MonkeyPatch) -> pytest.MonkeyPatch:
    """Rich takes what is captured for a terminal; its width is COLUMNS."""
    monkeypatch.setenv("FORCE_COLOR", "1")
    monkeypatch.setenv("NO_COLOR", "1")
    monkeypatch.setenv("TERM", "xterm")
    return monkeypatch


def test_a_table_in_a_pipe_has_one_row_a_line(
    capsys: pytest.CaptureFixture[str], snapshot: SnapshotAssertion
) -> None:
    emit("table", ROWS, COLUMNS)

    assert capsys.readouterr().out == snapshot


@pytest.mark.parametrize("width", [120, 60])
def test_a_terminal_shows_a_table_or_where_it_is_narrow_blocks_with_nothing_cut(
    width: int, terminal: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], snapshot: SnapshotAssertion
) -> None:
    terminal.setenv("COLUMNS", str(width))

    emit("table", ROWS, COLUMNS)

    assert capsys.readouterr().out == snapshot


def test_json_holds_the_rows_as_they_are(capsys: pytest.CaptureFixture[str]) -> None:
    emit("json", ROWS, COLUMNS)

    assert json.loads(capsys.readouterr().out) == ROWS


def test_json_of_no_rows_is_an_empty_list(capsys: pytest.CaptureFixture[str]) -> None:
    emit("json", [], COLUMNS)

    assert json.loads(capsys.readouterr().out) == []


def test_markup_in_data_is_data(capsys: pytest.CaptureFixture[str]) -> None:
    emit_one("table", {"id": "[bold]x[/bold]"})

    assert capsys.readouterr().out == "id  [bold]x[/bold]\n"


@pytest.mark.parametrize("reason", ["why\x1b[2J\nnot", Text("why\x1b[2J\nnot", style="red")])
def test_what_others_have_written_does_not_write_to_the_terminal_by_itself(
    reason: str | Text, capsys: pytest.CaptureFixture[str]
) -> None:
    emit("table", [{"reason": reason}], {"reason": "reason"})

    assert capsys.readouterr().out.splitlines()[-1] == r"why\x1b[2J\nnot"


def test_nor_does_a_word_to_whoever_watches(capsys: pytest.CaptureFixture[str]) -> None:
    say("paused: why\x1b[2J\nnot")

    assert capsys.readouterr().err == "paused: why\\x1b[2J\\nnot\n"


def test_one_thing_keeps_its_lines_and_no_other_control(capsys: pytest.CaptureFixture[str]) -> None:
    emit_one("table", {"value": "first\n\x1bsecond"})

    assert capsys.readouterr().out == "value  first\n\\x1bsecond\n"


@pytest.mark.parametrize(
    ("ago_ms", "text"),
    [(0, "0ms ago"), (999, "999ms ago"), (1000, "1s ago"), (90_000, "1m ago"), (7_200_000, "2h ago")],
)
def test_an_age_is_in_its_largest_unit(ago_ms: int, text: str) -> None:
    assert age(1_767_225_600_000, 1_767_225_600_000 + ago_ms) == f"2026-01-01T00:00:00.000Z ({text})"


def test_a_time_to_come_has_no_age() -> None:
    assert age(1_767_225_600_000, 1_767_225_599_000) == "2026-01-01T00:00:00.000Z"


def test_a_time_that_never_was_is_none() -> None:
    assert age(0, 1_767_225_600_000) == "-"


def test_yaml_is_what_json_is(capsys: pytest.CaptureFixture[str]) -> None:
    emit("json", ROWS, COLUMNS)
    as_json = json.loads(capsys.readouterr().out)
    emit("yaml", ROWS, COLUMNS)

    assert yaml.safe_load(capsys.readouterr().out) == as_json


def test_one_thing_as_yaml_has_its_keys_in_order(capsys: pytest.CaptureFixture[str]) -> None:
    emit_one("yaml", {"node": "n1", "lag": None, "id": "ä"})

    assert capsys.readouterr().out == "node: n1\nlag: null\nid: ä\n"


def test_csv_has_the_columns_and_quotes_what_needs_it(capsys: pytest.CaptureFixture[str]) -> None:
    emit("csv", [{"node": "n,1", "lag": 5, "other": 1}, {"node": None}], {"node": "node", "lag": "lag"})

    assert capsys.readouterr().out == 'node,lag\n"n,1",5\n,\n'


@pytest.mark.parametrize(
    ("count_bytes", "text"), [(0, "0 B"), (1023, "1023 B"), (1536, "1.5 KiB"), (3 << 30, "3.0 GiB")]
)
def test_a_size_is_in_its_largest_unit(count_bytes: int, text: str) -> None:
    assert size(count_bytes) == text
