"""The supervisor of several lanes' processes: what it has for itself, and when it ends."""

from __future__ import annotations

import signal
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import uvicorn
from structlog.testing import capture_logs

from node.config import NodeConfig
from node.http.server import HttpServer
from ops.errors import ConfigError, ConflictError
from ops.lanes.process import LaneProcess
from ops.lanes.supervisor import Supervisor, alone_in
from tests.support.waiting import eventually

ENDS_WELL = """
import os, signal, sys
from node.health.systemd import ServiceManager
signal.signal(signal.SIGTERM, lambda *_: sys.exit(0))
ServiceManager(os.environ).tell(ready=True, words="leader")
while True:
    signal.pause()
"""


@pytest.fixture
def handlers() -> Iterator[None]:
    """The process's own are there again afterwards."""
    before = {number: signal.getsignal(number) for number in (signal.SIGTERM, signal.SIGINT)}
    yield
    for number, handler in before.items():
        signal.signal(number, handler)


@pytest.mark.usefixtures("handlers")
def test_it_ends_when_nobody_answers_at_its_port_any_more_and_its_processes_in_good_order(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    config = NodeConfig(bootstrap_servers="k:1", zookeeper="z:1", data_dir=tmp_path, lane=3)
    lane = LaneProcess(config, [sys.executable, "-c", ENDS_WELL], tmp_path)
    lane.publish(17500)

    def fail(*_: Any, **__: Any) -> None:
        eventually(lambda: lane.condition.ready, "its process runs")
        raise RuntimeError("no memory")

    monkeypatch.setattr(uvicorn.Server, "run", fail)
    with capture_logs() as logged:
        assert Supervisor([lane], HttpServer("127.0.0.1", 0)).run() == 1
    assert [line["event"] for line in logged] == [
        "supervisor-started",
        "lane-process-started",
        "http-stopped",
        "supervisor-failed",
        "supervisor-stopped",
    ]


def test_a_folder_has_one_supervisor_at_a_time(tmp_path: Path) -> None:
    with alone_in(tmp_path / "new"):
        why = f"^another 'delayline node run --lanes' has {tmp_path / 'new'}: "
        with pytest.raises(ConflictError, match=why), alone_in(tmp_path / "new"):
            pass
    with alone_in(tmp_path / "new"):
        pass


def test_a_folder_that_cannot_be_made_is_refused(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    why = r"^data_dir: .*/file/new cannot be used: Not a directory; "
    with pytest.raises(ConfigError, match=why), alone_in(tmp_path / "file" / "new"):
        pass
