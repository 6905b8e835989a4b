"""`delayline check` as Nagios sees it: ranges, the worst of all, one line, and never a stack trace."""

from __future__ import annotations

import pytest
from syrupy.assertion import SnapshotAssertion

from ops.check.plugin import PluginResult, Range, Status, Value, judged, line
from ops.cli.main import run

WARNING, CRITICAL = Range.parse("10"), Range.parse("20")


@pytest.mark.parametrize(
    ("text", "well", "ill"),
    [
        ("10", [0, 5, 10], [-1, 10.5]),
        ("10:", [10, 1e9], [9.9]),
        ("~:10", [-1e9, 10], [11]),
        ("5:10", [5, 10], [4, 11]),
        ("@5:10", [4, 11], [5, 7, 10]),
        ("0.5", [0.5], [0.6]),
    ],
)
def test_a_range_says_what_is_well(text: str, well: list[float], ill: list[float]) -> None:
    found = Range.parse(text)
    assert [found.alarms(value) for value in (*well, *ill)] == [False] * len(well) + [True] * len(ill)


@pytest.mark.parametrize("text", ["", "@", "x", "10:5", "1e3", "5:10:15", "10%"])
def test_what_is_no_range_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match="is no range"):
        Range.parse(text)


def value(number: float, label: str = "n1") -> Value:
    return Value(label, number, "", f"{label} is {number:g} behind")


@pytest.mark.parametrize(
    ("found", "status", "said"),
    [
        ([value(3)], Status.OK, "OK - n1 is 3 behind | 'n1'=3;10;20;0"),
        ([value(11)], Status.WARNING, "WARNING - n1 is 11 behind | 'n1'=11;10;20;0"),
        ([value(21)], Status.CRITICAL, "CRITICAL - n1 is 21 behind | 'n1'=21;10;20;0"),
        (
            [value(3), value(21, "n2")],
            Status.CRITICAL,
            "CRITICAL - n2 is 21 behind; n1 is 3 behind | 'n1'=3;10;20;0 'n2'=21;10;20;0",
        ),
        (
            [value(3), PluginResult(Status.UNKNOWN, "n2 is silent")],
            Status.UNKNOWN,
            "UNKNOWN - n2 is silent; n1 is 3 behind | 'n1'=3;10;20;0",
        ),
        (
            [PluginResult(Status.CRITICAL, "no leader"), PluginResult(Status.UNKNOWN, "?")],
            2,
            "CRITICAL - no leader; ?",
        ),
    ],
)
def test_the_worst_comes_first_and_is_the_exit_code(
    found: list[Value | PluginResult], status: Status, said: str
) -> None:
    assert judged(found, WARNING, CRITICAL) == (status, said)


def test_seconds_are_written_as_such() -> None:
    measured = Value("lane 0", 1.25, "s", "well")
    assert judged([measured], WARNING, CRITICAL)[1] == "OK - well | 'lane 0'=1.25s;10;20;0"


def test_whatever_a_text_holds_the_line_is_one_and_has_one_bar() -> None:
    assert line(Status.UNKNOWN, "a|b\n  c") == "UNKNOWN - a/b c"


@pytest.mark.parametrize(
    "asked",
    [
        "lag --warning x",
        "lag --nonsense",
        "nonsense",
        "lateness --bootstrap x:99999 --zookeeper localhost:1",
        "lag --config /no/such/file",
    ],
)
def test_what_cannot_be_asked_is_unknown(
    asked: str, capsys: pytest.CaptureFixture[str], snapshot: SnapshotAssertion
) -> None:
    assert run(["check", *asked.split()]) == 3
    assert capsys.readouterr() == snapshot
