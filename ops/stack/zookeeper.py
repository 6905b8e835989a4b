"""A ZooKeeper server: the one that PySpark's package carries."""

from __future__ import annotations

import socket
from pathlib import Path

from ops.setup.jars import zookeeper_jars
from ops.setup.java import find_java
from ops.stack.jvm import classpath, log4j2_option
from ops.stack.ports import HOST
from ops.stack.server import Server

_CONFIG = """\
tickTime={tick_ms}
minSessionTimeout={shortest_ms}
maxSessionTimeout=60000
dataDir={data}
clientPort={port}
clientPortAddress={host}
maxClientCnxns=0
admin.enableServer=false
4lw.commands.whitelist=srvr, conf
"""


class ZooKeeperServer(Server):
    """One ZooKeeper server, standalone.

    Args:
        folder: the stack's data folder.
        port: the client port.
        tick_ms: its unit of time: sessions end on a tick, and the shortest session is two of them.
    """

    def __init__(self, folder: Path, port: int, *, tick_ms: int) -> None:
        super().__init__("zookeeper", folder, port)
        self._tick_ms = tick_ms

    def serves(self) -> bool:
        """Ask it ``srvr``: it tells its mode only once it has loaded its data and takes requests."""
        try:
            with socket.create_connection((HOST, self.port), timeout=1) as connection:
                connection.sendall(b"srvr")
                return b"Mode: standalone" in connection.makefile("rb").read()
        except OSError:
            return False

    def _prepare(self) -> None:
        config = _CONFIG.format(
            tick_ms=self._tick_ms, shortest_ms=2 * self._tick_ms, data=self.data, port=self.port, host=HOST
        )
        self._config.write_text(config)

    def _command(self) -> list[str]:
        return [
            str(find_java()), "-Xmx256m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1",
            log4j2_option(self.log, self.data), "-Dzookeeper.jmx.log4j.disable=true",
            "-cp", classpath(zookeeper_jars()),
            "org.apache.zookeeper.server.quorum.QuorumPeerMain", str(self._config),
        ]  # fmt: skip

    @property
    def _config(self) -> Path:
        return self.data / "zoo.cfg"
