"""Nodes that begin in the midst of the log (docs/design.md, rule 12)."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from itertools import accumulate
from typing import TYPE_CHECKING, Any

import msgspec

from delayline.headers import H_ID, H_OP, H_SOURCE, OP_CANCEL
from delayline.names import MAX_OFFSET, parse_source
from delayline.settings_versions import SettingsSource
from node.kafka.applier import arrivals_of
from node.kafka.fetch.records import ABORTED
from store import keys
from store.arrivals import Arrival
from store.checkpoint import Checkpoint
from store.keys import RecordId, RowKey
from store.moves import is_overtaken, last_request_of
from store.replays import replayable
from store.rows import (
    IndexEntry,
    RescheduleRow,
    ScheduledRow,
    decode_index,
    decode_pending_answer,
    decode_row,
    decode_vector,
    encode,
    is_reschedule,
    message_target,
)
from store.told import lacks
from store.view import View
from tests.simulation.host import Violation
from tests.simulation.log import Entry
from tests.simulation.outcomes_topic import duplicates_of
from tests.simulation.setup import LANE, UNREAD_MS
from tests.simulation.stores import CrashableStore, MemoryStore

if TYPE_CHECKING:
    from tests.simulation.host import World


def open_view(
    name: str, store: CrashableStore, partitions: Sequence[int], world: World, settings: SettingsSource
) -> View:
    """A node's view, as a process that starts finds it, or makes it: where retention has passed what it has
    read, it begins anew.
    """
    view = _view(store, partitions, world, settings)
    if lacks_records(view, world):
        store.empty()
        view = _view(store, partitions, world, settings)
    if not any(view.reached().read.values()):
        _begin(name, view, world)
    if view.lacks_duplicates() is not None:
        view.know_duplicates(duplicates(world) if world.outcomes is None else world.outcomes.duplicates())
    return view


def may_begin(store: CrashableStore, world: World) -> bool:
    """Whether the outcomes tell a process which requests are duplicates, as far as it needs to know
    (node/kafka/duplicates.py).
    """
    if world.outcomes is None:
        return True
    entry = world.checkpoints.last_own()
    last = None if entry is None or entry.record is None else Checkpoint.decode(entry.record.value or b"")
    view = _view(store, world.setup.partitions, world, world.versions)
    applied, to = view.reached().applied, view.lacks_duplicates()
    if not any(view.reached().read.values()) and last is not None and any(last.carried.values()):
        applied, to = last.beginning(applied).applied, last.seen
    asked = [
        one.record.timestamp_ms
        for number, end in (to or {}).items()
        for one in world.topics[world.names.buffer][number].committed(applied[number], end)
        if one.record is not None
    ]
    told, slack_ms = None if last is None else last.told, 2 * world.setup.skew_ms
    look = world.outcomes.look(told, world.now_ms)
    return not asked or lacks(told, look, max(0, min(asked) - slack_ms)) is None


def lacks_records(view: View, world: World) -> bool:
    """Whether retention has removed what it has not read."""
    buffer = world.topics[world.names.buffer]
    return any(offset < buffer[number].begin for number, offset in view.reached().read.items())


def _view(store: CrashableStore, partitions: Sequence[int], world: World, settings: SettingsSource) -> View:
    return View(store, partitions, world.setup.replay_window_ms, settings)


def _begin(name: str, view: View, world: World) -> None:
    """Where the last checkpoint says that it may."""
    last = world.checkpoints.last_own()
    if last is not None and last.record is not None:
        checkpoint = Checkpoint.decode(last.record.value or b"")
        if any(checkpoint.carried.values()):
            view.begin_at(checkpoint.carried, checkpoint.seen, checkpoint.newest_ms)
            world.note("begin", name, checkpoint.carried)
    if lacks_records(view, world):
        raise Violation("retention", f"{name} cannot begin: the log does not reach back to {last}")


def check_begins(world: World, checkpoints: Sequence[Checkpoint], most: int) -> int:
    """Raises `Violation` if a view that begins where one of the checkpoints says is, from its *seen* on, not
    that of a node that has read all of the log. Of so many of them; returns how many there were.
    """
    begins = {tuple(sorted(one.carried.items())): one for one in checkpoints if any(one.carried.values())}
    chosen = list(begins.values())
    if len(chosen) > most:
        chosen = world.rng.sample(chosen, most)
    known, kept_ms = duplicates(world), _kept_ms(world, checkpoints)
    for one in chosen:
        full, begun = (MemoryStore() for _ in range(2))
        _read_all(full, world, one)
        _read_all(begun, world, one, known)
        compared = (
            ("rows", _waiting),
            ("ids", _counting),
            ("pending answers", _pending),
            ("messages to replay", partial(_replayable, kept_ms=kept_ms[one.order])),
        )
        for name, of in compared:
            wanted, found = of(full, world, one), of(begun, world, one)
            if wanted != found:
                odd = sorted(set(wanted.items()) ^ set(found.items()), key=repr)
                raise Violation("begin", f"{name} are others from {one.carried}, of {one}: {odd[:6]}")
    return len(chosen)


def _read_all(
    store: MemoryStore, world: World, checkpoint: Checkpoint, known: frozenset[RecordId] | None = None
) -> None:
    """A view that follows that checkpoint, and has read the rest of the log."""
    view = _view(store, world.setup.partitions, world, world.versions)
    if known is not None:
        view.begin_at(checkpoint.carried, checkpoint.seen, checkpoint.newest_ms)
        view.know_duplicates(known)
    view.align(checkpoint)
    for number, begin in view.reached().read.items():
        partition = world.topics[world.names.buffer][number]
        for entry in partition.signed(begin, partition.stable_end):
            view.apply(_arrivals(entry, world), {})


def _arrivals(entry: Entry, world: World) -> list[Arrival]:
    if entry.arrivals is None:
        assert entry.record is not None, "markers are not read"
        record = entry.record._replace(flaw=ABORTED) if entry.aborted else entry.record
        entry.arrivals = arrivals_of([record], world.versions, world.names, world.setup.keyring)
    return entry.arrivals


Entries = dict[Any, Any]


def _waiting(store: MemoryStore, world: World, checkpoint: Checkpoint) -> Entries:
    rows = ((keys.timed(raw_key), raw) for raw_key, raw in store.scan(keys.ROW, keys.end_of(keys.ROW)))
    frontier = checkpoint.frontier
    return {
        key: _as_it_counts(store, key, raw, world, checkpoint)
        for key, raw in rows
        if not frontier.done(key, message_target(raw))
    }


def _as_it_counts(store: MemoryStore, key: RowKey, raw: bytes, world: World, checkpoint: Checkpoint) -> bytes:
    """That a reschedule was overtaken one view knows of what has overtaken it, another of its carry. Of a
    cancel by a source that it has not read, one does not know it.
    """
    if not is_reschedule(raw):
        return raw
    row, partition = decode_row(raw), key[1]
    assert isinstance(row, RescheduleRow), "its tag says so"
    asked = last_request_of(row, key[2])
    overtaken = row.overtaken or is_overtaken(store, partition, row.id, asked)
    if overtaken and row.id in _ended_by_source(world, partition, asked, checkpoint):
        overtaken = False
    return encode(msgspec.structs.replace(row, overtaken=overtaken))


def _ended_by_source(world: World, partition: int, behind: int, checkpoint: Checkpoint) -> set[str]:
    """The ids of what was cancelled by its source behind an offset, and stands below where a node begins."""
    entries, found = world.topics[world.names.buffer][partition].entries, set[str]()
    for entry in entries[behind + 1 :]:
        headers = {} if entry.record is None or entry.aborted else dict(entry.record.headers)
        if headers.get(H_OP) == OP_CANCEL and (raw := headers.get(H_SOURCE)) is not None:
            _, _, source = parse_source(raw.decode())
            named = entries[source].record if source < checkpoint.carried.get(partition, 0) else None
            id_ = None if named is None else dict(named.headers).get(H_ID)
            if id_ is not None:
                found.add(id_.decode())
    return found


def _kept_ms(world: World, checkpoints: Sequence[Checkpoint]) -> dict[tuple[int, int], int]:
    """By checkpoint, from which due time on all that is done has been kept: a rewind brings nothing back."""
    highest_ms = accumulate((one.delivered_up_to_ms for one in checkpoints), max)
    window_ms = world.setup.replay_window_ms
    return {one.order: ms - window_ms for one, ms in zip(checkpoints, highest_ms, strict=True)}


def _replayable(store: MemoryStore, world: World, checkpoint: Checkpoint, *, kept_ms: int) -> Entries:
    """What is done, and a replay may reach. That a later one of its chain has followed it, one view knows of
    that one, and another of its carry.
    """
    begin, end = keys.row(max(0, kept_ms), 0, 0), keys.end_of(keys.ROW)
    found: Entries = {}
    for raw_key, raw in store.scan(begin, end):
        key = keys.timed(raw_key)
        if checkpoint.frontier.done(key, message_target(raw)) and replayable(store, key, raw) is not None:
            row = decode_row(raw)
            assert isinstance(row, ScheduledRow), "it is a message"
            found[key] = encode(msgspec.structs.replace(row, followed=False))
    return found


def _counting(store: MemoryStore, world: World, checkpoint: Checkpoint) -> Entries:
    """The index entries that lead to a row that waits, or that who asks to keep may find."""
    newest_ms = decode_vector(store.get(keys.NEWEST) or encode({}))
    # By the clock of a leader, which may be one before the checkpoint's: carried never moves back.
    unread_ms = checkpoint.at_ms - UNREAD_MS + 2 * world.setup.skew_ms
    waiting = _waiting(store, world, checkpoint)
    found: Entries = {}
    for raw_key, raw in store.scan(keys.INDEX, keys.end_of(keys.INDEX)):
        partition, entry = keys.named(raw_key), decode_index(raw)
        asked_ms = max(newest_ms[partition], unread_ms)
        is_known = world.eras.is_known(entry.due_ms, partition, MAX_OFFSET, asked_ms)
        if (entry.due_ms, partition, entry.offset) in waiting or is_known:
            found[raw_key] = entry
    return found


def _pending(store: MemoryStore, world: World, checkpoint: Checkpoint) -> Entries:
    """What is answered after the checkpoint. Of what is done, and whose id nobody asks for any more by then,
    one may know, and the other not.
    """
    found: Entries = {}
    for raw_key, raw in store.scan(keys.PENDING_ANSWER, keys.end_of(keys.PENDING_ANSWER)):
        answer, at = decode_pending_answer(raw), keys.record_id(raw_key)
        removed, id_ = answer.removed, answer.id
        if removed is not None and _is_forgotten(answer.id, removed, at[0], world, checkpoint):
            removed = None
            if not _names_id(at, world):
                id_ = None  # who knows only the source knows the id of what it finds alone
        if removed is None and answer.op == "schedule" and not answer.effective:
            continue  # nobody is told
        found[at] = answer.op, id_, removed, answer.effective
    return found


def _names_id(at: RecordId, world: World) -> bool:
    """Whether the request itself does, and not only what it has found."""
    record = world.topics[world.names.buffer][at[0]].entries[at[1]].record
    return record is not None and H_ID in dict(record.headers)


def _is_forgotten(
    id_: str | None, entry: IndexEntry, partition: int, world: World, checkpoint: Checkpoint
) -> bool:
    """Whether it may be, by who has read no more than the checkpoint has: of what has no id, once it is done
    and pruned.
    """
    if not checkpoint.frontier.done((entry.due_ms, partition, entry.offset), entry.tag):
        return False
    if id_ is None:
        return True
    read = world.topics[world.names.buffer][partition].entries[: checkpoint.seen.get(partition, 0)]
    newest_ms = max(one.record.timestamp_ms for one in read if one.record is not None)
    newest_ms = max(newest_ms, checkpoint.at_ms - UNREAD_MS)
    return not world.eras.is_known(entry.due_ms, partition, MAX_OFFSET, newest_ms)


def duplicates(world: World) -> frozenset[RecordId]:
    """What has ever been called so."""
    return duplicates_of(world.topics[world.names.outcomes][LANE].entries)
