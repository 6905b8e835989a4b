"""Carrying: which rows the log has to say again, and how far nothing of it is needed any more (rule 12,
docs/design.md).

Rows are looked at in the order of their *since*, the offset from which the log knows of them. Users'
schedules stand in the due index, by their own offsets; all others, and what was carried, in a queue.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from heapq import merge
from struct import iter_unpack
from typing import Final, NamedTuple

from delayline.settings_versions import SettingsSource
from store import keys
from store.checkpoint import Frontier, Vector, WriteBack
from store.expiry import content
from store.frontiers import Frontiers
from store.keys import BLOCK, RowKey
from store.kv import Batch, KeyValue
from store.pruning import Pruning
from store.rows import decode_index, decode_offset, decode_queue_entry, message_target
from store.selection import Limits
from store.taking import Rows

MOST_WALKED: Final = 500
"""Rows of a partition that one selection looks at, for each of its two walks: apply waits meanwhile."""
MOST_SWEPT: Final = 1_000
CARRIED_PART: Final = 4  # so much of a transaction's limits at most
ROUND_RESTS: Final = 40  # so many rests from one round to the next, at least


class Known(NamedTuple):
    """A row as the log knows it. `queued`: it was written back, or carried, or is no schedule."""

    since: int
    offset: int
    due_ms: int
    id: str | None
    queued: bool


class _Found(NamedTuple):
    """How far nothing was needed when that was looked for; it counts once so much is applied."""

    carried: int
    needs: int


class _Round(NamedTuple):
    """A walk over what is old. `to`: up to where; `at`: where it goes on; None: it is over. `needs`: what had
    been written back by then; None: that is not known yet.
    """

    to: int
    began_ms: int
    at: tuple[int, int] | None
    needs: int | None = None


NO_ROUND: Final = _Round(0, 0, None, 0)


class Carrying:
    """One view's, while its node leads. For whoever holds the view's lock."""

    def __init__(
        self, kv: KeyValue, frontiers: Frontiers, pruning: Pruning, settings: SettingsSource
    ) -> None:
        self._kv = kv
        self._frontiers = frontiers
        self._pruning = pruning
        self._settings = settings
        self._floor: dict[int, tuple[int, int]] = {}  # before that no row is needed
        self._first: dict[int, Known] = {}  # the one there that was
        self._found: dict[int, _Found] = {}
        self._rounds: dict[int, _Round] = {}

    def reset(self) -> None:
        """What was looked at is not so any more: a transaction is abandoned."""
        self._floor, self._first, self._found, self._rounds = {}, {}, {}, {}

    def taken(self, low_since: Mapping[int, int]) -> None:
        """A batch is written, with rows from these on in the queue."""
        for partition, since in low_since.items():
            at = self._floor.get(partition)
            if at is not None and (since, 0) < at:
                self._floor[partition] = since, 0
                self._first.pop(partition, None)

    def carried(self, frontier: Frontier, read: Vector, write_back: WriteBack, since_ms: int) -> Vector:
        """How far the log is needed no more, by the frontier before a selection that answers all that waits.
        `read`: where the reader stands. `write_back`: of the checkpoint that leads to that frontier.
        `since_ms`: what is read from now on was written since then.

        It is true of a value once all is applied that had been written back when it was found. What is
        written back has an as-of, and that is where the reader stood at its selection. What was sent since
        has an as-of that is no lower than the reader's place then, which is not below the value. What had
        been sent is in the view now, and stands in the way itself if it is needed. (What the selection makes
        done waits still: its successor, which is not sent yet, needs its id for who has ended it.)
        """
        found: Vector = {}
        for partition, before in self._frontiers.applied.items():
            known, last = self._found.get(partition), frontier.carried.get(partition, 0)
            low = self._lowest_needed(partition, frontier, max(last, read.get(partition, 0)), since_ms)
            if known is not None and before >= known.needs:
                last = max(last, min(low, known.carried))
                known = None
            if known is None and write_back.written_back is not None:
                known = _Found(low, write_back.written_back.get(partition, 0))
            if known is None:
                self._found.pop(partition, None)
            else:
                self._found[partition] = known
            found[partition] = last
        return found

    def _lowest_needed(self, partition: int, frontier: Frontier, end: int, since_ms: int) -> int:
        """The since of the first row that is needed; `end` if there is none below it."""
        first = self._first.pop(partition, None)
        if first is not None and self._is_needed(partition, first, frontier, since_ms):  # most often
            self._first[partition] = first
            return first.since
        begin = self._floor.get(partition, (frontier.carried.get(partition, 0), 0))
        for walked, known in enumerate(self._known(partition, begin, end)):
            is_needed = self._is_needed(partition, known, frontier, since_ms)
            if is_needed or walked == MOST_WALKED:
                self._floor[partition] = known.since, known.offset
                if is_needed:
                    self._first[partition] = known
                return known.since
        self._floor[partition] = max(begin, (end, 0))
        return end

    def take(
        self,
        frontier: Frontier,
        old: Vector,
        write_back: WriteBack,
        now_ms: int,
        limits: Limits,
    ) -> Rows:
        """Rows to be carried, a part of what a transaction carries: they wait under the frontier, and their
        since is below `old`. Of each partition one round after the other: what was carried in one shows only
        once it is applied.

        Not what is awaited as moved: who begins between the two would have it, and not what has taken its
        place. (What is moved beside it has the same as-of: who begins has both, or neither.)
        """
        moved = write_back.awaited.moved
        most, bytes_ = limits.messages // CARRIED_PART or 1, limits.bytes // CARRIED_PART
        taken: Rows = []
        for partition in sorted(old, key=lambda one: self._rounds.get(one, NO_ROUND).to):
            rest_ms = ROUND_RESTS * limits.carry_rest_ms
            turn = self._turn(partition, old[partition], frontier, write_back, now_ms, rest_ms)
            if turn.at is None:
                continue
            at: tuple[int, int] | None = None
            for walked, known in enumerate(self._known(partition, turn.at, turn.to)):
                if walked == MOST_WALKED or len(taken) >= most or bytes_ < 0:
                    at = known.since, known.offset
                    break
                key = known.due_ms, partition, known.offset
                raw = None if key[1:] in moved else self._waiting(known, key, frontier)
                if raw is not None:
                    taken.append((key, raw))
                    bytes_ -= len(raw)
            self._rounds[partition] = turn._replace(at=at)
        return taken

    def _turn(
        self,
        partition: int,
        old: int,
        frontier: Frontier,
        write_back: WriteBack,
        now_ms: int,
        rest_ms: int,
    ) -> _Round:
        """The round under way, or the next one, if there is more to look at and the last one is known. What
        the last one has looked at waits for a while: some of it may be too large to be carried.
        """
        turn = self._rounds.get(partition, NO_ROUND)
        if turn.at is not None:
            return turn
        if turn.needs is None and write_back.written_back is not None:
            turn = turn._replace(needs=write_back.written_back.get(partition, 0))
            self._rounds[partition] = turn
        if turn.needs is None or self._frontiers.applied[partition] < turn.needs:
            return turn
        carried = frontier.carried.get(partition, 0)
        # Where nobody writes any more, what was carried last grows old, and the log does not grow.
        is_left = self._floor.get(partition, (carried, 0))[0] < old and now_ms - turn.began_ms >= rest_ms
        return _Round(old, now_ms, (carried, 0)) if old > turn.to or is_left else turn

    def _waiting(self, known: Known, key: RowKey, frontier: Frontier) -> bytes | None:
        """The row, if it is there and is not done."""
        raw = self._row(known, key)
        return None if raw is None or frontier.done(key, message_target(raw)) else raw

    def _row(self, known: Known, key: RowKey) -> bytes | None:
        """None, too, if it has been carried since."""
        raw = self._kv.get(keys.row(*key))
        return raw if raw is not None and self._is_current(key[1], known) else None

    def _is_current(self, partition: int, known: Known) -> bool:
        """Whether that is its since. One in the due index that has been carried stands in the queue."""
        raw = self._kv.get(keys.since(partition, known.offset))
        return not known.queued if raw is None else known.queued and decode_offset(raw) == known.since

    def _is_needed(self, partition: int, known: Known, frontier: Frontier, since_ms: int) -> bool:
        """Whether it waits, or a replay may reach it, or its id still counts for who asks to keep, which was
        written since then at the earliest.
        """
        key = known.due_ms, partition, known.offset
        raw = self._kv.get(keys.row(*key))
        if raw is not None:
            waits = not frontier.done(key, message_target(raw))
            if waits or known.due_ms >= self._pruning.window_start_ms():
                return self._is_current(partition, known)
        newest_ms = max(since_ms, self._frontiers.heard.newest_ms.get(partition, 0))
        longest_ms = self._settings.versions.longest_dedup_window_ms
        if known.id is None or newest_ms >= known.due_ms + longest_ms:
            return False
        raw_entry = self._kv.get(keys.index(partition, known.id))
        if raw_entry is None or decode_index(raw_entry).offset != known.offset:
            return False
        return self._is_current(partition, known)

    def _known(self, partition: int, begin: tuple[int, int], end: int) -> Iterator[Known]:
        """The rows whose since is from there on, and below `end`, in that order; those that have gone are
        among them.
        """
        both = merge(self._users(partition, begin[0], end), self._queue(partition, begin[0], end))
        return (known for known in both if (known.since, known.offset) >= begin)

    def _queue(self, partition: int, begin: int, end: int) -> Iterator[Known]:
        entries = self._kv.scan(keys.queue(partition, begin, 0), keys.queue(partition, end, 0))
        for raw_key, raw in entries:
            since, offset = keys.queued_since(raw_key)
            entry = decode_queue_entry(raw)
            yield Known(since, offset, entry.due_ms, entry.id, queued=True)

    def _users(self, partition: int, begin: int, end: int) -> Iterator[Known]:
        """Users' schedules, from the due index."""
        first_key = keys.due_index(partition, begin - begin % BLOCK)
        for raw_key, raw in self._kv.scan(first_key, keys.due_index(partition, end)):
            _, first = keys.record_id(raw_key)
            numbers = [number for (number,) in iter_unpack("<Q", raw)]
            if first + len(numbers) <= begin:
                continue
            named = self._named(partition, first, numbers)
            for offset, number in enumerate(numbers, first):
                if not number or not begin <= offset < end:
                    continue
                if not number & 1:
                    yield Known(offset, offset, number >> 1, None, queued=False)
                elif offset in named:
                    yield Known(offset, offset, *named[offset], queued=False)

    def _named(self, partition: int, first: int, numbers: list[int]) -> dict[int, tuple[int, str]]:
        """By offset, the due times and the ids of those that have one, from their expiry entries; those that
        are forgotten are not among them.
        """
        found: dict[int, tuple[int, str]] = {}
        block = first - first % BLOCK
        for last_due_ms in {number >> 1 for number in numbers if number & 1}:
            begin = keys.expiry(partition, last_due_ms, block)
            for raw_key, raw in self._kv.scan(begin, keys.expiry(partition, last_due_ms, block + BLOCK)):
                _, entry = content(self._kv, raw_key, raw)
                for due_ms, offset, who in zip(entry.dues_ms, entry.offsets, entry.whose, strict=True):
                    if isinstance(who, str):
                        found[offset] = due_ms, who
        return found


def sweep(kv: KeyValue, batch: Batch, carried: Mapping[int, int]) -> bool:
    """Deletes what stands in the queue below where nothing is needed; whether there is more."""
    left = MOST_SWEPT
    for partition, end in carried.items():
        for raw_key, _ in kv.scan(keys.queue(partition, 0, 0), keys.queue(partition, end, 0)):
            if not left:
                return True
            left -= 1
            since, offset = keys.queued_since(raw_key)
            batch.delete(raw_key)
            raw = kv.get(keys.since(partition, offset))
            if raw is not None and decode_offset(raw) == since:
                batch.delete(keys.since(partition, offset))
    return False
