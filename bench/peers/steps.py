"""The work that every peer does in its turn, and what of it is measured.

It is started, warmed up (the same for all, though only JVMs need it), measured, killed, and ended; its data
goes with it.
"""

from __future__ import annotations

import re
import statistics
import sys
import threading
import time
from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import dataclass, replace
from itertools import pairwise
from pathlib import Path
from types import TracebackType
from typing import Final, Self

import psutil

from bench.figures import OFFERED_AT_LEAST
from bench.peers.job import GAP_MS, Read, Reading, Sending
from bench.peers.peer import Peer

HOUR_MS: Final = 3_600_000
SPAN_MS: Final = 1_000
LEAD_MS: Final = 2_000
READER_WARMS_UP_S: Final = 3
SPARE_S: Final = 8.0
SLOWER: Final = 1.6
"""How much longer a load may take than the first one has taken for as many."""
BEFORE_A_KILL_MS: Final = 4_000
SLOW_START_S: Final = 3
"""On the average of the kills, beside the time from one to the next."""
KILL_QUIET_MS: Final = 120_000
LOOK_S: Final = 0.2
WARM_UP_RATE: Final = 2_000
WARM_UP_S: Final = 10


@dataclass(frozen=True, slots=True)
class Sizes:
    """How much work it is."""

    pending: int = 1_000_000
    burst: int = 500_000
    backlog: int = 500_000
    rate: int = 1_000
    rate_s: int = 10
    kills: int = 4
    kill_every_s: int = 16
    warm_up: int = 200_000

    def scaled(self, by: float) -> Sizes:
        """So many times as many messages; the rate and the kills stay."""
        counts = {name: int(getattr(self, name) * by) for name in ("pending", "burst", "backlog", "warm_up")}
        return replace(self, **counts)


def measure(peer: Peer, sizes: Sizes) -> dict[str, float]:
    """Starts it, does all of the work, and ends it: figures by their names in bench/peers/compared.py.
    Raises what kept it from its end.
    """
    with ExitStack() as ending:
        ending.callback(peer.stop)
        peer.start()
        memory = ending.enter_context(_Memory(peer))
        figures = _Measuring(peer, sizes, ending).all()
        return figures | {"memory": memory.peak_mb, "memory.added": memory.peak_added_mb}


class _Measuring:
    def __init__(self, peer: Peer, sizes: Sizes, ending: ExitStack) -> None:
        self._peer = peer
        self._sizes = sizes
        self._ending = ending
        self._per_s = 0.0  # that it takes at full speed

    def all(self) -> dict[str, float]:
        self._warm_up()
        figures = self._schedule()
        for step in (self._lateness, self._burst, self._backlog, self._kills):
            figures |= step()
        return figures

    def _warm_up(self) -> None:
        """Twice at full speed, since the first time says how long the second may take; then at a rate."""
        count = self._sizes.warm_up
        self._pend(count)
        self._burst_of(count)
        self._at_rate(WARM_UP_RATE, WARM_UP_S)

    def _pend(self, count: int) -> None:
        """Messages that stay, and somebody who waits for them where that is needed."""
        topic = self._peer.topic()
        if self._peer.needs_reader:
            self._ending.enter_context(self._peer.read(topic, Reading(1, quiet_ms=24 * HOUR_MS)))
        seconds = self._load(topic, Sending(count, first_due_ms=_in_ms(HOUR_MS), span_ms=HOUR_MS))
        self._per_s = count / seconds

    def _schedule(self) -> dict[str, float]:
        peer, count = self._peer, self._sizes.pending
        disk_bytes, cpu_us = peer.disk_bytes(), peer.cpu_us()
        self._pend(count)
        peer.wait_settled()
        return {
            "schedule": self._per_s,
            "cpu.schedule": (peer.cpu_us() - cpu_us) / count,
            "disk": (peer.disk_bytes() - disk_bytes) / count,
        }

    def _lateness(self) -> dict[str, float]:
        read = self._at_rate(self._sizes.rate, self._sizes.rate_s)
        return {"lateness.p50": read.p50_ms, "lateness.p99": read.p99_ms, "lateness.early": read.early}

    def _at_rate(self, rate: int, seconds: int) -> Read:
        """The lateness once its reader is warm. Raises `TimeoutError` if fewer a second were sent."""
        unjudged = rate * READER_WARMS_UP_S
        count, topic = unjudged + rate * seconds, self._peer.topic()
        with self._peer.read(topic, Reading(count, check=True, unjudged=unjudged)) as reading:
            took_s = self._load(topic, Sending(count, rate=rate, lead_ms=LEAD_MS))
            if count / took_s < OFFERED_AT_LEAST * rate:
                raise TimeoutError(f"it took {count / took_s:.0f} a second of {rate}")
            return _whole(Read(**reading.result()), count)

    def _burst(self) -> dict[str, float]:
        return {"burst": self._burst_of(self._sizes.burst)}

    def _burst_of(self, count: int) -> float:
        """How long after the first was due the last one came, ms."""
        topic = self._peer.topic()
        with self._peer.read(topic, Reading(count)) as reading:
            due_ms = self._load_ahead(topic, count, SPAN_MS)
            return _whole(Read(**reading.result()), count).last_ms - due_ms

    def _backlog(self) -> dict[str, float]:
        count, topic = self._sizes.backlog, self._peer.topic()
        with self._peer.read(topic, Reading(count)) as reading:
            due_ms = self._load_ahead(topic, count, SPAN_MS)
            self._peer.hold(reading)
            _wait_until(due_ms + SPAN_MS)
            cpu_us = self._peer.cpu_us()
            self._peer.release(reading)
            read = _whole(Read(**reading.result()), count)
        return {
            "backlog": count / ((read.last_ms - read.first_ms) / 1000),
            "cpu.deliver": (self._peer.cpu_us() - cpu_us) / count,
        }

    def _kills(self) -> dict[str, float]:
        """Killed again and again while something is due each millisecond: how long nothing came, what never
        came, what came twice. The next kill comes when it has been up for a while. `TimeoutError` if it takes
        so long that nothing is due any more, and `StackError` if it does not start.
        """
        sizes, topic = self._sizes, self._peer.topic()
        seconds = sizes.kills * (sizes.kill_every_s + SLOW_START_S)
        count = int(seconds * sizes.rate)
        moments_ms = []
        with self._peer.read(topic, Reading(count, check=True, quiet_ms=KILL_QUIET_MS)) as reading:
            due_ms = self._load_ahead(topic, count, seconds * 1000)
            for _ in range(sizes.kills):
                _wait_until(max(_in_ms(0), due_ms) + BEFORE_A_KILL_MS)
                moments_ms.append(time.time() * 1000)
                self._peer.kill()
                _wait_until(moments_ms[-1] + sizes.kill_every_s * 1000 - BEFORE_A_KILL_MS)
            if time.time() * 1000 > due_ms + seconds * 1000:
                raise TimeoutError(f"its {sizes.kills} starts took longer than {seconds} s")
            read = Read(**reading.result())
        windows_ms = pairwise([*moments_ms, moments_ms[-1] + sizes.kill_every_s * 1000])
        gaps_ms = [gap_ms(read, *window_ms) for window_ms in windows_ms]
        return {
            "kill": statistics.median(gaps_ms),
            "kill.max": max(gaps_ms),
            "kill.lost": count - read.distinct,
            "kill.doubled": read.came - read.distinct,
        }

    def _load_ahead(self, topic: str, count: int, span_ms: int) -> int:
        """Loads messages that fall due from a moment on (returned, epoch ms) before which all of them wait.
        Raises `TimeoutError` if that took too long.
        """
        due_ms = _in_ms((SPARE_S + SLOWER * count / self._per_s) * 1000)
        self._load(topic, Sending(count, first_due_ms=due_ms, span_ms=span_ms))
        if time.time() * 1000 > due_ms:
            raise TimeoutError(f"{count} messages were not taken in before the first was due")
        return due_ms

    def _load(self, topic: str, sending: Sending) -> float:
        """The seconds until all of it was acknowledged."""
        with self._peer.load(topic, sending) as loading:
            return float(loading.result())


