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

import msgspec

from delayline.names import parse_source
from delayline.settings_versions import SettingsSource
from store import keys
from store.checkpoint import Frontier, Vector, WriteBack
from store.expiry import content
from store.frontiers import Frontiers
from store.keys import BLOCK, RowKey
from store.kv import Batch, KeyValue
from store.moves import is_overtaken, last_request_of
from store.pruning import Pruning
from store.replays import replayable
from store.rows import (
    RescheduleRow,
    decode_index,
    decode_offset,
    decode_queue_entry,
    decode_row,
    decode_scheduled,
    encode,
    is_reschedule,
    message_target,
)
from store.selection import Limits
from store.taking import Rows

MOST_WALKED: Final = 500
"""What one selection looks at of a partition, for each of its two walks, in rows: apply waits meanwhile."""
BYTES_OF_A_ROW: Final = 8_192  # what has more of them counts as more rows
GONE_OF_A_ROW: Final = 64  # so many offsets of which no row is left are passed over in the same time
MOST_SWEPT: Final = 1_000
CARRIED_PART: Final = 4  # so much of a transaction's limits at most
ROUND_RESTS: Final = 40  # so many rests from one whole round to the next, at least
ROUND_PART: Final = 16  # and so many times as long as it took


class Known(NamedTuple):
    """A row as the log knows it. `queued`: it was written back, or carried, or is no schedule.

    Below 0, `due_ms` says that a part of the due index up to there leads to nothing, and how much of a walk
    it was to find that out.
    """

    since: int
    offset: int
    due_ms: int
    id: str | None
    queued: bool


class _Found(NamedTuple):
    """How far nothing was needed when that was looked for; it counts once so much is applied."""

    carried: int
    newest_ms: int
    needs: int


class _Round(NamedTuple):
    """A walk over what is old. `to`: up to where; `at`: where it goes on; None: it is over. `needs`: what had
    been written back by then; None: that is not known yet. `whole`: over all that is, not what has grown old
    since the last one alone; another whole one begins at `again_ms` at the soonest.
    """

    to: int
    began_ms: int
    at: tuple[int, int] | None
    needs: int | None = None
    whole: bool = False
    again_ms: int = 0

    def walked_to(self, at: tuple[int, int] | None, now_ms: int) -> _Round:
        """Once it has come so far."""
        if at is not None or not self.whole:
            return self._replace(at=at)
        rests_ms = ROUND_PART * max(0, now_ms - self.began_ms)
        return self._replace(at=None, again_ms=max(self.again_ms, now_ms + rests_ms))


NO_ROUND: Final = _Round(0, 0, None, 0)


