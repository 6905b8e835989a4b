"""A run's turn: as long as it has it, no other one exports tables into the same folder."""

from __future__ import annotations

from contextlib import ExitStack
from types import TracebackType
from typing import Self

from election.operators import Author
from election.registry import Registry
from node.config import ConnectionConfig
from ops.clients.under_way import of_this_process, take, taken
from ops.clients.zookeeper import registry
from ops.errors import ConflictError


class Turn:
    """From `__enter__` to `__exit__`. Raises ConflictError if another run has it."""

    def __init__(self, config: ConnectionConfig, place: str, path: str, author: Author) -> None:
        """`place`: the folder, by a name of its own, whatever `path` it has here."""
        self._config = config
        self._place = place
        self._path = path
        self._what = f"an export into {path}"
        self._mine = of_this_process(author)
        self._ends = ExitStack()
        self._znodes: Registry | None = None

    def __enter__(self) -> Self:
        try:
            znodes = self._znodes = self._ends.enter_context(registry(self._config))
            take(lambda: znodes.take_tables(self._place, self._mine), self._what)
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
            raise taken(now, self._what)
