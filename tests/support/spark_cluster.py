"""A standalone Spark cluster on this machine, from the jars that PySpark carries."""

from __future__ import annotations

import json
import os
import subprocess
import urllib.request
from contextlib import suppress
from pathlib import Path
from typing import Any, Final

import psutil
import pyspark

from ops.setup.java import java_home
from ops.stack.ports import HOST, free_port
from tests.support.closing import Closing
from tests.support.waiting import becomes, eventually

_HOME: Final = Path(pyspark.__file__).parent
_MEMORY: Final = "1100m"
_SUBMIT_S: Final = 200.0


class SparkCluster(Closing):
    """One master and some workers of one core each, which have nothing of delayline's on their path."""

    def __init__(self, folder: Path, workers: int) -> None:
        self._folder = folder
        self._port, self._web_port = free_port(), free_port()
        self.url = f"spark://{HOST}:{self._port}"
        ports = ["--host", HOST, "--port", str(self._port), "--webui-port", str(self._web_port)]
        self._master = self._start("master.Master", *ports)
        self._workers: list[subprocess.Popen[bytes]] = []
        try:
            self._begin(workers)
        except BaseException:
            self.close()
            raise

    def _begin(self, workers: int) -> None:
        eventually(self._state, "the master answers")
        self.fill_up(workers)

    def fill_up(self, workers: int) -> None:
        """Starts as many as are missing of so many."""
        while len(self._workers) < workers:
            port = str(free_port())
            place = ["--host", HOST, "--webui-port", port, "-d", str(self._folder / port)]
            self._workers.append(
                self._start("worker.Worker", "--cores", "1", "--memory", _MEMORY, *place, self.url)
            )
        becomes(self._alive, workers)

    def kill_worker(self, *, reading_from: int | None = None) -> None:
        """SIGKILL for one that has an executor, and for its executor; where a port is given, once that has a
        connection to it.
        """
        (worker, *_) = eventually(lambda: self._at_work(reading_from), "a worker has an executor at work")
        for child in psutil.Process(worker.pid).children(recursive=True):
            with suppress(psutil.NoSuchProcess):  # it ends by itself where what it worked for is killed
                child.kill()
        worker.kill()
        worker.wait()
        self._workers.remove(worker)

    def reads_from(self, port: int) -> bool:
        """Whether an executor has a connection to it."""
        return bool(self._at_work(port))

    def _at_work(self, port: int | None) -> list[subprocess.Popen[bytes]]:
        executors = ((one, child) for one in self._workers for child in psutil.Process(one.pid).children())
        return [worker for worker, one in executors if port is None or port in _ports_of(one)]

    def finished(self) -> list[str]:
        """The names of the sessions that had executors here and have ended, the last one first."""
        return [app["name"] for app in self._state().get("completedapps", [])]

    def submit(self, *arguments: str, python: Path, folder: Path) -> str:
        """What `spark-submit` says, once it has ended well. It runs in the folder, and so does a Python that
        has `packages` there on its path.
        """
        done = subprocess.run(
            [_HOME / "bin" / "spark-submit", "--master", self.url, *arguments],
            capture_output=True,
            text=True,
            cwd=folder,
            env=self._environment() | {"PYTHONPATH": "packages", "PYSPARK_PYTHON": str(python)},
            check=False,
            timeout=_SUBMIT_S,
        )
        assert done.returncode == 0, done.stdout + done.stderr
        return done.stdout

    def close(self) -> None:
        """Ends all of it."""
        for process in [*self._workers, self._master]:
            process.terminate()
        for process in [*self._workers, self._master]:
            process.wait()

    def _start(self, name: str, *arguments: str) -> subprocess.Popen[bytes]:
        with (self._folder / f"{name}-{free_port()}.log").open("wb") as log:
            return subprocess.Popen(
                [_HOME / "bin" / "spark-class", f"org.apache.spark.deploy.{name}", *arguments],
                stdout=log,
                stderr=log,
                env=self._environment(),
            )

    def _environment(self) -> dict[str, str]:
        inherited = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
        return inherited | {
            "JAVA_HOME": str(java_home()),
            "SPARK_DAEMON_JAVA_OPTS": "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC",
            "SPARK_DAEMON_MEMORY": "128m",
            "SPARK_HOME": str(_HOME),
            "SPARK_LOCAL_IP": HOST,
        }

    def _alive(self) -> int:
        return int(self._state().get("aliveworkers", 0))

    def _state(self) -> dict[str, Any]:
        try:
            with urllib.request.urlopen(f"http://{HOST}:{self._web_port}/json/", timeout=5) as answer:
                found: dict[str, Any] = json.load(answer)
                return found
        except (OSError, ValueError):  # its page is there before it has anything to say
            return {}


def _ports_of(process: psutil.Process) -> set[int]:
    """To which it is connected."""
    up = psutil.CONN_ESTABLISHED
    try:
        return {one.raddr.port for one in process.net_connections("tcp") if one.status == up}
    except psutil.NoSuchProcess:
        return set()
