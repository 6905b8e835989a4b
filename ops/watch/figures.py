"""What a watch knows, for Prometheus."""

from __future__ import annotations

from collections.abc import Iterable
from threading import Lock

from prometheus_client import CollectorRegistry, generate_latest
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

from ops.watch.rounds import Ended
from pipeline.audit.report import KINDS
from pipeline.watch.marker import Marker


class WatchFigures(Collector):
    """Any thread may ask; the watch tells what each round has come to."""

    def __init__(self, cluster: str) -> None:
        self._cluster = cluster
        self._lock = Lock()
        self._marker: Marker | None = None
        self._took_s = 0.0
        self._failed: str | None = None
        self._failures = 0
        self._registry = CollectorRegistry()
        self._registry.register(self)

    def ended(self, one: Ended, took_s: float) -> None:
        with self._lock:
            self._marker, self._took_s, self._failed = one.marker, took_s, None

    def known(self, marker: Marker | None) -> None:
        """Where the last watch had come to."""
        with self._lock:
            self._marker = marker

    def failed(self, why: str) -> None:
        with self._lock:
            self._failed = why
            self._failures += 1

    def last(self) -> tuple[Marker | None, str | None, float]:
        """The last round's marker, why the one after it has failed, and how long the last one took, in s."""
        with self._lock:
            return self._marker, self._failed, self._took_s

    def text(self) -> bytes:
        """In Prometheus' format."""
        return generate_latest(self._registry)

    def collect(self) -> Iterable[Metric]:
        marker, _, took_s = self.last()
        failures = CounterMetricFamily(
            "delayline_audit_failed_rounds", "Rounds that could not be ended.", labels=["cluster"]
        )
        failures.add_metric([self._cluster], self._failures)
        yield failures
        if marker is None:
            return
        found = CounterMetricFamily(
            "delayline_audit_violations", "Violations that were told.", labels=["cluster", "kind"]
        )
        stand = GaugeMetricFamily(
            "delayline_audit_violations_open", "Those that stand.", labels=["cluster", "kind"]
        )
        for kind in KINDS:
            found.add_metric([self._cluster, kind], marker.found.get(kind, 0))
            stand.add_metric([self._cluster, kind], marker.open.get(kind, 0))
        yield found
        yield stand
        for name, help_, value in (
            (
                "proven_up_to_seconds",
                "All that was due before is accounted for.",
                marker.proven_up_to_ms / 1000,
            ),
            ("read_up_to_seconds", "When the last round noted what there was.", marker.taken_ms / 1000),
            ("round_seconds", "How long the last round took.", took_s),
            ("open_requests", "Requests that may still change.", marker.open_requests),
        ):
            gauge = GaugeMetricFamily(f"delayline_audit_{name}", help_, labels=["cluster"])
            gauge.add_metric([self._cluster], value)
            yield gauge
