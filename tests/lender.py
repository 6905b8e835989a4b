"""One local stack for all workers of a run: the process that runs them lends it."""

from __future__ import annotations

from multiprocessing.connection import Client, Listener
from pathlib import Path
from threading import Thread

from ops.stack import LocalStack
from tests.stacks import GivenStack


class Lender:
    """Starts a stack when the first worker asks for it. It ends with this process, however that ends."""

    def __init__(self) -> None:
        self._listener = Listener(family="AF_UNIX")
        self._stack: LocalStack | None = None
        Thread(target=self._serve, daemon=True).start()

    @property
    def address(self) -> str:
        """Where workers ask."""
        return str(self._listener.address)

    def close(self) -> None:
        """Ends the stack; no worker is left."""
        if self._stack is not None:
            self._stack.stop()
        self._listener.close()

    def _serve(self) -> None:
        while True:
            with self._listener.accept() as worker:
                folder: Path = worker.recv()
                try:
                    worker.send(self._lent(folder))
                except Exception as error:  # the worker raises it
                    worker.send(error)

    def _lent(self, folder: Path) -> GivenStack:
        if self._stack is None:
            stack = LocalStack(folder)
            stack.start()
            self._stack = stack
        return GivenStack(self._stack.bootstrap, self._stack.zookeeper)


def borrowed(address: str, folder: Path) -> GivenStack:
    """The run's stack; `folder` is for its data if it does not run yet. Raises what it failed with."""
    with Client(address, family="AF_UNIX") as lender:
        lender.send(folder)
        answer = lender.recv()
    if isinstance(answer, Exception):
        raise answer
    assert isinstance(answer, GivenStack)
    return answer
