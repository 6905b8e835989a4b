"""A TCP proxy that can be cut: a network between one node and ZooKeeper that fails on its own."""

from __future__ import annotations

import contextlib
import socket
import threading

from ops.stack.ports import HOST
from tests.support.closing import Closing

_CHUNK_BYTES = 65_536


class Proxy(Closing):
    """Passes connections on to one address until `cut`; from then on it refuses them, until `mend`."""

    def __init__(self, address: str) -> None:
        host, _, port = address.rpartition(":")
        self._to = host, int(port)
        self._listener = socket.create_server((HOST, 0))
        self.address = "{}:{}".format(*self._listener.getsockname())
        self._is_cut = False
        self._lock = threading.Lock()
        self._open: set[socket.socket] = set()
        threading.Thread(target=self._accept, name="proxy", daemon=True).start()

    def cut(self) -> None:
        """Ends all connections, and lets none through."""
        with self._lock:
            self._is_cut = True
            for end in self._open:
                _shut(end)

    def mend(self) -> None:
        """Lets connections through again."""
        with self._lock:
            self._is_cut = False

    def close(self) -> None:
        self.cut()
        _shut(self._listener)
        self._listener.close()

    def _accept(self) -> None:
        with contextlib.suppress(OSError):  # closed
            while True:
                caller, _ = self._listener.accept()
                self._connect(caller)

    def _connect(self, caller: socket.socket) -> None:
        with self._lock:
            if self._is_cut:
                caller.close()
                return
            server = socket.create_connection(self._to)
            self._open |= {caller, server}
        for source, sink in ((caller, server), (server, caller)):
            threading.Thread(target=self._pass_on, args=(source, sink), daemon=True).start()

    def _pass_on(self, source: socket.socket, sink: socket.socket) -> None:
        with contextlib.suppress(OSError):  # either end has gone
            while data := source.recv(_CHUNK_BYTES):
                sink.sendall(data)
        for end in (source, sink):
            _shut(end)
        with self._lock:
            self._open.discard(source)
        source.close()


def _shut(end: socket.socket) -> None:
    with contextlib.suppress(OSError):  # it has gone already
        end.shutdown(socket.SHUT_RDWR)
