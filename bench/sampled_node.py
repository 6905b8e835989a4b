"""A node as `delayline node run` starts it, that also writes down every 20 ms how far it has come.

`python -m bench.sampled_node CONFIG SAMPLES BROKER`; the broker by its process id. A line of SAMPLES: epoch
ms, messages applied, 1 if it is leader, the time up to which everything due is known to be delivered, epoch
ms, the most memory that it has held, in bytes, and the CPU time that it and the broker have taken, in
microseconds.
"""

from __future__ import annotations

import logging
import resource
import sys
import threading
import time
from pathlib import Path
from typing import Final

import psutil

from node.config import NodeConfig
from node.node import Node
from node.status import NodeState
from ops import config, logs

PERIOD_S: Final = 0.02


def _sample(node: Node, samples: Path, broker: psutil.Process) -> None:
    with samples.open("a") as out:
        while True:
            status = node.status()
            applied, leader = sum(status.applied.values()), status.state == NodeState.LEADER
            up_to_ms = status.delivered_up_to_ms
            peak_bytes = peak_bytes_of(resource.getrusage(resource.RUSAGE_SELF))
            cpu_us = f"{time.process_time_ns() // 1000} {_cpu_us(broker)}"
            out.write(f"{time.time_ns() / 1e6:.1f} {applied} {leader:d} {up_to_ms} {peak_bytes} {cpu_us}\n")
            out.flush()
            time.sleep(PERIOD_S)


def peak_bytes_of(used: resource.struct_rusage) -> int:
    """The most memory that a process has held."""
    return used.ru_maxrss if sys.platform == "darwin" else used.ru_maxrss * 1024  # macOS counts bytes


def _cpu_us(process: psutil.Process) -> int:
    """In ticks of the system's clock, which has a hundred a second."""
    times = process.cpu_times()
    return round((times.user + times.system) * 1e6)


def main() -> int:
    """Run it until SIGTERM."""
    file, samples, broker = Path(sys.argv[1]), Path(sys.argv[2]), psutil.Process(int(sys.argv[3]))
    loaded = config.load(NodeConfig, file=file, flags={})
    logs.configure(logging.INFO, node=loaded.node_id, lane=loaded.lane)
    node = Node(loaded)
    threading.Thread(target=_sample, args=(node, samples, broker), daemon=True).start()
    return node.run()


if __name__ == "__main__":
    sys.exit(main())
