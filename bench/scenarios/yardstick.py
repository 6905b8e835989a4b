"""The yardstick: the best plain producer of a small sweep of settings, and the plain consumer.

The producer is idempotent with acks=all, as the service's own is, and sends the same records with the same
headers to a plain topic; nothing else runs beside it. At full speed batches fill before they have lingered,
so linger and batch size go together; each setting is tried three times, in turn with the others.
"""

from __future__ import annotations

import itertools
import statistics
from collections.abc import Sequence
from typing import Any, Final

from bench.cluster import TARGET_PARTITIONS, Clusters
from bench.loader import FAST, Load
from bench.measured import Measured
from bench.reader import ReadJob, ReadResult

SWEEP_MESSAGES: Final = 200_000
TRIES: Final = 3
BATCHES: Final = ({"linger.ms": 5, "batch.size": 131_072}, {"linger.ms": 50, "batch.size": 1_000_000})
COMPRESSIONS: Final = ("none", "lz4")


class Yardstick:
    """One sweep for all rounds; then, in each round, the best settings with all the messages."""

    def __init__(self, messages: int) -> None:
        self.messages = messages
        self._settings: dict[str, Any] | None = None

    def run(self, clusters: Clusters) -> Measured:
        if self._settings is None:
            self._settings = _best(clusters)
        topic, messages = clusters.topic("plain"), self.messages
        produce_s = _seconds(clusters, topic, messages, self._settings)
        everything = dict.fromkeys(range(TARGET_PARTITIONS), 0)
        with ReadJob(clusters.stack.bootstrap, topic, messages, everything).begin() as reader:
            read = ReadResult(**reader.result())
        clusters.remove([topic])
        consume_s = (read.last_ms - read.first_ms) / 1000  # the first batch is there at once
        return Measured(
            {"plain.produce": messages / produce_s, "plain.consume": messages / consume_s},
            settings={"plain producer": ", ".join(f"{k}={v}" for k, v in self._settings.items())},
        )


def _best(clusters: Clusters) -> dict[str, Any]:
    """The settings whose median try was the fastest."""
    swept = [
        FAST | batches | {"compression.type": compression}
        for batches, compression in itertools.product(BATCHES, COMPRESSIONS)
    ]
    tries = [[_swept_s(clusters, settings) for settings in swept] for _ in range(TRIES)]
    return fastest(swept, tries)


def fastest(swept: Sequence[dict[str, Any]], tries_s: Sequence[Sequence[float]]) -> dict[str, Any]:
    """The settings with the least median; `tries_s` has for each try the seconds of each of them."""
    medians_s = [statistics.median(seconds) for seconds in zip(*tries_s, strict=True)]
    return swept[medians_s.index(min(medians_s))]


def _swept_s(clusters: Clusters, settings: dict[str, Any]) -> float:
    topic = clusters.topic("sweep")
    try:
        return _seconds(clusters, topic, SWEEP_MESSAGES, settings)
    finally:
        clusters.remove([topic])


def _seconds(clusters: Clusters, topic: str, messages: int, settings: dict[str, Any]) -> float:
    return Load(clusters.stack.bootstrap, topic, topic, messages, settings=settings).send()
