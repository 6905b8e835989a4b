"""A run of the benchmark: its scenarios, round after round, and the record that is kept after each."""

from __future__ import annotations

import tempfile
import time
from collections.abc import Callable
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from typing import Final

from bench.cluster import SESSION_TIMEOUT_S, Clusters
from bench.failure import reason
from bench.loader import FAST
from bench.measured import Measured
from bench.message import VALUE_BYTES
from bench.profiles import WARM_UP, Profile
from bench.record import RunRecord, machine
from ops.demo.cluster import SESSION_TIMEOUT_S as FAILOVER_SESSION_TIMEOUT_S
from ops.stack import SHIPPED_JVM, LocalStack

ROUNDS: Final = 3

SayMeasured = Callable[[str, Measured | str], None]
"""Is told the name of a scenario that has ended, and what it has measured or why it failed."""
Keep = Callable[[RunRecord], None]


def run(profile: Profile, say: SayMeasured, keep: Keep) -> RunRecord:
    """Runs the profile; `keep` gets the record after each scenario, those that failed included: a failure
    keeps no other scenario from running. Raises `NoRoom`, `StackError` if there is no stack to run on, and
    `KeyboardInterrupt`, after which the record that was kept last is the run's.
    """
    with tempfile.TemporaryDirectory(prefix="delayline-bench-") as folder:
        profile.expect_room(Path(folder))
        stack = LocalStack(Path(folder) / "stack", kafka_jvm=SHIPPED_JVM)
        under_way = UnderWay(profile, settings(profile), say, keep)
        if profile.scenarios:
            with stack:
                clusters = Clusters(stack, Path(folder))
                under_way.warm_up(clusters)
                _run_rounds(profile, clusters, under_way)
    for name, failover in profile.failovers:
        under_way.measure(name, 1, failover.run)
    return under_way.record()


def _run_rounds(profile: Profile, clusters: Clusters, under_way: UnderWay) -> None:
    for number in range(1, profile.rounds + 1):
        for name, scenario in profile.scenarios:
            under_way.measure(name, number, partial(scenario.run, clusters))


class UnderWay:
    """A run so far: what was measured, and what failed."""

    def __init__(self, profile: Profile, settings: dict[str, str], say: SayMeasured, keep: Keep) -> None:
        self._profile = profile
        self._settings = settings
        self._say = say
        self._keep = keep
        self._begun, self._begun_s = datetime.now(UTC), time.monotonic()
        self._machine = machine()
        self._everything: list[Measured] = []
        self._failed: dict[str, str] = {}

    def warm_up(self, clusters: Clusters) -> None:
        """Runs what is not kept. If that fails, the run goes on, and says so."""
        try:
            for scenario in WARM_UP:
                scenario.run(clusters)
        except Exception as error:
            self._failed["warming up"] = reason(error)
            self._say("warming up", self._failed["warming up"])

    def measure(self, name: str, number: int, scenario: Callable[[], Measured]) -> None:
        """Runs a scenario in round `number` and keeps what it comes to. Raises `KeyboardInterrupt`."""
        try:
            measured = scenario()
        except KeyboardInterrupt:
            self._failed[name] = f"round {number}: interrupted"
            raise
        except Exception as error:
            self._failed[name] = f"round {number}: {reason(error)}"
            self._say(name, self._failed[name])
        else:
            self._everything.append(measured)
            self._say(name, measured)
        finally:
            self._keep(self.record())

    def record(self) -> RunRecord:
        """The run so far."""
        settings = dict(self._settings)
        for measured in self._everything:
            settings |= measured.settings
        return RunRecord(
            profile=self._profile.name,
            begun=self._begun.isoformat(timespec="seconds"),
            minutes=round((time.monotonic() - self._begun_s) / 60, 1),
            machine=self._machine,
            settings=settings,
            figures=self._figures(),
            histograms=self._histograms(),
            failed=dict(self._failed),
        )

    def _figures(self) -> dict[str, list[float]]:
        figures: dict[str, list[float]] = {}
        for measured in self._everything:
            once = {name: [value] for name, value in measured.figures.items()}
            for name, values in (measured.samples | once).items():
                figures.setdefault(name, []).extend(round(value, 1) for value in values)
        return figures

    def _histograms(self) -> dict[str, list[int]]:
        histograms: dict[str, list[int]] = {}
        for measured in self._everything:
            for name, counts in measured.histograms.items():
                known = histograms.get(name, [0] * len(counts))
                histograms[name] = [was + more for was, more in zip(known, counts, strict=True)]
        return histograms


def settings(profile: Profile) -> dict[str, str]:
    """What the figures depend on, as far as it is the same for all scenarios."""
    return {
        "rounds": str(profile.rounds),
        "message": f"{VALUE_BYTES} bytes that do not compress, a key of 8, three headers",
        "broker": " ".join(SHIPPED_JVM),
        "node": f"the defaults of docs/configuration.md, but a session of {SESSION_TIMEOUT_S:g} s "
        f"(failover: {FAILOVER_SESSION_TIMEOUT_S:g} s)",
        "load": f"{', '.join(f'{name}={value}' for name, value in FAST.items())}; "
        "at a steady rate the client's defaults",
    }
