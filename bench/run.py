"""A run of the benchmark: its scenarios, round after round, and the record that is kept of it."""

from __future__ import annotations

import tempfile
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Final, Protocol

from bench.cluster import Clusters
from bench.measured import Measured
from bench.message import VALUE_BYTES
from bench.record import Record, machine
from bench.scenarios.control import Control
from bench.scenarios.delivery import Both, Delivery
from bench.scenarios.failover import Failover
from bench.scenarios.ingest import Ingest
from bench.scenarios.lateness import Burst, Steady
from bench.scenarios.yardstick import Yardstick
from ops.stack import LocalStack

MILLION: Final = 1_000_000
ROUNDS: Final = 3
KILLS: Final = 20


class Scenario(Protocol):
    """Something to measure."""

    def run(self, clusters: Clusters) -> Measured:
        """Once. Raises what kept it from its end."""


@dataclass(frozen=True, slots=True)
class Profile:
    """What is measured, and how often."""

    name: str
    rounds: int
    scenarios: Sequence[tuple[str, Scenario]]
    failovers: Sequence[tuple[str, Failover]]  # once: they repeat themselves


def profile(name: str, rounds: int) -> Profile:
    """`quick` or `full`; each scenario so many times."""
    full = name == "full"
    scenarios: list[tuple[str, Scenario]] = [
        ("yardstick", Yardstick(MILLION)),
        ("ingest-rising", Ingest("rising", MILLION)),
        ("ingest-random", Ingest("random", MILLION)),
        ("delivery", Delivery(2 * MILLION if full else MILLION)),
        ("both", Both(2 * MILLION if full else MILLION)),
        ("lateness-1000", Steady(1_000)),
        ("lateness-5000", Steady(5_000)),
        ("lateness-50000", Steady(50_000)),
        ("burst", Burst(500_000)),
        ("control", Control(200_000)),
    ]
    if full:
        scenarios += [
            ("ingest-rising-10m", Ingest("rising", 10 * MILLION)),
            ("ingest-random-10m", Ingest("random", 10 * MILLION)),
        ]
    failovers = [(f"failover-{rate}", Failover(rate, KILLS)) for rate in (1_000, 10_000)]
    return Profile(name, rounds, scenarios, failovers)


def run(profile: Profile, only: Sequence[str], say: Callable[[str, Measured], None]) -> Record:
    """Runs the profile, or those of its scenarios whose names begin with one of `only`; tells what each has
    measured. Raises what a scenario raises.
    """
    begun, begun_s = datetime.now(UTC), time.monotonic()
    everything: list[Measured] = []

    def wanted(name: str) -> bool:
        return not only or name.startswith(tuple(only))

    with tempfile.TemporaryDirectory(prefix="delayline-bench-") as folder:
        stack = LocalStack(Path(folder) / "stack")
        with stack:
            clusters = Clusters(stack, Path(folder))
            for _ in range(profile.rounds):
                for name, scenario in profile.scenarios:
                    if wanted(name):
                        everything.append(scenario.run(clusters))
                        say(name, everything[-1])
    for name, failover in profile.failovers:
        if wanted(name):
            everything.append(failover.run())
            say(name, everything[-1])
    return Record(
        profile=profile.name,
        begun=begun.isoformat(timespec="seconds"),
        minutes=round((time.monotonic() - begun_s) / 60, 1),
        machine=machine(),
        settings=_settings(profile, everything, stack),
        figures=_figures(everything),
        histograms=_histograms(everything),
    )


def _settings(profile: Profile, everything: Sequence[Measured], stack: LocalStack) -> dict[str, str]:
    settings = {
        "rounds": str(profile.rounds),
        "message": f"{VALUE_BYTES} bytes that do not compress, a key of 8, three headers",
        "broker": " ".join(stack.kafka.jvm_options),
        "node": "the defaults of docs/configuration.md",
    }
    for measured in everything:
        settings |= measured.settings
    return settings


def _figures(everything: Sequence[Measured]) -> dict[str, list[float]]:
    figures: dict[str, list[float]] = {}
    for measured in everything:
        for name, value in measured.figures.items():
            figures.setdefault(name, []).append(round(value, 1))
    return figures


def _histograms(everything: Sequence[Measured]) -> dict[str, list[int]]:
    histograms: dict[str, list[int]] = {}
    for measured in everything:
        for name, counts in measured.histograms.items():
            known = histograms.get(name, [0] * len(counts))
            histograms[name] = [was + more for was, more in zip(known, counts, strict=True)]
    return histograms
