"""A worker: one thing that a node does all the time, on a thread of its own, until it is asked to stop.

All are made from `Worker` but two kinds. What answers over HTTP is ended by way of its server, and nobody
could ask for its health but by it (node/http/server.py). The session, the candidacy and the peers (election/)
know nothing of nodes: who starts them puts their threads on the roster.
"""

from __future__ import annotations

import threading
from abc import ABC, abstractmethod
from collections.abc import Callable


class Roster:
    """Which threads of a node should run, and what becomes of an error that ends one. For any thread.

    A worker stands on it from its start until it is asked to stop.
    """

    def __init__(self, mend: Callable[[Exception], bool] = lambda _: False) -> None:
        """`mend`: takes an error that has ended a worker. False if nothing can be done about it."""
        self.mend = mend
        self._changing = threading.Lock()
        self._expected: set[threading.Thread] = set()
        self._died: list[str] = []

    def start(self, thread: threading.Thread) -> None:
        """Starts it; it should run from now on."""
        with self._changing:  # it may end before anybody else gets here
            thread.start()
            self._expected.add(thread)

    def expect(self, *threads: threading.Thread) -> None:
        """They have been started, and should run from now on."""
        with self._changing:
            self._expected.update(threads)

    def release(self, *threads: threading.Thread) -> None:
        """They may end."""
        with self._changing:
            self._expected.difference_update(threads)

    def died(self, name: str) -> None:
        """A thread of that name ends on an error, be it a worker's or not: that is not forgotten."""
        self._died.append(name)

    def dead(self) -> list[str]:
        """The names of those that should run and do not."""
        with self._changing:
            ended = {one.name for one in self._expected if not one.is_alive()}
        return sorted(ended.union(self._died))


class Bell:
    """Wakes who waits for it. One waits; any thread rings. What rings before the wait ends it at once."""

    def __init__(self) -> None:
        self._rung = threading.Event()

    def ring(self) -> None:
        """Something has changed."""
        self._rung.set()

    def silence(self) -> None:
        """What has rung so far is not waited for."""
        self._rung.clear()

    def wait(self, seconds: float | None = None) -> None:
        """Until it rings, or for so long."""
        self._rung.wait(seconds)
        self._rung.clear()


class Worker(ABC):
    """`start` once, `stop` once, then `join`. An error that ends the thread goes to who has started it."""

    def __init__(self, name: str, *, bell: Bell | None = None, end_timeout_s: float | None = None) -> None:
        """`bell`: what wakes the worker, if others have it, too; it rings at `stop`. `end_timeout_s`:
        how long to wait for the thread's end, where it may wait for somebody who does not answer.
        """
        self._bell = bell or Bell()
        self._end_timeout_s = end_timeout_s
        self._asked_to_stop = threading.Event()
        self._roster: Roster | None = None
        self._thread = threading.Thread(target=self._live, name=name, daemon=True)

    def start(self, roster: Roster) -> None:
        """Starts the thread."""
        self._roster = roster
        roster.start(self._thread)

    def stop(self) -> None:
        """Asks the thread to end."""
        if self._roster is not None:
            self._roster.release(self._thread)
        self._asked_to_stop.set()
        self._bell.ring()

    def join(self) -> None:
        """Waits for the end of the thread; closes what one would have held that was never started."""
        if self._roster is None:
            self._close()
        else:
            self._thread.join(self._end_timeout_s)

    @property
    def stopping(self) -> bool:
        """Whether it was asked to stop."""
        return self._asked_to_stop.is_set()

    def wait(self, seconds: float) -> bool:
        """A while, or until it is asked to stop: whether it was."""
        return self._asked_to_stop.wait(seconds)

    @abstractmethod
    def _run(self) -> None:
        """What the thread does. It returns once `stopping`, and soon."""

    def _close(self) -> None:  # noqa: B027 - most hold nothing
        """Lets go of what the thread has held."""

    def _live(self) -> None:
        assert self._roster is not None, "started"
        try:
            self._run()
        except Exception as error:
            if not self._roster.mend(error):
                raise
            self._roster.release(self._thread)
        finally:
            self._close()
