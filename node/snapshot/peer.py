"""A peer as a taker sees it: signed requests over HTTP, each with a deadline, each answer with a bound.

    POST   /snapshot                    begins one: {"id": ...}
    GET    /snapshot/ID                 the sealed manifest; 202 while it is made: {"read_bytes": ...}
    GET    /snapshot/ID/FILE/PART       a sealed part
    DELETE /snapshot/ID                 the taker has all that it wants

201, 202 and 200 are signed, as an answer to that request, but for parts, which are sealed: so who is no giver
costs the time of one answer, and cannot make a taker wait.
409: it gives one to another taker; 403: not to this one; 404: there is no such thing; 503: it cannot now.
"""

from __future__ import annotations

import http.client
import socket
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from http import HTTPStatus
from typing import Final, NamedTuple, TypeVar

import msgspec

from node.snapshot.errors import Broken, SnapshotError, Withheld
from node.snapshot.progress import SLOWEST_BYTES_PER_S
from node.snapshot.secrets import MOST_SEALED_BYTES, Answered, Asked, Secrets
from node.snapshot.tries import asked_again

PATH: Final = "/snapshot"
TIME: Final = "delayline-time-ms"
ONCE: Final = "delayline-once"
TAKER: Final = "delayline-taker"
SIGNATURE: Final = "delayline-signature"

CONNECT_TIMEOUT_S: Final = 2.0
ANSWER_TIMEOUT_S: Final = 20.0
AT_ONCE: Final = 4
"""A peer is asked for so many parts at once: over a path of a tenth of a second, 40 MB/s."""
POLL_S: Final = 0.1
NO_PROGRESS_S: Final = 20.0
MOST_MANIFEST_S: Final = 3_600.0  # 100 GB are read in half an hour
"""A manifest whose making has not come on for so long is not waited for."""
MOST_SAID_BYTES: Final = 4096  # of an error, or of a name
MOST_TOLD: Final = 300  # letters of it, in a log
READ_BYTES: Final = 1 << 16


class Begun(msgspec.Struct, frozen=True):
    """The name of a snapshot."""

    id: str


class Making(msgspec.Struct, frozen=True):
    """How far a manifest has come."""

    read_bytes: int


class Refused(msgspec.Struct, frozen=True):
    """Why there is none."""

    error: str


Said = TypeVar("Said", bound=msgspec.Struct)


class _Answer(NamedTuple):
    """What has come, and what is said to vouch for it."""

    answered: Answered
    signature: str

    @property
    def status(self) -> int:
        return self.answered.status

    @property
    def body(self) -> bytes:
        return self.answered.body


