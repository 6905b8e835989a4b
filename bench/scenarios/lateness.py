"""How late messages come, end to end (to a read_committed consumer), at a steady rate and in a burst."""

from __future__ import annotations

import time
from typing import Final

from bench.cluster import Clusters
from bench.figures import RATE
from bench.measured import Measured
from bench.reader import Read, Reading

LEAD_MS: Final = 1_000
WARM_UP_MS: Final = 3_000
MEASURED_S: Final = 10
BURST_MS: Final = 1_000


class Steady:
    """Messages at a rate, each due a second after it is sent."""

    def __init__(self, rate: int) -> None:
        self._rate = rate
        self.messages = rate * (MEASURED_S + WARM_UP_MS // 1000)

    def run(self, clusters: Clusters) -> Measured:
        with clusters.cluster("steady") as cluster:
            node = cluster.node
            node.lead()
            from_ms = int(time.time() * 1000) + LEAD_MS + WARM_UP_MS
            reading = Reading(
                cluster.bootstrap, cluster.target, self.messages, lateness=True, from_ms=from_ms
            )
            load = cluster.load(self.messages, rate=self._rate, lead_ms=LEAD_MS, settings={})
            with reading.begin() as reader:
                sent_s = load.send()
                read = Read(**reader.result())
            name = f"lateness.{self._rate}"
            return Measured(
                {
                    f"{name}.min": read.min_ms,
                    f"{name}.p50": read.p50_ms,
                    f"{name}.p99": read.p99_ms,
                    f"{name}.max": read.max_ms,
                    f"{name}{RATE}": self.messages / sent_s,
                    f"memory.{name}": node.peak_memory_mb(),
                },
                {name: read.histogram},
            )


class Burst:
    """Many messages, all due within one second."""

    def __init__(self, messages: int) -> None:
        self.messages = messages

    def run(self, clusters: Clusters) -> Measured:
        with clusters.cluster("burst") as cluster:
            node, messages = cluster.node, self.messages
            node.lead()
            with Reading(cluster.bootstrap, cluster.target, messages).begin() as reader:
                due_ms = cluster.load_ahead(messages, BURST_MS).first_due_ms
                read = Read(**reader.result())
            moments = {
                "first": read.first_ms,
                "half": read.half_ms,
                "p99": read.most_ms,
                "last": read.last_ms,
            }
            figures = {f"burst.{name}": at_ms - due_ms for name, at_ms in moments.items()}
            return Measured(figures | {"memory.burst": node.peak_memory_mb()})
