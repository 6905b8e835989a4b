"""What every peer's job sends and notes, be its client in Python or in Java (java/Job.java does the same).

A job sends messages, or reads what comes. Each value is 300 bytes that no compression shrinks, and begins
with when it is due and with its number.
"""

from __future__ import annotations

import time
from array import array
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any, Final, NamedTuple

from bench.job import JobProcess, python_job, serve
from bench.message import VALUE_BYTES, value
from bench.reader import percentile

Ready = Callable[[], None]
GAP_MS: Final = 200
TICK_S: Final = 0.001
_DUE_DIGITS: Final = 13
_NUMBER_DIGITS: Final = 12
_DATED: Final = _DUE_DIGITS + _NUMBER_DIGITS


@dataclass(frozen=True, slots=True)
class Sending:
    """Messages to send: at a rate, each due `lead_ms` later, or at full speed, their due times spread."""

    count: int
    rate: int = 0  # a second; 0: at full speed
    lead_ms: int = 0
    first_due_ms: int = 0
    span_ms: int = 1


@dataclass(frozen=True, slots=True)
class Reading:
    """Messages to wait for. `check`: look which each is, and how late all but the first `unjudged` are; else
    they are only counted.
    """

    count: int
    check: bool = False
    unjudged: int = 0
    quiet_ms: int = 600_000  # then no more are waited for


@dataclass(frozen=True, slots=True)
class Read:
    """What has come: all of it, and how much of it for the first time. Times are epoch ms, lateness is ms;
    `gaps`: when nothing came for longer than `GAP_MS`, from when and how long.
    """

    came: int
    distinct: int
    early: int
    first_ms: float
    last_ms: float
    p50_ms: float = 0.0
    p99_ms: float = 0.0
    max_ms: float = 0.0
    gaps: Sequence[tuple[float, float]] = field(default_factory=list)


class Message(NamedTuple):
    """One to send."""

    number: int
    due_ms: int
    value: bytes


def messages(sending: Sending) -> Iterator[Message]:
    """All of them; at a rate, each when it is its time."""
    count, begin_s = sending.count, time.monotonic()
    for number in range(count):
        if sending.rate:
            while number > (time.monotonic() - begin_s) * sending.rate:
                time.sleep(TICK_S)
            due_ms = time.time_ns() // 1_000_000 + sending.lead_ms
        else:
            due_ms = sending.first_due_ms + number * sending.span_ms // count
        yield Message(number, due_ms, b"%013d%012d" % (due_ms, number) + value(number)[_DATED:VALUE_BYTES])


class Arrivals:
    """Notes what comes."""

    def __init__(self, reading: Reading) -> None:
        self._reading = reading
        self._seen = bytearray(reading.count if reading.check else 0)
        self._came = self._distinct = self._early = 0
        self._first_ms = self._last_ms = 0.0
        self._late_us = array("q")
        self._gaps: list[tuple[float, float]] = []
        self._quiet_since_s = time.monotonic()

    @property
    def go_on(self) -> bool:
        """Whether there is more to wait for."""
        quiet_s = time.monotonic() - self._quiet_since_s
        return self._distinct < self._reading.count and quiet_s * 1000 < self._reading.quiet_ms

    def take(self, values: Sequence[bytes]) -> None:
        """They come now."""
        if not values:
            return
        at_us = time.time_ns() // 1000
        at_ms = at_us / 1000
        if not self._came:
            self._first_ms = at_ms
        elif at_ms - self._last_ms > GAP_MS:
            self._gaps.append((self._last_ms, at_ms - self._last_ms))
        self._came += len(values)
        self._last_ms, self._quiet_since_s = at_ms, time.monotonic()
        if self._reading.check:
            self._check(values, at_us)
        else:
            self._distinct += len(values)

    def _check(self, values: Sequence[bytes], at_us: int) -> None:
        for one in values:
            number = int(one[_DUE_DIGITS:_DATED])
            if self._seen[number]:
                continue
            self._seen[number] = 1
            self._distinct += 1
            if number >= self._reading.unjudged:
                late_us = at_us - int(one[:_DUE_DIGITS]) * 1000
                self._late_us.append(late_us)
                self._early += late_us < 0

    def read(self) -> dict[str, Any]:
        """The job's result, a `Read`. Who waited in vain for the rest has waited since the last came."""
        if self._distinct < self._reading.count and self._came:
            self._gaps.append((self._last_ms, time.time() * 1000 - self._last_ms))
        late_us = sorted(self._late_us)
        p50, p99, most = (percentile(late_us, share) / 1000 if late_us else 0.0 for share in (0.5, 0.99, 1.0))
        came, distinct, early = self._came, self._distinct, self._early
        return asdict(Read(came, distinct, early, self._first_ms, self._last_ms, p50, p99, most, self._gaps))


Job = tuple[str, str, Sending | Reading]
"""Where the peer answers, its topic, and what is to be done."""


def said(job: Job) -> dict[str, Any]:
    """The job as what its process is told."""
    address, topic, what = job
    return {"address": address, "topic": topic, "do": _kind(what), **asdict(what)}


def python_begun(module: str, job: Job) -> JobProcess:
    """Does it in a process of this module; returns once it is about to begin."""
    process = python_job(module, said(job))
    process.wait_ready()
    return process


def arguments(job: Job) -> list[str]:
    """The same for Java's."""
    return [f"{name}={int(one) if isinstance(one, bool) else one}" for name, one in said(job).items()]


def understood(told: dict[str, Any]) -> Job:
    """What a process was told."""
    what = {name: one for name, one in told.items() if name not in {"address", "topic", "do"}}
    return told["address"], told["topic"], Sending(**what) if told["do"] == "load" else Reading(**what)


def serve_jobs(
    load: Callable[[str, str, Sending, Ready], float],
    read: Callable[[str, str, Reading, Ready], dict[str, Any]],
) -> None:
    """The side of a peer's processes in Python: each of the two gets where the peer answers, its topic, what
    is to be done, and what to call when it is ready.
    """

    def do(told: dict[str, Any], ready: Ready) -> Any:
        address, topic, what = understood(told)
        if isinstance(what, Sending):
            return load(address, topic, what, ready)
        return read(address, topic, what, ready)

    serve(do)


def _kind(what: Sending | Reading) -> str:
    return "load" if isinstance(what, Sending) else "read"
