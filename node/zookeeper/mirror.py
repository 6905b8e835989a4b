"""The mirror worker: the leader's last checkpoint into the lane's znode, at most five times a second.

On a thread of its own, so that a ZooKeeper that is slow or away never holds a delivery back.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Final

import structlog

from election.errors import ElectionError, Superseded
from election.registry import CheckpointMirror
from node.worker import Worker
from store.checkpoint import Checkpoint

log = structlog.get_logger("delayline.mirror")

PERIOD_S: Final = 0.2


class Mirror(Worker):
    """Writes the newest checkpoint handed over; older ones that were not written yet are passed over."""

    def __init__(self, mirror: CheckpointMirror, written: Callable[[], None]) -> None:
        """`written` is called on the thread after each write."""
        super().__init__("mirror")
        self._mirror = mirror
        self._written = written
        self._handing_over = threading.Lock()
        self._newest: Checkpoint | None = None
        self._writes = True  # the last write went well: an outage is said once

    def put(self, checkpoint: Checkpoint) -> None:
        """Hands a checkpoint over. Never blocks."""
        with self._handing_over:
            self._newest = checkpoint
        self._bell.ring()

    def _run(self) -> None:
        while not self.stopping:
            self._bell.wait()
            self._write_newest()
            self.wait(PERIOD_S)
        self._write_newest()

    def _write_newest(self) -> None:
        with self._handing_over:
            checkpoint, self._newest = self._newest, None
        if checkpoint is not None:
            self._write(checkpoint)

    def _write(self, checkpoint: Checkpoint) -> None:
        try:
            self._mirror.write(checkpoint.encode())
        except Superseded as error:
            log.warning("mirror-superseded", detail=str(error))  # the next commit shows that it is fenced
        except ElectionError as error:
            if self._writes:
                log.warning("mirror-write-failed", detail=str(error))
            self._writes = False
        else:
            self._writes = True
            self._written()
