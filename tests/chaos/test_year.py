"""Some weeks of the year that `python -m tests.year` lives (docs/simulation.md)."""

from __future__ import annotations

from pathlib import Path

from tests.stacks import Stack
from tests.year.life import Life, Options
from tests.year.verdict import check

A_MONTH = Options(seconds=20.0, week_s=5.0, seed=1, rate=20.0, only=("kill", "wipe"))


def test_nothing_is_lost_or_doubled_in_a_log_that_is_shorter_than_the_delays(
    stack: Stack, cluster_name: str, tmp_path: Path
) -> None:
    with Life(stack, cluster_name, tmp_path, A_MONTH, print) as life:
        life.live()
        check(life)
        assert sum(life.retention.begins.values()) > 0, "retention has taken something"
        assert life.strikes.keys() == {"kill", "wipe"}
