"""Runs of which one at a time may be at something, as long as its session with ZooKeeper lasts."""

from __future__ import annotations

import os
import socket
import time
import uuid
from collections.abc import Callable
from typing import Final

from delayline.times import render_time
from election.operators import Author, UnderWay
from ops.clients.zookeeper import ANSWER_TIMEOUT_S
from ops.errors import ConflictError

_PATIENCE_S: Final = 2 * ANSWER_TIMEOUT_S
"""As long as the znode of a run that was killed may stand: its session, and what ZooKeeper adds to that."""
_LOOK_S: Final = 0.2


def of_this_process(author: Author) -> UnderWay:
    """A run of its own."""
    return UnderWay(uuid.uuid4().hex, f"process {os.getpid()} on {socket.gethostname()}", author)


def take(attempt: Callable[[], UnderWay | None], what: str) -> None:
    """Tries until nobody else has it. `attempt`: takes it, or says who has it; `what` it is.

    Raises ConflictError if the other one is still at it once a run that was killed would have let go.
    """
    deadline_s = time.monotonic() + _PATIENCE_S
    while (other := attempt()) is not None:
        if time.monotonic() > deadline_s:
            raise taken(other, what)
        time.sleep(_LOOK_S)


def taken(other: UnderWay, what: str) -> ConflictError:
    """Why this run may not begin, or go on."""
    return ConflictError(
        f"{what} is under way: {other.where} has begun it, for {other.author.by}, at"
        f" {render_time(other.author.at_ms)}; wait until it ends, or end it"
    )
