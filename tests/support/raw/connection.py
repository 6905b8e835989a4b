"""What a producer asks of brokers, by hand, in versions before the flexible ones:
https://kafka.apache.org/protocol.
"""

from __future__ import annotations

import socket
import struct
import time
from typing import Final, NamedTuple

from tests.support.closing import Closing
from tests.support.raw.batch import RawBatch

_TIMEOUT_S: Final = 60.0
"""A broker unpacks what it is sent before it answers, and the largest take it seconds."""

_PRODUCE: Final = (0, 8)
_FETCH: Final = (1, 4)
_METADATA: Final = (3, 4)
_API_VERSIONS: Final = (18, 0)
_INIT_PRODUCER_ID: Final = (22, 1)
_ADD_PARTITIONS_TO_TXN: Final = (24, 2)
_END_TXN: Final = (26, 2)
_FIND_COORDINATOR: Final = (10, 1)
_IN_USE: Final = (
    _PRODUCE,
    _FETCH,
    _METADATA,
    _INIT_PRODUCER_ID,
    _ADD_PARTITIONS_TO_TXN,
    _END_TXN,
    _FIND_COORDINATOR,
)

_NO_LEADER_YET: Final = (3, 5, 6)  # what a broker answers for a topic that was made a moment ago
_TRY_AGAIN: Final = (*_NO_LEADER_YET, 14, 15, 16, 51)  # a coordinator that loads, moves, or is not done yet
_RETRY_S: Final = 0.05
_ALL: Final = -1

Address = tuple[str, int]


class Refused(Exception):
    """A broker's error code, to what is no produce request."""


class Closed(Exception):
    """The broker has closed the connection instead of an answer: it could not read the request."""


class Produced(NamedTuple):
    """The answer for one partition. `error` is 0 if the batch is in the log, from `base_offset` on; None if
    the broker could not even read the request, and closed the connection.
    """

    error: int | None
    words: str
    base_offset: int
    append_ms: int

    @property
    def refused(self) -> bool:
        return self.error != 0


class ProducerId(NamedTuple):
    """A producer's id and epoch."""

    id: int
    epoch: int


