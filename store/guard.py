"""What the parts of a view have in common: its locks, and how a write is tried again under them.

*The lock* makes each of these atomic with respect to the others: taking in a batch, a selection, an
alignment, the record of a commit, and each step of pruning and of forgetting. Rule 1 (docs/design.md) needs
no more than that. *Removing* is taken before it, for a step at a time, by what deletes rows, ids and sources.
What a batch asks for is read without the lock (store/prefetch.py). If something was removed meanwhile, it is
read again under *removing*, so that nothing goes until the batch is applied.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from functools import wraps
from typing import Concatenate, ParamSpec, Protocol, TypeVar

from store.kv import Stalled
from store.stall import Stall


class Guard:
    """One view's locks. `stopping`: a write that is refused for long is given up."""

    def __init__(self) -> None:
        self.lock = threading.Lock()
        self.removing = threading.Lock()
        self.stopping = threading.Event()
        self.removals = 0  # how often what a batch has prefetched may have changed; written under the lock


class Guarded(Protocol):
    """A part of a view."""

    guard: Guard


G = TypeVar("G", bound=Guarded)
P = ParamSpec("P")
R = TypeVar("R")


def retry_stalled(method: Callable[Concatenate[G, P], R]) -> Callable[Concatenate[G, P], R]:
    """Runs the method under the lock, again where RocksDB could not take the write at once. Raises `Stalled`
    once it has lasted, if the node is to end.
    """

    @wraps(method)
    def run(part: G, /, *args: P.args, **kwargs: P.kwargs) -> R:
        stall: Stall | None = None
        while True:
            with part.guard.lock:
                try:
                    done = method(part, *args, **kwargs)
                    break
                except Stalled as error:
                    refused = error
            stall = stall or Stall(part.guard.stopping)
            stall.wait(refused)
        if stall is not None:
            stall.over()
        return done

    return run
