"""Selection: what the next transaction carries (rules 1 to 3 and 8, docs/design.md).

Which rows it takes is in store/taking.py, what it answers in store/answers.py, what it delivers again in
store/replays.py, what holds let go in store/releases.py, and what reschedules mean in store/moves.py.

`select` runs under the view's lock and so is atomic with respect to apply: what it takes and the
applied vector it reports belong to one state of the view.
"""

from __future__ import annotations

from collections.abc import Set as AbstractSet
from typing import Final, NamedTuple

import msgspec

from delayline.times import DAY_MS
from store import holds, keys, moves
from store.answers import Answer, Answering
from store.awaited import MOST_LISTED
from store.checkpoint import NO_WRITE_BACK, Frontier, Reached, Vector, WriteBack
from store.holds import Holds
from store.keys import RowKey
from store.kv import KeyValue
from store.moves import Resolution
from store.operations import Operation
from store.overrun import left_of
from store.releases import Budget, next_released_ms, take_released
from store.replays import take_replayed
from store.rows import message_target
from store.taking import MOST_WALKED, Room, Rows, Taking, Undone, take_due, take_late

CARRY_REST_MS: Final = 250
REPLAYED_PART: Final = 4  # so much of a transaction's limits at most


class Limits(NamedTuple):
    """How much one transaction may carry; at least one row or answer is taken. `awaited`: how much of what
    was written back into a partition is listed, of each kind. `passed`: over how many rows that are done,
    and behind the position, a selection goes. `carried_ms`: so long what is paused waits in one place.
    `carry_rest_ms`: so long after a transaction with carries the next ones have none, and *carried* stays.
    `unread_ms`: no record that is read from now on was written longer ago.
    """

    messages: int
    bytes: int
    awaited: int = MOST_LISTED
    passed: int = MOST_WALKED
    carried_ms: int = holds.CARRIED_MS
    carry_rest_ms: int = CARRY_REST_MS
    unread_ms: int = DAY_MS


class Paused(NamedTuple):
    """What stands still: targets that operators have paused, a replay, and all deliveries: then there are
    answers alone, and position and applied stay.
    """

    targets: AbstractSet[str] = frozenset()
    replay: bool = False
    everything: bool = False


NOTHING_PAUSED: Final = Paused()


class Selection(msgspec.Struct, frozen=True):
    """What one transaction carries, and the frontier it leads to. Rows are in key order.

    `skip_to`: the due rows up to that key are skipped. `replayed`: rows that were delivered before.
    `operates`: whether it brings an operator's request on, which is something to commit. `cut_short`: it has
    ended before something that is due. `waits_for`: what was written back is to be applied so far, for an
    answer or a replay. `full`: the same, for a reschedule: the list of what is moved is full. `as_of`: where
    the reader stood in each partition. `moved`: those of the rows that a reschedule has put elsewhere: they
    are done, and have no record. `paused`: those of the rows that wait for the end of a pause; `released`:
    rows that have waited for that. `paused_targets`: those that it knew of. `passes`: it has ended behind
    what is done by an overrun. `rewinds`: it is none, but a rewind (rule 6). `carries`: rows that wait on
    (rule 12); `walks`: there is more to look at for these.
    """

    late: Rows
    due: Rows
    answers: list[Answer]
    resolutions: dict[RowKey, Resolution]
    frontier: Frontier
    skip_to: RowKey | None = None
    replayed: Rows = []
    operates: bool = False
    cut_short: bool = False
    waits_for: Vector = {}
    full: Vector = {}
    as_of: Vector = {}
    moved: AbstractSet[RowKey] = frozenset()
    passes: bool = False
    rewinds: bool = False
    paused: AbstractSet[RowKey] = frozenset()
    released: Rows = []
    paused_targets: AbstractSet[str] = frozenset()
    carries: Rows = []
    walks: bool = False

    def leaves_due(self, now_ms: int) -> bool:
        """Whether the next selection finds more that is due, without that anything is taken in."""
        waits = self.waits_for or self.full
        return bool(self.size) and not waits and self.frontier.delivered_up_to_ms < now_ms

    @property
    def to_carry(self) -> tuple[Rows, Rows]:
        """What is to be carried: beside the position's way, late rows and released ones, in key order; then
        the due ones.
        """
        if not self.moved and not self.paused and not self.released:
            return self.late, self.due
        without = self.moved | self.paused
        late = [one for one in self.late if one[0] not in without]
        released = [one for one in self.released if one[0] not in self.moved]
        return sorted([*late, *released]), [one for one in self.due if one[0] not in without]

    @property
    def rows(self) -> Rows:
        return [*self.late, *self.due, *self.released, *self.replayed]

    @property
    def size(self) -> int:
        taken = len(self.late) + len(self.due) + len(self.released) + len(self.replayed) + len(self.carries)
        return taken + len(self.answers) + (self.operates or self.passes or self.rewinds)


