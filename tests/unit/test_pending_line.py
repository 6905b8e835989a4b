"""A line of an export: what it says, and what is none."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import msgspec
import pytest

from delayline.names import ClusterNames
from delayline.recurrence import Recurrence
from delayline.settings import ClusterSettings
from delayline.wire import H_AFTER, H_ID, H_TARGET_KEY, H_TARGET_TOPIC, Header, Schedule, parse
from node.kafka.fetch.records import LogRecord
from ops.errors import ConfigError, ConflictError
from ops.pending.jsonl import in_lines
from ops.pending.line import (
    FORMAT,
    Buffer,
    EndLine,
    HeaderColumn,
    LineError,
    MessageLine,
    NewerFormat,
    RecurrenceColumns,
    decode_line,
    encode_line,
    found_row,
    found_schedule,
)
from store.rows import ScheduledRow

CLUSTER = "delay"
BUFFER = Buffer("delay.buffer", "b", CLUSTER)


def line(**fields: Any) -> MessageLine:
    given: dict[str, Any] = {
        "export": "e",
        "place": 7,
        "cluster": CLUSTER,
        "buffer_id": BUFFER.id,
        "source": "delay.buffer/1/42",
        "id": None,
        "target_topic": "t",
        "target_partition": None,
        "due_ms": 2_000,
        "scheduled_for_ms": 1_000,
        "expire_at_ms": None,
        "attempt": 1,
        "occurrence": None,
        "recurrence": None,
        "key": None,
        "value": None,
        "headers": [],
        **fields,
    }
    return MessageLine(**given)


CHAIN = RecurrenceColumns(None, 60_000, 1_000, None, 3, None, "all")


def test_a_line_is_read_as_it_was_written() -> None:
    headers = [HeaderColumn("h", b"\xff\x00"), HeaderColumn("h", None), HeaderColumn("ü", b"")]
    written = line(key=b"", value=b"\xff" * 3, headers=headers, recurrence=CHAIN, occurrence=4)
    assert decode_line(encode_line(written)) == written


def test_bytes_are_base64_and_the_operation_and_the_format_stand_in_each_line() -> None:
    said = json.loads(encode_line(line(value=b"\xff\x00", headers=[HeaderColumn("h", b"v")])))
    assert (said["op"], said["format"]) == ("schedule", FORMAT)
    assert said["value"] == "/wA="
    assert said["headers"] == [{"key": "h", "value": "dg=="}]
    end = json.loads(encode_line(EndLine(export="e", messages=3)))
    assert end == {"op": "end", "format": FORMAT, "export": "e", "messages": 3}


def test_a_newer_format_asks_for_an_upgrade_whatever_else_it_says() -> None:
    newer = json.loads(encode_line(line())) | {"format": FORMAT + 1, "op": "another", "more": 1}
    with pytest.raises(NewerFormat, match="upgrade delayline"):
        decode_line(json.dumps(newer).encode())


@pytest.mark.parametrize(
    ("field", "value", "why"),
    [
        ("headers", [{"key": "delay-op", "value": "Y2FuY2Vs"}], "none of a user's own"),
        ("headers", [{"key": "a\0b", "value": None}], "none of a user's own"),
        ("value", "no base64", "base64"),
        ("scheduled_for_ms", -1, "epoch milliseconds"),
        ("scheduled_for_ms", 1 << 63, "epoch milliseconds"),
        ("recurrence", msgspec.to_builtins(CHAIN) | {"interval_ms": 0}, "1000 or more"),
        ("recurrence", msgspec.to_builtins(CHAIN) | {"interval_factor_permille": 1}, "1000 to"),
        ("recurrence", msgspec.to_builtins(CHAIN) | {"times": 0}, "1 or more"),
        ("recurrence", msgspec.to_builtins(CHAIN) | {"missed": "some"}, "all, latest, skip"),
        ("recurrence", msgspec.to_builtins(CHAIN) | {"cron": "* *"}, "cron is"),
        ("unknown", 1, "unknown"),
    ],
)
def test_what_no_export_has_written_is_no_line(field: str, value: Any, why: str) -> None:
    said = json.loads(encode_line(line())) | {field: value}
    with pytest.raises(LineError, match=why):
        decode_line(json.dumps(said).encode())


def schedule_of(headers: list[Header]) -> Schedule:
    record = LogRecord(0, 42, 1_000, b"record-key", b"v", headers)
    found = parse(record, ClusterSettings(partitions=1), ClusterNames(CLUSTER))
    assert isinstance(found, Schedule), found
    return found


def test_a_request_in_the_log_becomes_the_message_that_would_be_delivered() -> None:
    headers: list[Header] = [("own", b"1"), (H_TARGET_TOPIC, b"t"), (H_AFTER, b"5s"), (H_ID, b"i")]
    found = found_schedule(BUFFER, (0, 42), schedule_of([*headers, (H_TARGET_KEY, None)]))
    assert (found.row, found.root, found.parent) == ((0, 42), 42, None)
    assert found.message.source == "delay.buffer/0/42"
    assert (found.message.id, found.message.key) == ("i", None)
    assert (found.message.due_ms, found.message.scheduled_for_ms) == (6_000, 6_000)
    assert found.message.headers == [HeaderColumn("own", b"1")]
    assert found_schedule(BUFFER, (0, 42), schedule_of(headers)).message.key == b"record-key"


def test_what_was_carried_says_the_same_with_the_deliveries_that_are_left() -> None:
    row = ScheduledRow(
        b"record-key",
        b"v",
        [("own", b"1"), (H_TARGET_TOPIC, b"t")],
        None,
        "t",
        -1,
        None,
        5_000,
        None,
        41,
        "delay.buffer/0/7",
        2,
        4,
        Recurrence(None, 60_000, 1_000, None, 6, None, "all"),
    )
    found = found_row(BUFFER, (0, 42), 9_000, row)
    assert (found.row, found.root, found.parent) == ((0, 42), 7, 41)
    assert (found.message.due_ms, found.message.attempt, found.message.occurrence) == (9_000, 2, 4)
    assert (found.message.key, found.message.value) == (b"record-key", b"v")
    assert found.message.recurrence == CHAIN


def written(tmp_path: Path, *places: int) -> Path:
    file = tmp_path / "out.jsonl"
    assert in_lines(file).write("e", [line(place=place) for place in places]) == len(places)
    return file


def test_a_file_is_read_with_the_numbers_of_its_lines(tmp_path: Path) -> None:
    found = [(one.number, one.message.place) for one in in_lines(written(tmp_path, 3, 5, 900)).read()]
    assert found == [(1, 3), (2, 5), (3, 900)]


def test_an_export_of_nothing_is_a_file_with_its_end(tmp_path: Path) -> None:
    assert list(in_lines(written(tmp_path)).read()) == []


@pytest.mark.parametrize(
    ("change", "why"),
    [
        (lambda lines: lines[:-1], "it is cut"),
        (lambda _: [], "it is cut"),
        (lambda lines: [lines[0], lines[1][:-9]], "line 2: it is no line of an export"),
        (lambda lines: [lines[0], *lines[2:]], "says that it has 3 messages, and has 2"),
        (lambda lines: [lines[1], lines[0], *lines[2:]], "line 2: its place, 1, is not after 2"),
        (lambda lines: [lines[0], lines[0], *lines[1:]], "line 2: its place"),
        (lambda lines: [*lines, lines[0]], "line 5: it stands behind the end"),
        (
            lambda lines: [lines[0], lines[1].replace(b'"export":"e"', b'"export":"f"')],
            "line 2: it is of another",
        ),
        (lambda lines: [b"", *lines], "line 1: it is no line"),
    ],
)
def test_a_broken_file_is_refused_with_the_line(tmp_path: Path, change: Any, why: str) -> None:
    file = written(tmp_path, 1, 2, 3)
    lines = file.read_bytes().splitlines()
    file.write_bytes(b"".join(one + b"\n" for one in change(lines)))
    with pytest.raises(ConfigError, match=why):
        list(in_lines(file).read())


def test_a_file_that_is_not_there_is_named(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"none.jsonl: No such file"):
        list(in_lines(tmp_path / "none.jsonl").read())


def test_a_file_of_another_export_is_not_written_over(tmp_path: Path) -> None:
    file = written(tmp_path, 1)
    in_lines(file).require_free("e")
    in_lines(tmp_path / "new").require_free(None)
    for export in ("f", None):
        with pytest.raises(ConflictError, match="is there already"):
            in_lines(file).require_free(export)
