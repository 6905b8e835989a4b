"""Looks at a node's metrics again and again, and holds connections that hang. A job (bench/job.py).

The job is a `Watching`, the result a `Watched`.
"""

from __future__ import annotations

import http.client
import socket
import time
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any, Final

from bench.job import JobProcess, python_job, serve

ANSWER_TIMEOUT_S: Final = 10.0
A_BYTE_EVERY_S: Final = 1.0
PIPELINED: Final = 200  # more than the system's buffers hold of answers
SMALL_BUFFER_BYTES: Final = 2_048
HALF: Final = b"GET /metrics HTTP/1.1\r\nHo"
WHOLE: Final = b"GET /metrics HTTP/1.1\r\nHost: node\r\n\r\n"


@dataclass(frozen=True, slots=True)
class Watching:
    """What is to be done for so long: a scrape every so often, clients that read a byte a second, and such
    that have sent half a request.
    """

    host: str
    port: int
    for_s: float
    every_s: float
    slow: int = 0
    half: int = 0

    def begin(self) -> JobProcess:
        """Watches beside what else is going on; returns once the connections stand."""
        process = python_job("bench.watcher", asdict(self))
        process.wait_ready()
        return process


@dataclass(frozen=True, slots=True)
class Watched:
    """What came of it."""

    scrapes_per_s: float
    longest_ms: float


class _Hanging:
    """Connections that stay; one that the node has ended is made anew."""

    def __init__(self, watching: Watching) -> None:
        self._address = watching.host, watching.port
        self._slow = [self._connected(WHOLE * PIPELINED) for _ in range(watching.slow)]
        self._half = [self._connected(HALF) for _ in range(watching.half)]
        self._read_at_s = time.monotonic()

    def go_on(self) -> None:
        """Reads a byte of each that reads, once a second."""
        if time.monotonic() - self._read_at_s < A_BYTE_EVERY_S:
            return
        self._read_at_s = time.monotonic()
        for connections, sent in ((self._slow, WHOLE * PIPELINED), (self._half, HALF)):
            for at, connection in enumerate(connections):
                if _ended(connection):
                    connection.close()
                    connections[at] = self._connected(sent)

    def _connected(self, sent: bytes) -> socket.socket:
        connection = socket.socket()
        connection.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, SMALL_BUFFER_BYTES)
        connection.settimeout(ANSWER_TIMEOUT_S)
        connection.connect(self._address)
        connection.sendall(sent)
        connection.setblocking(False)
        return connection


def _ended(connection: socket.socket) -> bool:
    try:
        return connection.recv(1) == b""
    except BlockingIOError:
        return False
    except OSError:
        return True


def watch(job: dict[str, Any], ready: Any) -> dict[str, Any]:
    """What the job's process does."""
    watching = Watching(**job)
    hanging = _Hanging(watching)
    ready()
    begin_s, answers_s = time.monotonic(), []
    while (now_s := time.monotonic()) < begin_s + watching.for_s:
        answers_s.append(_scrape(watching))
        hanging.go_on()
        time.sleep(max(0.0, now_s + watching.every_s - time.monotonic()))
    return asdict(summarised(answers_s, time.monotonic() - begin_s))


def _scrape(watching: Watching) -> float:
    """The seconds that it took. Raises what kept it from an answer."""
    begin_s = time.monotonic()
    connection = http.client.HTTPConnection(watching.host, watching.port, timeout=ANSWER_TIMEOUT_S)
    try:
        connection.request("GET", "/metrics")
        response = connection.getresponse()
        body = response.read()
        if response.status != http.client.OK or b"delayline_delivery_lateness_seconds_count" not in body:
            raise ValueError(f"a scrape was answered with {response.status}, {len(body)} bytes")
    finally:
        connection.close()
    return time.monotonic() - begin_s


def summarised(answers_s: Sequence[float], took_s: float) -> Watched:
    """What scrapes come to: how long each took to be answered, and all together."""
    return Watched(len(answers_s) / took_s, max(answers_s) * 1000)


if __name__ == "__main__":
    serve(watch)
