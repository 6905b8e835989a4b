"""Noticing within milliseconds that a process is gone, or does not run: TCP connections between the
candidates of a lane.

Every candidate listens on its peer port, and greets who connects with one line that says which candidacy
answers; then it beats. It holds a connection to each candidate ahead of it; `election.link` says what follows
from its end, and from silence.

The beat comes from this thread, so it says that the process runs, and that Python does: what holds the
interpreter up for long, such as a read of the store that does not come back, ends it as well. It does not say
that the brokers answer: another leader would find the same ones.
"""

from __future__ import annotations

import errno
import ipaddress
import os
import selectors
import socket
import threading
import time
from collections.abc import Callable, Mapping
from contextlib import suppress
from typing import Any, Final

import structlog

from election.errors import PortTaken
from election.link import BEAT, BEAT_S, Link, Next, Peer, greeting

log = structlog.stdlib.get_logger("delayline.peer")

_MOST_VISITORS = 128
_MOST_COMPLAINTS = 10
_DEAF_S = 1.0  # after a visitor could not be accepted for want of file descriptors or memory
_SHORT = (errno.EMFILE, errno.ENFILE, errno.ENOBUFS, errno.ENOMEM)
_LOOPBACK: Final = "127.0.0.1"
_READ = selectors.EVENT_READ
_WRITE = selectors.EVENT_WRITE

SocketAddress = tuple[socket.AddressFamily, Any]


