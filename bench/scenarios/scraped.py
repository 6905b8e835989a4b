"""How late messages come while the node's metrics are read all the time, and by clients that hang."""

from __future__ import annotations

import time
from typing import Final, Literal, get_args

from bench.cluster import Cluster, Clusters
from bench.figures import RATE
from bench.measured import Measured
from bench.reader import Read, Reading
from bench.scenarios import lateness
from bench.watcher import Watched, Watching

By = Literal["none", "scraped", "hanging"]
"""Who reads: nobody; Prometheus, ten times a second; it, and clients that hang."""
WATCHED: Final[tuple[By, ...]] = get_args(By)

SCRAPE_EVERY_S: Final = 0.1
SLOW: Final = 16
HALF: Final = 32


class Scraped:
    """A steady rate, as `lateness.Steady`."""

    def __init__(self, by: By, rate: int) -> None:
        self._by = by
        self._rate = rate
        self.messages = rate * (lateness.MEASURED_S + lateness.WARM_UP_MS // 1000)

    def run(self, clusters: Clusters) -> Measured:
        with clusters.cluster("scraped") as cluster:
            cluster.node.lead()
            if self._by == "none":
                return _measured(self._name, self._read(cluster))
            with self._watching(cluster).begin() as watcher:
                read = self._read(cluster)
                return _measured(self._name, read, Watched(**watcher.result()))

    @property
    def _name(self) -> str:
        return f"scraped.{self._by}.{self._rate}"

    def _watching(self, cluster: Cluster) -> Watching:
        host, port = cluster.node_address()
        for_s = lateness.MEASURED_S + (lateness.WARM_UP_MS + lateness.LEAD_MS) / 1000
        hanging = self._by == "hanging"
        return Watching(
            host, port, for_s, SCRAPE_EVERY_S, slow=SLOW if hanging else 0, half=HALF if hanging else 0
        )

    def _read(self, cluster: Cluster) -> tuple[Read, float]:
        """What was read, and at which rate it was sent."""
        from_ms = int(time.time() * 1000) + lateness.LEAD_MS + lateness.WARM_UP_MS
        reading = Reading(cluster.bootstrap, cluster.target, self.messages, lateness=True, from_ms=from_ms)
        load = cluster.load(self.messages, rate=self._rate, lead_ms=lateness.LEAD_MS, settings={})
        with reading.begin() as reader:
            sent_s = load.send()
            return Read(**reader.result()), self.messages / sent_s


def _measured(name: str, found: tuple[Read, float], watched: Watched | None = None) -> Measured:
    read, rate = found
    figures = {
        f"{name}.p50": read.p50_ms,
        f"{name}.p99": read.p99_ms,
        f"{name}.max": read.max_ms,
        f"{name}{RATE}": rate,
    }
    if watched is not None:
        figures |= {f"{name}.answer": watched.longest_ms, f"{name}.scrapes": watched.scrapes_per_s}
    return Measured(figures, {name: read.histogram})