class Connection(Closing):
    """Connections to the leaders of partitions; for one thread. As a context manager it closes them.

    AssertionError if a broker speaks none of these versions.
    """

    def __init__(self, bootstrap: str) -> None:
        host, port = bootstrap.split(",", 1)[0].rsplit(":", 1)
        self._bootstrap: Address = (host, int(port))
        self._sockets: dict[Address, socket.socket] = {}
        self._leaders: dict[tuple[str, int], Address] = {}
        self._coordinators: dict[str, Address] = {}
        self._correlation = 0
        self._expect_versions()

    def produce(
        self,
        topic: str,
        partition: int,
        batch: RawBatch | bytes,
        *,
        transactional_id: str | None = None,
    ) -> Produced:
        """Sends one produce request of this batch, or of these bytes, and returns what the broker says."""
        records = batch if isinstance(batch, bytes) else batch.encode()
        body = _string(transactional_id) + struct.pack(">hii", _ALL, int(_TIMEOUT_S * 1000), 1)
        body += _string(topic) + struct.pack(">iii", 1, partition, len(records)) + records
        deadline_s = time.monotonic() + _TIMEOUT_S
        while True:
            try:
                produced = _produced(self._ask(self._leader(topic, partition), _PRODUCE, body))
            except Closed:
                return Produced(None, "the connection was closed", -1, -1)
            if produced.error not in _NO_LEADER_YET or time.monotonic() > deadline_s:
                return produced
            self._leaders.clear()
            time.sleep(_RETRY_S)  # between two looks; nothing tells us

    def fetch(self, topic: str, partition: int, offset: int, max_bytes: int = 1 << 20) -> bytes:
        """The log's own bytes from the batch of this offset on, aborted ones and markers, too. `Refused` with
        the broker's code.
        """
        body = struct.pack(">iiiibi", -1, 0, 0, max_bytes, 0, 1) + _string(topic)
        body += struct.pack(">iiqi", 1, partition, offset, max_bytes)
        answer = self._ask(self._leader(topic, partition), _FETCH, body)
        answer.take(">ii")
        answer.string()
        _, _, error, _, _, aborted = answer.take(">iihqqi")
        if error:
            raise Refused(f"{topic}/{partition} from {offset} on: error code {error}")
        answer.skip(16 * max(0, aborted))
        (length,) = answer.take(">i")
        return answer.bytes(max(0, length))

    def producer_id(self, transactional_id: str | None = None, timeout_ms: int = 5_000) -> ProducerId:
        """A fresh one; of a transactional id the next epoch of its own. `Refused` with the broker's code."""
        at = self._bootstrap if transactional_id is None else self._coordinator(transactional_id)
        body = _string(transactional_id) + struct.pack(">i", timeout_ms)
        answer = self._insist(at, _INIT_PRODUCER_ID, body, 4)
        answer.skip(6)
        return ProducerId(*answer.take(">qh"))

    def begin(self, transactional_id: str, producer: ProducerId, topic: str, partition: int) -> None:
        """Makes a partition part of the transaction. `Refused` with the broker's code."""
        body = _string(transactional_id) + struct.pack(">qhi", *producer, 1)
        body += _string(topic) + struct.pack(">ii", 1, partition)
        error_at = 4 + 4 + 2 + len(topic.encode()) + 4 + 4
        self._insist(self._coordinator(transactional_id), _ADD_PARTITIONS_TO_TXN, body, error_at)

    def end(self, transactional_id: str, producer: ProducerId, *, commit: bool) -> None:
        """Commits or aborts the transaction. `Refused` with the broker's code."""
        body = _string(transactional_id) + struct.pack(">qh?", *producer, commit)
        self._insist(self._coordinator(transactional_id), _END_TXN, body, 4)

    def close(self) -> None:
        for connected in self._sockets.values():
            connected.close()
        self._sockets.clear()

    def _insist(self, at: Address, api: tuple[int, int], body: bytes, error_at: int) -> _Answer:
        """Asks again while the broker says that it is not ready. The error code is so far into the answer."""
        deadline_s = time.monotonic() + _TIMEOUT_S
        while True:
            answer = self._ask(at, api, body)
            error = answer.peek(error_at)
            if error == 0:
                return answer
            if error not in _TRY_AGAIN or time.monotonic() > deadline_s:
                raise Refused(f"request {api[0]}: error code {error}")
            time.sleep(_RETRY_S)  # between two looks; nothing tells us

    def _leader(self, topic: str, partition: int) -> Address:
        deadline_s = time.monotonic() + _TIMEOUT_S
        while (topic, partition) not in self._leaders:
            body = struct.pack(">i", 1) + _string(topic) + b"\x00"  # which makes no topic
            self._leaders |= _leaders(self._ask(self._bootstrap, _METADATA, body))
            if (topic, partition) not in self._leaders:
                assert time.monotonic() < deadline_s, f"{topic}/{partition} has a leader"
                time.sleep(_RETRY_S)  # between two looks; nothing tells us
        return self._leaders[topic, partition]

    def _coordinator(self, transactional_id: str) -> Address:
        if transactional_id not in self._coordinators:
            answer = self._insist(self._bootstrap, _FIND_COORDINATOR, _string(transactional_id) + b"\x01", 4)
            answer.skip(6)
            answer.string()
            answer.skip(4)
            host = answer.string() or ""
            self._coordinators[transactional_id] = (host, answer.take(">i")[0])
        return self._coordinators[transactional_id]

    def _expect_versions(self) -> None:
        answer = self._ask(self._bootstrap, _API_VERSIONS, b"")
        error, count = answer.take(">hi")
        assert error == 0, f"the broker says its versions, and not error code {error}"
        spoken = {key: (low, high) for key, low, high in (answer.take(">hhh") for _ in range(count))}
        for key, version in _IN_USE:
            low, high = spoken.get(key, (0, -1))
            assert low <= version <= high, (
                f"request {key} of version {version}: the broker has {low} to {high}"
            )

    def _ask(self, at: Address, api: tuple[int, int], body: bytes) -> _Answer:
        self._correlation += 1
        request = struct.pack(">hhih", *api, self._correlation, -1) + body
        try:
            connected = self._sockets.get(at) or self._connect(at)
            connected.sendall(struct.pack(">i", len(request)) + request)
            (length,) = struct.unpack(">i", _exactly(connected, 4))
            answer = _Answer(_exactly(connected, length))
        except OSError as error:
            self._drop(at)
            raise Closed(str(error)) from error
        (correlation,) = answer.take(">i")
        assert correlation == self._correlation, "answers come in order"
        return answer

    def _connect(self, at: Address) -> socket.socket:
        connected = socket.create_connection(at, timeout=_TIMEOUT_S)
        connected.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self._sockets[at] = connected
        return connected

    def _drop(self, at: Address) -> None:
        connected = self._sockets.pop(at, None)
        if connected is not None:
            connected.close()


