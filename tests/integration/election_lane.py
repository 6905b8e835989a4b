"""A lane's candidates as real processes, and an operator's look at ZooKeeper beside them."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

from kazoo.client import KazooClient
from kazoo.exceptions import NoNodeError

from election.candidates import Candidate, in_order
from election.znodes import Znodes
from tests.support import waiting
from tests.support.process import is_stopped

PATIENCE_S = 20.0
_ROOT = Path(__file__).parents[2]

Line = dict[str, Any]


NEVER_SILENT_S = 60.0


class CandidateProcess:
    """One candidate (tests/integration/candidate_process.py) and all that it has said."""

    def __init__(
        self,
        cluster: str,
        node: str,
        zookeeper: str,
        session_timeout_s: float,
        peer_port: int,
        yield_s: float | None,
        silence_s: float,
    ) -> None:
        self.node = node
        self.lines: list[Line] = []
        self._said = threading.Condition()
        given = {
            "cluster": cluster,
            "node": node,
            "zookeeper": zookeeper,
            "session_timeout_s": session_timeout_s,
            "peer_port": peer_port,
            "yield_s": yield_s,
            "silence_s": silence_s,
        }
        self.process = subprocess.Popen(
            [sys.executable, "-m", "tests.integration.candidate_process", json.dumps(given)],
            cwd=_ROOT,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            bufsize=1,
        )
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()

    def _read(self) -> None:
        assert self.process.stdout is not None
        for line in self.process.stdout:
            with self._said:
                self.lines.append(json.loads(line))
                self._said.notify_all()

    def wait(self, matches: Callable[[Line], bool], *, after: int = 0, timeout_s: float = PATIENCE_S) -> Line:
        """The first line from index `after` on that matches."""

        def found() -> Line | None:
            return next((line for line in self.lines[after:] if matches(line)), None)

        with self._said:
            self._said.wait_for(lambda: found() is not None, timeout_s)
            line = found()
        assert line is not None, f"{self.node} did not say it within {timeout_s} s: {self.lines}"
        return line

    def until(self, role: str, *, after: int = 0, timeout_s: float = PATIENCE_S) -> Line:
        return self.wait(lambda line: line.get("role") == role, after=after, timeout_s=timeout_s)

    def until_session(self, status: str, *, after: int = 0) -> Line:
        return self.wait(lambda line: line.get("status") == status, after=after)

    def roles(self) -> list[str]:
        return [line["role"] for line in list(self.lines) if line["event"] == "state"]

    def order(self, command: str) -> None:
        assert self.process.stdin is not None
        self.process.stdin.write(command + "\n")
        self.process.stdin.flush()

    def confirm(self, timeout_s: float = PATIENCE_S) -> bool | None:
        """The candidate's own `confirm`; None: Unavailable."""
        after = len(self.lines)
        self.order(f"confirm {timeout_s}")
        patience_s = timeout_s + PATIENCE_S
        line = self.wait(lambda line: line["event"] == "confirmed", after=after, timeout_s=patience_s)
        answer: bool | None = line["answer"]
        return answer

    @property
    def port(self) -> int:
        port: int = self.wait(lambda line: line["event"] == "started")["port"]
        return port

    def signal(self, which: signal.Signals) -> int:
        """Send it; the monotonic time just before, ns."""
        at_ns = time.monotonic_ns()
        os.kill(self.process.pid, which)
        return at_ns

    def kill(self) -> int:
        return self.signal(signal.SIGKILL)

    def pause(self) -> int:
        return self.signal(signal.SIGSTOP)

    def resume(self) -> int:
        return self.signal(signal.SIGCONT)

    def close(self) -> None:
        self.process.kill()
        self.process.wait()
        self._reader.join()
        for pipe in (self.process.stdin, self.process.stdout):
            if pipe is not None:
                pipe.close()


class Lane:
    """The candidates of one lane in the order they were started."""

    def __init__(
        self,
        zookeeper: str,
        cluster: str,
        session_timeout_s: float,
        yield_s: float | None = None,
        silence_s: float = NEVER_SILENT_S,
    ) -> None:
        self.zookeeper = zookeeper
        self.cluster = cluster
        self.session_timeout_s = session_timeout_s
        self.yield_s = yield_s
        self.silence_s = silence_s
        self.path = Znodes(cluster).candidates(0)
        self.started: list[CandidateProcess] = []

    def begin(self, node: str, peer_port: int = 0) -> CandidateProcess:
        """Start a candidate without waiting for anything."""
        candidate = CandidateProcess(
            self.cluster,
            node,
            self.zookeeper,
            self.session_timeout_s,
            peer_port,
            self.yield_s,
            self.silence_s,
        )
        self.started.append(candidate)
        return candidate

    def join(self, node: str, peer_port: int = 0) -> CandidateProcess:
        """Start a candidate, and wait until it is queued up and connected to those ahead of it."""
        candidate = self.begin(node, peer_port)
        candidate.wait(lambda line: line.get("role") in ("follower", "leader"))
        candidate.order("greeted")
        candidate.wait(lambda line: line["event"] == "greeted")
        return candidate

    def join_all(self, *nodes: str) -> list[CandidateProcess]:
        return [self.join(node) for node in nodes]

    def close(self) -> None:
        for candidate in self.started:
            candidate.close()


@contextmanager
def operator(hosts: str) -> Iterator[KazooClient]:
    """A plain ZooKeeper client, as somebody with a shell would use it."""
    client = KazooClient(hosts=hosts)
    client.start(timeout=PATIENCE_S)
    try:
        yield client
    finally:
        client.stop()
        client.close()


def queue(client: KazooClient, path: str) -> list[Candidate]:
    """The candidates by their znodes, the leader first."""
    found = []
    for name in in_order(client.get_children(path)):
        with suppress(NoNodeError):  # it has gone since
            found.append(Candidate.decode(client.get(f"{path}/{name}")[0]))
    return found


@contextmanager
def paused(pid: int | None) -> Iterator[None]:
    """A process that stands still meanwhile."""
    assert pid is not None, "it runs"
    os.kill(pid, signal.SIGSTOP)
    try:
        eventually(lambda: is_stopped(pid))
        yield
    finally:
        os.kill(pid, signal.SIGCONT)


def eventually(holds: Callable[[], bool], timeout_s: float = PATIENCE_S) -> None:
    """As tests/support/waiting.py, with the patience of these tests."""
    waiting.eventually(holds, "it comes true", timeout_s)
