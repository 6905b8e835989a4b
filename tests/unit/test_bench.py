from __future__ import annotations

from pathlib import Path

from click.testing import CliRunner
from rich.console import Console

from bench import message, reader, table
from bench.__main__ import main
from bench.figures import GOALS, KINDS, Goal, kind
from bench.measured import Measured
from bench.page import bench_page
from bench.record import Machine, Record, load
from bench.run import profile
from ops.page import render

MACHINE = Machine("Linux", "a processor", 2, 4.0, {"delayline": "1"})


def record(**figures: list[float]) -> Record:
    named = {name.replace("__", "."): values for name, values in figures.items()}
    histogram = [0] * len(reader.BUCKETS_MS) + [1]
    return Record("quick", "2026-01-01T00:00:00+00:00", 1.5, MACHINE, {}, named, {"lateness.1000": histogram})


def printed(show: object, *records: Record) -> str:
    console = Console(width=200, record=True, file=None, quiet=False, force_terminal=False)
    with console.capture() as capture:
        show(console, *records)  # type: ignore[operator]
    return capture.get()


def test_a_dated_value_has_the_size_of_the_others_and_says_when_it_is_due() -> None:
    assert len(message.value(3)) == len(message.dated_value(3, 1_767_225_600_000)) == message.VALUE_BYTES
    assert message.due_in(message.dated_value(3, 1_767_225_600_000)) == 1_767_225_600_000


def test_values_do_not_come_again_within_what_a_compressor_looks_at() -> None:
    assert len({message.value(number) for number in range(1_000)}) == 1_000


def test_moments_are_those_at_which_the_share_had_come() -> None:
    read = reader.summarised([(10.0, 50), (20.0, 49), (30.0, 1)], [])
    assert (read.first_ms, read.half_ms, read.most_ms, read.last_ms) == (10.0, 10.0, 20.0, 30.0)


def test_percentiles_and_buckets_are_those_of_the_latenesses() -> None:
    late_us = [1_000] * 98 + [2_500, 5_000_000]
    read = reader.summarised([(1.0, 100)], late_us)
    assert (read.min_ms, read.p50_ms, read.p99_ms, read.max_ms) == (1.0, 1.0, 2.5, 5_000.0)
    assert read.histogram[0] == 98
    assert read.histogram[reader.BUCKETS_MS.index(3)] == 1
    assert read.histogram[-1] == 1


def test_a_share_is_held_against_what_it_is_a_share_of() -> None:
    goal = Goal("delivery", 0.7, of="plain.produce", at_least=True)
    assert goal.met({"delivery": 70.0, "plain.produce": 100.0})
    assert not goal.met({"delivery": 69.0, "plain.produce": 100.0})


def test_a_goal_whose_figures_were_not_measured_is_not_judged() -> None:
    assert not Goal("delivery", 0.7, of="plain.produce").measured({"delivery": 1.0})


def test_every_goal_has_a_kind() -> None:
    assert all(kind(goal.figure) in KINDS for goal in GOALS)


def test_a_run_comes_back_as_it_was_kept(tmp_path: Path) -> None:
    kept = record(delivery=[1.0, 3.0, 2.0])
    kept.save(tmp_path / "run.json")
    assert load(tmp_path / "run.json") == kept
    assert kept.medians() == {"delivery": 2.0}


def test_the_table_has_median_spread_and_goal() -> None:
    shown = printed(table.show, record(delivery=[60.0, 80.0, 70.0], plain__produce=[100.0]))
    (line,) = (line for line in shown.splitlines() if line.startswith("delivery"))
    assert line.split()[-9:] == [
        "70.0",
        "60.0",
        "80.0",
        "msgs/s",
        "0.70",
        "of",
        "plain.produce,",
        ">=",
        "0.7",
    ]


def test_two_runs_are_compared_by_their_medians() -> None:
    shown = printed(table.compare, record(delivery=[100.0]), record(delivery=[150.0], restart__x=[1.0]))
    lines = [line.split() for line in shown.splitlines()[1:]]
    assert lines == [["delivery", "100.0", "150.0", "1.50", "msgs/s"]]


def test_the_page_shows_every_figure_and_how_many_goals_were_met() -> None:
    html = render(bench_page(record(delivery=[60.0], plain__produce=[100.0], memory__delivery=[1.0])))
    assert "0 of 1 goals met" in html
    assert all(name in html for name in ("delivery", "plain.produce", "memory.delivery"))


def test_the_quick_profile_has_nothing_of_ten_millions() -> None:
    quick = {name for name, _ in profile("quick", 1).scenarios}
    full = {name for name, _ in profile("full", 1).scenarios}
    assert full - quick == {"ingest-rising-10m", "ingest-random-10m"}


def test_measurements_of_one_scenario_are_joined() -> None:
    both = Measured({"a": 1.0}) | Measured({"b": 2.0}, {"h": [1]}, {"s": "x"})
    assert both == Measured({"a": 1.0, "b": 2.0}, {"h": [1]}, {"s": "x"})


def test_a_file_that_is_no_run_is_said_to_be_none(tmp_path: Path) -> None:
    (tmp_path / "run.json").write_text("{}")
    result = CliRunner().invoke(main, ["show", str(tmp_path / "run.json")])
    assert result.exit_code == 1
    assert "is no run of the benchmark" in result.output
