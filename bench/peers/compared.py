"""The lines of the comparison: what each is, which way is better, and how far ahead it should be."""

from __future__ import annotations

import statistics
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from bench.record import RunRecord

OURS: Final = "delayline"
IN_TWO: Final = "lanes2"
"""The same in two lanes."""
YARDSTICK: Final = "rocketmq"
"""Whom the goals speak of."""


def figure_of(line: str, peer: str) -> str:
    """What the figure is called in a record."""
    return f"peers.{line}.{peer}"


@dataclass(frozen=True, slots=True)
class Line:
    """A figure of every peer. `goal`: how many times as good as the yardstick it should be."""

    name: str
    says: str
    unit: str
    more_is_better: bool = False
    goal: float | None = None

    def of(self, record: RunRecord, peer: str) -> list[float]:
        """What each round has measured."""
        return record.figures.get(figure_of(self.name, peer), [])

    def times(self, record: RunRecord, other: str) -> float | None:
        """How many times as good as the other ours is, by the medians; None where that says nothing."""
        ours, theirs = (self.of(record, peer) for peer in (OURS, other))
        if not ours or not theirs:
            return None
        mine, its = statistics.median(ours), statistics.median(theirs)
        better, worse = (mine, its) if self.more_is_better else (its, mine)
        return better / worse if worse > 0 and better > 0 else None

    def best_other(self, record: RunRecord, peers: Sequence[str]) -> str | None:
        """Which of the others is best at it."""
        others = {peer: statistics.median(values) for peer in peers if (values := self.of(record, peer))}
        for ours in (OURS, IN_TWO):
            others.pop(ours, None)
        if not others:
            return None
        return (max if self.more_is_better else min)(others, key=others.__getitem__)


LINES: Final = (
    Line("schedule", "schedules acknowledged, at full speed", "msgs/s", more_is_better=True, goal=4),
    Line("lateness.p50", "1,000/s beside a million pending, due to received: p50", "ms", goal=4),
    Line("lateness.p99", "the same: p99", "ms", goal=4),
    Line("lateness.early", "of these, too early", "messages"),
    Line("burst", "500,000 due within one second: when the last one came", "ms", goal=2),
    Line("backlog", "500,000 overdue, to their reader", "msgs/s", more_is_better=True, goal=2),
    Line("kill", "kill -9 with a million pending, to the next delivery: median of a round", "ms", goal=4),
    Line("kill.max", "the same: the longest", "ms", goal=4),
    Line("kill.lost", "lost in the kills of a round", "messages"),
    Line("kill.doubled", "doubled in them", "messages"),
    Line("memory", "most memory, without mapped files: all servers", "MB"),
    Line("memory.added", "the same, without Kafka and ZooKeeper", "MB", goal=4),
    Line("disk", "disk, per pending message", "bytes"),
    Line("cpu.schedule", "CPU of all servers, per message scheduled", "us"),
    Line("cpu.deliver", "CPU of all servers, per message delivered", "us"),
)
