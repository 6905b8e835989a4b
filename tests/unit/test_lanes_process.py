"""One lane's process, started, heard and ended: programs that stand for a node."""

from __future__ import annotations

import os
import shutil
import signal
import socket
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from structlog.testing import capture_logs

from node.config import NodeConfig
from ops.lanes.process import DEAD_S, MOST_RESTART_S, RESTART_S, SETTLED_S, START_S, LaneProcess
from ops.lanes.supervisor import words
from tests.support.waiting import eventually

SAYS_NOTHING = "import sys; sys.stdin.read()"
IS_READY = f"""
import os, sys
from node.health.systemd import ServiceManager
ServiceManager(os.environ).tell(ready=True, words="leader")
{SAYS_NOTHING}
"""
GIVES_SIGNS = """
import os, time
from node.health.systemd import ServiceManager
while True:
    ServiceManager(os.environ).tell(ready=True, words="leader")
    time.sleep(0.05)
"""
IS_TOLD = "import sys; sys.exit(0 if b'n-3' in sys.stdin.buffer.readline() and sys.argv[1:] == {} else 1)"
NEVER_READS = "import signal; signal.pause()"
HAS_ALL = "import sys; sys.exit(0 if len(sys.stdin.buffer.readline()) > 300_000 else 1)"
EXITS = "import sys; sys.exit(3)"
KILLS_ITSELF = "import os; os.kill(os.getpid(), 9)"

LARGE = {"ssl.ca.pem": "x" * 300_000}
TOO_LONG = "x" * 120
"""For a folder of a socket."""

Start = Callable[..., LaneProcess]


@pytest.fixture
def start(tmp_path: Path) -> Iterator[Start]:
    made = []

    def begin(program: str, **values: Any) -> LaneProcess:
        made.append(lane_of([sys.executable, "-c", program], tmp_path, **values))
        made[-1].publish(17500)
        made[-1].look(0.0)
        return made[-1]

    yield begin
    for lane in made:
        lane.close()


def lane_of(command: list[str], folder: Path, **values: Any) -> LaneProcess:
    own = {"lane": 3, "node_id": "n-3", **values}
    config = NodeConfig(bootstrap_servers="k:1", zookeeper="z:1", data_dir=folder, **own)
    return LaneProcess(config, command, folder)


def wait_ended(lane: LaneProcess) -> None:
    eventually(lane.has_ended, "it has ended")


def wait_ready(lane: LaneProcess, now_s: float) -> None:
    def is_ready() -> bool:
        lane.look(now_s)
        return lane.condition.ready

    eventually(is_ready, "it is ready")


def test_one_that_has_just_started_is_not_asked_before_it_gives_a_sign(start: Start) -> None:
    assert start(SAYS_NOTHING).trouble() == "its process has just started"


def test_what_it_says_is_heard(start: Start) -> None:
    lane = start(IS_READY)
    wait_ready(lane, 1.0)
    assert words([lane]) == "lane 3: leader"


@pytest.mark.parametrize(
    ("program", "how"), [(EXITS, "exit code 3"), (KILLS_ITSELF, "SIGKILL")], ids=["exits", "is killed"]
)
def test_one_that_ends_is_started_again_after_a_second(start: Start, program: str, how: str) -> None:
    lane = start(program)
    first = lane.condition.pid
    wait_ended(lane)
    lane.look(5.0)
    assert lane.trouble() == f"its process has ended with {how}, and is started again"
    lane.look(5.0 + RESTART_S / 2)
    assert lane.condition.pid is None
    lane.look(5.0 + RESTART_S)
    assert lane.condition.pid not in (None, first)


def test_one_that_dies_at_its_start_again_and_again_is_started_less_and_less_often(tmp_path: Path) -> None:
    lane = lane_of([str(tmp_path / "nothing")], tmp_path)
    lane.publish(17500)
    with capture_logs() as logged:
        for now_s in range(120):
            lane.look(float(now_s))
    lane.close()
    pauses = [line["again_in_s"] for line in logged if line["event"] == "lane-process-ended"]
    assert pauses[:5] == [RESTART_S * 2**count for count in range(5)]
    assert set(pauses[5:]) == {MOST_RESTART_S}


def test_one_that_has_run_for_a_while_is_started_again_after_a_second(start: Start) -> None:
    lane = start(EXITS)
    ends_s = 0.0
    for lives_s, pause_s in ((0.0, RESTART_S), (SETTLED_S - 1, 2 * RESTART_S), (SETTLED_S, RESTART_S)):
        wait_ended(lane)
        ends_s += lives_s
        lane.look(ends_s)
        lane.look(ends_s + pause_s / 2)
        assert lane.condition.pid is None
        ends_s += pause_s
        lane.look(ends_s)
        assert lane.condition.pid is not None


@pytest.mark.parametrize(("program", "limit_s"), [(SAYS_NOTHING, START_S), (IS_READY, DEAD_S)])
def test_one_that_gives_no_sign_for_its_time_is_killed(start: Start, program: str, limit_s: float) -> None:
    lane = start(program)
    if program == IS_READY:
        wait_ready(lane, 0.0)
    for now_s in range(int(limit_s) + 1):
        lane.look(float(now_s))
    assert not lane.has_ended()
    lane.look(limit_s + 1)
    wait_ended(lane)
    lane.look(limit_s + 1)
    assert lane.trouble() == "its process has ended with SIGKILL, and is started again"


