"""What a node tells the service manager that started it: systemd's notify protocol, sd_notify(3).

Its datagrams go to the socket that NOTIFY_SOCKET names; without that there is nobody to tell. They are sent
from the process's main thread: who sees the watchdog's signs knows that the interpreter runs, no more; what
ends a thread ends the process.
"""

from __future__ import annotations

import os
import socket
from collections.abc import Mapping
from typing import Final

import structlog

log = structlog.get_logger("delayline.notify")

READY: Final = "READY=1"
STOPPING: Final = "STOPPING=1"
WATCHDOG: Final = "WATCHDOG=1"
SEND_TIMEOUT_S: Final = 0.1  # a manager that does not read must not hold the node up


class ServiceManager:
    """Tells it what has changed, and that the node lives, if it wants to know. For one thread."""

    def __init__(self, environment: Mapping[str, str]) -> None:
        """`environment`: has NOTIFY_SOCKET, WATCHDOG_USEC and WATCHDOG_PID, as far as the manager gave
        them.
        """
        self._address = _address(environment.get("NOTIFY_SOCKET", ""))
        self._wants_signs = _wants_signs(environment)
        self._ready = False
        self._said = ""

    def tell(self, *, ready: bool, words: str) -> None:
        """The node's state in words; `ready`: it could be leader or is. To be called more than twice within
        the watchdog's time.
        """
        lines = []
        if ready and not self._ready:
            lines.append(READY)
        if words != self._said:
            lines.append(f"STATUS={' '.join(words.split())}")
        if self._wants_signs:
            lines.append(WATCHDOG)
        if self._send(lines):  # what was not taken is said again
            self._ready, self._said = self._ready or ready, words

    def stopping(self) -> None:
        """The node has begun to stop."""
        self._send([STOPPING, "STATUS=stopping"])

    def _send(self, lines: list[str]) -> bool:
        """Whether it was taken, or there is nobody to take it."""
        if self._address is None or not lines:
            return True
        try:
            with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM | socket.SOCK_CLOEXEC) as sender:
                sender.settimeout(SEND_TIMEOUT_S)
                sender.sendto("\n".join(lines).encode(), self._address)
        except OSError as error:
            log.warning("service-manager-notify-failed", detail=str(error))
            return False
        return True


def _address(name: str) -> str | None:
    """The socket's address: a path, or a name without one, written with an @; None for what is neither."""
    if name.startswith("@"):
        return "\0" + name[1:]
    return name if name.startswith("/") else None


def _wants_signs(environment: Mapping[str, str]) -> bool:
    within_us, process = environment.get("WATCHDOG_USEC", ""), environment.get("WATCHDOG_PID", "")
    return within_us.isdecimal() and int(within_us) > 0 and process in ("", str(os.getpid()))
