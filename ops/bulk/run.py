"""A run of a bulk job: as long as it has the job, no other one sends for it (pipeline/bulk/lease.py)."""

from __future__ import annotations

import time
from contextlib import ExitStack
from types import TracebackType
from typing import Self

from election.operators import Author, encode
from election.znodes import Znodes
from node.config import ConnectionConfig
from ops.clients.under_way import of_this_process, take
from ops.clients.zookeeper import registry
from pipeline.bulk.lease import LEASE_S, Held


class Run:
    """Has the job from `__enter__` to `__exit__`."""

    def __init__(self, config: ConnectionConfig, job: str, author: Author) -> None:
        self.job, self.author = job, author
        self._config = config
        self._ends = ExitStack()
        self._mine = of_this_process(self.author)
        self._taken_s = 0.0

    def __enter__(self) -> Self:
        """Raises ConflictError: another run has the job."""
        try:
            self._take()
        except BaseException:
            self._ends.close()
            raise
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._ends.close()

    @property
    def held(self) -> Held:
        """By which its tasks know that it has the job."""
        path = Znodes(self._config.cluster).bulk_run(self.job)
        return Held(path, encode(self._mine).decode(), self._config.kazoo_options())

    def take_anew(self) -> None:
        """Of what was begun before, no task may go on. Raises ConflictError if another run has taken the job
        meanwhile.
        """
        self._ends.close()
        self._mine = of_this_process(self.author)
        self._take()

    def settle(self) -> None:
        """Waits until nobody who had the job before sends any more."""
        time.sleep(max(0.0, self._taken_s + LEASE_S - time.monotonic()))

    def _take(self) -> None:
        znodes = self._ends.enter_context(registry(self._config))
        take(lambda: znodes.take_bulk(self.job, self._mine), f"job {self.job}")
        self._taken_s = time.monotonic()
