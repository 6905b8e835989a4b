"""A run of a bulk job: as long as it has the job, no other one sends for it (pipeline/bulk/lease.py)."""

from __future__ import annotations

import os
import socket
import time
import uuid
from contextlib import ExitStack
from types import TracebackType
from typing import Final, Self

from delayline.times import render_time
from election.operators import Author, BulkRun, encode
from election.znodes import Znodes
from node.config import ConnectionConfig
from ops.clients.zookeeper import ANSWER_TIMEOUT_S, registry
from ops.errors import ConflictError
from pipeline.bulk.lease import LEASE_S, Held

_PATIENCE_S: Final = 2 * ANSWER_TIMEOUT_S
"""As long as the znode of a run that was killed may stand: its session, and what ZooKeeper adds to that."""
_LOOK_S: Final = 0.2


class Run:
    """Has the job from `__enter__` to `__exit__`."""

    def __init__(self, config: ConnectionConfig, job: str, author: Author) -> None:
        self.job, self.author = job, author
        self._config = config
        self._where = f"process {os.getpid()} on {socket.gethostname()}"
        self._ends = ExitStack()
        self._mine = self._anew()
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
        self._mine = self._anew()
        self._take()

    def settle(self) -> None:
        """Waits until nobody who had the job before sends any more."""
        time.sleep(max(0.0, self._taken_s + LEASE_S - time.monotonic()))

    def _anew(self) -> BulkRun:
        return BulkRun(uuid.uuid4().hex, self._where, self.author)

    def _take(self) -> None:
        znodes = self._ends.enter_context(registry(self._config))
        deadline_s = time.monotonic() + _PATIENCE_S
        while (other := znodes.take_bulk(self.job, self._mine)) is not None:
            if time.monotonic() > deadline_s:
                raise ConflictError(
                    f"job {self.job} is under way: {other.where} has begun it, for {other.author.by}, at"
                    f" {render_time(other.author.at_ms)}; wait until it ends, or end it"
                )
            time.sleep(_LOOK_S)
        self._taken_s = time.monotonic()
