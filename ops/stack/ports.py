"""Free TCP ports on the loopback that no outgoing connection can take meanwhile."""

from __future__ import annotations

import random
import socket
import sys
import time
from collections import deque
from typing import Final

from ops.stack.errors import StackError

HOST = "127.0.0.1"
# Below the ephemeral ranges of Linux (32768-60999) and macOS (49152-65535): while a server is down, no
# client's outgoing connection can be given its port, so a restart always gets it back.
_RANGE = range(20000, 32000)
_CLAIMS: Final = 32  # held at a time; by then the server of an earlier one listens

_claims: deque[socket.socket] = deque()


def free_port() -> int:
    """A port that nothing listens on now, and that nobody else was given a moment ago: a server takes seconds
    until it listens.
    """
    for port in random.sample(_RANGE, min(200, len(_RANGE))):
        if is_free(port) and _claimed(port):
            return port
    raise StackError(f"no free port on {HOST} between {_RANGE.start} and {_RANGE.stop}: end some servers")


def _claimed(port: int) -> bool:
    """Whether the port is this process's from now on. Linux alone has names that end with their process; on
    other systems nothing is claimed.
    """
    if sys.platform != "linux":
        return True
    claim = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
    try:
        claim.bind(f"\0delayline-port-{port}")
    except OSError:
        claim.close()
        return False
    _claims.append(claim)
    if len(_claims) > _CLAIMS:
        _claims.popleft().close()
    return True


def is_free(port: int) -> bool:
    """Whether a server could listen on the port now; connections in TIME_WAIT do not count."""
    with socket.socket() as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind((HOST, port))
        except OSError:
            return False
        return True


def accepts(port: int) -> bool:
    """Whether something accepts connections on the port."""
    try:
        with socket.create_connection((HOST, port), timeout=1):
            return True
    except OSError:
        return False


def wait_free(port: int, timeout_s: float) -> None:
    """Wait until the port is free: the servers of an owner that was killed take a moment to end.

    Raises:
        StackError: something still listens there after `timeout_s`.
    """
    deadline = time.monotonic() + timeout_s
    while not is_free(port):
        if time.monotonic() > deadline:
            raise StackError(
                f"port {port} on {HOST} is taken by another process: end that or use another port"
            )
        time.sleep(0.02)
