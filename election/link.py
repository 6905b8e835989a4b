"""What a connection to a peer proves, told from what happens on it; no sockets here.

The kernel closes the sockets of a process that dies, however it dies, so its connections end at once. That
alone proves nothing; the attempt to connect again does:

- refused: nobody listens there any more, the process is gone;
- the same node answers with another candidacy: it has started anew, the old candidacy is nobody's;
- no answer: the process may be paused, the network cut, the host dead. Nor does it prove anything that the
  connection is accepted: the kernel does that for a stopped process. The candidacy lasts as long as its
  session, or until a silence is heard.

While a connection stands, whoever was connected to says each `BEAT_S` that it runs. That it says so no more
proves nothing either, and may be over the next moment; but who leads and does not run delivers nothing, and
with its candidacy nothing is lost but what a failover takes, since Kafka fences. So who stands right behind
may end its candidacy while it is silent. What has never beaten on a connection is of an older version, which
never does.

A refusal counts only from an address where the very candidacy has greeted: a wrong address or a firewall
refuses as well. An answer from another *node* is a wrong address (two nodes advertise the same one) and
proves nothing. Whoever can answer at a peer address can have a candidacy deleted; that costs a failover, no
message.
"""

from __future__ import annotations

import errno
from dataclasses import dataclass
from typing import Final, Literal

BEAT: Final = b"\n"
BEAT_S: Final = 0.1

_MAGIC = "delayline-peer/1"
_NO_CANDIDACY = "-"
_LONGEST_GREETING = 512
_FIRST_RETRY_S = 0.000_25  # a dying process may close its connections before its port
_LONGEST_RETRY_S = 1.0

Stage = Literal["waiting", "connecting", "connected", "greeted", "gone"]
"""`connected`: no greeting yet."""
Next = Literal["go on", "retry", "reconnect", "gone"]
"""What is to be done with the connection; `retry`: later, `reconnect`: at once, `gone`: the process is."""


@dataclass(frozen=True, slots=True)
class Peer:
    """A candidacy to watch: its node, its GUID, and the address where its process should greet."""

    node: str
    guid: str
    host: str
    port: int


def greeting(node: str, guid: str | None) -> bytes:
    """The line with which a process answers on its peer port; `guid`: its candidacy, None if it has none."""
    return f"{_MAGIC} {node} {guid or _NO_CANDIDACY}\n".encode()


class Link:
    """What is known of the connection to one peer. `why` explains the last `retry` or `gone`."""

    def __init__(self, name: str, peer: Peer) -> None:
        self.name = name
        self.peer = peer
        self.stage: Stage = "waiting"
        self.why = ""
        self._received = b""
        self._attempts = 0
        self._has_greeted = False
        self._beaten_s: float | None = None  # when it last did, on this connection

    def connecting(self) -> None:
        """An attempt begins."""
        self.stage = "connecting"
        self._received = b""
        self._beaten_s = None

    def connected(self) -> None:
        """The connection was accepted."""
        self.stage = "connected"

    def failed(self, code: int, why: str) -> Next:
        """The attempt failed with this errno; `why` in words."""
        if code == errno.ECONNREFUSED and self._has_greeted:
            return self._gone(why)
        return self._retry(why)

    def ended(self) -> Next:
        """The connection is over."""
        if self.stage != "greeted":
            return self._retry("the connection ended without a greeting")
        self._attempts = 0
        return "reconnect"

    def heard(self, data: bytes, now_s: float) -> Next:
        """Data came."""
        if self.stage == "greeted":
            self._beaten_s = now_s
            return "go on"
        self._received += data
        line, end, beats = self._received.partition(b"\n")
        if not end and len(self._received) < _LONGEST_GREETING:
            return "go on"
        if beats:
            self._beaten_s = now_s
        return self._answered(line)

    @property
    def has_beaten(self) -> bool:
        """Whether it has, on this connection, and goes on doing so while it runs."""
        return self.stage == "greeted" and self._beaten_s is not None

    def is_silent(self, now_s: float, silence_s: float) -> bool:
        """Whether it has beaten, and has not for so long."""
        return self.stage == "greeted" and self._beaten_s is not None and now_s - self._beaten_s >= silence_s

    def excuse(self, now_s: float) -> None:
        """Nobody has listened until now."""
        if self._beaten_s is not None:
            self._beaten_s = now_s

    def next_delay_s(self) -> float:
        """How long to wait before the next attempt; longer each time."""
        return float(min(_FIRST_RETRY_S * 2 ** min(self._attempts, 16), _LONGEST_RETRY_S))

    def _answered(self, line: bytes) -> Next:
        words = line.decode("ascii", "replace").split(" ")
        if len(words) != 3 or words[:2] != [_MAGIC, self.peer.node]:
            self._attempts += 16  # nothing will change soon
            return self._retry(f"another node or program answers, check its peer_host: {line[:80]!r}")
        if words[2] != self.peer.guid:
            return self._gone("the node answers with another candidacy")
        self.stage = "greeted"
        self._has_greeted = True
        return "go on"

    def _retry(self, why: str) -> Next:
        self.stage = "waiting"
        self.why = why
        self._attempts += 1
        return "retry"

    def _gone(self, why: str) -> Next:
        self.stage = "gone"
        self.why = why
        return "gone"
