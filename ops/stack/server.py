"""One server of the stack as a process: start, stop, kill, and again on the same data and port."""

from __future__ import annotations

import contextlib
import subprocess
import sys
import time
from abc import ABC, abstractmethod
from pathlib import Path

from ops.stack import supervisor
from ops.stack.errors import StackError
from ops.stack.ports import HOST, wait_free

START_LIMIT_S = 120.0
STOP_LIMIT_S = 15.0


class Server(ABC):
    """A JVM under its own supervisor process (see `ops.stack.supervisor`).

    It ends with the process that started it. Calls come from one thread at a time.

    Args:
        name: what it is called in errors and file names.
        folder: the stack's data folder; the server's data is in ``folder/name``, its log in ``folder/logs``.
        port: where it listens, on the loopback.
    """

    def __init__(self, name: str, folder: Path, port: int) -> None:
        self.name = name
        self.port = port
        self.data = folder / name
        self.log = folder / "logs" / f"{name}.log"
        self.console = folder / "logs" / f"{name}.out"
        self._supervisor: subprocess.Popen[bytes] | None = None
        self._pid: int | None = None

    @property
    def address(self) -> str:
        return f"{HOST}:{self.port}"

    @property
    def running(self) -> bool:
        supervisor = self._supervisor  # others may look while it is ended
        return supervisor is not None and supervisor.poll() is None

    @property
    def pid(self) -> int | None:
        """The JVM's process id (to pause it, say), None while it is not running."""
        pid = self._pid
        return pid if self.running else None

    def start(self) -> None:
        """Start it and wait until it serves.

        Raises:
            StackError: it ended, or did not serve within 2 minutes; names the log.
        """
        self.launch()
        self.wait_ready()

    def launch(self) -> None:
        """Start it without waiting, so that several can start side by side."""
        if self.running:
            raise StackError(f"{self.name} is running already (process {self._pid}): stop it first")
        self._ended(0)  # lets go of one that ended by itself
        self.data.mkdir(parents=True, exist_ok=True)
        self.log.parent.mkdir(parents=True, exist_ok=True)
        wait_free(self.port, timeout_s=2 * supervisor.GRACE_S)
        self._prepare()
        command = [sys.executable, "-I", "-S", supervisor.__file__, str(self.console), *self._command()]
        self._supervisor = subprocess.Popen(
            command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, bufsize=0, start_new_session=True
        )
        assert self._supervisor.stdout is not None
        self._pid = int(self._supervisor.stdout.readline() or 0) or None

    def wait_ready(self, timeout_s: float = START_LIMIT_S) -> None:
        """Wait until the service answers; see `start` for the errors."""
        deadline = time.monotonic() + timeout_s
        while not self.serves():
            if not self.running:
                raise StackError(f"{self.name} ended while starting: {self._last_words()}; log: {self.log}")
            if time.monotonic() > deadline:
                self.kill()
                raise StackError(f"{self.name} did not serve within {timeout_s} s; log: {self.log}")
            time.sleep(0.02)

    def terminate(self) -> None:
        """Send SIGTERM and return at once."""
        self._order(b"T")

    def stop(self, timeout_s: float = STOP_LIMIT_S) -> None:
        """SIGTERM, and SIGKILL if it has not ended after `timeout_s`; returns when it is gone."""
        self.terminate()
        if not self._ended(timeout_s):
            self.kill()

    def kill(self) -> None:
        """SIGKILL; returns when it is gone."""
        self._order(b"K")
        self._ended(STOP_LIMIT_S)

    @abstractmethod
    def serves(self) -> bool:
        """Ask the service itself whether it is up; quick, and False rather than an error."""

    @abstractmethod
    def _prepare(self) -> None:
        """Write its configuration."""

    @abstractmethod
    def _command(self) -> list[str]:
        """The JVM's command line."""

    def _order(self, order: bytes) -> None:
        if self._supervisor is not None and self._supervisor.stdin is not None:
            with contextlib.suppress(OSError, ValueError):  # it has ended by itself
                self._supervisor.stdin.write(order)

    def _ended(self, timeout_s: float) -> bool:
        if self._supervisor is None:
            return True
        try:
            self._supervisor.wait(timeout_s)
        except subprocess.TimeoutExpired:
            return False
        for pipe in (self._supervisor.stdin, self._supervisor.stdout):
            if pipe is not None:
                pipe.close()
        self._supervisor = None
        return True

    def _last_words(self) -> str:
        for file in (self.console, self.log):
            lines = file.read_text(errors="replace").strip().splitlines() if file.exists() else []
            if lines:
                return lines[-1][:300]
        return "it said nothing"
