"""Peers whose servers and clients run on Java."""

from __future__ import annotations

import subprocess
from collections.abc import Sequence
from pathlib import Path
from typing import Final

from bench.job import JobProcess
from bench.peers.job import Job, arguments
from ops.setup.jars import JarSet, fetched
from ops.setup.java import find_java
from ops.stack.errors import StackError
from ops.stack.jvm import classpath
from ops.stack.ports import accepts
from ops.stack.server import Server

LISTS: Final = Path(__file__).parent
"""Where the peers' lists of jars are."""
_SOURCES: Final = LISTS / "java"
HOLDER: Final = ("-Xms2g", "-Xmx2g", "-XX:MaxDirectMemorySize=4g", "-XX:+UseG1GC")
"""Options of the JVM that holds what waits."""


class JavaServer(Server):
    """A JVM that serves once its port accepts."""

    def __init__(
        self, name: str, folder: Path, port: int, jars: Sequence[Path], options: Sequence[str]
    ) -> None:
        """`options`: of the JVM, then its main class and what that is told."""
        super().__init__(name, folder, port)
        self._jars = jars
        self._options = options

    def serves(self) -> bool:
        return accepts(self.port)

    def _prepare(self) -> None:
        """Its configuration is written by its peer."""

    def _command(self) -> list[str]:
        options = [f"-Duser.home={self.data}", "-cp", classpath(list(self._jars)), *self._options]
        return [str(find_java()), *options]


def jars_of(name: str) -> list[Path]:
    """A peer's jars; fetched at the first call."""
    return fetched(JarSet.load(name, LISTS))


class JavaClient:
    """Jobs in Java, by the peer's own client."""

    def __init__(self, main: str, folder: Path, jars: Sequence[Path], options: Sequence[str] = ()) -> None:
        """`main`: the class in `java/`. Raises `StackError` if this Java cannot compile it."""
        self._main = main
        self._folder = folder
        self._jars = jars
        self._options = options
        self._compile()

    def begin(self, job: Job) -> JobProcess:
        """Does it beside what else is going on; returns once it is about to begin."""
        return self.run(arguments(job))

    def run(self, told: Sequence[str]) -> JobProcess:
        """The same, told in words."""
        command = [
            str(find_java()), f"-Duser.home={self._folder}", *self._options,
            "-cp", classpath([self._folder, *self._jars]), self._main, *told,
        ]  # fmt: skip
        process = JobProcess(self._main, command, self._folder / "client.log")
        process.wait_ready()
        return process

    def _compile(self) -> None:
        compiler = find_java().resolve().parent / "javac"
        if not compiler.exists():
            raise StackError(
                f"{compiler} is missing: the comparison needs a whole JDK (Debian: apt-get install"
                " openjdk-17-jdk-headless)"
            )
        sources = [str(_SOURCES / f"{name}.java") for name in ("Job", self._main)]
        command = [
            str(compiler),
            "-nowarn",
            "-cp",
            classpath(list(self._jars)),
            "-d",
            str(self._folder),
            *sources,
        ]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        if done.returncode:
            raise StackError(f"{self._main}.java does not compile: {done.stderr.strip()[:300]}")
