"""What is measured: the scenarios of a profile, and the room that they need."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Final, Protocol

from bench.cluster import Clusters
from bench.measured import Measured
from bench.room import expect_room
from bench.scenarios.carried import CARRIES, Carried
from bench.scenarios.control import Control
from bench.scenarios.delivery import Backlog, Both
from bench.scenarios.failover import RepeatedFailover
from bench.scenarios.ingest import Ingest
from bench.scenarios.lanes import NUMBERS, Lanes
from bench.scenarios.lateness import Burst, Steady
from bench.scenarios.moved import MOVES, Moved
from bench.scenarios.scraped import WATCHED, Scraped
from bench.scenarios.snapshot import Rebuild
from bench.scenarios.troubled import TROUBLES, Troubled
from bench.scenarios.yardstick import Yardstick
from ops.demo.faults import Kill, Pause

MILLION: Final = 1_000_000
CONTROLS: Final = 50_000
KILLS: Final = 20
HANGS: Final = 10
LANES_RATE: Final = 5_000
ROOM_BYTES: Final = 2 * 10**9
ROOM_OF_A_MESSAGE_BYTES: Final = 2_200
"""With an id: in the log 480, in a store that is being compacted twice 550, and as much again in the log of
the scenario before, which a broker deletes a minute later.
"""

WARM_UP: Final = (Backlog(500_000), Steady(50_000), Steady(5_000), Steady(5_000))
"""What is run first, and not kept: until the broker's compiler has done most of its work, half of what a
machine of two cores does is that [measured: the p99 at 5,000/s was 84, 38, 15 and 17 ms, minute by minute].
"""


class NoSuchScenario(Exception):
    """A name that no scenario's begins with; one line, with those that there are."""


class Scenario(Protocol):
    """Something to measure."""

    messages: int  # about how many it sends

    def run(self, clusters: Clusters) -> Measured:
        """Once. Raises what kept it from its end."""


@dataclass(frozen=True, slots=True)
class Profile:
    """What is measured, and how often."""

    name: str
    rounds: int
    scenarios: Sequence[tuple[str, Scenario]]
    failovers: Sequence[tuple[str, RepeatedFailover]]  # once: they repeat themselves

    def only(self, beginnings: Sequence[str]) -> Profile:
        """Those whose names begin with one of them; all, if there are none. Raises `NoSuchScenario`."""
        names = [name for name, _ in (*self.scenarios, *self.failovers)]
        for beginning in beginnings:
            if not any(name.startswith(beginning) for name in names):
                raise NoSuchScenario(f"no scenario begins with {beginning!r}: there are {', '.join(names)}")
        wanted = tuple(beginnings) or ("",)
        return replace(
            self,
            scenarios=[(name, one) for name, one in self.scenarios if name.startswith(wanted)],
            failovers=[(name, one) for name, one in self.failovers if name.startswith(wanted)],
        )

    def room_bytes(self) -> int:
        """What the largest of its scenarios needs on the disk."""
        sent = [one.messages for one in WARM_UP]
        sent += [one.messages for _, one in self.scenarios] + [one.messages for _, one in self.failovers]
        return ROOM_BYTES + ROOM_OF_A_MESSAGE_BYTES * max(sent)

    def expect_room(self, folder: Path) -> None:
        """Raises `NoRoom` if the folder's disk has less free than that."""
        expect_room(folder, self.room_bytes(), "the scenarios", ", or leave some out with --only")


_OF_ONE_THING: Final[Mapping[str, Mapping[str, Scenario]]] = {
    "troubled": {f"troubled-{one}": Troubled(one, 1_000) for one in TROUBLES},
    "carried": {f"carried-{one}": Carried(one, 1_000) for one in CARRIES},
    "scraped": {f"scraped-{one}": Scraped(one, 1_000) for one in WATCHED},
    "moved": {f"moved-{one}": Moved(one, 1_000) for one in MOVES},
    "lanes": {f"lanes-{one}": Lanes(one, MILLION, LANES_RATE) for one in NUMBERS},
    "snapshot": {f"snapshot-{count}m": Rebuild(count * MILLION, 1_000) for count in (1, 10)},
}
NAMES: Final = ("quick", "full", *_OF_ONE_THING)
"""Of all profiles."""


def profile(name: str, rounds: int) -> Profile:
    """One of `NAMES`; each scenario so often."""
    own = _OF_ONE_THING.get(name)
    if own is not None:
        return Profile(name, rounds, list(own.items()), [])
    full = name == "full"
    backlog = 2 * MILLION if full else MILLION
    scenarios: list[tuple[str, Scenario]] = [
        ("yardstick", Yardstick(MILLION)),
        ("ingest-rising", Ingest("rising", MILLION)),
        ("ingest-random", Ingest("random", MILLION)),
        ("ingest-ids", Ingest("random", MILLION, ids=True)),
        ("delivery", Backlog(backlog)),
        ("delivery-ids", Backlog(backlog, ids=True)),
        ("both", Both(backlog)),
        ("lateness-1000", Steady(1_000)),
        ("lateness-5000", Steady(5_000)),
        ("lateness-50000", Steady(50_000)),
        ("burst", Burst(500_000)),
        ("control", Control(MILLION, CONTROLS)),
    ]
    if full:
        scenarios += [
            ("ingest-rising-10m", Ingest("rising", 10 * MILLION)),
            ("ingest-random-10m", Ingest("random", 10 * MILLION)),
            ("ingest-ids-10m", Ingest("random", 10 * MILLION, ids=True)),
        ]
    failovers = [
        *((f"failover-{rate}", RepeatedFailover("gap", rate, KILLS, Kill)) for rate in (1_000, 10_000)),
        ("hung-1000", RepeatedFailover("hung", 1_000, HANGS, Pause)),
    ]
    return Profile(name, rounds, scenarios, failovers)
