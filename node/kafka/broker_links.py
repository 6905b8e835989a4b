"""Connections to brokers, on which nothing is said: where one ends and no new one can be made, the broker is
gone. The client has connections of its own, but does not say when they end.
"""

from __future__ import annotations

import errno
import selectors
import socket
import threading
import time
from concurrent.futures import Future, wait
from contextlib import suppress
from typing import Final, NamedTuple

CONNECT_TIMEOUT_S: Final = 1.0
WAITED_S: Final = 1.2
"""For an attempt, from its begin. A name may be looked up for minutes: that says nothing of the broker."""

# All else, such as a want of file descriptors or of a name server, says nothing of the broker.
_UNREACHABLE: Final = frozenset((errno.EHOSTUNREACH, errno.ENETUNREACH))

_MANY: Final = 4_096  # bytes: more than a socket holds of those that nobody has waited for

Address = tuple[str, int]


class LinkChanges(NamedTuple):
    """Which brokers cannot be reached, and whose connections have ended since it was last seen to; those may
    have been made again.
    """

    gone: frozenset[int]
    ended: frozenset[int]


class _Attempt(NamedTuple):
    """To connect: whether the broker was reached, as soon as that is known."""

    begun_s: float
    reached: Future[bool]


class BrokerLinks:
    """`retain`, `wait` and `close` are the watch's; `reach` and `poke`, any thread's. Each attempt to connect
    has a thread of its own, so that none waits for another, and nobody for a name server.
    """

    def __init__(self) -> None:
        self._selector = selectors.DefaultSelector()
        self._poke_in, self._poke_out = socket.socketpair()
        for sock in (self._poke_in, self._poke_out):
            sock.setblocking(False)
        self._selector.register(self._poke_out, selectors.EVENT_READ)
        self._changing = threading.Lock()
        self._sockets: dict[Address, socket.socket] = {}
        self._attempts: dict[
            Address, _Attempt
        ] = {}  # one for each address; until somebody knows what came of it
        self._closed = False

    def retain(self, brokers: dict[int, Address]) -> LinkChanges:
        """Connects to those brokers, and to no others, as far as it does not hold a connection already."""
        wanted = set(brokers.values())
        with self._changing:
            ended = {one for one, sock in self._sockets.items() if _ended(sock)}
            for address in [one for one in self._sockets if one not in wanted or one in ended]:
                self._drop(self._sockets.pop(address))
            for address in self._attempts.keys() - wanted:
                if self._attempts[address].reached.done():
                    del self._attempts[address]
        return LinkChanges(
            self.reach(brokers), frozenset(broker for broker, one in brokers.items() if one in ended)
        )

    def reach(self, brokers: dict[int, Address]) -> frozenset[int]:
        """Connects to these as well; returns those that cannot be reached. What is not known in time, is not
        known of them.
        """
        attempts = {broker: self._attempted(address) for broker, address in brokers.items()}
        gone = [broker for broker, one in attempts.items() if one is not None and _has_failed(one)]
        with self._changing:
            for address in brokers.values():
                if (known := self._attempts.get(address)) is not None and known.reached.done():
                    del self._attempts[address]
        return frozenset(gone)

    def wait(self, timeout_s: float) -> None:
        """Until a connection has ended, or `poke` was called."""
        self._selector.select(max(0.0, timeout_s))
        with suppress(BlockingIOError):
            self._poke_out.recv(_MANY)

    def poke(self) -> None:
        """Ends a `wait`: the one that is under way, or the next one."""
        with suppress(OSError):
            self._poke_in.send(b"\0")

    def close(self) -> None:
        """Ends all connections."""
        with self._changing:
            self._closed = True
            for sock in (*self._sockets.values(), self._poke_in, self._poke_out):
                self._drop(sock)
            self._selector.close()

    def _attempted(self, address: Address) -> _Attempt | None:
        """The attempt that is under way, or a new one; None where a connection is held."""
        with self._changing:
            if address in self._sockets:
                return None
            attempt = self._attempts.get(address)
            if attempt is None:
                attempt = self._attempts[address] = _Attempt(time.monotonic(), Future())
                name = f"link-{address[0]}:{address[1]}"
                threading.Thread(
                    target=self._connect, args=(address, attempt), name=name, daemon=True
                ).start()
            return attempt

    def _connect(self, address: Address, attempt: _Attempt) -> None:
        try:
            sock = socket.create_connection(address, CONNECT_TIMEOUT_S)
        except (ConnectionError, TimeoutError):
            attempt.reached.set_result(False)
        except (OSError, UnicodeError) as error:  # UnicodeError: a host that cannot be a name at all
            attempt.reached.set_result(getattr(error, "errno", None) not in _UNREACHABLE)
        else:
            sock.setblocking(False)
            sock.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)  # hosts that die say no goodbye
            self._keep(address, sock)
            attempt.reached.set_result(True)

    def _keep(self, address: Address, sock: socket.socket) -> None:
        with self._changing:
            if self._closed or address in self._sockets:
                sock.close()  # nobody wants it any more, or another attempt was first
            else:
                self._sockets[address] = sock
                self._selector.register(sock, selectors.EVENT_READ)

    def _drop(self, sock: socket.socket) -> None:
        with suppress(KeyError):
            self._selector.unregister(sock)
        sock.close()


def _has_failed(attempt: _Attempt) -> bool:
    """Waits until that is known, but not for long."""
    wait([attempt.reached], max(0.0, attempt.begun_s + WAITED_S - time.monotonic()))
    return attempt.reached.done() and not attempt.reached.result()


def _ended(sock: socket.socket) -> bool:
    """Whether the other side has closed it; a broker says nothing unless it is asked."""
    try:
        return sock.recv(1) == b""
    except BlockingIOError:
        return False
    except OSError:
        return True