class PeerSource:
    """Implements `node.snapshot.taker.Source`: a giver. Parts may be asked for by `AT_ONCE` threads, each
    over a connection of its own; the rest is for one. `close` in the end, when no other thread asks any more.
    """

    at_once = AT_ONCE
    slowest_bytes_per_s = SLOWEST_BYTES_PER_S

    def __init__(
        self,
        node: str,
        host: str,
        port: int,
        secrets: Secrets,
        taker: str,
        is_to_end: Callable[[], bool] = lambda: False,
        path: str = "",
    ) -> None:
        """`is_to_end`: nobody waits for it any more. `path`: what the giver has before its paths there; it
        does not see that itself, so it is not signed.
        """
        self.name = f"{node} at {host}:{port}{path}"
        self._node = node
        self._address = (host, port)
        self._before = path
        self._secrets = secrets
        self._taker = taker
        self._is_to_end = is_to_end
        self._idle: list[http.client.HTTPConnection] = []  # a list's own steps are atomic
        self._id: str | None = None

    def manifest(self) -> bytes:
        """Begins a snapshot, and waits for its manifest."""
        making = _Progress()

        def expect_wanted() -> None:
            if making.is_over():
                raise Withheld(f"{self.name} does not come on with its manifest")
            if self._is_to_end():
                raise Withheld(f"{self.name} makes its manifest, and nobody waits for it any more")

        begun = asked_again(self._begin, expect_wanted)
        self._id = self._decoded(begun.body, Begun).id[:64]
        while True:
            found = asked_again(self._poll, expect_wanted)
            if found.status == HTTPStatus.OK:
                return found.body
            making.come(self._decoded(found.body, Making).read_bytes)
            time.sleep(POLL_S)

    def _begin(self) -> _Answer:
        """Where its answer was lost, the giver ends what it has begun, and begins another one."""
        return self._vouched(self._ask("POST", PATH, MOST_SAID_BYTES, HTTPStatus.CREATED))

    def _poll(self) -> _Answer:
        path = f"{PATH}/{self._id}"
        return self._vouched(self._ask("GET", path, MOST_SEALED_BYTES, HTTPStatus.OK, HTTPStatus.ACCEPTED))

    def _vouched(self, answer: _Answer) -> _Answer:
        if not self._secrets.is_vouched(*answer):
            raise Withheld(f"{self.name} has not signed its answer: it is no node of this cluster")
        return answer

    def part(self, file: int, part: int, sealed_bytes: int) -> bytes:
        """See `Source`."""
        path = f"{PATH}/{self._id}/{file}/{part}"
        found = self._ask("GET", path, max(sealed_bytes, MOST_SAID_BYTES), HTTPStatus.OK).body
        if len(found) != sealed_bytes:
            raise Broken(f"{self.name} has sent {len(found)} bytes; the part has {sealed_bytes}")
        return found

    def close(self) -> None:
        """Tells the giver that it may remove the snapshot, if it can be told."""
        if self._id is not None:
            with suppress(SnapshotError):
                self._answer("DELETE", f"{PATH}/{self._id}", MOST_SAID_BYTES)
        self._drop_idle()

    def _ask(self, method: str, path: str, most_bytes: int, *expected: HTTPStatus) -> _Answer:
        found = self._answer(method, path, most_bytes)
        if found.status not in expected:
            raise self._withheld(found.status, found.body)
        return found

    def _withheld(self, status: int, body: bytes) -> Withheld:
        said = body[:MOST_SAID_BYTES].decode("utf-8", "replace")
        with suppress(Withheld):
            said = self._decoded(body, Refused).error
        return Withheld(f"{self.name} says {status}: {_line(said)}")

    def _decoded(self, body: bytes, kind: type[Said]) -> Said:
        try:
            return msgspec.json.decode(body, type=kind)
        except (msgspec.MsgspecError, UnicodeError, RecursionError) as error:
            raise Withheld(f"{self.name} does not answer as a node does: {_line(str(error))}") from error

    def _answer(self, method: str, path: str, most_bytes: int) -> _Answer:
        """Raises `Broken` where none comes in time, or it is longer than that."""
        asked = Asked.new(self._node, self._taker, method, path, time.time_ns() // 1_000_000)
        headers = {
            TIME: str(asked.at_ms),
            ONCE: asked.once,
            TAKER: self._taker,
            SIGNATURE: self._secrets.sign(asked),
        }
        try:
            with self._connected() as connection, _within(connection.sock, ANSWER_TIMEOUT_S):
                connection.request(method, self._before + path, headers=headers)
                response = connection.getresponse()
                answered = Answered(asked.once, response.status, _read(response, most_bytes))
                return _Answer(answered, response.headers.get(SIGNATURE, ""))
        except Exception as error:  # whatever a peer does, it costs the taker no more than this try
            raise Broken(f"{self.name}: {_line(str(error)) or type(error).__name__}") from error

    @contextmanager
    def _connected(self) -> Iterator[http.client.HTTPConnection]:
        """One that is idle, or a new one. It is kept for the next request if all went well, and has a socket
        still: one whose peer has closed it is left without, and would open another by itself.
        """
        try:
            connection = self._idle.pop()
        except IndexError:
            connection = self._new_connection()
        try:
            yield connection
        except BaseException:
            connection.close()
            self._drop_idle()  # they may have ended as this one has, and none is to cost a try of its own
            raise
        if connection.sock is not None:
            self._idle.append(connection)

    def _drop_idle(self) -> None:
        with suppress(IndexError):
            while True:
                self._idle.pop().close()

    def _new_connection(self) -> http.client.HTTPConnection:
        connection = http.client.HTTPConnection(*self._address, timeout=CONNECT_TIMEOUT_S)
        connection.connect()
        connection.sock.settimeout(ANSWER_TIMEOUT_S)
        return connection


class _Progress:
    """How far a manifest has come, and since when."""

    def __init__(self) -> None:
        self._read_bytes = -1
        self._began_s = self._since_s = time.monotonic()

    def come(self, read_bytes: int) -> None:
        """So far now."""
        if read_bytes > self._read_bytes:
            self._read_bytes, self._since_s = read_bytes, time.monotonic()

    def is_over(self) -> bool:
        """Whether it is not waited for any more."""
        now_s = time.monotonic()
        return now_s - self._since_s > NO_PROGRESS_S or now_s - self._began_s > MOST_MANIFEST_S


@contextmanager
def _within(sock: socket.socket, seconds: float) -> Iterator[None]:
    """Ends the connection after that time: a timeout of the socket's would count for each byte anew. Raises
    `TimeoutError` then.
    """
    is_over = threading.Event()

    def end() -> None:
        is_over.set()
        with suppress(OSError):
            sock.shutdown(socket.SHUT_RDWR)

    timer = threading.Timer(seconds, end)
    timer.daemon = True
    timer.start()
    try:
        yield
    finally:
        timer.cancel()
        if is_over.is_set():
            raise TimeoutError(f"timed out: there was no whole answer within {seconds:g} s")


def _line(text: str) -> str:
    """What others have said, for a log or a terminal."""
    return " ".join("".join(c if c.isprintable() else " " for c in text).split())[:MOST_TOLD]


def _read(response: http.client.HTTPResponse, most_bytes: int) -> bytes:
    found = bytearray()
    while chunk := response.read(min(READ_BYTES, most_bytes + 1 - len(found))):
        found += chunk
        if len(found) > most_bytes:
            raise ValueError(f"the answer is longer than {most_bytes} bytes")
    if response.length:
        raise ValueError("the answer breaks off")
    return bytes(found)
