"""Whether a task may send: as long as its run is the one that its bulk job has.

That a run has the job stands in a znode (election/registry.py, `take_bulk`), which ends with the run's
session. The run's own process cannot tell its tasks that it does: they run in other processes, which go on
when it is stopped. So each task looks for itself, and sends for `LEASE_S` after it has begun to look at the
last time that it was so. Whoever takes the job over waits as long before it reads what the others have sent.
"""

from __future__ import annotations

import sys
import threading
import time
from types import TracebackType
from typing import Any, Final, Self

import msgspec

from election.errors import ElectionError, ZnodeMissing
from election.session import Session
from pipeline.errors import SendingEnded

LEASE_S: Final = 3.0
_LOOK_S: Final = 0.5
_CONNECT_S: Final = 10.0


class Held(msgspec.Struct, frozen=True):
    """What a task is told: the znode, what stands there for its run, and how ZooKeeper is reached (keyword
    arguments of a `KazooClient`).
    """

    path: str
    said: str
    zookeeper: dict[str, Any]

    def to_json(self) -> str:
        """For an option of the sink."""
        return msgspec.json.encode(self).decode()

    @classmethod
    def from_json(cls, text: str) -> Self:
        """Reads `to_json`'s text."""
        held = msgspec.json.decode(text, type=cls)
        pairs = [tuple(pair) for pair in held.zookeeper.get("auth_data", ())]
        return msgspec.structs.replace(held, zookeeper=held.zookeeper | {"auth_data": pairs})


def _now_s() -> float:
    """By a clock that goes on while the machine is suspended, where there is one: others' clocks do."""
    return time.clock_gettime(time.CLOCK_BOOTTIME) if sys.platform == "linux" else time.monotonic()


class Lease:
    """One task's. `require` is for its own thread; another one looks."""

    def __init__(self, held: Held) -> None:
        self._held = held
        self._session = Session(held.zookeeper, timeout_s=LEASE_S)
        self._confirmed_s = float("-inf")
        self._is_over = False
        self._ending = threading.Event()
        self._thread = threading.Thread(target=self._watch, name="lease", daemon=True)

    def __enter__(self) -> Self:
        self._session.start()
        try:
            self._session.wait_connected(_CONNECT_S)
            self._look()
        except ElectionError as error:
            self._session.stop()
            raise SendingEnded(f"a task cannot ask whether it may send: {error}") from error
        self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._ending.set()
        self._thread.join()
        self._session.stop()

    def require(self) -> None:
        """Raises SendingEnded unless the task may send."""
        if self._is_over:
            raise SendingEnded(f"{self._held.path} is this run's no more")
        if _now_s() - self._confirmed_s > LEASE_S:
            raise SendingEnded(f"ZooKeeper did not say in time whether {self._held.path} is this run's yet")

    def _watch(self) -> None:
        while not self._is_over and not self._ending.wait(_LOOK_S):
            try:
                self._look()
            except ElectionError:
                continue  # what was confirmed holds for its time

    def _look(self) -> None:
        begun_s = _now_s()
        try:
            self._session.sync(self._held.path)
            said, _ = self._session.read(self._held.path)
        except ZnodeMissing:
            said = b""
        if said == self._held.said.encode():
            self._confirmed_s = begun_s
        else:
            self._is_over = True