class _Memory:
    """Looks at what the peer's servers hold of memory, for as long as it is entered: their own, without files
    that they have mapped.
    """

    def __init__(self, peer: Peer) -> None:
        self.peak_mb = self.peak_added_mb = 0.0
        self._peer = peer
        self._over = threading.Event()
        self._failed: Exception | None = None
        self._thread = threading.Thread(target=self._watch, name="memory", daemon=True)

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._over.set()
        self._thread.join()
        if self._failed is not None and error is None:
            raise self._failed

    def _watch(self) -> None:
        try:
            while not self._over.wait(LOOK_S):
                self._look()
        except Exception as error:
            self._failed = error

    def _look(self) -> None:
        self.peak_mb = max(self.peak_mb, held_mb(self._peer.processes()))
        self.peak_added_mb = max(self.peak_added_mb, held_mb(self._peer.added_processes()))


def held_mb(pids: Sequence[int]) -> float:
    """What processes hold, each its own, and what they share once; some may be gone. Linux alone tells these
    from files; elsewhere it is all that is in memory.
    """
    own_bytes, shared_bytes = 0, 0
    for pid in pids:
        try:
            if sys.platform != "linux":
                own_bytes += psutil.Process(pid).memory_info().rss
                continue
            said = Path(f"/proc/{pid}/status").read_text()
        except (psutil.NoSuchProcess, FileNotFoundError, ProcessLookupError):
            continue
        kept = dict(re.findall(r"^(RssAnon|RssShmem):\s+([0-9]+) kB$", said, re.MULTILINE))
        own_bytes += 1024 * int(kept.get("RssAnon", 0))
        shared_bytes = max(shared_bytes, 1024 * int(kept.get("RssShmem", 0)))
    return (own_bytes + shared_bytes) / 2**20


def gap_ms(read: Read, from_ms: float, until_ms: float) -> float:
    """The longest time in which nothing came, of those that reach into the time from a kill to the next one.
    What was on its way then still comes; a gap that is too short to be noted is counted as the longest such.
    """
    gaps = [long_ms for at_ms, long_ms in read.gaps if at_ms < until_ms and at_ms + long_ms > from_ms]
    return max(gaps, default=float(GAP_MS))


def _whole(read: Read, count: int) -> Read:
    """Raises `TimeoutError` if it is not all."""
    if read.distinct != count:
        raise TimeoutError(f"{count - read.distinct} of {count} messages have not come")
    return read


def _in_ms(ahead_ms: float) -> int:
    return int(time.time() * 1000 + ahead_ms)


def _wait_until(moment_ms: float) -> None:
    time.sleep(max(0.0, moment_ms / 1000 - time.time()))
