"""The membership role: shows the node's status in its member znode, once a second.

On a thread of its own, which asks nobody but ZooKeeper: whoever does not answer, a node that lives says so.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Final

PERIOD_S: Final = 1.0
END_TIMEOUT_S: Final = 1.0


class Membership:
    """Runs until stopped."""

    def __init__(self, publish: Callable[[], None]) -> None:
        """`publish`: writes the status, if there is one to write."""
        self._publish = publish
        self._stopping = threading.Event()
        self._thread = threading.Thread(target=self._run, name="membership", daemon=True)

    def start(self) -> None:
        """Starts the thread."""
        self._thread.start()

    def stop(self) -> None:
        """Asks the thread to end."""
        self._stopping.set()

    def join(self) -> None:
        """Waits for the end of the thread, but not for a ZooKeeper that does not answer."""
        self._thread.join(END_TIMEOUT_S)

    def _run(self) -> None:
        while not self._stopping.wait(PERIOD_S):
            self._publish()
