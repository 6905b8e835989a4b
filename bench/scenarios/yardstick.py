"""The yardstick: the best plain producer of a small sweep of settings, and the plain consumer.

The producer is idempotent with acks=all, as the service's own is, and sends the same records with the same
headers to a plain topic; nothing else runs beside it.
"""

from __future__ import annotations

import itertools
from typing import Any, Final

from bench.cluster import TARGET_PARTITIONS, Clusters
from bench.loader import FAST, Load
from bench.measured import Measured
from bench.reader import Read, Reading

SWEEP_MESSAGES: Final = 300_000
LINGERS_MS: Final = (5, 50)
BATCHES_BYTES: Final = (131_072, 1_000_000)
COMPRESSIONS: Final = ("none", "lz4")


class Yardstick:
    """One sweep for all rounds; then, in each round, the best settings with all the messages."""

    def __init__(self, messages: int) -> None:
        self._messages = messages
        self._settings: dict[str, Any] | None = None

    def run(self, clusters: Clusters) -> Measured:
        if self._settings is None:
            self._settings = _best(clusters)
        topic, messages = clusters.topic("plain"), self._messages
        produce_s = _seconds(clusters, topic, messages, self._settings)
        everything = dict.fromkeys(range(TARGET_PARTITIONS), 0)
        with Reading(clusters.stack.bootstrap, topic, messages, everything).begin() as worker:
            read = Read(**worker.result())
        clusters.remove([topic])
        consume_s = (read.last_ms - read.first_ms) / 1000  # the first batch is there at once
        return Measured(
            {"plain.produce": messages / produce_s, "plain.consume": messages / consume_s},
            settings={"plain producer": ", ".join(f"{k}={v}" for k, v in self._settings.items())},
        )


def _best(clusters: Clusters) -> dict[str, Any]:
    """The settings that the sweep was fastest with."""
    swept = itertools.product(LINGERS_MS, BATCHES_BYTES, COMPRESSIONS)
    tried = [
        FAST | {"linger.ms": linger_ms, "batch.size": batch_bytes, "compression.type": compression}
        for linger_ms, batch_bytes, compression in swept
    ]
    return min(tried, key=lambda settings: _swept_s(clusters, settings))


def _swept_s(clusters: Clusters, settings: dict[str, Any]) -> float:
    topic = clusters.topic("sweep")
    try:
        return _seconds(clusters, topic, SWEEP_MESSAGES, settings)
    finally:
        clusters.remove([topic])


def _seconds(clusters: Clusters, topic: str, messages: int, settings: dict[str, Any]) -> float:
    return Load(clusters.stack.bootstrap, topic, topic, messages, settings=settings).send()