class _Answer:
    """Reads an answer from its beginning on."""

    def __init__(self, raw: bytes) -> None:
        self._raw = raw
        self._at = 0

    def take(self, form: str) -> tuple[int, ...]:
        found = struct.unpack_from(form, self._raw, self._at)
        self._at += struct.calcsize(form)
        return found

    def skip(self, count: int) -> None:
        self._at += count

    def bytes(self, count: int) -> bytes:
        self._at += count
        return self._raw[self._at - count : self._at]

    def string(self) -> str | None:
        (length,) = self.take(">h")
        if length < 0:
            return None
        self._at += length
        return self._raw[self._at - length : self._at].decode()

    def peek(self, behind: int) -> int:
        """The error code so far behind the correlation id."""
        return int(struct.unpack_from(">h", self._raw, 4 + behind)[0])


def _produced(answer: _Answer) -> Produced:
    answer.take(">i")
    answer.string()
    _, _, error, base_offset, append_ms, _ = answer.take(">iihqqq")
    (errors,) = answer.take(">i")
    said = []
    for _ in range(errors):
        answer.take(">i")
        said.append(answer.string() or "")
    said.append(answer.string() or "")
    return Produced(error, "; ".join(filter(None, said)), base_offset, append_ms)


def _leaders(answer: _Answer) -> dict[tuple[str, int], Address]:
    answer.skip(4)  # throttle time
    brokers = {}
    for _ in range(answer.take(">i")[0]):
        (node,) = answer.take(">i")
        host = answer.string() or ""
        brokers[node] = (host, answer.take(">i")[0])
        answer.string()  # rack
    answer.string()  # cluster id
    answer.skip(4)  # controller
    found = {}
    for _ in range(answer.take(">i")[0]):
        answer.skip(2)
        topic = answer.string() or ""
        answer.skip(1)
        for _ in range(answer.take(">i")[0]):
            _, partition, leader = answer.take(">hii")
            for _ in range(2):  # replicas, and those in sync
                (count,) = answer.take(">i")
                answer.skip(4 * count)
            if leader in brokers:
                found[topic, partition] = brokers[leader]
    return found


def _string(text: str | None) -> bytes:
    if text is None:
        return struct.pack(">h", -1)
    raw = text.encode()
    return struct.pack(">h", len(raw)) + raw


def _exactly(connected: socket.socket, count: int) -> bytes:
    data = bytearray()
    while len(data) < count:
        received = connected.recv(count - len(data))
        if not received:
            raise ConnectionResetError("the broker closed the connection")
        data += received
    return bytes(data)
