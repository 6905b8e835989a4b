"""Starts what a row says as an operator would, and takes what it shows. Rows run side by side."""

from __future__ import annotations

import ctypes
import json
import os
import shlex
import subprocess
import sys
import threading
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor, wait
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from ops.stack.ports import HOST, free_port
from tests.integration.wrong_ground import Ground
from tests.integration.wrong_starts import Row

_ROOT = Path(__file__).parents[2]
LIMIT_S = 60.0
"""Far longer than any row takes on an idle machine; the longest, a taken port, waits 10 s for it."""
_AT_ONCE = 8
_OF_SPARK = ("audit", "bulk", "forecast", "tables")
"""Commands that may start Spark, which takes both cores of a small machine: one after the other."""
_AGAIN = "node-startup-retried"
_EVENTS = {"waits": "node-startup-delayed", "refuses": "leadership-refused", "warns": "peer-host-unresolved"}


@dataclass(frozen=True, slots=True)
class Screen:
    """`line`: the one that says what is wrong. `code`: None if it did not end by itself. `rest`: what else
    was on stderr; `stopped`: how it ended when a node that stayed up was told to.
    """

    line: str
    code: int | None
    out: str
    err: str
    rest: list[str] = field(default_factory=list)
    stopped: int | None = None


class Screens:
    """The screens of rows; each is run once, from `begin` on."""

    def __init__(self, ground: Ground, mark: tuple[str, str]) -> None:
        """`mark`: a variable in the environment of every process, by which one that is left is found."""
        self._ground = ground
        self._mark = mark
        self._inherited = dict(os.environ)  # the test runner changes it while rows run
        self._pool = ThreadPoolExecutor(_AT_ONCE)
        self._of_spark = ThreadPoolExecutor(1)
        self._lock = threading.Lock()
        self._running: dict[str, Future[Screen]] = {}
        self._count = 0

    def begin(self, name: str, row: Row, expected: str | None = None) -> Future[Screen]:
        """Starts a row unless it has been. A node is listened to until it says what is expected; None: until
        it has said what is wrong.
        """
        with self._lock:
            if name not in self._running:
                self._count += 1
                pool = self._of_spark if row.command.startswith(_OF_SPARK) else self._pool
                self._running[name] = pool.submit(self._run, row, self._count, expected)
            return self._running[name]

    def wait_ended(self) -> None:
        """Until all rows that have begun have ended."""
        wait(self._running.values())

    def close(self) -> None:
        """Waits for the rows under way."""
        for pool in (self._pool, self._of_spark):
            pool.shutdown(cancel_futures=True)

    def _run(self, row: Row, number: int, expected: str | None) -> Screen:
        process = self._start(row, number)
        if isinstance(row.ends, int):
            try:
                out, err = process.communicate(timeout=LIMIT_S)
            except subprocess.TimeoutExpired:
                process.kill()
                out, err = process.communicate()
                return Screen("it did not end", None, out, err)
            return _of_command(process.returncode, self._plain(out), self._plain(err))
        return self._of_node(process, row, expected)

    def _start(self, row: Row, number: int) -> subprocess.Popen[str]:
        words = self._ground.words
        arguments = shlex.split(row.command)
        if arguments[:2] == ["node", "run"] and not row.bare:
            own = {"--data-dir": f"{words['dir']}/n{number}", "--node-id": f"n{number}"}
            own |= {"--peer-host": HOST, "--peer-port": str(free_port())}
            arguments[2:2] = [text for option in own.items() for text in option]  # the row's win
        if row.ends == "waits":
            arguments.insert(0, "--debug")  # it shows that the node asks again
        if row.file is not None:
            file = self._ground.folder / f"{number}.yaml"
            file.write_bytes(row.file if isinstance(row.file, bytes) else row.file.encode())
            arguments += ["--config", str(file)]
        arguments = [sys.executable, "-m", "ops.cli.main", *(text.format(**words) for text in arguments)]
        line = " ".join(map(shlex.quote, arguments))
        return subprocess.Popen(
            ["bash", "-o", "pipefail", "-c", f"{line} {row.shell}"] if row.shell else arguments,
            cwd=_ROOT,
            env=self._environment(row),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE if isinstance(row.ends, int) else subprocess.DEVNULL,
            stderr=subprocess.PIPE,
            text=True,
            errors="replace",
            preexec_fn=_AS_ANYBODY,  # noqa: PLW1509 - one call of the C library, nothing of Python's
        )

    def _environment(self, row: Row) -> dict[str, str]:
        words = self._ground.words
        given = {
            "DELAYLINE_BOOTSTRAP_SERVERS": words["kafka"],
            "DELAYLINE_ZOOKEEPER": words["zookeeper"],
            "DELAYLINE_CLUSTER": words["cluster"],
            self._mark[0]: self._mark[1],
        }
        chosen = {name: value.format(**words) for name, value in row.variables.items()}
        return {**self._inherited, **given, **chosen}

    def _of_node(self, process: subprocess.Popen[str], row: Row, expected: str | None) -> Screen:
        lines: list[str] = []
        heard = threading.Event()
        listener = threading.Thread(target=self._listen, args=(process, row, expected, lines, heard))
        listener.start()
        heard.wait(LIMIT_S)
        code = process.poll()
        process.terminate()
        stopped = _ended(process)
        listener.join()
        said = [text for line in lines if (text := _said(line, row))]
        line = expected if expected in said else said[-1] if said else "it said nothing"
        return Screen(line or "", code, "", "".join(lines), stopped=stopped)

    def _listen(
        self,
        process: subprocess.Popen[str],
        row: Row,
        expected: str | None,
        lines: list[str],
        heard: threading.Event,
    ) -> None:
        """Until the process ends; `heard` is set once the expected line has come (None: any that says what is
        wrong); for a node that waits, once it has asked again since then, as often as the row says.
        """
        assert process.stderr is not None
        said, again = False, 0
        for text in process.stderr:
            event = _event(text)
            if event.get("level") == "debug":
                again += event["event"] == _AGAIN
            else:
                lines.append(self._plain(text))
                line = _said(lines[-1], row)
                if line is not None and expected in {None, line}:
                    said, again = True, 0
            if said and (row.ends != "waits" or again >= row.again):
                heard.set()
        heard.set()

    def _plain(self, text: str) -> str:
        return self._ground.plain(text)


