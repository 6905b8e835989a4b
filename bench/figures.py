"""What each figure is called, its unit, and what is to be reached."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from bench.peers.compared import LINES, figure_of

RATE: Final = ".rate"
"""How the names of figures end that say what a load has really offered; what was wanted stands before it."""
OFFERED_AT_LEAST: Final = 0.98


@dataclass(frozen=True, slots=True)
class FigureKind:
    """Of figures whose names begin alike, and end so."""

    prefix: str
    says: str
    unit: str
    more_is_better: bool = False
    suffix: str = ""


KINDS: Final = (
    FigureKind("plain.produce", "plain producer, the best of a sweep", "msgs/s", more_is_better=True),
    FigureKind("plain.consume", "plain consumer", "msgs/s", more_is_better=True),
    FigureKind("ingest.", "from the log into the view", "msgs/s", more_is_better=True),
    FigureKind("rebuild.", "process start to candidate, from an empty folder", "msgs/s", more_is_better=True),
    FigureKind("delivery", "overdue backlog to the target", "msgs/s", more_is_better=True),
    FigureKind("both.", "both at once", "msgs/s", more_is_better=True),
    FigureKind(
        "control.", "beside a million pending ids: sent to answered", "requests/s", more_is_better=True
    ),
    FigureKind("lateness.", "due to received, read_committed", "ms"),
    FigureKind("lateness.", "offered", "msgs/s", more_is_better=True, suffix=RATE),
    FigureKind("troubled.", "nine of ten targets, the tenth in trouble: due to received", "ms"),
    FigureKind("troubled.", "longest time in which the nine got nothing", "ms", suffix=".pause"),
    FigureKind("troubled.", "offered", "msgs/s", more_is_better=True, suffix=RATE),
    FigureKind("moved.", "while one id is moved so often a second: due to received", "ms"),
    FigureKind("moved.", "offered", "msgs/s", more_is_better=True, suffix=RATE),
    FigureKind("snapshot.log.", "process start to all applied, from the log", "ms"),
    FigureKind("snapshot.peer.", "process start to all applied, from a peer", "ms"),
    FigureKind("snapshot.transfer.", "of that, the snapshot taken and looked at", "ms"),
    FigureKind("snapshot.size.", "a snapshot, per pending message", "bytes"),
    FigureKind("snapshot.calm.", "the leader, beside what is pending: due to received", "ms"),
    FigureKind("snapshot.calm.", "offered", "msgs/s", more_is_better=True, suffix=RATE),
    FigureKind("snapshot.giving.", "the leader, while it gives its view: due to received", "ms"),
    FigureKind("snapshot.giving.", "offered", "msgs/s", more_is_better=True, suffix=RATE),
    FigureKind("scraped.", "while the node's metrics are read: due to received", "ms"),
    FigureKind("scraped.", "offered", "msgs/s", more_is_better=True, suffix=RATE),
    FigureKind("scraped.", "longest answer to a scrape", "ms", suffix=".answer"),
    FigureKind("scraped.", "scrapes answered", "scrapes/s", more_is_better=True, suffix=".scrapes"),
    FigureKind("carried.", "while what waits is carried: due to received", "ms"),
    FigureKind("carried.", "offered", "msgs/s", more_is_better=True, suffix=RATE),
    FigureKind("carried.", "carried meanwhile", "msgs/min", more_is_better=True, suffix=".carries"),
    FigureKind(
        "lanes.",
        "so many lanes, a node each: from the log into the views",
        "msgs/s",
        more_is_better=True,
        suffix=".ingest",
    ),
    FigureKind("lanes.", "overdue backlog to the target", "msgs/s", more_is_better=True, suffix=".delivery"),
    FigureKind("lanes.", "due to received, read_committed", "ms"),
    FigureKind("lanes.", "offered", "msgs/s", more_is_better=True, suffix=RATE),
    FigureKind("burst.", "all due within a second: received, since the first was due", "ms"),
    FigureKind("gap.", "longest pause round each kill", "ms"),
    FigureKind("gap.", "longest pause in two calm seconds before each kill", "ms", suffix=".undisturbed"),
    FigureKind("gap.", "offered", "msgs/s", more_is_better=True, suffix=RATE),
    FigureKind("gap.", "leaderships that no kill has made necessary", "", suffix=".unasked"),
    FigureKind("hung.", "longest pause round each stop of the leader (SIGSTOP)", "ms"),
    FigureKind("hung.", "longest pause in two calm seconds before each", "ms", suffix=".undisturbed"),
    FigureKind("hung.", "offered", "msgs/s", more_is_better=True, suffix=RATE),
    FigureKind("hung.", "leaderships that no stop has made necessary", "", suffix=".unasked"),
    FigureKind("restart.", "process start of a killed node to its first delivery", "ms"),
    FigureKind("memory.", "a node's peak", "MB"),
    FigureKind("memory.lanes.", "the peaks of all nodes together", "MB"),
    FigureKind("disk.", "per pending message", "bytes"),
    FigureKind("cpu.", "per message", "us"),
    *(FigureKind(figure_of(line.name, ""), line.says, line.unit, line.more_is_better) for line in LINES),
)


@dataclass(frozen=True, slots=True)
class Goal:
    """`figure`, as a share of the figure `of` if there is one, is at least or at most `bound`."""

    figure: str
    bound: float
    of: str | None = None
    at_least: bool = False

    def met(self, medians: Mapping[str, float]) -> bool:
        """Whether it is; the figures must be there."""
        reached = self.reached(medians)
        return reached >= self.bound if self.at_least else reached <= self.bound

    def reached(self, medians: Mapping[str, float]) -> float:
        """The figure, or its share."""
        return medians[self.figure] / (1.0 if self.of is None else medians[self.of])

    def measured(self, medians: Mapping[str, float]) -> bool:
        """Whether its figures were measured."""
        return self.figure in medians and (self.of is None or self.of in medians)


def _share(figure: str, bound: float) -> Goal:
    return Goal(figure, bound, of="plain.produce", at_least=True)


GOALS: Final = (
    _share("ingest.rising.1m", 0.9),
    _share("ingest.rising.10m", 0.9),
    _share("ingest.random.10m", 0.6),
    Goal("ingest.ids.1m", 0.6, of="ingest.random.1m", at_least=True),
    Goal("ingest.ids.10m", 0.6, of="ingest.random.10m", at_least=True),
    _share("delivery", 0.7),
    Goal("both.delivery", 0.8, of="delivery", at_least=True),
    Goal("burst.last", 2_600),
    Goal("lateness.5000.p99", 15),
    Goal("lateness.50000.p99", 150),
    Goal("gap.1000", 50),
    Goal("gap.1000.max", 150),
    Goal("gap.1000.unasked", 0),
    Goal("hung.1000", 700),
    Goal("hung.1000.unasked", 0),
    Goal("gap.10000.unasked", 0),
    Goal("restart.random.10m", 500),
    Goal("snapshot.peer.10m", 20_000),
    Goal("memory.ingest.rising.1m", 300),
    Goal("memory.ingest.random.1m", 300),
    Goal("memory.ingest.ids.1m", 300),
    Goal("memory.ingest.rising.10m", 400),
    Goal("memory.ingest.random.10m", 400),
    Goal("memory.ingest.ids.10m", 400),
    Goal("disk.rising.1m", 450),
    Goal("disk.random.1m", 450),
    Goal("disk.rising.10m", 450),
    Goal("disk.random.10m", 450),
)


def kind(figure: str) -> FigureKind:
    """The kind of a figure: of those that its name fits, the one that says most of it."""
    fitting = [one for one in KINDS if figure.startswith(one.prefix) and figure.endswith(one.suffix)]
    return max(fitting, key=lambda one: (len(one.suffix), len(one.prefix)))


def offered_only(figure: str, figures: Mapping[str, Sequence[float]]) -> float | None:
    """What the figure's load has offered a second in its worst round, if that is too little for the figure to
    be what its name says.
    """
    for name, rates in figures.items():
        load = name.removesuffix(RATE)
        if load != name and f".{load}." in f".{figure}.":
            wanted = float(load.rpartition(".")[2])
            return min(rates) if min(rates) < OFFERED_AT_LEAST * wanted else None
    return None
