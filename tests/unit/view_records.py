"""A view on a real RocksDB, and arrivals to put into it."""

from __future__ import annotations

from pathlib import Path

from delayline.rejects import RejectCode
from delayline.settings import ClusterSettings
from delayline.settings_versions import SettingsVersions
from delayline.wire import Cancel, Reject, Request, Reschedule, Schedule
from store.arrivals import Arrival, arrival
from store.checkpoint import NO_LINEAGE, Checkpoint
from store.rocks import RocksStore
from store.selection import NOTHING_PAUSED, Limits, Paused, Selection
from store.view import View
from tests.unit.wire_records import BufferedRecord

MANY = Limits(1000, 1 << 20)
WINDOW_MS = 1_000
DEDUP_WINDOW_MS = 0
SETTINGS = SettingsVersions.of(ClusterSettings(dedup_window_ms=DEDUP_WINDOW_MS))


def new_view(folder: Path, partitions: int = 2) -> View:
    return View(RocksStore(folder), range(partitions), WINDOW_MS, SETTINGS)


def at(partition: int, offset: int, request: Request, timestamp_ms: int = 1_000) -> Arrival:
    record = BufferedRecord(None, partition=partition, offset=offset, timestamp_ms=timestamp_ms)
    return arrival(record, request)


def schedule(
    due_ms: int,
    id_: str | None = None,
    parent: int | None = None,
    expire_at_ms: int | None = None,
    target: str = "orders",
) -> Schedule:
    root = None if parent is None else "delay.buffer/0/0"
    return Schedule(id_, due_ms, due_ms, target, None, -1, expire_at_ms, [], parent, root, 1, None)


def cancel(id_: str) -> Cancel:
    return Cancel(id_)


def reschedule(id_: str, new_ms: int) -> Reschedule:
    return Reschedule(id_, new_ms, None)


def reject() -> Reject:
    return Reject(RejectCode.NO_TARGET, "delay-target-topic is missing")


def take(view: View, *arrivals: Arrival) -> bool:
    """Applies in log order; the reader stands right behind."""
    return view.apply(list(arrivals), {a.partition: a.offset + 1 for a in arrivals})


def offsets(selection: Selection) -> list[int]:
    """The offsets of the rows that a selection carries, in the order in which they are produced."""
    return [key[2] for key, _ in (*selection.late, *selection.due)]


def checkpoint_of(selection: Selection, epoch: int = 1) -> Checkpoint:
    frontier = selection.frontier
    return Checkpoint(
        lane=0,
        epoch=epoch,
        number=0,
        position=frontier.position,
        applied=frontier.applied,
        seen=frontier.seen,
        read=frontier.read,
        written_back={},
        delivered_up_to_ms=frontier.delivered_up_to_ms,
        operation=frontier.operation,
        overruns=frontier.overruns,
        holds=frontier.holds,
        carried=frontier.carried,
        newest_ms=frontier.newest_ms,
        node="n1",
        at_ms=0,
        lineage=NO_LINEAGE,
    )


def deliver(view: View, now_ms: int, limits: Limits = MANY, paused: Paused = NOTHING_PAUSED) -> Selection:
    """Selects and commits."""
    selection = view.select(now_ms, limits, paused=paused)
    view.committed(selection, checkpoint_of(selection))
    return selection
