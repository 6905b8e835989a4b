"""What all that are compared have in common: servers to start, kill and hold, topics, and jobs."""

from __future__ import annotations

import os
import signal
from abc import ABC, abstractmethod
from collections.abc import Sequence
from pathlib import Path

from bench.job import JobProcess
from bench.peers.job import Reading, Sending
from ops.stack.server import Server


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

    def __init__(self, folder: Path) -> None:
        """`folder`: empty, its own."""
        self.folder = folder

    @property
    @abstractmethod
    def servers(self) -> Sequence[Server]:
        """All of them, in the order of their start."""

    @property
    @abstractmethod
    def delays(self) -> Server:
        """The one that is killed: it keeps what waits."""

    @abstractmethod
    def topic(self) -> str:
        """A fresh topic."""

    @abstractmethod
    def load(self, topic: str, sending: Sending) -> JobProcess:
        """Sends beside what else is going on; returns once the first is about to be sent."""

    @abstractmethod
    def read(self, topic: str, reading: Reading) -> JobProcess:
        """Reads beside what else is going on; returns once it is about to read."""

    @abstractmethod
    def disk_bytes(self) -> int:
        """What all its data takes on the disk."""

    def start(self) -> None:
        """Starts its servers, and waits until they serve."""
        for server in self.servers:
            server.start()

    def stop(self) -> None:
        """Ends its servers."""
        for server in reversed(self.servers):
            server.stop()

    def wait_settled(self) -> None:  # noqa: B027 - for most they are the same
        """Waits until what was acknowledged waits for its time, where the two are not the same."""

    def kill(self) -> None:
        """Kills (SIGKILL) what keeps what waits."""
        self.delays.kill()

    def restart(self) -> None:
        """Starts it again, and does not wait."""
        self.delays.launch()

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
        assert self.delays.pid is not None, "it runs"
        os.kill(self.delays.pid, number)


class Polled(Peer):
    """One whose reader asks for what is due: so it is the reader that is held."""

    def hold(self, reading: JobProcess) -> None:
        os.kill(reading.pid, signal.SIGSTOP)

    def release(self, reading: JobProcess) -> None:
        os.kill(reading.pid, signal.SIGCONT)


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
