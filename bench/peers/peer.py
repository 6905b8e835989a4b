"""What all that are compared have in common: servers to start, kill and hold, topics, and jobs."""

from __future__ import annotations

import os
import signal
import time
from abc import ABC, abstractmethod
from collections.abc import Sequence
from pathlib import Path
from typing import Final

import psutil

from bench.job import JobProcess
from bench.peers.job import Reading, Sending
from ops.stack.server import Server

SETTLES_S: Final = 60.0
STILL_S: Final = 1.0
AT_REST: Final = 0.3
"""Of one core, all its servers together: a JVM that does nothing takes some."""


class Peer(ABC):
    """A delay service on this machine, with data of its own. `start` once, `stop` once."""

    name: str
    """In the names of figures."""
    title: str
    """For people, with its version."""
    settings: str
    """What it is set to beside its defaults."""
    lacks: str
    """What it does not do of what is asked of a delay service."""
    needs_reader = False
    """Whether it keeps track only of what somebody waits for."""

    def __init__(self, folder: Path) -> None:
        """`folder`: empty, its own."""
        self.folder = folder

    @property
    def servers(self) -> Sequence[Server]:
        """All of them, in the order of their start."""
        return self.holders

    @property
    @abstractmethod
    def holders(self) -> Sequence[Server]:
        """Those that hold what waits: they are killed, and held themselves."""

    @abstractmethod
    def topic(self) -> str:
        """A fresh topic."""

    @abstractmethod
    def _begin(self, topic: str, what: Sending | Reading) -> JobProcess:
        """Does it beside what else is going on; returns once it is about to begin."""

    def load(self, topic: str, sending: Sending) -> JobProcess:
        """Sends beside what else is going on; returns once the first is about to be sent."""
        return self._begin(topic, sending)

    def read(self, topic: str, reading: Reading) -> JobProcess:
        """Reads beside what else is going on; returns once it is about to read."""
        return self._begin(topic, reading)

    @abstractmethod
    def disk_bytes(self) -> int:
        """What all its data takes on the disk."""

    @classmethod
    def version(cls) -> str:
        """Of the system's, if it is that; else the title says it."""
        return ""

    def start(self) -> None:
        """Starts its servers, and waits until they serve."""
        for server in self.servers:
            server.start()

    def stop(self) -> None:
        """Ends its servers."""
        for server in reversed(self.servers):
            server.stop()

    def wait_settled(self) -> None:
        """Waits until what was acknowledged waits for its time: until its servers have nothing more to do.
        Raises `TimeoutError`.
        """
        deadline_s = time.monotonic() + SETTLES_S
        before_us = self.cpu_us()
        while True:
            time.sleep(STILL_S)
            now_us = self.cpu_us()
            if now_us - before_us < AT_REST * STILL_S * 1e6:
                return
            if time.monotonic() > deadline_s:
                raise TimeoutError(f"{self.title}: it has not come to rest within {SETTLES_S:g} s")
            before_us = now_us

    def kill(self) -> None:
        """Kills (SIGKILL) what holds what waits, and starts it again at once. Returns once that serves."""
        for server in self.holders:
            server.kill()
        for server in self.holders:
            server.launch()
        for server in self.holders:
            server.wait_ready()

    def cpu_us(self) -> float:
        """What its servers have used so far."""
        return 1e6 * sum(_cpu_s(pid) for pid in self.processes())

    def hold(self, reading: JobProcess) -> None:
        """Nothing is delivered from now on (SIGSTOP). `reading`: the job that reads."""
        del reading
        self._signal(signal.SIGSTOP)

    def release(self, reading: JobProcess) -> None:
        """It goes on (SIGCONT)."""
        del reading
        self._signal(signal.SIGCONT)

    def processes(self) -> list[int]:
        """The ids of its servers, of those that run."""
        return [pid for server in self.servers if (pid := server.pid) is not None]

    def added_processes(self) -> list[int]:
        """Of these, what it adds to what its users have anyway."""
        return self.processes()

    def _signal(self, number: signal.Signals) -> None:
        for server in self.holders:
            assert server.pid is not None, "it runs"
            os.kill(server.pid, number)


class Polled(Peer):
    """One whose reader asks for what is due: so it is the reader that is held."""

    def hold(self, reading: JobProcess) -> None:
        os.kill(reading.pid, signal.SIGSTOP)

    def release(self, reading: JobProcess) -> None:
        os.kill(reading.pid, signal.SIGCONT)


def _cpu_s(pid: int) -> float:
    """Of a process, and of those of its children that have ended; it may be gone."""
    try:
        times = psutil.Process(pid).cpu_times()
    except psutil.NoSuchProcess:
        return 0.0
    return float(times.user + times.system + times.children_user + times.children_system)


def disk_bytes_of(folder: Path) -> int:
    """What is on the disk of it: files that are only set aside do not count."""
    total = 0
    for parent, _, files in os.walk(folder):
        for name in files:
            try:
                total += (Path(parent) / name).stat().st_blocks * 512
            except FileNotFoundError:  # it has been compacted away
                continue
    return total
