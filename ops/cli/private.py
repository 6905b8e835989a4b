"""What a command writes that nobody else is to read."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager


@contextmanager
def files_of_its_own() -> Iterator[None]:
    """What is written meanwhile only its owner can read, and enter: a node's view has the cluster's keys in
    it, and what waits. The mask is the process's, of all its threads.
    """
    before = os.umask(0o077)
    try:
        yield
    finally:
        os.umask(before)