def _ended(process: subprocess.Popen[str]) -> int | None:
    """The exit code; None if it had to be killed."""
    try:
        return process.wait(LIMIT_S)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()
        return None


def _of_command(code: int, out: str, err: str) -> Screen:
    lines = err.splitlines()
    errors = [line for line in lines if line.startswith("error: ")]
    rest = [line for line in lines if line not in errors[:1]]
    return Screen(errors[0] if errors else "", code, out, err, rest)


def _event(line: str) -> dict[str, Any]:
    """A node's log line; empty for one that is none."""
    try:
        event: dict[str, Any] = json.loads(line)
    except ValueError:
        return {}
    return event


def _said(line: str, row: Row) -> str | None:
    """What a node's log line says of what is wrong, as the page has it."""
    event = _event(line)
    if event.get("event") != _EVENTS.get(str(row.ends)):
        return None
    words = [str(event[key]) for key in ("code", "host", "why", "detail", "way_out") if key in event]
    return ": ".join([event["event"], *words])


def _as_anybody() -> Callable[[], None] | None:
    """Gives up root's right to read and write what modes forbid; nothing to give up for anybody else."""
    if sys.platform != "linux" or os.geteuid() != 0:
        return None
    libc = ctypes.CDLL(None)

    def give_up() -> None:
        for capability in (1, 2):  # CAP_DAC_OVERRIDE, CAP_DAC_READ_SEARCH
            libc.prctl(24, capability, 0, 0, 0)  # PR_CAPBSET_DROP

    return give_up


_AS_ANYBODY = _as_anybody()
