"""The benchmark from its command to what it leaves behind: with few messages, all else as it is."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from typing import NamedTuple

import pytest

from bench.record import RunRecord, load

BACKLOG, RATE = 2_000, 200
SMALL = f"""
import sys
from pathlib import Path
from bench import __main__ as command
from bench.profiles import Profile
from bench.scenarios import steady
from bench.scenarios.delivery import Backlog, Both
from bench.scenarios.lateness import Steady
command.FOLDER = Path(sys.argv.pop(1))
steady.WARM_UP_MS, steady.MEASURED_S = 0, 1
scenarios = [("delivery", Backlog({BACKLOG})), ("lateness", Steady({RATE})), ("both", Both({BACKLOG}))]
command.profiles.profile = lambda name, rounds: Profile(name, rounds, scenarios, [])
command.main()
"""
LATENESS = [f"lateness.{RATE}.{name}" for name in ("min", "p50", "p99", "max")]
FIGURES = {"delivery", "cpu.delivery.node", "cpu.delivery.broker", "memory.delivery", *LATENESS}


class Done(NamedTuple):
    """A run: what it said, and what it has kept."""

    said: str
    record: RunRecord
    page: str


@pytest.fixture(scope="module")
def done(tmp_path_factory: pytest.TempPathFactory) -> Done:
    folder = tmp_path_factory.mktemp("runs")
    options = ["run", "--rounds", "1", "--only", "delivery", "--only", "lateness"]
    ended = subprocess.run(
        [sys.executable, "-c", SMALL, str(folder), *options],
        cwd=Path(__file__).parents[2],
        env=os.environ | {"COLUMNS": "200"},
        capture_output=True,
        text=True,
        check=False,
    )
    assert ended.returncode == 0, ended.stdout + ended.stderr
    [kept], [page] = folder.glob("*.json"), folder.glob("*.html")
    return Done(ended.stdout, load(kept), page.read_text())


def test_a_run_measures_what_it_was_asked_for_and_no_more(done: Done) -> None:
    assert done.record.figures.keys() == FIGURES | {f"memory.lateness.{RATE}", f"lateness.{RATE}.rate"}
    # The CPU time of so few messages may be less than a tick of the clock that it is counted by.
    wrong = {
        name: values
        for name, values in done.record.figures.items()
        if len(values) != 1 or values[0] < 0 or (values[0] == 0 and not name.startswith("cpu."))
    }
    assert wrong == {}


def test_every_message_is_in_the_distribution_of_lateness(done: Done) -> None:
    assert {name: sum(counts) for name, counts in done.record.histograms.items()} == {
        f"lateness.{RATE}": RATE
    }


def test_no_message_of_the_benchmark_is_early(done: Done) -> None:
    least, median, most_of_them, most = (done.record.medians()[name] for name in LATENESS)
    assert 0 <= least <= median <= most_of_them <= most


def test_the_table_on_the_screen_has_what_the_record_has(done: Done) -> None:
    shown = {words[0]: words for line in done.said.splitlines() if (words := line.split())}
    for name, value in done.record.medians().items():
        assert f"{value:,.0f}" in shown[name] or f"{value:,.1f}" in shown[name]


def test_the_page_has_every_figure_and_a_plot_of_the_lateness(done: Done) -> None:
    assert [name for name in done.record.figures if name not in done.page] == []
    assert "no later than so many milliseconds" in done.page
