"""The delay nodes as processes: what `delayline node run` starts, each under a supervisor of its own.

The supervisor (`ops.stack.supervisor`) ends its node when this process is gone, however it went.
"""

from __future__ import annotations

import os
import signal
import sys
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import yaml

from ops.stack.ports import HOST, accepts
from ops.stack.server import Server


@dataclass(frozen=True, slots=True)
class NodeOptions:
    """What all nodes of a cluster are told."""

    bootstrap: str
    zookeeper: str
    session_timeout_s: float
    cluster: str = "delay"
    more: Mapping[str, Any] = field(default_factory=dict)  # of the configuration


class NodeProcess(Server):
    """One node; `start`, `stop`, `kill` as a server of the stack's.

    Args:
        name: its node id.
        folder: the demo's folder; the node's data is in `folder/name`, its log in `folder/logs`.
        port: its peer port.
        options: where the cluster is.
    """

    def __init__(self, name: str, folder: Path, port: int, options: NodeOptions) -> None:
        super().__init__(name, folder, port)
        self._options = options

    def pause(self) -> None:
        """Stop it dead, with its connections open (SIGSTOP)."""
        self._signal(signal.SIGSTOP)

    def resume(self) -> None:
        """Let a paused one go on, none the wiser (SIGCONT)."""
        self._signal(signal.SIGCONT)

    def serves(self) -> bool:
        """Whether it holds its peer port: it is configured and runs, and may still be catching up."""
        return accepts(self.port)

    def _signal(self, number: signal.Signals) -> None:
        assert self.pid is not None, f"{self.name} is not running"
        os.kill(self.pid, number)

    def _prepare(self) -> None:
        config = {
            "cluster": self._options.cluster,
            "bootstrap_servers": self._options.bootstrap,
            "zookeeper": self._options.zookeeper,
            "session_timeout_s": self._options.session_timeout_s,
            "node_id": self.name,
            "data_dir": str(self.data),
            "peer_host": HOST,
            "peer_port": self.port,
            **self._options.more,
        }
        self._config.write_text(yaml.safe_dump(config))

    def _command(self) -> list[str]:
        return [sys.executable, "-m", "ops.cli.main", "node", "run", "--config", str(self._config)]

    @property
    def _config(self) -> Path:
        return self.data / "node.yaml"
