"""How late messages come, end to end (to a read_committed consumer), at a steady rate and in a burst."""

from __future__ import annotations

from typing import Final

from bench.cluster import Clusters
from bench.measured import Measured
from bench.reader import ReadJob, ReadResult
from bench.scenarios.steady import Pace

BURST_MS: Final = 1_000


class Steady:
    """Messages at a rate, each due a second after it is sent."""

    def __init__(self, rate: int) -> None:
        self._pace = Pace(rate)
        self.messages = self._pace.messages

    def run(self, clusters: Clusters) -> Measured:
        with clusters.cluster("steady") as cluster:
            cluster.node.lead()
            came = self._pace.come(cluster)
            name = f"lateness.{self._pace.rate}"
            more = {f"{name}.min": came.read.min_ms, f"memory.{name}": cluster.node.peak_memory_mb()}
            return came.measured(name, more)


class Burst:
    """Many messages, all due within one second."""

    def __init__(self, messages: int) -> None:
        self.messages = messages

    def run(self, clusters: Clusters) -> Measured:
        with clusters.cluster("burst") as cluster:
            node, messages = cluster.node, self.messages
            node.lead()
            with ReadJob(cluster.bootstrap, cluster.target, messages).begin() as reader:
                due_ms = cluster.load_ahead(messages, BURST_MS).first_due_ms
                read = ReadResult(**reader.result())
            moments = {
                "first": read.first_ms,
                "half": read.half_ms,
                "p99": read.most_ms,
                "last": read.last_ms,
            }
            figures = {f"burst.{name}": at_ms - due_ms for name, at_ms in moments.items()}
            return Measured(figures | {"memory.burst": node.peak_memory_mb()})
