"""`delayline pending` in a process of its own that kills itself on its way, for the tests.

Takes how many messages a transaction has, and at which step to die (0: never); then what is typed. A step is
whatever may be the last thing that it does: to begin a transaction, to have sent its cancels, to commit it or
to have done so, to have the outcomes, to write a part of the file or to put it in its place.
"""

from __future__ import annotations

import os
import signal
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

from ops.cli.main import run
from ops.pending import export, imports
from ops.pending.journal import Journal
from ops.pending.signed_topic import Transactions
from ops.pending.take import Taker, _Answers


class Steps:
    """Counts them, and kills the process at one."""

    def __init__(self, last: int) -> None:
        self._left = last

    def step(self) -> None:
        self._left -= 1
        if self._left == 0:
            os.kill(os.getpid(), signal.SIGKILL)

    def around(self, kind: Any, name: str) -> None:
        """A step before a method and one after it."""
        method: Callable[..., Any] = getattr(kind, name)

        def stepping(*args: Any, **named: Any) -> Any:
            self.step()
            result = method(*args, **named)
            self.step()
            return result

        setattr(kind, name, stepping)


def main() -> None:
    most, last, *words = sys.argv[1:]
    export.MOST_TAKEN = imports.MOST_SENT = int(most)  # type: ignore[misc]
    steps = Steps(int(last))
    if any(word.startswith("parquet:") for word in words):
        from pyarrow.parquet import ParquetWriter

        from ops.pending import parquet

        parquet._GROUP_ROWS = 20  # type: ignore[misc]
        steps.around(ParquetWriter, "write_batch")
    for kind, name in (
        (Transactions, "begin"),
        (Transactions, "commit"),
        (Taker, "_cancel"),
        (_Answers, "wait"),
        (Journal, "state"),
        (Path, "replace"),
    ):
        steps.around(kind, name)
    sys.exit(run(words))


if __name__ == "__main__":
    main()
