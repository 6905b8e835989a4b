"""Everything that has changed in a cluster: its leaderships, and what operators, or a leader that hands its
lane over by preference, have done.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import chain, pairwise
from typing import Final

from delayline.names import ClusterNames
from election.operators import SWITCHOVER, HistoryEntry
from node.config import ConnectionConfig
from ops.checkpoint.leaderships import leaderships
from ops.checkpoint.show import wanted_lanes
from ops.clients.kafka import KafkaAdmin
from ops.clients.zookeeper import read_keys, registry
from ops.errors import OperatorError
from store.checkpoint import Checkpoint

SWITCHOVER_MS: Final = 90_000  # how long after it was wanted one comes to pass at most


@dataclass(frozen=True, slots=True)
class Change:
    """`lane` None: it is the whole cluster's. `who`: an operator, or the node that has handed over by
    preference; None if nobody wanted it.
    """

    at_ms: int
    lane: int | None
    what: str
    who: str | None
    before: str | None
    after: str | None
    why: str


@dataclass(frozen=True, slots=True)
class ChangeHistory:
    """`trouble`: why no leaderships are among the changes; None if they are."""

    changes: list[Change]
    trouble: str | None = None


def history(config: ConnectionConfig, lane: int | None, most: int) -> ChangeHistory:
    """The last changes, `most` of them, in order; of a lane those that concern it.

    Without Kafka it has what operators have changed, which is in ZooKeeper. Raises NotFoundError if there is
    no such lane, UnreadableCheckpoint, and election.errors.Unavailable if ZooKeeper does not answer.
    """
    with registry(config) as znodes:
        lanes = wanted_lanes(config, znodes, lane)
        entries = [one for one in znodes.history() if lane is None or one.lane in {None, lane}]
    found = [_of_operator(entry) for entry in entries]
    trouble = None
    try:
        found += _of_lanes(config, lanes, entries, most)
    except OperatorError as error:
        trouble = str(error)
    return ChangeHistory(sorted(found, key=lambda change: change.at_ms)[-most:], trouble)


def _of_lanes(
    config: ConnectionConfig, lanes: Iterable[int], entries: Sequence[HistoryEntry], most: int
) -> list[Change]:
    if not KafkaAdmin(config).exists(ClusterNames(config.cluster).checkpoint):
        return []
    ring = read_keys(config)
    found = [
        leadership_changes(lane, leaderships(config, ring, lane, most + 1), entries, most) for lane in lanes
    ]
    return list(chain.from_iterable(found))


def _of_operator(entry: HistoryEntry) -> Change:
    author = entry.author
    return Change(author.at_ms, entry.lane, entry.what, author.by, entry.before, entry.after, author.reason)


def leadership_changes(
    lane: int, firsts: Sequence[Checkpoint], entries: Iterable[HistoryEntry], most: int
) -> list[Change]:
    """How each of a lane's leaders came to lead: by the first checkpoint of each, and what the cluster's
    history has; the last ones of them.
    """
    wanted = [one for one in entries if one.what.startswith(SWITCHOVER) and one.lane in {None, lane}]
    before: list[Checkpoint | None] = [None, *firsts]
    return [_leadership(lane, last, one, wanted) for last, one in pairwise(before) if one is not None][-most:]


def _leadership(
    lane: int, last: Checkpoint | None, one: Checkpoint, wanted: Sequence[HistoryEntry]
) -> Change:
    by = None if last is None or last.node == one.node else _switchover(one, wanted)
    return Change(
        one.at_ms,
        lane,
        "leader",
        None if by is None else by.author.by,
        None if last is None else _named(last),
        _named(one),
        _why(last, one) if by is None else f"{by.what}: {by.author.reason}",
    )


def _named(first: Checkpoint) -> str:
    return f"{first.node}, epoch {first.epoch}"


def _why(last: Checkpoint | None, one: Checkpoint) -> str:
    if last is None:
        return "the first that is known"
    if last.node == one.node:
        return "the same node again: a transaction that ended badly, or a restart"
    return "elected: the one before has resigned, or was lost"


def _switchover(one: Checkpoint, wanted: Sequence[HistoryEntry]) -> HistoryEntry | None:
    """The last one to this node, or to whoever is next, that was wanted shortly before; clocks differ by less
    than a second, or nobody leads.
    """
    to_it = (entry for entry in reversed(wanted) if entry.after in {None, one.node})
    return next((entry for entry in to_it if -1_000 <= one.at_ms - entry.author.at_ms <= SWITCHOVER_MS), None)