def select(
    kv: KeyValue,
    tip: Frontier,
    reached: Reached,
    now_ms: int,
    limits: Limits,
    *,
    write_back: WriteBack = NO_WRITE_BACK,
    poison: AbstractSet[RowKey] = frozenset(),
    paused: Paused = NOTHING_PAUSED,
) -> Selection:
    """The next selection behind `tip`, the frontier of the previous one (committed or in flight).

    The selection is empty if nothing is due and no answer waits; its frontier then says how far that is true.
    `write_back`: of the checkpoint that the tip leads to. `poison`: rows that are to be dead letters.
    """
    if paused.targets or tip.holds:
        tip = msgspec.structs.replace(
            tip, holds=holds.with_pauses(tip.holds, paused.targets, tip.position, tip.overruns, now_ms)
        )
    # Beside a transaction that is being sent, the checkpoint before it does not say what that one has seen.
    write_back = write_back._replace(awaited=write_back.awaited.beyond(tip.seen))
    answering = Answering(tip, write_back, limits.messages)
    seen = answering.take(kv, reached.applied)
    if seen is None and paused.everything:
        seen = dict(reached.applied)
    if seen is None:
        selecting = _Selecting(kv, tip, reached, now_ms, limits, write_back, paused)
        return selecting.select(answering.answers, poison)
    frontier = msgspec.structs.replace(tip, seen=seen)
    return Selection(
        [],
        [],
        answering.answers,
        {},
        frontier,
        cut_short=answering.undecided,
        waits_for=answering.waits_for,
        as_of=_as_of(reached),
    )


def _as_of(reached: Reached) -> Vector:
    """Where the reader stands: not the frontier's `read`, which late rows hold back behind what was written
    back before.
    """
    return {
        partition: max(offset, reached.applied.get(partition, 0))
        for partition, offset in reached.read.items()
    }


class _Advance(NamedTuple):
    """How far the position goes, and what is due on its way or delivered again beside it. The rest is as in
    `Selection`.
    """

    frontier: Frontier
    due: Rows
    replayed: Rows
    skip_to: RowKey | None
    waits_for: Vector
    passes: bool


