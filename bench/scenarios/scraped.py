"""How late messages come while the node's metrics are read all the time, and by clients that hang."""

from __future__ import annotations

from typing import Final, Literal, get_args

from bench.cluster import Cluster, Clusters
from bench.measured import Measured
from bench.scenarios.steady import TAKES_S, Pace
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
        self._pace = Pace(rate)
        self.messages = self._pace.messages

    def run(self, clusters: Clusters) -> Measured:
        name = f"scraped.{self._by}.{self._pace.rate}"
        with clusters.cluster("scraped") as cluster:
            cluster.node.lead()
            if self._by == "none":
                came = self._pace.come(cluster)
                return came.measured(name, {})
            with self._watching(cluster).begin() as watcher:
                came = self._pace.come(cluster)
                watched = Watched(**watcher.result())
        more = {f"{name}.answer": watched.longest_ms, f"{name}.scrapes": watched.scrapes_per_s}
        return came.measured(name, more)

    def _watching(self, cluster: Cluster) -> Watching:
        host, port = cluster.node_address()
        slow, half = (SLOW, HALF) if self._by == "hanging" else (0, 0)
        return Watching(host, port, TAKES_S, SCRAPE_EVERY_S, slow=slow, half=half)
