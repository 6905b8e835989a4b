"""`delayline node run --lanes` as an operator starts it, and how its processes stand."""

from __future__ import annotations

import http.client
import json
import os
import signal
import subprocess
import sys
import tempfile
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import psutil
import yaml

from node.config import lane_numbers
from ops.stack.ports import HOST, free_port, is_free
from tests.support.closing import Closing
from tests.support.cluster import NEVER_SILENT_MS, SESSION_TIMEOUT_S, Cluster
from tests.support.waiting import PATIENCE_S, eventually

ROOT = Path(__file__).parents[2]
_TRIES = 100


class Heard(NamedTuple):
    """An answer over HTTP."""

    status: int
    body: bytes

    @property
    def data(self) -> Any:
        return json.loads(self.body)


class Supervised(Closing):
    """One command's processes; `NAME-LANE` are its nodes."""

    def __init__(
        self, cluster: Cluster, lanes: str = "0-1", name: str = "n", environment: dict[str, str] | None = None
    ) -> None:
        self._cluster = cluster
        self._name = name
        self.lanes = lane_numbers(lanes)
        self.http_port = free_port()
        self.peer_port = _free_ports(self.lanes[-1] + 1)  # lane 0's
        self.folder = cluster.folder / name
        self.log = cluster.folder / f"{name}.log"
        config = cluster.folder / f"{name}.yaml"
        config.write_text(
            yaml.safe_dump(
                {
                    "cluster": cluster.name,
                    "bootstrap_servers": cluster.bootstrap,
                    "zookeeper": cluster.zookeeper,
                    "session_timeout_s": SESSION_TIMEOUT_S,
                    "peer_silence_ms": NEVER_SILENT_MS,
                    "peer_host": HOST,
                    "peer_port": self.peer_port,
                    "http_port": self.http_port,
                    "node_id": name,
                    "data_dir": str(self.folder),
                }
            )
        )
        command = ["-m", "ops.cli.main", "node", "run", "--lanes", lanes, "--config", str(config)]
        self._temporary = tempfile.TemporaryDirectory()  # one that is killed leaves something there
        self.temporary = Path(self._temporary.name)
        variables = {"TMPDIR": self._temporary.name, **(environment or {})}
        with self.log.open("ab") as stream:
            self.process = subprocess.Popen(
                [sys.executable, *command], cwd=ROOT, env=os.environ | variables, stderr=stream
            )

    def node(self, lane: int) -> str:
        return f"{self._name}-{lane}"

    def wait_candidates(self) -> None:
        """Until each of its nodes may lead."""
        for lane in self.lanes:
            eventually(partial(self._stands, lane), f"{self.node(lane)} stands: see {self.log}")

    def pid(self, lane: int) -> int:
        """Of the lane's process, as its member znode has it."""
        member = eventually(lambda: self._cluster.member(self.node(lane)), f"{self.node(lane)} shows itself")
        return int(member["pid"])

    def children(self) -> list[psutil.Process]:
        """The lanes' processes that are there."""
        return psutil.Process(self.process.pid).children()

    def ask(self, path: str, method: str = "GET", timeout_s: float = PATIENCE_S) -> Heard:
        connection = http.client.HTTPConnection(HOST, self.http_port, timeout=timeout_s)
        try:
            connection.request(method, path)
            response = connection.getresponse()
            return Heard(response.status, response.read())
        finally:
            connection.close()

    def lines(self) -> list[dict[str, Any]]:
        """What all its processes have logged."""
        return [json.loads(line) for line in self.log.read_text().splitlines()]

    def events(self, name: str) -> list[dict[str, Any]]:
        """What was logged by that name."""
        return [line for line in self.lines() if line["event"] == name]

    def stop(self) -> int:
        self.process.send_signal(signal.SIGTERM)
        return self.process.wait(PATIENCE_S)

    def close(self) -> None:
        self.process.kill()  # its lanes' processes end with it
        self.process.wait()
        self._temporary.cleanup()

    def _stands(self, lane: int) -> bool:
        return self.node(lane) in self._cluster.candidates(lane)


def _free_ports(count: int) -> int:
    """The first of so many in a row."""
    for _ in range(_TRIES):
        port = free_port()
        if all(is_free(port + above) for above in range(count)):
            return port
    raise AssertionError(f"{count} ports in a row are free")
