"""Selection: which rows and answers the next transaction carries (rules 1 to 3, docs/design.md).

What reschedules mean is decided in store/moves.py.

`select` runs under the view's lock and so is atomic with respect to apply: what it takes and the
applied vector it reports belong to one state of the view.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from collections.abc import Set as AbstractSet
from itertools import islice
from typing import Final, NamedTuple

import msgspec

from store import holds, kept, keys, moves
from store.awaited import MOST_LISTED, RecordId
from store.checkpoint import NO_WRITE_BACK, Frontier, Reached, Vector, WriteBack
from store.keys import RowKey
from store.kv import Damaged, KeyValue
from store.moves import Resolution
from store.operations import Replay
from store.overrun import left_of
from store.rows import (
    PendingAnswer,
    RescheduleRow,
    ScheduledRow,
    decode_park_mark,
    decode_pending_answer,
    decode_reschedule,
    decode_row,
    is_reschedule,
    message_target,
    target_of,
)

REPLAYED_PART: Final = 4  # so much of a transaction's limits at most
LITTLE_WALKED: Final = 100
MOST_WALKED_BYTES: Final = 8 << 20
MOST_WALKED: Final = 1_000  # rows of a replay's range, or done behind the position: apply waits meanwhile


class Limits(NamedTuple):
    """How much one transaction may carry; at least one row or answer is taken. `awaited`: how much of what
    was written back into a partition is listed, of each kind. `passed`: over how many rows that are done,
    and behind the position, a selection goes. `carried_ms`: so long what is paused waits in one place.
    """

    messages: int
    bytes: int
    awaited: int = MOST_LISTED
    passed: int = MOST_WALKED
    carried_ms: int = holds.CARRIED_MS


class Paused(NamedTuple):
    """What operators have paused: targets, and whether a replay stands still."""

    targets: AbstractSet[str] = frozenset()
    replay: bool = False


NOTHING_PAUSED: Final = Paused()


class Answer(msgspec.Struct, frozen=True, gc=False):
    """What became of a cancel or replace."""

    place: RecordId
    control: PendingAnswer
    effective: bool


class Selection(msgspec.Struct, frozen=True):
    """What one transaction carries, and the frontier it leads to. Rows are in key order.

    `skip_to`: the due rows up to that key are skipped. `replayed`: rows that were delivered before.
    `operates`: whether it brings an operator's request on, which is something to commit. `cut_short`: it has
    ended before something that is due. `waits_for`: what was written back is to be applied so far, for an
    answer or a replay. `full`: the same, for a reschedule: the list of what is moved is full. `as_of`: where
    the reader stood in each partition. `moved`: those of the rows that a reschedule has put elsewhere: they
    are done, and have no record. `paused`: those of the rows that wait for the end of a pause; `released`:
    rows that have waited for that. `paused_targets`: those that it knew of. `passes`: it has ended behind
    what is done by an overrun. `rewinds`: it is none, but a rewind (rule 6).
    """

    late: list[tuple[RowKey, bytes]]
    due: list[tuple[RowKey, bytes]]
    answers: list[Answer]
    resolutions: dict[RowKey, Resolution]
    frontier: Frontier
    skip_to: RowKey | None = None
    replayed: list[tuple[RowKey, bytes]] = []
    operates: bool = False
    cut_short: bool = False
    waits_for: Vector = {}
    full: Vector = {}
    as_of: Vector = {}
    moved: AbstractSet[RowKey] = frozenset()
    passes: bool = False
    rewinds: bool = False
    paused: AbstractSet[RowKey] = frozenset()
    released: list[tuple[RowKey, bytes]] = []
    paused_targets: AbstractSet[str] = frozenset()

    @property
    def to_carry(self) -> tuple[list[tuple[RowKey, bytes]], list[tuple[RowKey, bytes]]]:
        """What is to be carried: late rows and released ones, in key order, then the due ones."""
        if not self.moved and not self.paused and not self.released:
            return self.late, self.due
        without = self.moved | self.paused
        late = [one for one in self.late if one[0] not in without]
        released = [one for one in self.released if one[0] not in self.moved]
        return sorted([*late, *released]), [one for one in self.due if one[0] not in without]

    @property
    def rows(self) -> list[tuple[RowKey, bytes]]:
        return [*self.late, *self.due, *self.released, *self.replayed]

    @property
    def size(self) -> int:
        taken = len(self.late) + len(self.due) + len(self.released) + len(self.replayed)
        return taken + len(self.answers) + (self.operates or self.passes or self.rewinds)


def select(
    kv: KeyValue,
    tip: Frontier,
    reached: Reached,
    now_ms: int,
    limits: Limits,
    *,
    write_back: WriteBack = NO_WRITE_BACK,
    refused: AbstractSet[RowKey] = frozenset(),
    paused: Paused = NOTHING_PAUSED,
) -> Selection:
    """The next selection behind `tip`, the frontier of the previous one (committed or in flight).

    The selection is empty if nothing is due and no answer waits; its frontier then says how far that is true.
    `write_back`: of the checkpoint that the tip leads to. `refused`: rows that are to be dead letters.
    """
    if paused.targets or tip.holds:
        tip = msgspec.structs.replace(
            tip, holds=holds.with_pauses(tip.holds, paused.targets, tip.position, tip.overruns, now_ms)
        )
    # Beside a transaction that is being sent, the checkpoint before it does not say what that one has seen.
    write_back = write_back._replace(awaited=write_back.awaited.beyond(tip.seen))
    applied, read = reached.applied, reached.read
    waiting = _Waiting(tip, write_back, limits.messages)
    seen = waiting.take(kv, applied)
    answers = waiting.answers
    if seen is not None:
        frontier = msgspec.structs.replace(tip, seen=seen)
        return Selection(
            [], [], answers, {}, frontier, cut_short=waiting.undecided, waits_for=waiting.waits_for
        )
    named = moves.Named(kv)
    may_go_to = [holds.may_go_to(hold, paused.targets, now_ms, limits.carried_ms) for hold in tip.holds]
    # A quarter at least for what holds let go, however much else there is; but one row alone is no part.
    kept = min(-(-limits.messages // REPLAYED_PART), limits.messages - 1) if any(may_go_to) else 0
    taking = _Taking(
        limits._replace(messages=limits.messages - kept), _Room(write_back, applied, limits.awaited), named
    )
    late_limits = _take_late(kv, tip, applied, taking)
    late = sorted(taking.rows)
    replayed: list[tuple[RowKey, bytes]] = []
    waits_for: Vector = {}
    operation, skip_to = tip.operation, None
    if late_limits is not None:
        frontier = Frontier(
            tip.position,
            applied | late_limits,
            dict(applied),
            read | late_limits,
            tip.delivered_up_to_ms,
            operation,
            tip.overruns,
            tip.holds,
        )
        due, passed = [], None
    else:
        taking.rows = []
        undone = _Undone(tip, limits.passed)
        up_to_ms = _take_due(kv, undone, now_ms, taking)
        due = taking.rows
        passed = _overrun_passed(tip, now_ms) if up_to_ms == now_ms else undone.passed
        ends = [key for key in (tip.position, due[-1][0] if due else None, passed) if key is not None]
        position = max(ends, default=None)
        # A new leader's clock may be behind the last one's: what was true of a time stays true of it.
        delivered_up_to_ms = max(up_to_ms, tip.delivered_up_to_ms)
        skip_to = operation.skip_to
        if skip_to is not None and (up_to_ms >= skip_to[0] or (position is not None and position >= skip_to)):
            operation = msgspec.structs.replace(operation, skip_to=None)
        if operation.replay is not None and not paused.replay:
            waits_for = operation.replay.lacks(applied)
            if not waits_for:
                replayed, replay = _take_replayed(kv, operation.replay, taking.left, limits)
                operation = msgspec.structs.replace(operation, replay=replay)
        frontier = Frontier(
            position,
            dict(applied),
            dict(applied),
            dict(read),
            delivered_up_to_ms,
            operation,
            tip.overruns,
            tip.holds,
        )
    released, left = _take_released(
        kv,
        tip,
        may_go_to,
        _Budget(taking.left + kept - len(replayed), limits.bytes // REPLAYED_PART, MOST_WALKED),
        dict.fromkeys(paused.targets, refused),
    )
    overruns = left_of(
        tip.overruns,
        frontier.position,
        frontier.delivered_up_to_ms,
        holds.needed_by(left, tip.overruns),
    )
    frontier = msgspec.structs.replace(frontier, overruns=overruns, holds=left)
    moving = moves.Moving(kv, named, tip, frontier, write_back, limits.awaited)
    moving.resolve(taking.reschedules, refused)
    moved = moving.moved_of([*late, *due, *released])
    waits = _waiting_of([*late, *due], tip, moved) if tip.holds else {}
    if waits:
        frontier = msgspec.structs.replace(frontier, holds=holds.with_passed(frontier.holds, waits))
    # Not the frontier's `read`, which late rows hold back behind what was written back before.
    as_of = {partition: max(offset, applied.get(partition, 0)) for partition, offset in read.items()}
    return Selection(
        late,
        due,
        answers,
        moving.resolutions,
        frontier,
        skip_to,
        replayed,
        cut_short=bool(taking.room.full),
        waits_for=waits_for,
        full=taking.room.full,
        as_of=as_of,
        moved=moved,
        paused=waits.keys(),
        released=released,
        paused_targets=paused.targets,
        passes=passed is not None,
    )


def _waiting_of(
    rows: Sequence[tuple[RowKey, bytes]], tip: Frontier, moved: AbstractSet[RowKey]
) -> dict[RowKey, str]:
    """Those of the rows that wait for the end of a pause, with their targets; late ones, too: the cursor of
    their hold comes to them.
    """
    targets = ((key, message_target(raw)) for key, raw in rows if key not in moved)
    return {key: target for key, target in targets if target is not None and tip.is_held(key, target)}


def next_due_ms(kv: KeyValue, tip: Frontier) -> int | None:
    """When the next row behind the position falls due, or the last of so many that are done, or a hold lets
    one go, or an overrun ends; None if nothing does.
    """
    undone = _Undone(tip)
    first = next(iter(undone.of(kv.scan(keys.behind(tip.position), keys.end_of(keys.ROW)))), None)
    ends = [one.position for one in tip.overruns if tip.position is None or one.position > tip.position]
    ends += [] if first is None else [keys.timed(first[0])]
    ends += [] if undone.passed is None else [undone.passed]
    released_ms = _next_released_ms(kv, tip) if tip.overruns else None
    return min([end[0] for end in ends] + ([] if released_ms is None else [released_ms]), default=None)


def _next_released_ms(kv: KeyValue, tip: Frontier) -> int | None:
    """When a hold whose pause is over comes to the next message that a clock which was ahead has passed; so
    far as so many rows tell.
    """
    ended = [hold for hold in tip.holds if hold.last is not None]
    begin = keys.behind(max(tip.position or holds.BEFORE_ALL, keys.last_due_by(tip.delivered_up_to_ms)))
    end = keys.after(keys.row(*max((hold.last for hold in ended if hold.last), default=holds.BEFORE_ALL)))
    bytes_left = MOST_WALKED_BYTES
    for raw_key, raw in islice(kv.scan(begin, end), MOST_WALKED) if begin < end else ():
        bytes_left -= len(raw)
        if bytes_left < 0:
            break
        key, target = keys.timed(raw_key), message_target(raw)
        if any(hold.target == target and hold.has_passed(key, tip.overruns) for hold in ended):
            return key[0]
    return None


def _overrun_passed(tip: Frontier, now_ms: int) -> RowKey | None:
    """The position of an overrun that has been reached, if nothing is left that is due: there it ends."""
    ends = [one.position for one in tip.overruns if one.position[0] <= now_ms]
    last = max(ends, default=None)
    return None if last is None or (tip.position is not None and last <= tip.position) else last


class _Undone:
    """The rows behind the position without those that are done by an overrun. It goes over so many of these
    at most, and ends there: the last one is `passed` then. Where there are fewer, the position need not move.
    """

    def __init__(self, tip: Frontier, most: int = MOST_WALKED) -> None:
        self.tip = tip
        self.passed: RowKey | None = None
        self._most = most

    def of(self, rows: Iterable[tuple[bytes, bytes]]) -> Iterable[tuple[bytes, bytes]]:
        return self._filtered(rows) if self.tip.overruns else rows

    def _filtered(self, rows: Iterable[tuple[bytes, bytes]]) -> Iterator[tuple[bytes, bytes]]:
        walked, bytes_left = 0, MOST_WALKED_BYTES
        for raw_key, raw in rows:
            key = keys.timed(raw_key)
            if not self.tip.overran(key):
                yield raw_key, raw
                continue
            walked += 1
            bytes_left -= len(raw)
            if walked == self._most or bytes_left < 0:
                self.passed = key
                return


class _Taking:
    """What has been taken so far, and whether more fits."""

    def __init__(self, limits: Limits, room: _Room, named: moves.Named) -> None:
        self.rows: list[tuple[RowKey, bytes]] = []
        self.room = room
        self._named = named
        self._messages_left = limits.messages
        self._bytes_left = limits.bytes
        self._taken_any = False
        self.reschedules: list[tuple[RowKey, RescheduleRow]] = []  # those of them, of all calls

    @property
    def left(self) -> int:
        """How many more messages fit."""
        return self._messages_left

    def take(self, rows: Iterable[tuple[RowKey, bytes]]) -> RowKey | None:
        """Takes rows for as long as they fit, with what reschedules move, and there is room for that. Returns
        the first one that is left, None if all were taken.
        """
        append, messages_left, bytes_left = self.rows.append, self._messages_left, self._bytes_left
        left: RowKey | None = None
        for row in rows:
            key, raw = row
            bytes_left -= len(raw)
            reschedule = decode_reschedule(raw) if is_reschedule(raw) else None
            if reschedule is not None:
                bytes_left -= self._named.bytes_of(key[1], reschedule.id)
            if (messages_left < 1 or bytes_left < 0) and self._taken_any:
                left = key
                break
            if reschedule is not None:
                if not self.room.take(key[1]):
                    left = key
                    break
                self.reschedules.append((key, reschedule))
            self._taken_any = True
            messages_left -= 1
            append(row)
        self._messages_left, self._bytes_left = messages_left, bytes_left
        return left


class _Room:
    """For how many more rows of each partition the list of what is moved has room: so many reschedules are
    taken. Where the list is full of what can be read soon, the selection ends before the next one, and waits
    for that: to defer it would only make more of the same. Where it is hidden, it is deferred.
    """

    def __init__(self, write_back: WriteBack, applied: Vector, most: int) -> None:
        self.full: Vector = {}  # as far as has to be applied before there is any
        self._awaited = write_back.awaited
        self._applied = applied
        self._most = most
        self._hidden = write_back.hidden
        self._left: dict[int, int] = {}

    def take(self, partition: int) -> bool:
        """Takes room for one reschedule; False if there is none."""
        if partition in self._hidden:
            return True
        left = self._left.get(partition)
        if left is None:
            offsets = self._awaited.moved_offsets(partition, self._applied)
            left = self._most - len(offsets)
            if left < 1:
                self.full[partition] = min(offsets) + 1
        self._left[partition] = left - 1
        return left > 0


def _take_late(kv: KeyValue, tip: Frontier, applied: Vector, taking: _Taking) -> Vector | None:
    """Takes late rows in (partition, offset) order. If they do not all fit, the first offset left in each
    partition, to which applied is held back (rule 1); else None.

    The entries below the tip's applied are in flight: an entry stays until the commit is known, and what a
    selection leaves holds its applied back.
    """
    late_limits: Vector = {}
    for partition in sorted(applied):
        waiting = late_keys(kv, partition, tip.applied.get(partition, 0))
        left = next(waiting, None) if late_limits else taking.take((key, _row(kv, key)) for key in waiting)
        if left is not None:
            late_limits[partition] = left[2]
    return late_limits or None


def late_keys(kv: KeyValue, partition: int, begin: int) -> Iterator[RowKey]:
    """The late rows of a partition from an offset on, in offset order."""
    for raw_key, raw_due in kv.scan(keys.late(partition, begin), keys.late(partition + 1, 0)):
        yield (keys.unpack_due(raw_due), *keys.placed(raw_key))


def _row(kv: KeyValue, key: RowKey) -> bytes:
    raw = kv.get(keys.row(*key))
    if raw is None:
        raise Damaged(
            f"the late row {key} is missing: remove the data folder, the node rebuilds it from the log"
        )
    return raw


def _take_due(kv: KeyValue, undone: _Undone, now_ms: int, taking: _Taking) -> int:
    """Takes rows due by now in key order; returns the time up to which nothing due is left."""
    due = undone.of(kv.scan(keys.behind(undone.tip.position), keys.row(now_ms + 1, 0, 0)))
    timed = keys.timed
    if taking.take((timed(raw_key), raw) for raw_key, raw in due) is None:
        return now_ms if undone.passed is None else undone.passed[0] - 1
    return (taking.rows[-1][0][0] - 1) if taking.rows else 0


def _take_released(
    kv: KeyValue,
    tip: Frontier,
    ends: Sequence[RowKey | None],
    budget: _Budget,
    stay: Mapping[str, AbstractSet[RowKey]],
) -> tuple[list[tuple[RowKey, bytes]], holds.Holds]:
    """Messages that holds let go, each up to its end, and the holds that are left. Those that go on take
    turns; of one target, the later one waits for the earlier one. `stay`: of a target that is paused, what
    cannot be written back.
    """
    released: list[tuple[RowKey, bytes]] = []
    left: list[holds.Hold] = []
    turned: list[holds.Hold] = []
    before: set[str] = set()
    for hold, end in zip(tip.holds, ends, strict=True):
        if end is None or hold.target in before or budget.is_spent:
            left.append(hold)
        else:
            taken, at = _take_held(kv, tip, hold, end, budget, stay.get(hold.target, frozenset()))
            released += taken
            if at == hold.last:
                continue
            if at == hold.next:
                left.append(hold)
            else:
                turned.append(msgspec.structs.replace(hold, next=at, rows=max(0, hold.rows - len(taken))))
        before.add(hold.target)
    return released, (*_in_turn(left, turned),)


def _in_turn(left: list[holds.Hold], turned: list[holds.Hold]) -> list[holds.Hold]:
    """Those that have had their turn come last, each before what is later of its target."""
    targets = {hold.target for hold in turned}
    others = [hold for hold in left if hold.target not in targets]
    return [
        *others,
        *sorted((*turned, *(one for one in left if one.target in targets)), key=lambda one: one.next),
    ]


class _Budget:
    """What all holds together may take, and walk over: apply waits meanwhile."""

    def __init__(self, messages: int, bytes_: int, walked: int) -> None:
        self.messages = messages
        self.bytes = bytes_
        self.walked = walked

    @property
    def is_spent(self) -> bool:
        return self.messages <= 0 or self.bytes <= 0 or self.walked <= 0


def _take_held(
    kv: KeyValue, tip: Frontier, hold: holds.Hold, end: RowKey, budget: _Budget, stay: AbstractSet[RowKey]
) -> tuple[list[tuple[RowKey, bytes]], RowKey]:
    """Messages of a hold, and up to where there are no more of them. It ends before the first one that is to
    stay, and before one that has not been passed: this selection may pass it, as one that is held. Where it
    has found nothing, and walked over little, it stays where it is: to move it is something to commit. But
    not where that has left nothing for others.
    """
    taken: list[tuple[RowKey, bytes]] = []
    at, walked_before = hold.next, budget.walked
    for key, raw in kept.of_target(kv, hold.target, holds.behind(hold.next), end):
        if budget.is_spent:
            return taken, at
        is_its_own = raw is not None and message_target(raw) == hold.target
        is_its_own = is_its_own and not hold.began_after(key, tip.overruns)
        if is_its_own and (key in stay or not tip.passed(key)):
            return taken, at
        at = key
        budget.walked -= 1
        if raw is None:
            continue
        budget.bytes -= len(raw)  # read, whether it is taken or not
        if is_its_own:
            budget.messages -= 1
            taken.append((key, raw))
    stays = not taken and end != hold.last and walked_before - budget.walked < LITTLE_WALKED
    return taken, hold.next if stays and not budget.is_spent else end


def _take_replayed(
    kv: KeyValue, replay: Replay, left: int, limits: Limits
) -> tuple[list[tuple[RowKey, bytes]], Replay | None]:
    """Some messages of a replay, up to `left`, and where it goes on; None: it is over."""
    most, most_bytes = min(left, limits.messages // REPLAYED_PART or 1), limits.bytes // REPLAYED_PART
    taken: list[tuple[RowKey, bytes]] = []
    bytes_left = most_bytes
    for walked, (key, raw) in enumerate(_span_of(kv, replay)):
        if len(taken) >= most or bytes_left < 0 or walked == MOST_WALKED:
            carried = replay.carried + len(taken)
            return taken, msgspec.structs.replace(replay, next=key, carried=carried)
        if raw is None:
            continue
        bytes_left -= len(raw)  # read, whether it is taken or not: apply waits meanwhile
        if will_carry(kv, replay, key, raw):
            taken.append((key, raw))
    return taken, None


def _span_of(kv: KeyValue, replay: Replay) -> Iterable[tuple[RowKey, bytes | None]]:
    """The rows that a replay's cursor comes to. None: the row is gone."""
    if replay.target is not None:
        return kept.of_target(kv, replay.target, replay.next, replay.last)
    rows = kv.scan(keys.row(*replay.next), keys.after(keys.row(*replay.last)))
    return ((keys.timed(raw_key), raw) for raw_key, raw in rows)


