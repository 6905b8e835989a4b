"""Earlier releases, as their users have them: the wheels in tests/releases, in processes of their own, with
the dependencies of the tests' environment.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import zipfile
from pathlib import Path
from typing import Final

import yaml

from node.config import NodeConfig

FIRST: Final = "0.1.0"
_TESTS: Final = Path(__file__).resolve().parents[1]
_TYPED: Final = """
import sys
from ops.cli.main import main
sys.argv[0] = "delayline"
main()
"""
# A few thousand requests are audited sooner if Spark compiles nothing for them.
_SMALL_AUDIT: Final = """
from functools import partial
import ops.spark
ops.spark.spark_session = partial(ops.spark.spark_session, compiled=False)
"""
_COMMAND_S: Final = 200.0


_NEWER: Final = {"peer_silence_ms"}
"""Settings of a node that an earlier release does not know, and refuses."""


class Release:
    """A version of the project that lies in a folder."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder

    @classmethod
    def unpacked(cls, number: str, folder: Path) -> Release:
        """An earlier one, unpacked there: wheels of Python only are no more than their files."""
        for name in ("delayline", "delayline_client"):
            with zipfile.ZipFile(_TESTS / "releases" / f"{name}-{number}-py3-none-any.whl") as wheel:
                wheel.extractall(folder)
        return cls(folder)

    def run(self, *arguments: str) -> subprocess.CompletedProcess[str]:
        """A command as an operator types it; its exit code is whatever it is."""
        return subprocess.run(
            self._typed(*arguments),
            env=self._environment(),
            cwd=self._folder,
            capture_output=True,
            text=True,
            timeout=_COMMAND_S,
            check=False,
        )

    def start_node(self, config: NodeConfig, log_file: Path) -> ReleasedProgram:
        """A node with what was chosen for it: the release may not know all that there is."""
        file = log_file.with_suffix(".yaml")
        file.write_text(yaml.safe_dump(config.model_dump(mode="json", exclude_unset=True, exclude=_NEWER)))
        with log_file.open("ab") as log:
            return ReleasedProgram(
                subprocess.Popen(
                    self._typed("node", "run", "--config", str(file)),
                    env=self._environment(),
                    cwd=self._folder,
                    stdin=subprocess.DEVNULL,
                    stdout=log,
                    stderr=log,
                )
            )

    def _typed(self, *arguments: str) -> list[str]:
        before = _SMALL_AUDIT if arguments[0] == "audit" else ""
        return [sys.executable, "-c", before + _TYPED, *arguments]

    def _environment(self) -> dict[str, str]:
        """What is on the path before all else is found first; `-c` puts the working directory, the same,
        before that.
        """
        return {**os.environ, "PYTHONPATH": str(self._folder)}


NOW: Final = Release(_TESTS.parent)
"""What is tested."""


class ReleasedProgram:
    """As `tests.support.forks.Program`."""

    def __init__(self, process: subprocess.Popen[bytes]) -> None:
        self._process = process
        self.pid: int = process.pid

    def poll(self) -> int | None:
        """The exit code, minus the signal's number if a signal ended it; None while it runs."""
        return self._process.poll()

    def wait(self, timeout_s: float | None = None) -> int:
        """The exit code. Raises `TimeoutError`."""
        try:
            return self._process.wait(timeout_s)
        except subprocess.TimeoutExpired as error:
            raise TimeoutError(f"process {self.pid} has not ended after {timeout_s} s") from error

    def signal(self, number: signal.Signals) -> None:
        """Nothing once it has ended."""
        self._process.send_signal(number)