class Peers:
    """The peer port of this process, and its connections to those ahead of it; one thread.

    Binds in the constructor: PortTaken. `host`: what the others are told (see `listen_address`). `port` 0:
    any that is free; `port` then says which. `silence_s`: for so long one who runs is never silent.
    """

    def __init__(self, node: str, host: str, port: int, silence_s: float) -> None:
        self._host = host
        self._listener = _listen(host, port)
        self.port: int = self._listener.getsockname()[1]
        self._node = node
        self._silence_s = silence_s
        self._guid: str | None = None
        self._on_gone: Callable[[str], None] = lambda _: None
        self._on_silent: Callable[[], None] = lambda: None
        self._wanted: Mapping[str, Peer] = {}
        self._greeted: frozenset[str] = frozenset()
        self._silent: frozenset[str] = frozenset()
        self._links: dict[str, _Connection] = {}  # the thread's own, as is all below
        self._visitors: list[socket.socket] = []
        self._deaf_until_s: float | None = None
        self._beats_at_s = self._judged_s = 0.0
        self._selector = selectors.DefaultSelector()
        self._poke_in, self._poke_out = socket.socketpair()
        self._stopping = False
        self.thread = threading.Thread(target=self._run, name="peers", daemon=True)  # from `start` to `stop`

    def start(self, on_gone: Callable[[str], None], on_silent: Callable[[], None]) -> None:
        """Begin to greet.

        `on_gone` is called with the name of a followed candidacy whose process is gone, once; `on_silent`
        when one has become silent. On the peers' thread: they must not block.
        """
        self._on_gone, self._on_silent = on_gone, on_silent
        for sock in (self._listener, self._poke_out):
            sock.setblocking(False)
            self._selector.register(sock, _READ)
        self.thread.start()
        # Of its own: a name server that is away takes its time.
        threading.Thread(target=self._look_self_up, name="peer-host", daemon=True).start()

    def _look_self_up(self) -> None:
        """The others would say it of this node; its own operator reads this log."""
        try:
            socket.getaddrinfo(self._host, self.port)
        except (OSError, UnicodeError) as error:
            log.warning(
                "peer-host-unresolved",
                host=self._host,
                why=str(error),
                way_out="Set peer_host to a name or address at which the other nodes reach this one: if it"
                " dies, they wait for its session to end.",
            )

    def stop(self) -> None:
        """Close everything; the others see this process as gone."""
        self._stopping = True
        if self.thread.ident is None:
            self._close()
        else:
            self._poke()

    def join(self, timeout_s: float | None = None) -> None:
        """Wait for the end of the thread."""
        if self.thread.ident is not None:
            self.thread.join(timeout_s)

    def introduce(self, guid: str | None) -> None:
        """Greet as the candidacy `guid` from now on.

        Call it *before* the candidacy's znode is made: a greeting with another GUID is this process's word
        that the candidacy is not its own.
        """
        self._guid = guid

    def follow(self, peers: Mapping[str, Peer]) -> None:
        """Hold connections to `peers`, by the names that `on_gone` is to be called with, and to no others."""
        if peers != self._wanted:
            self._wanted = dict(peers)
            self._poke()

    def has_greeted(self, name: str) -> bool:
        """Whether the connection to a followed peer stands, and the right candidacy has answered on it."""
        return name in self._greeted

    def is_silent(self, name: str) -> bool:
        """Whether a followed peer has beaten, and does so no more: it may again the next moment."""
        return name in self._silent

    def _poke(self) -> None:
        # A full buffer has been poked already; a closed one belongs to a thread that has ended.
        with suppress(OSError):
            self._poke_in.send(b"\0")

    # -- the peers' thread

    def _run(self) -> None:
        try:
            while not self._stopping:
                self._reconcile()
                self._connect_due()
                self._listen_again()
                self._beat()
                for key, _ in self._selector.select(self._rest_s()):
                    self._handle(key)
                self._judge_silence()
                self._greeted = frozenset(
                    name for name, connection in self._links.items() if connection.link.stage == "greeted"
                )
        finally:
            self._close()

    def _reconcile(self) -> None:
        wanted = self._wanted
        for name in list(self._links):
            if self._links[name].link.peer != wanted.get(name):
                self._hang_up(self._links.pop(name))
        for name in wanted.keys() - self._links.keys():
            self._links[name] = _Connection(Link(name, wanted[name]))

    def _rest_s(self) -> float | None:
        """How long there is nothing to do unless something comes; None: for ever."""
        now_s, links = time.monotonic(), self._links.values()
        times = [self._deaf_until_s, *(one.retry_at_s for one in links)]
        times.append(self._beats_at_s if self._visitors else None)
        times.append(now_s + BEAT_S if any(one.link.has_beaten for one in links) else None)
        due = [time_s for time_s in times if time_s is not None]
        return max(0.0, min(due) - now_s) if due else None

    def _judge_silence(self) -> None:
        """Who is silent. Where this thread has not looked for a while, it may be that nobody ran: then it
        listens anew. It looks each `BEAT_S` as long as there is somebody to judge.
        """
        now_s = time.monotonic()
        has_listened, self._judged_s = now_s - self._judged_s < 2 * BEAT_S, now_s
        silent = set[str]()
        for name, connection in self._links.items():
            if not has_listened:
                connection.link.excuse(now_s)
            elif connection.link.is_silent(now_s, self._silence_s):
                silent.add(name)
        beating = [one.link for one in self._links.values() if one.link.has_beaten]
        if len(beating) > 1 and all(link.is_silent(now_s, 2 * BEAT_S) for link in beating):
            silent.clear()  # whoever hears nobody is cut off itself
        new, self._silent = silent - self._silent, frozenset(silent)
        for name in new:
            log.warning("peer-silent", node=self._links[name].link.peer.node, candidacy=name)
        if new:
            self._on_silent()

    def _connect_due(self) -> None:
        for connection in self._links.values():
            if connection.retry_at_s is not None and connection.retry_at_s <= time.monotonic():
                self._connect(connection)
            elif connection.found is not None:
                self._dial(connection)

    def _handle(self, key: selectors.SelectorKey) -> None:
        sock = key.fileobj
        assert isinstance(sock, socket.socket)
        if sock.fileno() < 0:
            return  # closed while an earlier event of the same round was handled
        if sock is self._poke_out:
            sock.recv(4096)
        elif sock is self._listener:
            self._welcome()
        elif isinstance(key.data, _Connection):
            self._act(key.data, self._listen_to(key.data, sock))
        elif _received(sock) == b"":
            self._visitors.remove(sock)
            self._drop(sock)

    # -- those who connect to us

    def _beat(self) -> None:
        """To all who listen. Who does not read has been told often enough."""
        now_s = time.monotonic()
        if not self._visitors or now_s < self._beats_at_s:
            return
        self._beats_at_s = now_s + BEAT_S
        for visitor in self._visitors:
            with suppress(OSError):  # it has gone: `_handle` finds out
                visitor.send(BEAT)

    def _welcome(self) -> None:
        try:
            visitor, _ = self._listener.accept()
        except OSError as error:
            if error.errno in _SHORT:
                log.warning("peer-rejected", error=str(error))
                self._send_off_oldest(_MOST_VISITORS // 2)
                self._selector.unregister(self._listener)  # it would be ready again at once, and again
                self._deaf_until_s = time.monotonic() + _DEAF_S
            return
        try:
            visitor.setblocking(False)
            visitor.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)  # hosts that die say no goodbye
            visitor.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)  # a beat waits for no other one
            visitor.send(greeting(self._node, self._guid) + BEAT)
        except OSError:
            visitor.close()  # it has gone already
            return
        self._visitors.append(visitor)
        self._selector.register(visitor, _READ)
        self._send_off_oldest(_MOST_VISITORS)

    def _listen_again(self) -> None:
        if self._deaf_until_s is not None and self._deaf_until_s <= time.monotonic():
            self._deaf_until_s = None
            self._selector.register(self._listener, _READ)

    def _send_off_oldest(self, most: int) -> None:
        while len(self._visitors) > most:
            self._drop(self._visitors.pop(0))

    # -- those ahead of us

    def _connect(self, connection: _Connection) -> None:
        connection.retry_at_s = None
        connection.link.connecting()
        if connection.address is None:
            # Not on this thread: a name server that does not answer must not hold up the other links.
            threading.Thread(target=self._look_up, args=(connection,), name="look-up", daemon=True).start()
        else:
            self._dial(connection)

    def _look_up(self, connection: _Connection) -> None:
        try:
            connection.found = _resolve(connection.link.peer)
        except (OSError, UnicodeError) as error:  # UnicodeError: a host that cannot be a name at all
            connection.found = error
        self._poke()

    def _dial(self, connection: _Connection) -> None:
        found, connection.found = connection.found or connection.address, None
        assert found is not None, "it was looked up"
        if isinstance(found, Exception):
            self._failed(connection, found)
            return
        connection.address = found
        try:
            connection.sock = sock = socket.socket(found[0], socket.SOCK_STREAM)
            sock.setblocking(False)
            code = sock.connect_ex(found[1])
        except OSError as error:
            self._failed(connection, error)
            return
        if code not in (0, errno.EINPROGRESS):
            self._act(connection, connection.link.failed(code, os.strerror(code)))
            return
        self._selector.register(sock, _WRITE, connection)

    def _failed(self, connection: _Connection, error: Exception) -> None:
        self._act(connection, connection.link.failed(getattr(error, "errno", 0) or 0, str(error)))

    def _listen_to(self, connection: _Connection, sock: socket.socket) -> Next:
        link = connection.link
        if link.stage == "connecting":
            code = sock.getsockopt(socket.SOL_SOCKET, socket.SO_ERROR)
            if code:
                return link.failed(code, os.strerror(code))
            link.connected()
            self._selector.modify(sock, _READ, connection)
            return "go on"
        data = _received(sock)
        if data is None:
            return "go on"
        return link.heard(data, time.monotonic()) if data else link.ended()

    def _act(self, connection: _Connection, what: Next) -> None:
        if what == "go on":
            return
        self._hang_up(connection)
        link = connection.link
        if what == "reconnect":
            self._connect(connection)
        elif what == "gone":
            self._on_gone(link.name)
            log.warning("peer-lost", node=link.peer.node, candidacy=link.name, why=link.why)
        else:
            connection.retry_at_s = time.monotonic() + link.next_delay_s()
            connection.complain()

    def _hang_up(self, connection: _Connection) -> None:
        if connection.sock is not None:
            self._drop(connection.sock)
            connection.sock = None

    def _drop(self, sock: socket.socket) -> None:
        if sock in self._selector.get_map():
            self._selector.unregister(sock)
        sock.close()

    def _close(self) -> None:
        for connection in self._links.values():
            self._hang_up(connection)
        for sock in (*self._visitors, self._listener, self._poke_in, self._poke_out):
            self._drop(sock)
        self._selector.close()


