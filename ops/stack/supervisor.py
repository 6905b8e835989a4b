"""Runs one server, and lets it outlive nobody: started as ``python -I -S supervisor.py LOG COMMAND...``.

The process that wants the server (its owner) holds the write end of this process's standard input. A byte
there is an order (``T``: SIGTERM, ``K``: SIGKILL); its end means that the owner is gone, however it went, and
the server goes too. Being the server's parent, this process can signal it without fear that the id has passed
to another one. It stands in a session of its own, so that a terminal's Ctrl-C reaches the owner only, who
then stops things in order. Standard library only, no imports of the project: it starts in 20 ms.
"""

from __future__ import annotations

import contextlib
import ctypes
import os
import select
import signal
import subprocess
import sys
import time

GRACE_S = 5.0
_PR_SET_PDEATHSIG = 1


def main() -> int:
    """Run the command until it ends or must end; its exit status is this process's."""
    log, command = sys.argv[1], sys.argv[2:]
    wake_read, wake_write = os.pipe()
    for end in (wake_read, wake_write):
        os.set_blocking(end, False)
    signal.set_wakeup_fd(wake_write, warn_on_full_buffer=False)
    ending: list[int] = []
    signal.signal(signal.SIGCHLD, lambda *_: None)
    signal.signal(signal.SIGTERM, lambda number, _: ending.append(number))
    with open(log, "ab", buffering=0) as out:  # noqa: PTH123 - pathlib costs start-up time
        server = subprocess.Popen(
            command,
            stdin=subprocess.DEVNULL,
            stdout=out,
            stderr=out,
            preexec_fn=_die_with_parent,  # noqa: PLW1509
        )
    print(server.pid, flush=True)  # noqa: T201 - the owner reads it
    _serve(server, wake_read, ending)
    status = server.wait()
    return status if status >= 0 else 128 - status


def _serve(server: subprocess.Popen[bytes], wake: int, ending: list[int]) -> None:
    """Until the server has ended: obey orders; end it when the owner is gone."""
    owner = os.getppid()
    while server.poll() is None:
        readable, _, _ = select.select([0, wake], [], [], 1.0)
        if wake in readable:
            os.read(wake, 4096)
        orders = os.read(0, 4096) if 0 in readable else None
        # A fork of the owner may hold the pipe open after the owner's death: so the parent's id counts too.
        if orders == b"" or ending or os.getppid() != owner:
            _end(server)
            return
        for order in orders or b"":
            server.send_signal(signal.SIGTERM if order == ord("T") else signal.SIGKILL)


def _end(server: subprocess.Popen[bytes]) -> None:
    server.terminate()
    deadline = time.monotonic() + GRACE_S
    while server.poll() is None and time.monotonic() < deadline:
        time.sleep(0.02)
    server.kill()


def _die_with_parent() -> None:
    """On Linux the server dies even if this process is killed with SIGKILL."""
    if sys.platform == "linux":
        with contextlib.suppress(OSError, AttributeError):
            ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)


if __name__ == "__main__":
    sys.exit(main())
