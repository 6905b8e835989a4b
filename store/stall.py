"""RocksDB takes no write now, since flushes or compactions are behind: how long one is tried again."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from typing import Final

import structlog

from store.kv import Stalled

log = structlog.get_logger("delayline.store")

RETRY_S: Final = 0.005
LONG_S: Final = 5.0


def write_stubbornly(write: Callable[[], None], stopping: threading.Event) -> None:
    """Tries one write again while the store stalls. Raises `Stalled` once the node is to end."""
    stall = Stall(stopping)
    while True:
        try:
            write()
        except Stalled as error:
            stall.wait(error)
        else:
            stall.over()
            return


class Stall:
    """What one write has waited. It is waited for as long as it takes, and said once when that is long; a
    node that is to end gives it up then: the log has what was not written.
    """

    def __init__(self, stopping: threading.Event) -> None:
        self._stopping = stopping
        self._begin_s = time.monotonic()
        self._said = False

    def wait(self, error: Stalled) -> None:
        """A moment before the next try. Raises the error where there is to be none."""
        if time.monotonic() - self._begin_s > LONG_S:
            if self._stopping.is_set():
                raise error
            self._say(error)
        time.sleep(RETRY_S)

    def over(self) -> None:
        """The write was taken."""
        if self._said:
            log.info("store-stall-ended", after_s=round(time.monotonic() - self._begin_s, 1))

    def _say(self, error: Stalled) -> None:
        if not self._said:
            self._said = True
            way_out = "It goes on by itself; if it lasts, see the disk: it is too slow, or fails."
            log.error("store-stalled", for_s=LONG_S, detail=str(error), way_out=way_out)
