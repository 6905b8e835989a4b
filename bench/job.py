"""Processes of the benchmark's own: a job as JSON in, a result as JSON out, on a line of stdout each.

What measures and what makes the load run beside the service, each with an interpreter of its own, as they
would in an application. A job's process ends with the benchmark, whose end closes its stdin.
"""

from __future__ import annotations

import contextlib
import gc
import json
import os
import subprocess
import sys
import threading
from collections.abc import Callable, Sequence
from pathlib import Path
from types import TracebackType
from typing import Any, Final, Self

_FAILED: Final = "failed: "


class JobFailed(Exception):
    """A job ended without a result; one line: which, and why."""


class JobProcess:
    """A job in a process of its own. As a context manager it is ended at the end."""

    def __init__(self, name: str, command: Sequence[str], log: Path | None = None) -> None:
        """`log`: what it says beside its answers; else that goes where this process's own does."""
        self._name = name
        with contextlib.nullcontext() if log is None else log.open("ab") as errors:
            self._process = subprocess.Popen(
                command,
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=errors,
                text=True,
                start_new_session=True,
            )

    @property
    def pid(self) -> int:
        """Its id."""
        return self._process.pid

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._process.kill()
        self._process.wait()
        for pipe in (self._process.stdin, self._process.stdout):
            assert pipe is not None, "both are pipes"
            pipe.close()

    def wait_ready(self) -> None:
        """Waits until it is about to begin. Raises `JobFailed`."""
        self._line()

    def result(self) -> Any:
        """Waits for its end. Raises `JobFailed`."""
        return json.loads(self._line())

    def _line(self) -> str:
        assert self._process.stdout is not None, "it is a pipe"
        line = self._process.stdout.readline()
        if line.startswith(_FAILED):
            raise JobFailed(f"{self._name}: {line.removeprefix(_FAILED).strip()}")
        if not line:
            raise JobFailed(f"{self._name} has ended: exit code {self._process.wait()}")
        return line


def python_job(module: str, job: dict[str, Any]) -> JobProcess:
    """`python -m MODULE JOB`."""
    return JobProcess(module, [sys.executable, "-m", module, json.dumps(job)])


def work(module: str, job: dict[str, Any]) -> Any:
    """Runs a job to its end and gives its result. Raises `JobFailed`."""
    with python_job(module, job) as process:
        process.wait_ready()
        return process.result()


def serve(do: Callable[[dict[str, Any], Callable[[], None]], Any]) -> None:
    """The process's side. `do` gets the job and what to call when it is ready; it returns the result."""
    threading.Thread(target=_end_with_parent, daemon=True).start()
    gc.disable()  # a collection would be measured
    try:
        said = json.dumps(do(json.loads(sys.argv[1]), _say_ready))
    except Exception as error:
        kind = "" if isinstance(error, TimeoutError) else f"{type(error).__name__}: "
        said = f"{_FAILED}{kind}{' '.join(str(error).split())}"
    print(said, flush=True)  # noqa: T201 - the protocol


def _say_ready() -> None:
    print("ready", flush=True)  # noqa: T201 - the protocol


def _end_with_parent() -> None:
    sys.stdin.read()
    os._exit(3)