class _Connection:
    """The socket of one link, or the time of the next attempt; belongs to the peers' thread."""

    def __init__(self, link: Link) -> None:
        self.link = link
        self.sock: socket.socket | None = None
        self.retry_at_s: float | None = time.monotonic()
        self.address: SocketAddress | None = None  # kept, so that no name is looked up in a failover
        self.found: SocketAddress | OSError | UnicodeError | None = (
            None  # a look-up's answer, until it is used
        )
        self._complaints: set[str] = set()

    def complain(self) -> None:
        """Say once why the peer is not reached."""
        link = self.link
        if link.why not in self._complaints and len(self._complaints) < _MOST_COMPLAINTS:
            self._complaints.add(link.why)
            peer = link.peer
            log.info("peer-connect-failed", node=peer.node, host=peer.host, port=peer.port, why=link.why)


def listen_address(host: str) -> str:
    """What to listen on so that others reach this process at `host`.

    An address as it is, `127.1`, too. For a name all interfaces (""), since what a name resolves to on its
    own host is often a loopback address; but for `localhost` and what ends in `.localhost`, which no other
    host means (RFC 6761), the loopback address that it resolves to here.
    """
    with suppress(ValueError):
        return str(ipaddress.ip_address(host))
    with suppress(OSError, UnicodeError):
        return _first_address(host, socket.AI_NUMERICHOST)
    if host.lower().rstrip(".").rpartition(".")[2] != "localhost":
        return ""
    with suppress(OSError, UnicodeError):
        address = _first_address(host)
        if ipaddress.ip_address(address).is_loopback:
            return address
    return _LOOPBACK


def _first_address(host: str, flags: int = 0) -> str:
    return str(socket.getaddrinfo(host, None, type=socket.SOCK_STREAM, flags=flags)[0][4][0])


def _listen(host: str, port: int) -> socket.socket:
    address = listen_address(host)
    family = socket.AF_INET6 if ":" in address else socket.AF_INET
    try:
        if not address and socket.has_dualstack_ipv6():
            with suppress(OSError):  # a host may have IPv6 switched off
                return socket.create_server(("", port), family=socket.AF_INET6, dualstack_ipv6=True)
        return socket.create_server((address, port), family=family)
    except OSError as error:
        where = address or "all interfaces"
        raise PortTaken(
            f"cannot listen on peer port {port} at {where}: {os.strerror(error.errno or 0)}; "
            "set another peer_port or peer_host, or end the process that has the port"
        ) from error


def _resolve(peer: Peer) -> SocketAddress:
    family, _, _, _, address = socket.getaddrinfo(peer.host, peer.port, type=socket.SOCK_STREAM)[0]
    return family, address


def _received(sock: socket.socket) -> bytes | None:
    """What has come; empty at the end of the connection; None if it was a false alarm."""
    try:
        return sock.recv(4096)
    except BlockingIOError:
        return None
    except OSError:
        return b""
