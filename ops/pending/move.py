"""`delayline pending move`: what waits, out of one cluster and into another, by one command.

It is an export and an import, with a check of both clusters before them. So it may be killed at any moment,
and whoever runs it again goes on: what was taken out is in the journal, and each line is imported once.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from functools import partial
from itertools import count

from delayline.times import now_ms
from election.operators import Author
from node.config import ConnectionConfig
from ops.clients.kafka import KafkaAdmin
from ops.clients.zookeeper import read_keys
from ops.errors import ConflictError
from ops.pending import export, imports
from ops.pending.aside import require_beside
from ops.pending.export import Bounds, Exported, Waiting, require_bound
from ops.pending.file import ExportFile, Numbered
from ops.pending.imports import Checked, Cluster
from ops.pending.journal import Into, Journal, JournalState
from ops.pending.line import MessageLine
from ops.pending.pace import Pace, Say


@dataclass(frozen=True, slots=True)
class Way:
    """From where to where."""

    old: ConnectionConfig
    new: Cluster
    into: Into


@dataclass(frozen=True, slots=True)
class Plan:
    """What would be moved. `ends`: what was asked for below was checked, and no more than that is taken out;
    `hidden`: offsets that nobody could read; `under_way`: some is in neither cluster now.
    """

    checked: Checked
    ends: Mapping[int, int]
    hidden: int
    under_way: bool

    @property
    def is_refused(self) -> bool:
        """Whether it is not to begin. What is under way goes on, without what would be refused."""
        return bool(self.checked.refusals) and not self.under_way


@dataclass(frozen=True, slots=True)
class Moved:
    """What a move has done: its export, and how many messages it has imported; `refused`: those that the new
    cluster would not take as they were when they were taken out.
    """

    exported: Exported
    imported: int
    refused: int


def between(old: ConnectionConfig, new: ConnectionConfig) -> Way:
    """The way from one cluster into another.

    Raises what says that one is not there; ConflictError if they are one, whatever addresses they have.
    """
    from_, to = imports.cluster_of(old), imports.cluster_of(new)
    from_id, to_id = (KafkaAdmin(one.config).topic_id(one.names.buffer) for one in (from_, to))
    if from_id == to_id:
        raise ConflictError(
            f"cluster {new.cluster} at {new.bootstrap_servers} is the same as cluster {old.cluster} at"
            f" {old.bootstrap_servers}: it cannot be moved into itself"
        )
    return Way(old, to, Into(cluster=new.cluster, buffer_id=to_id))


def check(way: Way, file: ExportFile | None, rate: float, say: Say) -> Plan:
    """Reads all that would be moved: what an earlier run has taken out, and what waits. Changes nothing.

    Raises ConflictError where it cannot be moved there.
    """
    journal = Journal(way.old, read_keys(way.old))
    taken: Iterable[MessageLine] = ()
    name = journal.log.id() if journal.log.exists() else None
    if file is not None:
        file.require_free(name)
        require_beside(file, name)
    state = JournalState()
    if name is not None:
        _require_known(way, journal.state(), name)
        taken = journal.lines(state, name)
    checked = imports.check(way.new, map(Numbered, count(1), taken))
    under_way = checked.left > 0 or state.open is not None
    waiting = Waiting(way.old, export.ends_of(way.old))
    lines = waiting.lines("waiting", Pace(rate, say))
    checked = imports.check(way.new, map(Numbered, count(checked.messages + 1), lines), checked)
    waiting.require_all()
    return Plan(checked, waiting.ends, waiting.hidden, under_way)


def set_aside(way: Way, file: ExportFile, say: Say) -> int:
    """Has beside the file what a run before has passed that was killed: this one may end before it sends. How
    many lines that are.
    """
    return imports.set_aside(way.new, file, say)


def _require_known(way: Way, state: JournalState, name: str) -> None:
    """ConflictError where what was taken out may be in another cluster already."""
    require_bound(state, way.into)
    if state.into is None and state.taken and name not in imports.imported(way.new):
        raise ConflictError(
            f"'pending export' has taken {state.taken} messages out of cluster {way.old.cluster}, and cluster"
            f" {way.into.cluster} has none of them: import its file there first; or, if they are in another"
            " cluster, 'delayline pending forget'"
        )


def move(
    way: Way,
    plan: Plan,
    file: ExportFile,
    rate: float,
    author: Author,
    say: Say,
    *,
    give_up_open: bool = False,
) -> Moved:
    """Exports what waits into the file, and imports all of that. `give_up_open`: as of an export.

    Raises OperatorError; then it can be run again, and nothing is lost or doubled.
    """
    bounds = Bounds(
        plan.ends,
        way.into,
        lambda line: imports.weigh(way.new, line, None, now_ms()).refusal is not None,
        partial(_require_known, way),
    )
    exported = export.move(way.old, file, rate, author, say, give_up_open=give_up_open, bounds=bounds)
    exported.hidden = plan.hidden  # behind the ends that it was given
    return Moved(exported, *imports.send_file(way.new, file, rate, author, say, without_refused=True))