class _Gone(NamedTuple):
    """Of what was due before, no row is left; and, of what has an id, none that is known."""

    rows_ms: int
    ids_ms: int


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

    def carried(
        self, frontier: Frontier, read: Vector, written_back: Vector, since_ms: int
    ) -> tuple[Vector, Vector]:
        """How far the log is needed no more, by the frontier before a selection that answers all that waits;
        and the newest timestamps there, which who begins there cannot read. `read`: where the reader stands.
        `written_back`: of the checkpoint that leads to that frontier. `since_ms`: what is read from now on
        was written since then.

        It is true of a value once all is applied that had been written back when it was found. What is
        written back has an as-of, and that is where the reader stood at its selection. What was sent since
        has an as-of that is no lower than the reader's place then, which is not below the value. What had
        been sent is in the view now, and stands in the way itself if it is needed. (What the selection makes
        done waits still: its successor, which is not sent yet, needs its id for who has ended it.)

        A newest timestamp is of all that was read when its value was found: that is no more than *seen* has
        passed when it counts, from where on nodes have to agree on which ids are known.
        """
        found: Vector = {}
        newest_ms: Vector = {}
        for partition, before in self._frontiers.applied.items():
            known, last = self._found.get(partition), frontier.carried.get(partition, 0)
            last_ms = frontier.newest_ms.get(partition, 0)
            low = self._lowest_needed(partition, frontier, max(last, read.get(partition, 0)), since_ms)
            if known is not None and before >= known.needs:
                if (at := min(low, known.carried)) > last:
                    last, last_ms = at, known.newest_ms
                known = None
            if known is None:
                heard_ms = self._frontiers.heard.newest_ms.get(partition, 0)
                known = _Found(low, heard_ms, written_back.get(partition, 0))
            self._found[partition] = known
            found[partition], newest_ms[partition] = last, last_ms
        return found, newest_ms

    def _lowest_needed(self, partition: int, frontier: Frontier, end: int, since_ms: int) -> int:
        """The since of the first row that is needed; `end` if there is none below it."""
        first = self._first.pop(partition, None)
        if first is not None and self._is_needed(partition, first, frontier, since_ms):  # most often
            self._first[partition] = first
            return first.since
        begin = self._floor.get(partition, (frontier.carried.get(partition, 0), 0))
        gone, left = self._gone(partition, frontier, since_ms), MOST_WALKED
        for known in self._known(partition, begin, end, gone):
            is_needed = known.due_ms >= 0 and self._is_needed(partition, known, frontier, since_ms)
            if is_needed or left <= 0:
                self._floor[partition] = known.since, known.offset
                if is_needed:
                    self._first[partition] = known
                return known.since
            left -= max(1, -known.due_ms)
        self._floor[partition] = max(begin, (end, 0))
        return end

    def take(
        self,
        before: Frontier,
        frontier: Frontier,
        old: Vector,
        write_back: WriteBack,
        now_ms: int,
        limits: Limits,
    ) -> Rows:
        """Rows to be carried, a part of what a transaction carries: their since is below `old`, and they wait
        under the frontier that the selection leads to, or a replay may reach them. Of each partition one
        round after the other: what was carried in one shows only once it is applied.

        Not what is awaited as moved: who begins between the two would have it, and not what has taken its
        place. (What is moved beside it has the same as-of: who begins has both, or neither.)

        What is done, and a replay may reach, holds *carried* as what waits does, and stands still with the
        position in a pause. It is carried if it was done before the selection, and only while all that was
        written back is applied: what has followed from it by then shows, and who begins has to know of that.
        """
        moved = write_back.awaited.moved
        most, bytes_ = limits.messages // CARRIED_PART or 1, limits.bytes // CARRIED_PART
        taken: Rows = []
        for partition in sorted(old, key=lambda one: self._rounds.get(one, NO_ROUND).to):
            rest_ms = ROUND_RESTS * limits.carry_rest_ms
            turn = self._turn(partition, old[partition], frontier, write_back, now_ms, rest_ms)
            if turn.at is None:
                continue
            settled, left = self._is_settled(partition, write_back), MOST_WALKED
            at: tuple[int, int] | None = None
            gone = self._gone(partition, frontier)
            for known in self._known(partition, turn.at, turn.to, gone):
                if left <= 0 or len(taken) >= most or bytes_ < 0:
                    at = known.since, known.offset
                    break
                left -= max(1, -known.due_ms)
                key = known.due_ms, partition, known.offset
                raw = self._row(known, key) if known.due_ms >= 0 and key[1:] not in moved else None
                if raw is None:
                    continue
                left -= len(raw) // BYTES_OF_A_ROW
                is_done = frontier.done(key, message_target(raw))
                if not is_done:
                    taken.append((key, self._with_what_overtook(key, raw)))
                    bytes_ -= len(raw)
                elif settled and self._may_be_replayed(key, raw, before):
                    taken.append((key, self._with_what_followed(key, raw)))
                    bytes_ -= len(raw)
            self._rounds[partition] = turn.walked_to(at, now_ms)
        return taken

    @property
    def is_walking(self) -> bool:
        """Whether a walk over what is old goes on with the next selection."""
        return any(turn.at is not None for turn in self._rounds.values())

    def _with_what_overtook(self, key: RowKey, raw: bytes) -> bytes:
        """A row that waits; a reschedule says beside it that a cancel has overtaken it, or a later request of
        the id: who begins behind that does not know of it, where it is done by then and counts no more.
        """
        if not is_reschedule(raw):
            return raw
        row = decode_row(raw)
        assert isinstance(row, RescheduleRow), "its tag says so"
        last_request = last_request_of(row, key[2])
        if not is_overtaken(self._kv, key[1], row.id, last_request):
            return raw
        return encode(msgspec.structs.replace(row, overtaken=True))

    def _with_what_followed(self, key: RowKey, raw: bytes) -> bytes:
        """A row that is done; one without an id says beside it that a later one of its chain is there, or was
        until a cancel. So no cancel removes this one any more; who begins may lack the later one, and would
        have the cancel remove this one instead.

        All that was written back is applied, so it is known. With an id, the later one has taken its place.
        """
        row, (_, partition, offset) = decode_scheduled(raw), key
        if row is None or row.id is not None:
            return raw
        root = offset if row.root is None else parse_source(row.root)[2]
        raw_last = self._kv.get(keys.source(partition, root))
        raw_end = self._kv.get(keys.source_tombstone(partition, root))
        origin = offset if row.parent is None else row.parent
        goes_on = raw_last is not None and decode_index(raw_last).offset != offset
        # Were it the last one, the cancel had removed it.
        is_over = raw_end is not None and decode_offset(raw_end) > origin
        return encode(msgspec.structs.replace(row, followed=True)) if goes_on or is_over else raw

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
        a round has left out, since it was too large, or its partition took nothing, is looked at by the next
        whole one.
        """
        turn = self._rounds.get(partition, NO_ROUND)
        if turn.at is not None:
            return turn
        if turn.needs is None and write_back.written_back is not None:
            turn = turn._replace(needs=write_back.written_back.get(partition, 0))
            self._rounds[partition] = turn
        if turn.needs is None or self._frontiers.applied[partition] < turn.needs:
            return turn
        floor = self._floor.get(partition, (frontier.carried.get(partition, 0), 0))
        if floor[0] < old and (now_ms >= turn.again_ms or now_ms < turn.began_ms):
            return _Round(old, now_ms, floor, whole=True, again_ms=now_ms + rest_ms)
        return _Round(old, now_ms, (turn.to, 0), again_ms=turn.again_ms) if old > turn.to else turn

    def _is_settled(self, partition: int, write_back: WriteBack) -> bool:
        """Whether all that was written back into the partition is applied."""
        written_back = write_back.written_back
        return written_back is not None and self._frontiers.applied.get(partition, 0) >= written_back.get(
            partition, 0
        )

    def _gone(self, partition: int, frontier: Frontier, since_ms: int | None = None) -> _Gone:
        """What needs no look. Since when what is read from now on was written says which ids are known;
        without that nobody asks for ids.
        """
        replays = (
            frontier.operation.replay is not None or self._frontiers.aligned.operation.replay is not None
        )
        gone_ms = min(self._pruning.pruned_ms, self._pruning.window_start_ms())
        rows_ms = 0 if frontier.holds or replays else gone_ms
        if since_ms is None:
            return _Gone(rows_ms, rows_ms)
        known_ms = self._newest_ms(partition, since_ms) - self._settings.versions.longest_dedup_window_ms
        return _Gone(rows_ms, min(rows_ms, known_ms))

    def _newest_ms(self, partition: int, since_ms: int) -> int:
        return max(since_ms, self._frontiers.heard.newest_ms.get(partition, 0))

    def _row(self, known: Known, key: RowKey) -> bytes | None:
        """None, too, if it has been carried since."""
        return self._kv.get(keys.row(*key)) if self._is_current(key[1], known) else None

    def _is_current(self, partition: int, known: Known) -> bool:
        """Whether that is its since. One in the due index that has been carried stands in the queue."""
        raw = self._kv.get(keys.since(partition, known.offset))
        return not known.queued if raw is None else known.queued and decode_offset(raw) == known.since

    def _is_needed(self, partition: int, known: Known, frontier: Frontier, since_ms: int) -> bool:
        """Whether it waits, or a replay may reach it, or its id still counts for who asks to keep, which was
        written since then at the earliest.
        """
        if not self._is_current(partition, known):
            return False
        key = known.due_ms, partition, known.offset
        raw = self._kv.get(keys.row(*key))
        if raw is not None:
            waits = not frontier.done(key, message_target(raw))
            if waits or self._may_be_replayed(key, raw, frontier):
                return True
        longest_ms = self._settings.versions.longest_dedup_window_ms
        if known.id is None or self._newest_ms(partition, since_ms) >= known.due_ms + longest_ms:
            return False
        raw_entry = self._kv.get(keys.index(partition, known.id))
        return raw_entry is not None and decode_index(raw_entry).offset == known.offset

    def _may_be_replayed(self, key: RowKey, raw: bytes, frontier: Frontier) -> bool:
        """Whether it is done by a frontier, and a replay may deliver it again: not what was parked, of which
        another row is left.
        """
        if key[0] < self._pruning.window_start_ms() or not frontier.done(key, message_target(raw)):
            return False
        return replayable(self._kv, key, raw) is not None

    def _known(self, partition: int, begin: tuple[int, int], end: int, gone: _Gone) -> Iterator[Known]:
        """The rows whose since is from there on, and below `end`, in that order; some that have gone are
        among them.
        """
        both = merge(self._users(partition, begin[0], end, gone), self._queue(partition, begin[0], end))
        return (known for known in both if (known.since, known.offset) >= begin)

    def _queue(self, partition: int, begin: int, end: int) -> Iterator[Known]:
        entries = self._kv.scan(keys.queue(partition, begin, 0), keys.queue(partition, end, 0))
        for raw_key, raw in entries:
            since, offset = keys.queued_since(raw_key)
            entry = decode_queue_entry(raw)
            yield Known(since, offset, entry.due_ms, entry.id, queued=True)

    def _users(self, partition: int, begin: int, end: int, gone: _Gone) -> Iterator[Known]:
        """Users' schedules, from the due index."""
        first_key = keys.due_index(partition, begin - begin % BLOCK)
        for raw_key, raw in self._kv.scan(first_key, keys.due_index(partition, end)):
            _, first = keys.record_id(raw_key)
            numbers = [number for (number,) in iter_unpack("<Q", raw)]
            if first + len(numbers) <= begin:
                continue
            left = {
                offset: number
                for offset, number in enumerate(numbers, first)
                if number
                and begin <= offset < end
                # Of what has an id, that is the last due time of its expiry entry, which is no earlier.
                and number >> 1 >= (gone.ids_ms if number & 1 else gone.rows_ms)
            }
            if not left:
                last = min(first + len(numbers), end) - 1
                yield Known(last, last, -1 - len(numbers) // GONE_OF_A_ROW, None, queued=False)
                continue
            named = self._named(partition, first, left)
            for offset, number in left.items():
                if not number & 1:
                    yield Known(offset, offset, number >> 1, None, queued=False)
                elif offset in named:
                    yield Known(offset, offset, *named[offset], queued=False)

    def _named(self, partition: int, first: int, numbers: Mapping[int, int]) -> dict[int, tuple[int, str]]:
        """By offset, the due times and the ids of those that have one, from their expiry entries; those that
        are forgotten are not among them.
        """
        offsets: dict[int, list[int]] = {}
        for offset, number in numbers.items():
            if number & 1:
                offsets.setdefault(number >> 1, []).append(offset)
        found: dict[int, tuple[int, str]] = {}
        block = first - first % BLOCK
        for last_due_ms, wanted in offsets.items():
            own = keys.expiry(partition, last_due_ms, wanted[0])  # of a batch as it was taken
            raw_own = self._kv.get(own)
            if raw_own is not None:
                found |= self._content(own, raw_own)
            if raw_own is None or not all(offset in found for offset in wanted):
                begin = keys.expiry(partition, last_due_ms, block)
                for raw_key, raw in self._kv.scan(begin, keys.expiry(partition, last_due_ms, block + BLOCK)):
                    found |= self._content(raw_key, raw)
        return found

    def _content(self, raw_key: bytes, raw: bytes) -> dict[int, tuple[int, str]]:
        _, entry = content(self._kv, raw_key, raw)
        each = zip(entry.dues_ms, entry.offsets, entry.whose, strict=True)
        return {offset: (due_ms, who) for due_ms, offset, who in each if isinstance(who, str)}


class QueueSweep:
    """Deletes what stands in the queue below where nothing is needed: of one view, whether it leads or not.
    For whoever holds the view's lock.
    """

    def __init__(self, kv: KeyValue) -> None:
        self._kv = kv
        self._swept: dict[int, int] = {}  # below that there are but deletes, which it would go over again

    def taken(self, low_since: Mapping[int, int]) -> None:
        """A batch is written, with rows from these on in the queue."""
        for partition, since in low_since.items():
            if since < self._swept.get(partition, 0):
                self._swept[partition] = since

    def step(self, batch: Batch, carried: Mapping[int, int]) -> tuple[dict[int, int], bool]:
        """Deletes a bounded number of them; how far it has come once that is written, and whether there is
        more.
        """
        swept, left = dict(self._swept), MOST_SWEPT
        for partition, end in carried.items():
            begin = swept.get(partition, 0)
            for raw_key, _ in self._kv.scan(keys.queue(partition, begin, 0), keys.queue(partition, end, 0)):
                since, offset = keys.queued_since(raw_key)
                if not left:
                    return swept | {partition: since}, True
                left -= 1
                batch.delete(raw_key)
                raw = self._kv.get(keys.since(partition, offset))
                if raw is not None and decode_offset(raw) == since:
                    batch.delete(keys.since(partition, offset))
            swept[partition] = max(begin, end)
        return swept, False

    def written(self, swept: dict[int, int]) -> None:
        """What a step has deleted is gone."""
        self._swept = swept
