"""A node process that tests start, signal and listen to."""

from __future__ import annotations

import json
import signal
from pathlib import Path
from typing import Any, Protocol

from node.config import NodeConfig
from tests.support.forks import Program
from tests.support.waiting import PATIENCE_S, eventually


class Process(Protocol):
    """See `tests.support.forks.Program`."""

    pid: int

    def poll(self) -> int | None: ...

    def wait(self, timeout_s: float | None = None) -> int: ...

    def signal(self, number: signal.Signals) -> None: ...


class RunningNode:
    """A node in a process of its own; its log is JSON lines in a file."""

    def __init__(self, config: NodeConfig, log_file: Path, process: Process) -> None:
        self.node_id = config.node_id
        self.config = config
        self._log_file = log_file
        self._process = process

    @property
    def pid(self) -> int:
        return self._process.pid

    @property
    def running(self) -> bool:
        return self._process.poll() is None

    def arm(self) -> None:
        """From now on it dies at its step."""
        self._signal(signal.SIGUSR1)

    def set_clock(self) -> None:
        """Right if it was wrong, and the other way round."""
        self._signal(signal.SIGUSR2)

    def kill(self) -> None:
        """SIGKILL; returns when it is gone."""
        self._signal(signal.SIGKILL)
        self._process.wait()

    def pause(self) -> None:
        """SIGSTOP; returns when it has stopped."""
        self._signal(signal.SIGSTOP)
        self.wait_paused()

    def wait_paused(self) -> None:
        """Until SIGSTOP has stopped it, whoever sent it."""
        eventually(lambda: is_stopped(self.pid), f"{self.node_id} is stopped")

    def resume(self) -> None:
        """SIGCONT."""
        self._signal(signal.SIGCONT)

    def terminate(self) -> None:
        """SIGTERM."""
        self._signal(signal.SIGTERM)

    def wait_exit(self, timeout_s: float = PATIENCE_S) -> int:
        """The exit code; minus the signal's number if a signal ended it."""
        return self._process.wait(timeout_s)

    def events(self, name: str) -> list[dict[str, Any]]:
        """What it has logged under this name so far."""
        return [line for line in self._lines() if line.get("event") == name]

    def wait_event(self, name: str) -> dict[str, Any]:
        """The last log line of this name, once there is one."""
        return eventually(lambda: self.events(name), f"{self.node_id} logs {name}")[-1]

    def log_text(self) -> str:
        """The log as it is."""
        return self._log_file.read_text()

    def close(self) -> None:
        """End it, in whatever state it is."""
        self.kill()

    def _signal(self, number: signal.Signals) -> None:
        self._process.signal(number)

    def _lines(self) -> list[dict[str, Any]]:
        lines = []
        for line in self._log_file.read_text().splitlines():
            try:
                lines.append(json.loads(line))
            except ValueError:
                continue  # a half-written line, or the interpreter's own words
        return lines


class NodeProcess(RunningNode):
    """A running tests/support/killable_node.py."""

    def __init__(
        self,
        config: NodeConfig,
        log_file: Path,
        *,
        step: str | None = None,
        signal_name: str = "SIGKILL",
        delay_s: float = 0.0,
        acknowledged: bool = False,
        carried: int = 0,
        clock_offset_ms: int = 0,
        brokers_too: bool = False,
        prefers_after_s: float = 0.0,
        cannot_lead: bool = False,
    ) -> None:
        given = {
            "config": config.model_dump(mode="json", exclude_none=True),
            "step": step,
            "signal": signal_name,
            "delay_s": delay_s,
            "acknowledged": acknowledged,
            "carried": carried,
            "clock_offset_ms": clock_offset_ms,
            "brokers_too": brokers_too,
            "prefers_after_s": prefers_after_s,
            "cannot_lead": cannot_lead,
        }
        program = Program("tests.support.killable_node", [json.dumps(given)], log_file)
        super().__init__(config, log_file, program)


def is_stopped(pid: int) -> bool:
    """Whether SIGSTOP has stopped every thread of a process: they stop one after the other."""
    try:
        stats = [file.read_text() for file in Path(f"/proc/{pid}/task").glob("*/stat")]
    except OSError:
        return False  # one of them has just ended
    return bool(stats) and all(stat.rpartition(")")[2].split()[0] == "T" for stat in stats)