class _Selecting:
    """A selection under way that is no answers-only one: late rows, then due ones, then those of a replay,
    then what holds let go; then what reschedules and holds make of them.
    """

    def __init__(
        self,
        kv: KeyValue,
        tip: Frontier,
        reached: Reached,
        now_ms: int,
        limits: Limits,
        write_back: WriteBack,
        paused: Paused,
    ) -> None:
        self._kv = kv
        self._tip = tip
        self._reached = reached
        self._now_ms = now_ms
        self._limits = limits
        self._write_back = write_back
        self._paused = paused
        self._named = moves.Named(kv)
        self._may_go_to = [
            holds.may_go_to(hold, paused.targets, now_ms, limits.carried_ms) for hold in tip.holds
        ]
        # A quarter at least for what holds let go, however much else there is; but one row alone is no part.
        part = min(-(-limits.messages // REPLAYED_PART), limits.messages - 1) if any(self._may_go_to) else 0
        self._released_part = part
        room = Room(write_back, reached.applied, limits.awaited)
        self._taking = Taking(limits.messages - part, limits.bytes, room, self._named)

    def select(self, answers: list[Answer], poison: AbstractSet[RowKey]) -> Selection:
        tip, taking, applied = self._tip, self._taking, self._reached.applied
        late_limits = take_late(self._kv, tip, applied, taking)
        late = sorted(taking.rows)
        advance = self._advance() if late_limits is None else self._hold_back(late_limits)
        due = advance.due
        released, left = self._take_released(len(advance.replayed), poison)
        frontier = self._with_holds(advance.frontier, left)
        moving = moves.Moving(self._kv, self._named, tip, frontier, self._write_back, self._limits.awaited)
        moving.resolve(taking.reschedules, poison)
        moved = moving.moved_of([*late, *due, *released])
        waits = _waiting_of([*late, *due], tip, moved) if tip.holds else {}
        if waits:
            frontier = msgspec.structs.replace(frontier, holds=holds.with_passed(frontier.holds, waits))
        return Selection(
            late,
            due,
            answers,
            moving.resolutions,
            frontier,
            advance.skip_to,
            advance.replayed,
            cut_short=bool(taking.room.full),
            waits_for=advance.waits_for,
            full=taking.room.full,
            as_of=_as_of(self._reached),
            moved=moved,
            paused=waits.keys(),
            released=released,
            paused_targets=self._paused.targets,
            passes=advance.passes,
        )

    def _hold_back(self, late_limits: Vector) -> _Advance:
        """Late rows are left: nothing that is due is taken, the position stays, and applied is held back to
        the first late one left of each partition.
        """
        tip, applied, read = self._tip, self._reached.applied, self._reached.read
        frontier = Frontier(
            tip.position,
            applied | late_limits,
            dict(applied),
            read | late_limits,
            tip.delivered_up_to_ms,
            tip.operation,
            tip.overruns,
            tip.holds,
            tip.carried,
            tip.newest_ms,
        )
        return _Advance(frontier, [], [], None, {}, passes=False)

    def _advance(self) -> _Advance:
        """Takes what is due, in key order, and moves the position to the last of it, or of what is done by an
        overrun; then some of a replay.
        """
        tip, now_ms, taking = self._tip, self._now_ms, self._taking
        taking.rows = []
        undone = Undone(tip, self._limits.passed)
        up_to_ms = take_due(self._kv, undone, now_ms, taking)
        due = taking.rows
        passed = _overrun_passed(tip, now_ms) if up_to_ms == now_ms else undone.passed
        ends = [key for key in (tip.position, due[-1][0] if due else None, passed) if key is not None]
        position = max(ends, default=None)
        operation, skip_to = tip.operation, tip.operation.skip_to
        if skip_to is not None and (up_to_ms >= skip_to[0] or (position is not None and position >= skip_to)):
            operation = msgspec.structs.replace(operation, skip_to=None)
        replayed, waits_for, operation = self._take_replayed(operation)
        frontier = Frontier(
            position,
            dict(self._reached.applied),
            dict(self._reached.applied),
            dict(self._reached.read),
            # A new leader's clock may be behind the last one's: what was true of a time stays true of it.
            max(up_to_ms, tip.delivered_up_to_ms),
            operation,
            tip.overruns,
            tip.holds,
            tip.carried,
            tip.newest_ms,
        )
        return _Advance(frontier, due, replayed, skip_to, waits_for, passes=passed is not None)

    def _take_replayed(self, operation: Operation) -> tuple[Rows, Vector, Operation]:
        """Some messages of a replay, and the operation then; or what it waits for."""
        replay, limits = operation.replay, self._limits
        if replay is None or self._paused.replay:
            return [], {}, operation
        waits_for = replay.lacks(self._reached.applied)
        if waits_for:
            return [], waits_for, operation
        most = min(self._taking.left, limits.messages // REPLAYED_PART or 1)
        replayed, replay = take_replayed(self._kv, replay, most, limits.bytes // REPLAYED_PART)
        return replayed, {}, msgspec.structs.replace(operation, replay=replay)

    def _take_released(self, replayed: int, poison: AbstractSet[RowKey]) -> tuple[Rows, Holds]:
        """What holds let go, of the part that is theirs and of what others have left, and the holds then."""
        messages = self._taking.left + self._released_part - replayed
        budget = Budget(messages, self._limits.bytes // REPLAYED_PART)
        stay = dict.fromkeys(self._paused.targets, poison)
        return take_released(self._kv, self._tip, self._may_go_to, budget, stay)

    def _with_holds(self, frontier: Frontier, left: Holds) -> Frontier:
        """The frontier with the holds that are left, and without the overruns that it has reached."""
        overruns = left_of(
            self._tip.overruns,
            frontier.position,
            frontier.delivered_up_to_ms,
            holds.needed_by(left, self._tip.overruns),
        )
        return msgspec.structs.replace(frontier, overruns=overruns, holds=left)


def _waiting_of(rows: Rows, tip: Frontier, moved: AbstractSet[RowKey]) -> dict[RowKey, str]:
    """Those of the rows that wait for the end of a pause, with their targets; late ones, too: the cursor of
    their hold comes to them.
    """
    targets = ((key, message_target(raw)) for key, raw in rows if key not in moved)
    return {key: target for key, target in targets if target is not None and tip.is_held(key, target)}


def next_due_ms(kv: KeyValue, tip: Frontier) -> int | None:
    """When the next row behind the position falls due, or the last of so many that are done, or a hold lets
    one go, or an overrun ends; None if nothing does.
    """
    undone = Undone(tip)
    first = next(iter(undone.of(kv.scan(keys.behind(tip.position), keys.end_of(keys.ROW)))), None)
    ends = [one.position for one in tip.overruns if tip.position is None or one.position > tip.position]
    ends += [] if first is None else [keys.timed(first[0])]
    ends += [] if undone.passed is None else [undone.passed]
    released_ms = next_released_ms(kv, tip) if tip.overruns else None
    return min([end[0] for end in ends] + ([] if released_ms is None else [released_ms]), default=None)


def _overrun_passed(tip: Frontier, now_ms: int) -> RowKey | None:
    """The position of an overrun that has been reached, if nothing is left that is due: there it ends."""
    ends = [one.position for one in tip.overruns if one.position[0] <= now_ms]
    last = max(ends, default=None)
    return None if last is None or (tip.position is not None and last <= tip.position) else last
