"""`delayline tables` in a process of its own that kills itself on its way, for the tests.

Each line of its input is a command: at which step to die (0: never), and what is typed. Each line of its
output says how that has ended: exit code, standard output, standard error, and its steps, by what each does,
and to what. A step is whatever may be the last thing that it does to the folder: before and after a frame is
written, and a file written, renamed, moved to its place or deleted.

What is over is closed at once, and the small frames of the tests are interpreted.
"""

from __future__ import annotations

import contextlib
import functools
import io
import json
import os
import signal
import sys
from collections.abc import Callable
from typing import Any, Final

import pipeline.watch.round
from ops.cli.main import run
from pipeline.hadoop import HadoopFiles
from pipeline.tables.place import Place
from pipeline.watch.state import StateFolder

AT_ONCE_MS: Final = -(10**9)
"""A margin by which all that is over is closed at once."""


class Steps:
    """Lists them, and kills the process at one."""

    def __init__(self) -> None:
        self.done: list[str] = []
        self._last = 0

    def begin(self, last: int) -> None:
        self.done, self._last = [], last

    def around(self, kind: Any, name: str) -> None:
        """A step before a method and one after it."""
        method: Callable[..., Any] = getattr(kind, name)

        def stepping(*args: Any, **named: Any) -> Any:
            said = f"{name} {args[1]}"
            self._step(said)
            result = method(*args, **named)
            self._step(said)
            return result

        setattr(kind, name, stepping)

    def _step(self, said: str) -> None:
        self.done.append(said)
        if len(self.done) == self._last:
            os.kill(os.getpid(), signal.SIGKILL)


def main() -> None:
    steps = Steps()
    for kind, name in (
        (StateFolder, "write"),
        (Place, "_stage"),
        (HadoopFiles, "write"),
        (HadoopFiles, "_rename"),
        (HadoopFiles, "delete"),
    ):
        steps.around(kind, name)
    at_once = functools.partial(pipeline.watch.round.WatchConfig, margin_ms=AT_ONCE_MS)
    pipeline.watch.round.WatchConfig = at_once  # type: ignore[misc, assignment]
    for line in sys.stdin:
        last, words = json.loads(line)
        steps.begin(last)
        out, err = io.StringIO(), io.StringIO()
        with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
            code = run(words)
        print(json.dumps([code, out.getvalue(), err.getvalue(), steps.done]), flush=True)


if __name__ == "__main__":
    main()
