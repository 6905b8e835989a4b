"""A run's turn: as long as it has it, no other one exports tables into the same folder."""

from __future__ import annotations

import os
import socket
import time
import uuid
from contextlib import ExitStack
from types import TracebackType
from typing import Final, Self

from delayline.times import render_time
from election.operators import Author, BulkRun
from election.registry import Registry
from node.config import ConnectionConfig
from ops.clients.zookeeper import ANSWER_TIMEOUT_S, registry
from ops.errors import ConflictError

_PATIENCE_S: Final = 2 * ANSWER_TIMEOUT_S
"""As long as the znode of a run that was killed may stand: its session, and what ZooKeeper adds to that."""
_LOOK_S: Final = 0.2


class Turn:
    """From `__enter__` to `__exit__`. Raises ConflictError if another run has it."""

    def __init__(self, config: ConnectionConfig, place: str, path: str, author: Author) -> None:
        """`place`: the folder, by a name of its own, whatever `path` it has here."""
        self._config = config
        self._place = place
        self._path = path
        self._mine = BulkRun(uuid.uuid4().hex, f"process {os.getpid()} on {socket.gethostname()}", author)
        self._ends = ExitStack()
        self._znodes: Registry | None = None

    def __enter__(self) -> Self:
        try:
            self._znodes = self._ends.enter_context(registry(self._config))
            deadline_s = time.monotonic() + _PATIENCE_S
            while (other := self._znodes.take_tables(self._place, self._mine)) is not None:
                if time.monotonic() > deadline_s:
                    raise self._taken(other)
                time.sleep(_LOOK_S)
        except BaseException:
            self._ends.close()
            raise
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._ends.close()

    def require(self) -> None:
        """Returns if it is still this run's turn: that is over with its session, whoever has come since."""
        assert self._znodes is not None, "it has begun"
        now = self._znodes.tables_run(self._place)
        if now is None:
            raise ConflictError(f"this export into {self._path} was away for too long: begin it again")
        if now != self._mine:
            raise self._taken(now)

    def _taken(self, other: BulkRun) -> ConflictError:
        return ConflictError(
            f"an export into {self._path} is under way: {other.where} has begun it, for {other.author.by}, at"
            f" {render_time(other.author.at_ms)}; wait until it ends, or end it"
        )
