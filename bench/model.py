"""What lanes would carry on more cores: a model of two bounds, fed with measured costs.

Python runs one thread of a node at a time, so a lane carries at most what one alone was measured to carry.
And a message costs its node so much CPU time, and the broker so much: all lanes together carry at most what
all cores do of both. That processes share caches and memory, and what the network and the disk bound, is
not in it: the more cores, the more it promises too much.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final, Self

from bench.markdown import row
from bench.record import RunRecord

CORES: Final = (2, 4, 8, 16)
LANES: Final = (1, 2, 4, 8)
DONE: Final = ("ingest", "delivery")


class NoCosts(Exception):
    """A run has not measured what the model needs; one line."""


@dataclass(frozen=True, slots=True)
class Costs:
    """Of a message, in us of CPU time; and how many of them one lane carries a second."""

    lane_per_s: float
    node_us: float
    broker_us: float

    @classmethod
    def of(cls, record: RunRecord, done: str) -> Self:
        """As one lane has them: more of them get in each other's way. Raises `NoCosts`."""
        medians = record.medians()
        try:
            costs_us = [medians[f"cpu.lanes.1.{done}.{who}"] for who in ("node", "broker")]
            return cls(medians[f"lanes.1.{done}"], *costs_us)
        except KeyError as error:
            raise NoCosts(f"it lacks {error.args[0]}: run the profile lanes") from error

    def messages_per_s(self, cores: int, lanes: int) -> float:
        """At the most."""
        return min(lanes * self.lane_per_s, cores * 1e6 / (self.node_us + self.broker_us))


def rendered(record: RunRecord) -> str:
    """A table for each thing that lanes do, in Markdown: the model's rates, and behind them, where there are
    any for so many cores and lanes, what was measured. Raises `NoCosts`.
    """
    return "\n".join(_table(record, done) for done in DONE)


def _table(record: RunRecord, done: str) -> str:
    costs, medians, cores_here = Costs.of(record, done), record.medians(), record.machine.cores
    said = f"{done}: {costs.node_us:.1f} us of the node, {costs.broker_us:.1f} of the broker"
    lines = [row(said, *(f"{lanes} lanes" if lanes > 1 else "1 lane" for lanes in LANES))]
    lines.append("|---|" + "---:|" * len(LANES))
    for cores in CORES:
        cells = []
        for lanes in LANES:
            measured = medians.get(f"lanes.{lanes}.{done}") if cores == cores_here else None
            behind = "" if measured is None else f" (measured: {_rounded(measured)})"
            cells.append(f"{_rounded(costs.messages_per_s(cores, lanes))}{behind}")
        lines.append(row(f"{cores} cores, msgs/s", *cells))
    return "\n".join(lines) + "\n"


def _rounded(per_s: float) -> str:
    """To thousands: it is a model."""
    return f"{round(per_s, -3):,.0f}"