def will_carry(kv: KeyValue, replay: Replay, key: RowKey, raw: bytes) -> bool:
    """Whether a replay delivers a row again that its cursor comes to."""
    held_for = message_target(raw) if replay.holds else None
    wanted = replay.covers(key, held_for) and replay.target in {None, target_of(raw)}
    return wanted and replayable(kv, key, raw) is not None


def replayable(kv: KeyValue, key: RowKey, raw: bytes) -> str | None:
    """Where a replay delivers a done row to; None if it does not: it is no message, or has been parked, and
    what was written back for it is the message.
    """
    target = message_target(raw)
    raw_mark = None if target is None else kv.get(keys.park_mark(*key[1:]))
    if raw_mark is None:
        return target
    row = decode_row(raw)
    assert isinstance(row, ScheduledRow), "it is a message"
    mark = decode_park_mark(raw_mark)  # or what follows an occurrence: another one, of another time
    return None if row.scheduled_for_ms == mark.scheduled_for_ms else target


class _Waiting:
    """The answers that wait, up to `most`. `undecided`: one of them is not known yet, and not before so much
    is applied as `waits_for` says.
    """

    def __init__(self, tip: Frontier, write_back: WriteBack, most: int) -> None:
        self.answers: list[Answer] = []
        self.undecided = False
        self.waits_for: Vector = {}
        self._tip = tip
        self._awaited = write_back.awaited
        self._most = most
        self._known = write_back.written_back is not None

    def take(self, kv: KeyValue, applied: Vector) -> Vector | None:
        """Takes them. If not all can be given, the seen vector that the first of them reach; else None."""
        seen: Vector = {}
        for partition in sorted(applied):
            begin = keys.pending_answer(partition, self._tip.seen.get(partition, 0))
            for raw_key, raw in kv.scan(begin, keys.pending_answer(partition, applied[partition])):
                place = keys.placed(raw_key)
                control = decode_pending_answer(raw)
                effective = self._is_effective(partition, control)
                undecided = not effective and self._may_be_followed(partition, control, applied)
                if undecided:
                    self.undecided = True
                if undecided or len(self.answers) == self._most:
                    seen[partition] = place[1]
                    break
                self.answers.append(Answer(place, control, effective=effective))
        return {**applied, **seen} if seen else None

    def _is_effective(self, partition: int, control: PendingAnswer) -> bool:
        """Not if the removed row is done under the previous transaction's checkpoint (rule 2), and nothing
        follows it: what does, stands behind the control, which will therefore have ended it.
        """
        removed = control.removed
        if control.effective or not control.ends:
            return control.effective
        if removed is not None and not self._tip.done(
            (removed.due_ms, partition, removed.offset), removed.tag
        ):
            return True
        if control.id is not None:
            return removed is not None and self._awaited.successor(partition, removed.offset) is not None
        assert control.source is not None, "it names one of the two"
        return _is_first(control) and self._awaited.follows_source(partition, control.source)

    def _may_be_followed(self, partition: int, control: PendingAnswer, applied: Vector) -> bool:
        """Whether something may have been written back after what it removed, that it will have ended: it is
        not listed, or, without an id, of the transaction that is being sent.
        """
        if not control.ends or not _is_first(control):
            return False
        if self._awaited.may_hide(partition, applied):
            self.waits_for[partition] = self._awaited.unlisted[partition]
            return True
        return not self._known and control.id is None


def _is_first(control: PendingAnswer) -> bool:
    """Whether what follows what was there would be ended by this one: of a source, another cancel may stand
    before it.
    """
    return control.removed is not None or (control.id is None and control.previous < 0)
