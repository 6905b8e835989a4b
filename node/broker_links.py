"""Connections to brokers, on which nothing is said: where one ends and no new one can be made, the broker is
gone. The client has connections of its own, but does not say when they end.
"""

from __future__ import annotations

import errno
import selectors
import socket
import threading
from contextlib import suppress
from typing import Final

CONNECT_TIMEOUT_S: Final = 1.0

# All else, such as a want of file descriptors or of a name server, says nothing of the broker.
_UNREACHABLE: Final = frozenset((errno.EHOSTUNREACH, errno.ENETUNREACH))

Address = tuple[str, int]


class BrokerLinks:
    """`hold`, `wait` and `close` are the watch's; `reach` and `poke`, any thread's."""

    def __init__(self) -> None:
        self._selector = selectors.DefaultSelector()
        self._poke_in, self._poke_out = socket.socketpair()
        for sock in (self._poke_in, self._poke_out):
            sock.setblocking(False)
        self._selector.register(self._poke_out, selectors.EVENT_READ)
        self._changing = threading.Lock()
        self._held: dict[Address, socket.socket] = {}

    def hold(self, brokers: dict[int, Address]) -> frozenset[int]:
        """Connects to those brokers, and to no others, as far as it does not hold a connection already;
        returns those that cannot be reached.
        """
        for address in list(self._held):
            if address not in brokers.values() or _ended(self._held[address]):
                with self._changing:
                    self._drop(self._held.pop(address))
        return self.reach(brokers)

    def reach(self, brokers: dict[int, Address]) -> frozenset[int]:
        """Connects to these as well; returns those that cannot be reached."""
        return frozenset(broker for broker, address in brokers.items() if not self._reach(address))

    def wait(self, timeout_s: float) -> None:
        """Until a connection has ended, or `poke` is called."""
        self._selector.select(max(0.0, timeout_s))

    def poke(self) -> None:
        """Ends a `wait`, and each one after it."""
        with suppress(OSError):
            self._poke_in.send(b"\0")

    def close(self) -> None:
        """Ends all connections."""
        for sock in (*self._held.values(), self._poke_in, self._poke_out):
            self._drop(sock)
        self._selector.close()

    def _reach(self, address: Address) -> bool:
        if address in self._held:
            return True
        try:
            sock = socket.create_connection(address, CONNECT_TIMEOUT_S)
        except (ConnectionError, TimeoutError):
            return False
        except (OSError, UnicodeError) as error:  # UnicodeError: a host that cannot be a name at all
            return getattr(error, "errno", None) not in _UNREACHABLE
        sock.setblocking(False)
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)  # hosts that die say no goodbye
        with self._changing:
            if address in self._held:
                sock.close()  # another thread was first
            else:
                self._held[address] = sock
                self._selector.register(sock, selectors.EVENT_READ)
        return True

    def _drop(self, sock: socket.socket) -> None:
        with suppress(KeyError):
            self._selector.unregister(sock)
        sock.close()


def _ended(sock: socket.socket) -> bool:
    """Whether the other side has closed it; a broker says nothing unless it is asked."""
    try:
        return sock.recv(1) == b""
    except BlockingIOError:
        return False
    except OSError:
        return True
