"""Whom a leader hands its lane to by itself: the preferred candidate, if it is fit and that is cheap.

After failovers one machine may lead every lane and the others none. So each lane has a preferred candidate
(`election.candidates.preferred_of`), as a partition of Kafka has a preferred leader, and a leader that is not
it hands over by a switchover, as an operator would ask for. All that follows is what follows from that one:
ZooKeeper elects, Kafka fences.

It cannot go to and fro. Who is preferred follows from the candidates, and nobody hands over to any other: as
long as the candidates stay, a lane is handed over once, and its leader is the preferred one then. Where they
change all the time, the same candidate has to be preferred and fit for `FIT_S` under the same leader first.
And between two times that a lane is handed over to the same node lies `AGAIN_S`, whatever came of it, and
twice as long after each more of the last day, up to `LONGEST_AGAIN` times that: who dies of leading takes the
lane no more often, and leaves room in the history for what others have done.

It decides, and asks nobody: node/handover.py does.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Final, NamedTuple

from election.candidates import preferred_of
from election.operators import BY_PREFERENCE, SWITCHOVER, HistoryEntry
from node.core.ports import Pauses
from node.status import LARGEST_CLOCK_OFFSET_MS, STALE_MS, NodeState, NodeStatus
from store.checkpoint import Vector
from store.operations import Operation, OperatorRequest
from store.overdue import Overdue

FIT_S: Final = 300.0
"""As Kafka's leader.imbalance.check.interval.seconds."""
AGAIN_S: Final = 3600.0
LONGEST_AGAIN: Final = 8
DAY_MS: Final = 86_400_000
OVERDUE_MS: Final = 1_000
OF_A_SWITCHOVER_MS: Final = 90_000
"""How long after it was wanted somebody leads by it at the latest."""
APART_MS: Final = 5_000
"""How far what is known of the time of ZooKeeper's server may be off."""
SKEW_MS: Final = 500
"""How far a leader's clock may be off, where a node does not say: the default of `max_clock_skew_ms`."""

Entries = Iterable[tuple[HistoryEntry, int]]
"""What the history has, each with when it was written, by the clock of ZooKeeper's server."""


class Standing(NamedTuple):
    """How far a node has come: what it has applied, and with which checkpoint its view is aligned."""

    applied: Vector
    epoch: int
    delivered_up_to_ms: int

    def is_behind(self, other: Standing) -> bool:
        """Whether it lacks something that the other one has."""
        if (self.epoch, self.delivered_up_to_ms) < (other.epoch, other.delivered_up_to_ms):
            return True
        return any(self.applied.get(partition, 0) < end for partition, end in other.applied.items())


class Business(NamedTuple):
    """What a leader is about. `asked`: the operators' last request, taken up or not."""

    pauses: Pauses
    asked: OperatorRequest | None
    operation: Operation
    overdue: Overdue | None

    @property
    def is_quiet(self) -> bool:
        """Whether a handover is cheap: nothing that is overdue has to wait for longer, and no operator, who
        has paused the cluster or asked for something, sees the lane move in the middle of it.
        """
        asked, operation = self.asked, self.operation
        waits = asked is not None and asked.number > operation.number
        at_work = waits or operation.replay is not None or operation.skip_to is not None
        caught_up = self.overdue is not None and self.overdue.oldest_ms <= OVERDUE_MS
        return caught_up and not at_work and not self.pauses.everything


class Sight(NamedTuple):
    """A lane as its leader sees it. `queue`: the node of each candidacy, the leader's first. `said`: what the
    preferred one says of itself, and when that was written, by the clock of ZooKeeper's server; None if
    nothing can be read.
    """

    queue: Mapping[str, str]
    said: tuple[NodeStatus, int] | None
    own: Standing
    business: Business
    now_ms: int
    steady_s: float


class Preference:
    """What one leader knows of who is preferred. For one thread."""

    def __init__(self, lane: int, lanes: int, fit_s: float = FIT_S) -> None:
        self._lane = lane
        self._lanes = lanes
        self._fit_s = fit_s
        self._before: Standing | None = None  # where the leader was when it looked last
        self._same: tuple[str, ...] = ()  # the leader's candidacy, the preferred one's, and its process
        self._since_s = 0.0

    def preferred(self, queue: Mapping[str, str]) -> str | None:
        """Who is to lead in place of the leader; None if it is the leader, or nobody."""
        nodes = list(queue.values())
        to = preferred_of(nodes, self._lane, self._lanes)
        return None if not nodes or to == nodes[0] else to

    def forget(self) -> None:
        """Nothing was seen, or nothing is to come of it: from here on all is to last anew."""
        self._before = None
        self._same = ()

    def hand_over_to(self, sight: Sight) -> str | None:
        """Whom to hand over to now; None if the leader is to stay."""
        before, self._before = self._before, sight.own
        to = self.preferred(sight.queue)
        if to is None or sight.said is None or before is None or not self._is_fit(sight, before):
            self._same = ()
            return None
        leader, *others = sight.queue
        same = leader, next(name for name in others if sight.queue[name] == to), sight.said[0].run
        if same != self._same:
            self._same, self._since_s = same, sight.steady_s
        lasts = sight.steady_s - self._since_s >= self._fit_s
        return to if lasts and sight.business.is_quiet else None

    def _is_fit(self, sight: Sight, before: Standing) -> bool:
        """Whether the preferred one would lead, and go on at once: it has what the leader had when it looked
        last, so that it is behind by less than the time between two looks. Its clock is right enough for a
        leader's, or it would step down again.
        """
        assert sight.said is not None, "looked up before"
        said, written_ms = sight.said
        follows = said.state is NodeState.FOLLOWER and said.lane == self._lane
        is_silent = sight.now_ms - written_ms > STALE_MS
        allowed_ms = min(said.max_clock_skew_ms or SKEW_MS, LARGEST_CLOCK_OFFSET_MS)
        is_right = abs(said.at_ms - written_ms) <= allowed_ms
        standing = Standing(said.applied, said.epoch, said.delivered_up_to_ms)
        return follows and is_right and not is_silent and not standing.is_behind(before)


def is_operators_choice(entries: Entries, lane: int, node: str, epoch: int, led_since_ms: int) -> bool:
    """Whether it was by an operator's switchover that a node came to lead: then it leads until that ends.
    Where it was to whoever is next, that is who leads the next epoch. `led_since_ms`: by the clock of
    ZooKeeper's server.
    """
    return any(
        entry.what == SWITCHOVER
        and entry.lane == lane
        and entry.before != node
        and (entry.after == node or (entry.after is None and entry.epoch in {None, epoch - 1}))
        and -APART_MS <= led_since_ms - written_ms <= OF_A_SWITCHOVER_MS
        for entry, written_ms in entries
    )


def is_too_soon(entries: Entries, lane: int, to: str, now_ms: int, fit_s: float, again_s: float) -> bool:
    """Whether a lane was to be handed over lately: by preference to that node, or by an operator's wish to
    any. It may have come to pass or not. `entries`: of the last day.
    """
    of_lane = [(one, now_ms - written_ms) for one, written_ms in entries if one.lane == lane]
    by_operators = [ago_ms for one, ago_ms in of_lane if one.what == SWITCHOVER]
    before = [ago_ms for one, ago_ms in of_lane if one.what == BY_PREFERENCE and one.after == to]
    rest_s = again_s * min(2 ** (len(before) - 1), LONGEST_AGAIN) if before else 0.0
    return any(ago_ms < 1000 * fit_s for ago_ms in by_operators) or any(
        ago_ms < 1000 * rest_s for ago_ms in before
    )
