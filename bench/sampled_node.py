"""A node as `delayline node run` starts it, that also writes down every 20 ms how far it has come.

`python -m bench.sampled_node CONFIG SAMPLES`. A line of SAMPLES: epoch ms, messages ingested, 1 if it is
master, the time up to which everything due is known to be delivered, epoch ms, and the most memory that it
has held, in bytes.
"""

from __future__ import annotations

import logging
import resource
import sys
import threading
import time
from pathlib import Path
from typing import Final

from node.config import NodeConfig
from node.node import Node, NodeState
from ops import config, logs

PERIOD_S: Final = 0.02


def _sample(node: Node, samples: Path) -> None:
    with samples.open("a") as out:
        while True:
            status = node.status()
            ingested, master = sum(status.ingested.values()), status.state == NodeState.MASTER
            up_to_ms, peak_bytes = status.delivered_up_to_ms, _peak_bytes()
            out.write(f"{time.time_ns() / 1e6:.1f} {ingested} {master:d} {up_to_ms} {peak_bytes}\n")
            out.flush()
            time.sleep(PERIOD_S)


def _peak_bytes() -> int:
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return peak if sys.platform == "darwin" else peak * 1024  # macOS counts bytes, Linux kB


def main() -> int:
    """Run it until SIGTERM."""
    file, samples = map(Path, sys.argv[1:])
    loaded = config.load(NodeConfig, file=file, flags={})
    logs.configure(logging.INFO, node=loaded.node_id, lane=loaded.lane)
    node = Node(loaded)
    threading.Thread(target=_sample, args=(node, samples), daemon=True).start()
    return node.run()


if __name__ == "__main__":
    sys.exit(main())
