"""Programs of the tests, each in a process of its own, forked from one that has imported what they need: a
node starts in a tenth of a second instead of a whole one, most of which were imports.

What a worker forks shares the secret that strings are hashed with. Nodes that an operator would start, as in
the demo and in the tests of the command line, do not.
"""

from __future__ import annotations

import importlib
import multiprocessing
import os
import signal
import sys
import threading
from multiprocessing.connection import wait
from pathlib import Path
from typing import Final

_FORKS: Final = multiprocessing.get_context("forkserver")
_FORKS.set_forkserver_preload(["tests.support.killable_node"])


class Program:
    """A running `main` of a module, with these arguments; what it writes is added to its log.

    It ends with the process that started it.
    """

    def __init__(self, module: str, arguments: list[str], log_file: Path) -> None:
        log_file.touch()
        self._process = _FORKS.Process(
            target=_run, args=(module, arguments, log_file, dict(os.environ)), daemon=True
        )
        self._process.start()
        assert self._process.pid is not None, "it has started"
        self.pid: int = self._process.pid

    def poll(self) -> int | None:
        """The exit code, minus the signal's number if a signal ended it; None while it runs."""
        return self._process.exitcode

    def wait(self, timeout_s: float | None = None) -> int:
        """The exit code. Raises `TimeoutError`."""
        self._process.join(timeout_s)
        code = self._process.exitcode
        if code is None:
            raise TimeoutError(f"process {self.pid} has not ended after {timeout_s} s")
        return code

    def signal(self, number: signal.Signals) -> None:
        """Nothing once it has ended: its process id may be another's by then."""
        if self.poll() is None:
            os.kill(self.pid, number)


def _run(module: str, arguments: list[str], log_file: Path, environment: dict[str, str]) -> None:
    os.environ.clear()
    os.environ.update(environment)
    log = os.open(log_file, os.O_WRONLY | os.O_APPEND)
    os.dup2(log, 1)
    os.dup2(log, 2)
    sys.argv = [module, *arguments]
    threading.Thread(target=_end_with_parent, daemon=True).start()
    sys.exit(importlib.import_module(module).main())


def _end_with_parent() -> None:
    parent = multiprocessing.parent_process()
    assert parent is not None, "forked"
    wait([parent.sentinel])
    os._exit(3)
