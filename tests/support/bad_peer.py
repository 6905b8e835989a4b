"""A server that is no giver of snapshots, and the ways in which it is none."""

from __future__ import annotations

import socket
import threading
import time
from collections.abc import Callable
from contextlib import suppress

from node.snapshot.peer import ONCE, SIGNATURE
from node.snapshot.secrets import Answered, Secrets

Answer = Callable[[socket.socket, bytes], None]
"""What is done with a connection when a request has come over it."""


class BadServer:
    """Answers each request as it is told to. `close` in the end."""

    def __init__(self, answer: Answer) -> None:
        self.asked: list[bytes] = []
        self._answer = answer
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.where: tuple[str, int] = self._listener.getsockname()
        self._open: list[socket.socket] = []
        self._thread = threading.Thread(target=self._serve, daemon=True)
        self._thread.start()

    def _serve(self) -> None:
        with suppress(OSError):
            while True:
                one, _ = self._listener.accept()
                self._open.append(one)
                threading.Thread(target=self._talk, args=(one,), daemon=True).start()

    def _talk(self, one: socket.socket) -> None:
        with suppress(OSError):
            while request := one.recv(1 << 16):
                self.asked.append(request)
                self._answer(one, request)

    def close(self) -> None:
        self._listener.close()
        for one in self._open:
            one.close()


def says(to: socket.socket, status: bytes, body: bytes, headers: bytes = b"") -> None:
    """An answer as HTTP has it."""
    to.sendall(b"HTTP/1.1 %s\r\n%scontent-length: %d\r\n\r\n%s" % (status, headers, len(body), body))


def begins(to: socket.socket, headers: bytes = b"") -> None:
    """A snapshot."""
    says(to, b"201 Created", b'{"id": "%s"}' % (b"ab" * 16), headers)


def hangs(_: socket.socket, __: bytes) -> None:
    """Never answers."""


def drips(to: socket.socket, _: bytes) -> None:
    """A byte now and then, and never the end of a header."""
    to.sendall(b"HTTP/1.1 201 Created\r\nname: ")
    while True:
        to.sendall(b"x")
        time.sleep(0.05)


def closes_and_then_drips(to: socket.socket, request: bytes) -> None:
    """Ends the connection after its first answer, as it may."""
    if request.startswith(b"POST"):
        begins(to, b"connection: close\r\n")
        to.shutdown(socket.SHUT_RDWR)
    else:
        drips(to, request)


def says_nonsense(to: socket.socket, _: bytes) -> None:
    to.sendall(b"\x00\xff" * 100)


def says_too_much(to: socket.socket, _: bytes) -> None:
    to.sendall(b"HTTP/1.1 201 Created\r\ncontent-length: 999999999\r\n\r\n")
    while True:
        to.sendall(b"x" * (1 << 16))


def is_of_another_version(to: socket.socket, _: bytes) -> None:
    says(to, b"404 Not Found", b"Not Found")


def is_another_service(to: socket.socket, _: bytes) -> None:
    says(to, b"404 Not Found", b'{"detail":"Not Found"}')


def has_no_words(to: socket.socket, _: bytes) -> None:
    says(to, b"404 Not Found", b"{}")


def says_no_text(to: socket.socket, _: bytes) -> None:
    says(to, b"404 Not Found", b'{"error":"\xff"}')


def says_a_page(to: socket.socket, _: bytes) -> None:
    says(to, b"404 Not Found", b"<html>\n\x1b[31m<body>Not Found\n")


def redirects(to: socket.socket, _: bytes) -> None:
    says(to, b"302 Found", b"", b"location: http://127.0.0.1:1/\r\n")


def breaks_off(to: socket.socket, _: bytes) -> None:
    to.sendall(b"HTTP/1.1 201 Created\r\ncontent-length: 40\r\n\r\n{")
    to.shutdown(socket.SHUT_RDWR)


def names_no_path(to: socket.socket, _: bytes) -> None:
    """A snapshot whose name would be more than a name."""
    says(to, b"201 Created", b'{"id": "x HTTP/1.1\\r\\nhost: \\u2603"}')


def forges(to: socket.socket, request: bytes) -> None:
    """A manifest without the secret."""
    if request.startswith(b"POST"):
        begins(to)
    else:
        says(to, b"200 OK", b"0" * 64 + b'{"format": 1}')


def makes_its_manifest(to: socket.socket, request: bytes) -> None:
    """And comes on with it, as one does whose store is large."""
    if request.startswith(b"POST"):
        begins(to)
    else:
        says(to, b"202 Accepted", b'{"read_bytes": %d}' % time.monotonic_ns())


class Keyed:
    """One that has the secrets: it begins a snapshot, and then says so much of its manifest."""

    def __init__(self, secrets: Secrets, read_bytes: Callable[[], int] = time.monotonic_ns) -> None:
        self._secrets = secrets
        self._read_bytes = read_bytes

    def __call__(self, to: socket.socket, request: bytes) -> None:
        if request.startswith(b"POST"):
            self.says(to, request, 201, b'{"id": "%s"}' % (b"ab" * 16))
        else:
            self.says(to, request, 202, b'{"read_bytes": %d}' % self._read_bytes())

    def says(self, to: socket.socket, request: bytes, status: int, body: bytes) -> None:
        """It is vouched for, as the answer to that request."""
        headers = dict(line.split(": ", 1) for line in request.decode().split("\r\n") if ": " in line)
        signature = self._secrets.vouch(Answered(headers[ONCE], status, body))
        says(to, b"%d So" % status, body, f"{SIGNATURE}: {signature}\r\n".encode())


BAD_ANSWERS: tuple[Answer, ...] = (
    hangs,
    drips,
    closes_and_then_drips,
    says_nonsense,
    says_too_much,
    is_of_another_version,
    is_another_service,
    has_no_words,
    says_no_text,
    says_a_page,
    redirects,
    breaks_off,
    names_no_path,
    forges,
    makes_its_manifest,
)
"""After each of them another peer is asked."""


def name_of(answer: Answer) -> str:
    """In words, for a test's name."""
    return getattr(answer, "__name__", "").replace("_", " ")
