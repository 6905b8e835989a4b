"""One fault and what it did, as the demo reports it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from ops.demo.measure import ReceivedMessage, Stretch, due_near, gap_ms, longest_pause_ms


@dataclass(frozen=True, slots=True)
class Episode:
    """A fault: when it struck, when it was over (messages flow again), when every node was back.

    `leader` (a node's name) and `epoch` are those after it.
    """

    kind: str
    struck_ms: float
    over_ms: float
    healthy_ms: float
    leader_before: str
    leader: str
    epoch: int


@dataclass(frozen=True, slots=True)
class Failover:
    """An episode, measured by the receipts round it."""

    kind: str
    gap_ms: float  # the longest pause in receipts until the fault was over
    pause_until_healthy_ms: float  # and until every node was back: a starting process takes its share, too
    due_within_1s: int  # messages due within a second of the blow, either way
    healthy_after_ms: float
    at_ms: int
    leader_before: str
    leader: str
    epoch: int


def measured(episode: Episode, received: Sequence[ReceivedMessage]) -> Failover:
    """What the receipts say of an episode."""
    at_ms = [message.at_ms for message in received]
    return Failover(
        kind=episode.kind,
        gap_ms=round(gap_ms(at_ms, episode.struck_ms, episode.over_ms), 1),
        pause_until_healthy_ms=round(gap_ms(at_ms, episode.struck_ms, episode.healthy_ms), 1),
        due_within_1s=due_near([message.scheduled_for_ms for message in received], episode.struck_ms),
        healthy_after_ms=round(episode.healthy_ms - episode.struck_ms),
        at_ms=round(episode.struck_ms),
        leader_before=episode.leader_before,
        leader=episode.leader,
        epoch=episode.epoch,
    )


def longest_undisturbed_pause_ms(stretches: Sequence[Stretch], received: Sequence[ReceivedMessage]) -> float:
    """The longest time without a receipt where nothing was disturbed."""
    at_ms = [message.at_ms for message in received]
    return round(max((longest_pause_ms(at_ms, stretch) for stretch in stretches), default=0.0), 1)