def test_one_is_not_killed_for_the_time_in_which_nobody_listened(start: Start) -> None:
    lane = start(IS_READY)
    wait_ready(lane, 0.0)
    for now_s in (10 * DEAD_S, 10 * DEAD_S + 1):
        lane.look(now_s)
    assert not lane.has_ended()


def test_one_that_a_kill_does_not_end_is_killed_once_and_waited_for_a_while(
    start: Start, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As the kernel has it for a process that waits for a disk."""
    lane = start(SAYS_NOTHING)
    pid = lane.condition.pid
    assert pid is not None
    monkeypatch.setattr(subprocess.Popen, "kill", lambda _: None)
    try:
        with capture_logs() as logged:
            for now_s in range(int(START_S) + 10):
                lane.look(float(now_s))
            assert not lane.close(0.1)
    finally:
        os.kill(pid, signal.SIGKILL)
    assert [line["event"] for line in logged] == ["lane-process-silent", "lane-process-stays"]


def test_one_that_does_not_read_its_orders_holds_up_nobody(start: Start) -> None:
    lane = start(NEVER_READS, kafka=LARGE)
    lane.look(1.0)
    assert not lane.has_ended()


def test_one_that_reads_has_all_its_orders_however_long_they_are(start: Start) -> None:
    lane = start(HAS_ALL, kafka=LARGE)

    def has_ended() -> bool:
        lane.look(1.0)
        return lane.condition.pid is None

    eventually(has_ended, "it has read all")
    assert lane.trouble() == "its process has ended with exit code 0, and is started again"


def test_why_one_cannot_be_heard_is_told(tmp_path: Path) -> None:
    lane = lane_of(["x"], tmp_path / TOO_LONG)
    lane.publish(17500)
    lane.look(0.0)
    lane.close()
    why = "its process cannot be started: AF_UNIX path too long, and is started again"
    assert lane.trouble() == why


def test_one_that_cannot_be_started_is_tried_again(tmp_path: Path) -> None:
    lane = lane_of([str(tmp_path / "nothing")], tmp_path)
    lane.publish(17500)
    lane.look(0.0)
    lane.look(RESTART_S)
    why = "its process cannot be started: No such file or directory, and is started again"
    assert lane.trouble() == why
    assert lane.close()


def test_one_is_heard_after_somebody_has_tidied_up(start: Start, tmp_path: Path) -> None:
    lane = start(IS_READY)
    lane.close()
    shutil.rmtree(tmp_path)
    again = lane_of([sys.executable, "-c", IS_READY], tmp_path)
    again.publish(17500)
    again.look(0.0)
    wait_ready(again, 1.0)
    again.close()


def test_a_running_one_is_heard_again_after_somebody_has_tidied_up(start: Start, tmp_path: Path) -> None:
    lane = start(GIVES_SIGNS)
    wait_ready(lane, 1.0)
    shutil.rmtree(tmp_path)
    lane.look(2.0)

    def is_heard() -> bool:
        lane.look(3.0)
        return lane.condition.heard_s == 3.0

    eventually(is_heard, "it is heard")


def test_a_folder_that_is_another_s_is_not_used(start: Start, tmp_path: Path) -> None:
    lane = start(GIVES_SIGNS)
    wait_ready(lane, 1.0)
    shutil.rmtree(tmp_path)
    tmp_path.mkdir()
    tmp_path.chmod(0o777)
    lane.look(2.0)
    assert "the folder is not this user's alone" in words([lane]) or "not permitted" in words([lane])


def test_who_cannot_be_heard_is_not_silent(start: Start, tmp_path: Path) -> None:
    lane = start(GIVES_SIGNS)
    wait_ready(lane, 1.0)
    shutil.rmtree(tmp_path)
    tmp_path.write_text("no folder")  # nothing can be made there
    with capture_logs() as logged:
        for now_s in range(2, int(DEAD_S) + 4):
            lane.look(float(now_s))
    tmp_path.unlink()
    assert [line["event"] for line in logged] == ["lane-process-unheard"]
    assert "cannot be heard" in words([lane])


def test_it_is_told_by_its_standard_input_alone(start: Start) -> None:
    lane = start(IS_TOLD.format(["--lane", "3", "--supervised"]))
    wait_ended(lane)
    assert lane.close()


def test_its_address_is_the_same_after_a_restart_and_nobody_else_s_meanwhile(start: Start) -> None:
    lane = start(EXITS)
    port = lane.port
    wait_ended(lane)
    lane.look(1.0)
    with pytest.raises(OSError, match="Address already in use"):
        socket.create_server(("127.0.0.1", port))
    assert lane.port == port


def test_one_that_does_not_end_is_killed_and_that_is_no_good_end(start: Start) -> None:
    lane = start(IS_READY)
    wait_ready(lane, 1.0)
    pid = lane.condition.pid
    assert pid is not None
    assert not lane.close()
    with pytest.raises(ProcessLookupError):
        os.kill(pid, 0)


def test_lanes_that_say_the_same_are_told_of_together(tmp_path: Path) -> None:
    lanes = [lane_of(["x"], tmp_path), lane_of(["x"], tmp_path)]
    assert words(lanes) == "lane 3, 3: not started"
    for lane in lanes:
        lane.close()
