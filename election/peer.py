"""Noticing within milliseconds that a process is gone: TCP connections between the candidates of a lane.

Every candidate listens on its peer port and greets who connects with one line that says which candidacy answers.
It holds a connection to each candidate ahead of it. The kernel closes the sockets of a process that dies, however
it dies, so the connection ends at once. That alone proves nothing; the attempt to connect again does:

- refused: nobody listens there any more, the process is gone;
- the same node answers with another candidacy: it has started anew, the old candidacy is nobody's;
- no answer: the process may be paused, the network cut, the host dead. A connect proves nothing either, the kernel
  accepts it for a stopped process. There is no verdict: the candidacy lasts as long as its ZooKeeper session.

A refusal counts only from where the very candidacy has greeted before: a wrong address or a firewall refuses as
well. An answer from another *node* is a wrong address (two nodes that advertise the same one) and never a verdict.
Whoever can answer at a peer address can have a candidacy deleted; that costs a failover, no message.
"""

from __future__ import annotations

import errno
import ipaddress
import selectors
import socket
import threading
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass

import structlog

from election.errors import PortTaken

log = structlog.stdlib.get_logger("delayline.peer")

_MAGIC = "delayline-peer/1"
_NO_CANDIDACY = "-"
_LONGEST_GREETING = 512
_LONGEST_RETRY_S = 1.0
_FIRST_RETRY_S = 0.000_25  # a dying process may close its connections before its port
_MOST_VISITORS = 128
_READ = selectors.EVENT_READ
_WRITE = selectors.EVENT_WRITE


@dataclass(frozen=True, slots=True)
class Peer:
    """A candidacy to watch: its node, its GUID, and the address where its process should greet."""

    node: str
    guid: str
    host: str
    port: int


