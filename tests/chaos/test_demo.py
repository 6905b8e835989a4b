"""The demo, small: the same faults, fewer messages."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import psutil
import pytest

from ops.demo.view import FAULT_NAMES
from tests.support.waiting import eventually

KINDS = ["kill", "zookeeper", "term", "pause", "kill"]
ZEROS = (
    "lost",
    "duplicated",
    "early",
    "altered",
    "out_of_order",
    "wrong_occurrence",
    "false_outcomes",
    "overdue",
)
SUMS = (
    "delivered",
    "recurring",
    "duplicate",
    "cancelled",
    "replaced",
    "rescheduled",
    "expired",
    "dead-lettered",
    "too-late",
    "overtaken",
    "unknown",
)


# The stretches in which nothing is disturbed are for measuring, and there are fewer messages.
SHORT = """
from ops.cli.main import main
from ops.demo import run, workload
run.CALM_MS = run.WARM_UP_MS = 500
workload.WINDOW_MS, workload.ROUND_MS = 20_000, 1_000
main()
"""


def start_demo(folder: Path, *options: str) -> subprocess.Popen[str]:
    command = [sys.executable, "-c", SHORT, "demo", *options]
    environment = os.environ | {"TMPDIR": str(folder)}
    return subprocess.Popen(
        command, env=environment, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True
    )


def logs_of(folder: Path) -> str:
    return "".join(file.read_text(errors="replace") for file in folder.glob("delayline-demo-*/logs/*"))


@pytest.mark.timeout(480)
def test_through_every_fault_each_promise_is_kept(tmp_path: Path) -> None:
    file, page = tmp_path / "verdict.json", tmp_path / "page.html"
    demo = start_demo(tmp_path, "--messages", "3000", "--json", str(file), "--html", str(page))
    said, _ = demo.communicate()

    assert demo.returncode == 0, said + logs_of(tmp_path)
    verdict: dict[str, Any] = json.loads(file.read_text())
    assert verdict["violations"] == []
    assert [failover["kind"] for failover in verdict["failovers"]] == KINDS
    assert all(failover["gap_ms"] > 0 for failover in verdict["failovers"])
    assert (
        0 <= verdict["lateness_ms"]["p50"] <= verdict["lateness_ms"]["p99"] <= verdict["lateness_ms"]["max"]
    )
    assert all(verdict[name] == 0 for name in ZEROS)
    assert all(verdict["classes"][name] > 0 for name in SUMS)
    loaded = verdict["settings"]["loaded"]
    assert loaded > 300
    assert sum(verdict["classes"].values()) == verdict["ledger"] + loaded > 3_000
    assert list(tmp_path.glob("delayline-demo-*")) == []
    assert_proved_meanwhile(verdict)
    assert_shows(page.read_text(), verdict)
    assert str(page) in said


def assert_proved_meanwhile(verdict: dict[str, Any]) -> None:
    """The watch was at work before the last fault struck, and has come to what the audit has."""
    first, *_, last = verdict["rounds"]
    assert first["taken_ms"] < verdict["failovers"][-1]["at_ms"]
    assert last["proven_up_to_ms"] > verdict["failovers"][-1]["at_ms"]
    assert (last["requests"], last["violations"]) == (sum(verdict["classes"].values()), 0)


def assert_shows(page: str, verdict: dict[str, Any]) -> None:
    """The page says that all is well, and of each fault what it has cost."""
    assert "Kept: every promise, through every fault" in page
    for failover in verdict["failovers"]:
        assert f"{FAULT_NAMES[failover['kind']]}: {failover['gap_ms']:.0f} ms" in page


def test_nothing_outlives_a_demo_that_is_killed(tmp_path: Path) -> None:
    demo = start_demo(tmp_path)
    eventually(lambda: logs_of(tmp_path).count("node-caught-up") == 3, "nodes start", 60)
    children = psutil.Process(demo.pid).children(recursive=True)
    assert len(children) >= 8  # Kafka, ZooKeeper, three nodes with their supervisors

    demo.send_signal(signal.SIGKILL)
    demo.wait()
    eventually(lambda: not any(_lives(child) for child in children), "all are gone", 30)


def _lives(process: psutil.Process) -> bool:
    try:
        return process.status() != psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return False
