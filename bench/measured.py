"""What one run of a scenario has measured."""

from __future__ import annotations

from dataclasses import dataclass, field


@dataclass(frozen=True, slots=True)
class Measured:
    """Figures by name, in the unit that `bench.figures` gives for the name; and how lateness was distributed
    (counts by `bench.reader.BUCKETS_MS`) by the name of the load. `settings`: what was chosen on the way.
    `samples`: figures of what the scenario has itself repeated.
    """

    figures: dict[str, float]
    histograms: dict[str, list[int]] = field(default_factory=dict)
    settings: dict[str, str] = field(default_factory=dict)
    samples: dict[str, list[float]] = field(default_factory=dict)

    def __or__(self, other: Measured) -> Measured:
        return Measured(
            self.figures | other.figures,
            self.histograms | other.histograms,
            self.settings | other.settings,
            self.samples | other.samples,
        )