class Peers:
    """The peer port of this process, and its connections to those ahead of it; one thread.

    Binds in the constructor: PortTaken. `host`: what the others are told (see `listen_address`). `port` 0: any that
    is free.
    """

    def __init__(self, node: str, host: str, port: int) -> None:
        self._node = node
        self._listener = _listen(host, port)
        self.port: int = self._listener.getsockname()[1]
        self._guid = _NO_CANDIDACY
        self._on_gone: Callable[[str], None] = lambda _: None
        self._wanted: Mapping[str, Peer] = {}
        self._greeted: frozenset[str] = frozenset()
        self._links: dict[str, _Link] = {}  # the thread's own, as is all below
        self._visitors: list[socket.socket] = []
        self._selector = selectors.DefaultSelector()
        self._poke_in, self._poke_out = socket.socketpair()
        self._stopping = False
        self._thread = threading.Thread(target=self._run, name="peers", daemon=True)

    def start(self, on_gone: Callable[[str], None]) -> None:
        """Begin to greet. `on_gone` is called with the name of a candidacy whose process is gone, once, on the
        peers' thread: it must not block.
        """
        self._on_gone = on_gone
        for sock in (self._listener, self._poke_out):
            sock.setblocking(False)
            self._selector.register(sock, _READ)
        self._thread.start()

    def stop(self) -> None:
        """Close everything; the others see this process as gone."""
        self._stopping = True
        self._poke()

    def join(self, timeout_s: float | None = None) -> None:
        """Wait for the end of the thread."""
        if self._thread.ident is not None:
            self._thread.join(timeout_s)

    def introduce(self, guid: str | None) -> None:
        """Greet as the candidacy `guid` from now on; call it *before* the candidacy's znode is made, since a greeting
        with another GUID is this process's word that the candidacy is not its own.
        """
        self._guid = guid or _NO_CANDIDACY

    def follow(self, peers: Mapping[str, Peer]) -> None:
        """Hold connections to `peers` (by the name that `on_gone` is to be called with) and to no others."""
        if peers != self._wanted:
            self._wanted = dict(peers)
            self._poke()

    def has_greeted(self, name: str) -> bool:
        """Whether the connection to a followed peer stands, and the right candidacy has answered on it."""
        return name in self._greeted

    def _poke(self) -> None:
        try:
            self._poke_in.send(b"\0")
        except OSError as error:
            # A full buffer pokes as well; a closed one belongs to a thread that has ended.
            log.debug("peers not poked", error=str(error))

    # -- the peers' thread

    def _run(self) -> None:
        try:
            while not self._stopping:
                self._reconcile()
                for key, _ in self._selector.select(self._until_retry_s()):
                    self._handle(key)
                self._connect_due()
                self._greeted = frozenset(name for name, link in self._links.items() if link.greets_now)
        finally:
            self._close()

    def _reconcile(self) -> None:
        wanted = self._wanted
        for name in [name for name, link in self._links.items() if link.peer != wanted.get(name)]:
            self._hang_up(self._links.pop(name))
        for name in wanted.keys() - self._links.keys():
            self._links[name] = _Link(name, wanted[name])
        self._connect_due()

    def _until_retry_s(self) -> float | None:
        pending = [link.retry_at_s for link in self._links.values() if link.retry_at_s is not None]
        return max(0.0, min(pending) - time.monotonic()) if pending else None

    def _connect_due(self) -> None:
        for link in self._links.values():
            if link.retry_at_s is not None and link.retry_at_s <= time.monotonic():
                self._connect(link)

    def _handle(self, key: selectors.SelectorKey) -> None:
        if isinstance(key.fileobj, socket.socket) and key.fileobj.fileno() < 0:
            return  # closed while an earlier event of the same round was handled
        if key.fileobj is self._poke_out:
            self._poke_out.recv(4096)
        elif key.fileobj is self._listener:
            self._welcome()
        elif isinstance(key.data, _Link):
            self._hear(key.data)
        elif isinstance(key.fileobj, socket.socket):
            self._listen_to_visitor(key.fileobj)

    # -- those who connect to us

    def _welcome(self) -> None:
        try:
            visitor, _ = self._listener.accept()
            visitor.setblocking(False)
            visitor.setsockopt(
                socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1
            )  # hosts that die leave no end behind
            visitor.send(f"{_MAGIC} {self._node} {self._guid}\n".encode())
        except OSError as error:
            log.warning("peer not welcomed", error=str(error))
            self._send_off_oldest(_MOST_VISITORS // 2)  # it may be descriptors that are short
            return
        self._visitors.append(visitor)
        self._selector.register(visitor, _READ)
        self._send_off_oldest(_MOST_VISITORS)

    def _listen_to_visitor(self, visitor: socket.socket) -> None:
        if not _read(visitor):
            self._visitors.remove(visitor)
            self._drop(visitor)

    def _send_off_oldest(self, most: int) -> None:
        while len(self._visitors) > most:
            self._drop(self._visitors.pop(0))

    # -- those ahead of us

    def _connect(self, link: _Link) -> None:
        link.retry_at_s = None
        link.received = b""
        link.stage = "connecting"
        try:
            link.address = link.address or _resolve(link.peer)
            link.sock = socket.socket(link.address[0], socket.SOCK_STREAM)
            link.sock.setblocking(False)
            code = link.sock.connect_ex(link.address[1])
        except OSError as error:
            self._retry(link, str(error))
            return
        if code in (0, errno.EINPROGRESS):
            self._selector.register(link.sock, _WRITE, link)
        else:
            self._refused_or_failed(link, code)

    def _hear(self, link: _Link) -> None:
        assert link.sock is not None
        if link.stage == "connecting":
            code = link.sock.getsockopt(socket.SOL_SOCKET, socket.SO_ERROR)
            if code:
                self._refused_or_failed(link, code)
            else:
                link.stage = "connected"
                self._selector.modify(link.sock, _READ, link)
            return
        heard = _read(link.sock)
        if heard is None:
            return
        if not heard:
            self._ended(link)
        elif link.stage == "connected":
            self._understand(link, heard)

    def _ended(self, link: _Link) -> None:
        if link.stage != "greeted":
            self._retry(link, "the connection ended")
            return
        self._hang_up(link)
        link.attempts = 0
        self._connect(link)  # at once: whether it is refused is what we want to know

    def _understand(self, link: _Link, heard: bytes) -> None:
        link.received += heard
        line, end, _ = link.received.partition(b"\n")
        if not end and len(link.received) < _LONGEST_GREETING:
            return
        words = line.decode("ascii", "replace").split(" ")
        if len(words) != 3 or words[0] != _MAGIC or words[1] != link.peer.node:
            self._wrong_address(link, line)
        elif words[2] != link.peer.guid:
            self._gone(link, "another candidacy answers")
        else:
            link.stage = "greeted"
            link.has_greeted = True

    def _wrong_address(self, link: _Link, line: bytes) -> None:
        link.attempts += 10  # nothing will change soon
        self._retry(
            link, f"node {link.peer.node} was expected, the answer is {line[:80]!r}: check its peer_host"
        )

    def _refused_or_failed(self, link: _Link, code: int) -> None:
        if code == errno.ECONNREFUSED and link.has_greeted:
            self._gone(link, "connection refused")
        else:
            self._retry(link, errno.errorcode.get(code, str(code)))

    def _gone(self, link: _Link, why: str) -> None:
        self._hang_up(link)
        link.stage = "gone"
        self._on_gone(link.name)
        log.warning("peer is gone", node=link.peer.node, candidacy=link.name, why=why)

    def _retry(self, link: _Link, why: str) -> None:
        self._hang_up(link)
        link.stage = "waiting"
        delay_s = min(_FIRST_RETRY_S * 2 ** min(link.attempts, 16), _LONGEST_RETRY_S)
        link.retry_at_s = time.monotonic() + delay_s
        link.attempts += 1
        if why != link.complaint:
            link.complaint = why
            log.info(
                "peer not reached", node=link.peer.node, host=link.peer.host, port=link.peer.port, why=why
            )

    def _hang_up(self, link: _Link) -> None:
        if link.sock is not None:
            self._drop(link.sock)
            link.sock = None

    def _drop(self, sock: socket.socket) -> None:
        if sock in self._selector.get_map():
            self._selector.unregister(sock)
        sock.close()

    def _close(self) -> None:
        for link in self._links.values():
            self._hang_up(link)
        for sock in (*self._visitors, self._listener, self._poke_in, self._poke_out):
            self._drop(sock)
        self._selector.close()


class _Link:
    """The connection to one peer; belongs to the peers' thread.

    Stages: waiting (for `retry_at_s`), connecting, connected (no greeting yet), greeted, gone.
    """

    def __init__(self, name: str, peer: Peer) -> None:
        self.name = name
        self.peer = peer
        self.stage = "waiting"
        self.sock: socket.socket | None = None
        self.address: Address | None = None  # kept: no name is looked up in a failover
        self.received = b""
        self.has_greeted = False
        self.attempts = 0
        self.retry_at_s: float | None = time.monotonic()
        self.complaint = ""

    @property
    def greets_now(self) -> bool:
        return self.stage == "greeted"


Address = tuple[socket.AddressFamily, tuple[str, int] | tuple[str, int, int, int]]


def _resolve(peer: Peer) -> Address:
    family, _, _, _, address = socket.getaddrinfo(peer.host, peer.port, type=socket.SOCK_STREAM)[0]
    return family, address  # type: ignore[return-value]


def listen_address(host: str) -> str:
    """What to listen on so that others reach this process at `host`: an address as it is, for a name all interfaces
    (""), since what a name resolves to on its own host is often a loopback address.
    """
    try:
        return str(ipaddress.ip_address(host))
    except ValueError:
        return ""


def _listen(host: str, port: int) -> socket.socket:
    address = listen_address(host)
    family = socket.AF_INET6 if ":" in address else socket.AF_INET
    try:
        return socket.create_server((address, port), family=family)
    except OSError as error:
        where = address or "all interfaces"
        raise PortTaken(
            f"cannot listen on peer port {port} at {where}: {error.strerror}; set another peer_port or peer_host"
        ) from error


def _read(sock: socket.socket) -> bytes | None:
    """What has come; empty at the end of the connection; None if it was a false alarm."""
    try:
        return sock.recv(4096)
    except BlockingIOError:
        return None
    except OSError:
        return b""
