from __future__ import annotations

import json
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import psutil
import pytest

from tests.support.waiting import eventually

Run = Callable[..., subprocess.CompletedProcess[str]]


@pytest.fixture
def stack_command(tmp_path: Path) -> Iterator[Run]:
    def run(*arguments: str) -> subprocess.CompletedProcess[str]:
        where = () if "--data-dir" in arguments else ("--data-dir", str(tmp_path))
        command = [sys.executable, "-m", "ops.cli.main", "stack", *arguments, *where]
        return subprocess.run(command, capture_output=True, text=True, timeout=100, check=False)

    yield run
    run("down")


def test_a_detached_stack_serves_until_it_is_taken_down(stack_command: Run) -> None:
    up = stack_command("up", "--detach")
    addresses = dict(line.split("=") for line in up.stdout.splitlines())
    shown = stack_command("status", "-o", "json")
    servers = {row["server"]: row for row in json.loads(shown.stdout)}
    assert {row["state"] for row in servers.values()} == {"serving"}
    assert addresses == {
        "DELAYLINE_BOOTSTRAP_SERVERS": servers["kafka"]["address"],
        "DELAYLINE_ZOOKEEPER": servers["zookeeper"]["address"],
    }
    stack_command("down")
    assert not any(psutil.pid_exists(row["pid"]) for row in servers.values())
    assert stack_command("status").returncode == 1


def test_a_start_that_is_interrupted_leaves_nothing(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "ops.cli.main", "stack", "up", "--detach", "--data-dir", str(tmp_path)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as up:
        asked = psutil.Process(up.pid)
        eventually(lambda: len(asked.children(recursive=True)) >= 3, "the keeper starts servers")
        children = asked.children(recursive=True)
        up.send_signal(signal.SIGINT)
    assert psutil.wait_procs(children, timeout=15)[1] == []


def test_a_stack_that_is_up_is_not_started_twice_and_ends_with_its_keeper(
    stack_command: Run, tmp_path: Path
) -> None:
    stack_command("up", "--detach")
    assert "up already, kept by process" in stack_command("up").stderr
    kept = json.loads((tmp_path / "keeper.json").read_text())
    servers = [psutil.Process(kept[name]) for name in ("kafka_pid", "zookeeper_pid")]
    psutil.Process(kept["pid"]).kill()
    assert psutil.wait_procs(servers, timeout=15)[1] == []


def test_down_leaves_a_process_alone_that_took_over_the_keepers_id(
    stack_command: Run, tmp_path: Path
) -> None:
    with subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE) as other:
        started_s = psutil.Process(other.pid).create_time() - 60
        kept = {"pid": other.pid, "started_s": started_s, "bootstrap": "", "zookeeper": ""}
        kept |= {"kafka_pid": other.pid, "zookeeper_pid": other.pid}
        (tmp_path / "keeper.json").write_text(json.dumps(kept))
        assert "no stack is up" in stack_command("down").stderr
        assert other.poll() is None
        other.communicate(b"\n")
