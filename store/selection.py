"""Selection: which rows and answers the next transaction carries (rules 1 to 3, docs/design.md).

`select` runs under the view's lock and so is atomic with respect to ingest: what it takes and the
ingested vector it reports belong to one state of the view.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Final, NamedTuple

import msgspec

from store import keys
from store.checkpoint import Frontier, Vector
from store.keys import Key
from store.kv import Damaged, KeyValue
from store.operations import Replay
from store.records import (
    Control,
    IndexEntry,
    RescheduleRow,
    ScheduledRow,
    decode_control,
    decode_index,
    decode_put_off,
    decode_row,
    is_reschedule,
    message_target,
    target_of,
)

REPLAYED_PART: Final = 4  # so much of a transaction's limits at most
MOST_WALKED: Final = 1_000  # rows of a replay's range at a time: ingest waits meanwhile

Place = tuple[int, int]
"""(partition, offset) of a request in the buffer topic."""


class Limits(NamedTuple):
    """How much one transaction may carry; at least one row or answer is taken."""

    messages: int
    bytes: int


class Answer(msgspec.Struct, frozen=True, gc=False):
    """What became of a cancel or replace."""

    place: Place
    control: Control
    applied: bool


class Resolution(msgspec.Struct, frozen=True, gc=False):
    """What a selected reschedule means: the index entry it concerns, and the row to move."""

    outcome: str  # rescheduled, too-late or unknown
    entry: IndexEntry | None
    raw: bytes | None


class Selection(msgspec.Struct, frozen=True):
    """What one transaction carries, and the frontier it leads to. Rows are in key order.

    `skip_to`: the due rows up to that key are skipped. `replayed`: rows that were delivered before.
    `operates`: whether it brings an operator's request on, which is something to commit. `held`: an answer
    waits until what was written back is ingested. `as_of`: where the reader stood in each partition.
    """

    late: list[tuple[Key, bytes]]
    due: list[tuple[Key, bytes]]
    answers: list[Answer]
    resolutions: dict[Key, Resolution]
    frontier: Frontier
    skip_to: Key | None = None
    replayed: list[tuple[Key, bytes]] = []
    operates: bool = False
    held: bool = False
    as_of: Vector = {}

    @property
    def rows(self) -> list[tuple[Key, bytes]]:
        return [*self.late, *self.due, *self.replayed]

    @property
    def size(self) -> int:
        return len(self.late) + len(self.due) + len(self.answers) + len(self.replayed) + self.operates


def select(
    kv: KeyValue,
    tip: Frontier,
    ingested: Vector,
    read: Vector,
    now_ms: int,
    limits: Limits,
    *,
    replays: bool = True,
    known: bool = True,
) -> Selection:
    """The next selection behind `tip`, the frontier of the previous one (committed or in flight).

    `ingested` and `read` are where the view stands in the log: behind the last messages, and behind the
    markers that follow them. The selection is empty if nothing is due and no answer waits; its frontier
    then says how far that is true. `replays`: whether a replay goes on. `known`: whether all that was written
    back has been ingested.
    """
    waiting = _Waiting(tip, limits.messages, known=known)
    seen = waiting.take(kv, ingested)
    answers = waiting.answers
    if seen is not None:
        frontier = msgspec.structs.replace(tip, seen=seen)
        return Selection([], [], answers, {}, frontier, held=waiting.held)
    taking = _Taking(limits)
    held_back = _take_late(kv, tip, ingested, taking)
    late = sorted(taking.rows)
    replayed: list[tuple[Key, bytes]] = []
    operation, skip_to = tip.operation, None
    if held_back is not None:
        frontier = Frontier(
            tip.position,
            ingested | held_back,
            dict(ingested),
            read | held_back,
            tip.delivered_up_to_ms,
            operation,
        )
        due = []
    else:
        taking.rows = []
        up_to_ms = _take_due(kv, tip.position, now_ms, taking)
        due = taking.rows
        position = due[-1][0] if due else tip.position
        # A new master's clock may be behind the last one's: what was true of a time stays true of it.
        delivered_up_to_ms = max(up_to_ms, tip.delivered_up_to_ms)
        skip_to = operation.skip_to
        if skip_to is not None and (up_to_ms >= skip_to[0] or (position is not None and position >= skip_to)):
            operation = msgspec.structs.replace(operation, skip_to=None)
        if replays and operation.replay is not None:
            most = min(taking.left, limits.messages // REPLAYED_PART or 1)
            replayed, replay = _take_replayed(kv, operation.replay, most, limits.bytes // REPLAYED_PART)
            operation = msgspec.structs.replace(operation, replay=replay)
        frontier = Frontier(
            position, dict(ingested), dict(ingested), dict(read), delivered_up_to_ms, operation
        )
    resolutions = {
        key: _resolve(kv, key, raw, frontier)
        for key, raw in ((*late, *due) if taking.rescheduled else ())
        if is_reschedule(raw)
    }
    # Not the frontier's `read`, which late rows hold back behind what was written back before.
    as_of = {partition: max(offset, ingested.get(partition, 0)) for partition, offset in read.items()}
    return Selection(late, due, answers, resolutions, frontier, skip_to, replayed, as_of=as_of)


def next_due_ms(kv: KeyValue, tip: Frontier) -> int | None:
    """When the next row behind the position falls due; None if none waits."""
    for raw_key, _ in kv.scan(_behind(tip.position), keys.end_of(keys.ROW)):
        return keys.timed(raw_key)[0]
    return None


def _behind(position: Key | None) -> bytes:
    return keys.ROW if position is None else keys.after(keys.row(*position))


class _Taking:
    """What has been taken so far, and whether more fits."""

    def __init__(self, limits: Limits) -> None:
        self.rows: list[tuple[Key, bytes]] = []
        self._messages_left = limits.messages
        self._bytes_left = limits.bytes
        self._taken_any = False
        self.rescheduled: set[str] = set()  # ids

    @property
    def left(self) -> int:
        """How many more messages fit."""
        return self._messages_left

    def take(self, rows: Iterable[tuple[Key, bytes]]) -> Key | None:
        """Takes rows for as long as they fit; a second reschedule of an id never does (rule 3). Returns the
        first one that is left, None if all were taken.
        """
        append, messages_left, bytes_left = self.rows.append, self._messages_left, self._bytes_left
        left: Key | None = None
        for row in rows:
            key, raw = row
            bytes_left -= len(raw)
            if (messages_left < 1 or bytes_left < 0) and self._taken_any:
                left = key
                break
            if is_reschedule(raw) and not self._first_of_its_id(raw):
                left = key
                break
            self._taken_any = True
            messages_left -= 1
            append(row)
        self._messages_left, self._bytes_left = messages_left, bytes_left
        return left

    def _first_of_its_id(self, raw: bytes) -> bool:
        row = decode_row(raw)
        assert isinstance(row, RescheduleRow), "its tag said so"
        if row.id in self.rescheduled:
            return False
        self.rescheduled.add(row.id)
        return True


def _take_late(kv: KeyValue, tip: Frontier, ingested: Vector, taking: _Taking) -> Vector | None:
    """Takes late rows in (partition, offset) order. If they do not all fit, the first offset left in each
    partition, to which ingested is held back (rule 1); else None.

    The entries below the tip's ingested are in flight: an entry stays until the commit is known, and what a
    selection leaves holds its ingested back.
    """
    held_back: Vector = {}
    for partition in sorted(ingested):
        waiting = late_keys(kv, partition, tip.ingested.get(partition, 0))
        left = next(waiting, None) if held_back else taking.take((key, _row(kv, key)) for key in waiting)
        if left is not None:
            held_back[partition] = left[2]
    return held_back or None


def late_keys(kv: KeyValue, partition: int, begin: int) -> Iterator[Key]:
    """The late rows of a partition from an offset on, in offset order."""
    for raw_key, raw_due in kv.scan(keys.late(partition, begin), keys.late(partition + 1, 0)):
        yield (keys.unpack_due(raw_due), *keys.placed(raw_key))


def _row(kv: KeyValue, key: Key) -> bytes:
    raw = kv.get(keys.row(*key))
    if raw is None:
        raise Damaged(
            f"the late row {key} is missing: remove the data folder, the node rebuilds it from the log"
        )
    return raw


def _take_due(kv: KeyValue, position: Key | None, now_ms: int, taking: _Taking) -> int:
    """Takes rows due by now in key order; returns the time up to which nothing due is left."""
    due = kv.scan(_behind(position), keys.row(now_ms + 1, 0, 0))
    timed = keys.timed
    if taking.take((timed(raw_key), raw) for raw_key, raw in due) is None:
        return now_ms
    return (taking.rows[-1][0][0] - 1) if taking.rows else 0


def _take_replayed(
    kv: KeyValue, replay: Replay, most: int, most_bytes: int
) -> tuple[list[tuple[Key, bytes]], Replay | None]:
    """Up to `most` messages of a replay, and where it goes on; None: it is over."""
    taken: list[tuple[Key, bytes]] = []
    bytes_left = most_bytes
    rows = kv.scan(keys.row(*replay.next), keys.after(keys.row(*replay.last)))
    for walked, (raw_key, raw) in enumerate(rows):
        key = keys.timed(raw_key)
        if len(taken) >= most or bytes_left < 0 or walked == MOST_WALKED:
            carried = replay.carried + len(taken)
            return taken, msgspec.structs.replace(replay, next=key, carried=carried)
        bytes_left -= len(raw)  # read, whether it is taken or not: ingest waits meanwhile
        wanted = replay.covers(key) and replay.target in {None, target_of(raw)}
        if wanted and replayable(kv, key, raw) is not None:
            taken.append((key, raw))
    return taken, None


def replayable(kv: KeyValue, key: Key, raw: bytes) -> str | None:
    """Where a replay delivers a done row to; None if it does not: it is no message, or has been put off, and
    what was written back for it is the message.
    """
    target = message_target(raw)
    raw_mark = None if target is None else kv.get(keys.put_off(*key[1:]))
    if raw_mark is None:
        return target
    row = decode_row(raw)
    assert isinstance(row, ScheduledRow), "it is a message"
    put_off = decode_put_off(raw_mark)  # or what follows an occurrence: another one, of another time
    return None if row.scheduled_for_ms == put_off.scheduled_for_ms else target


def _resolve(kv: KeyValue, key: Key, raw: bytes, frontier: Frontier) -> Resolution:
    """What the reschedule at `key` means (rule 3).

    A row that is done under the selection's own frontier was delivered before, is in flight, or is in
    this selection: in each case the reschedule comes too late. A row that has gone was done, or the
    index entry would have gone with it.
    """
    _, partition, offset = key
    row = decode_row(raw)
    assert isinstance(row, RescheduleRow), "the caller looked"
    raw_entry = kv.get(keys.index(partition, row.id))
    entry = None if raw_entry is None else decode_index(raw_entry)
    if entry is None or entry.origin > offset:
        return Resolution("unknown", None, None)
    target = (entry.due_ms, partition, entry.offset)
    raw_row = None if frontier.done(target) else kv.get(keys.row(*target))
    if raw_row is None:
        return Resolution("too-late", entry, None)
    return Resolution("rescheduled", entry, raw_row)


class _Waiting:
    """The answers that wait, up to `most`. `held`: one of them is not known yet."""

    def __init__(self, tip: Frontier, most: int, *, known: bool) -> None:
        self.answers: list[Answer] = []
        self.held = False
        self._tip = tip
        self._most = most
        self._known = known

    def take(self, kv: KeyValue, ingested: Vector) -> Vector | None:
        """Takes them. If not all can be given, the seen vector that the first of them reach; else None."""
        seen: Vector = {}
        for partition in sorted(ingested):
            begin = keys.control(partition, self._tip.seen.get(partition, 0))
            for raw_key, raw in kv.scan(begin, keys.control(partition, ingested[partition])):
                place = keys.placed(raw_key)
                answer = _answer(place, decode_control(raw), self._tip)
                undecided = not self._known and not answer.applied and _may_be_followed(answer.control)
                if undecided or len(self.answers) == self._most:
                    seen[partition] = place[1]
                    self.held = self.held or undecided
                    break
                self.answers.append(answer)
        return {**ingested, **seen} if seen else None


def _answer(place: Place, control: Control, tip: Frontier) -> Answer:
    """Too late if the removed row is done under the previous transaction's checkpoint (rule 2)."""
    removed = control.removed
    pending = removed is not None and not tip.done((removed.due_ms, place[0], removed.offset))
    return Answer(place, control, applied=pending or control.applied)


def _may_be_followed(control: Control) -> bool:
    """Whether something may have been written back after what it removed, that it will have ended. What has
    an id is ingested before anything is selected.
    """
    return control.source is not None and control.id is None
