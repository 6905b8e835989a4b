"""Pruning: what is done and has left the replay window goes (rule 9, docs/design.md). What is held, and what
a replay will carry beside a hold, is left, and goes once it is released (rule 8).
"""

from __future__ import annotations

from typing import Final, NamedTuple

from delayline.times import MINUTE_MS
from store import kept, keys
from store.frontiers import Frontiers
from store.guard import Guard, retry_stalled
from store.holds import tag_of
from store.keys import RowKey
from store.kv import Batch, KeyValue
from store.late import late_rows
from store.operations import Replay
from store.pending import Pending, whole_days
from store.replays import will_carry
from store.rows import decode_park_mark, decode_scheduled, target_of_message

MOST_LATE_WALKED: Final = 1000
MOST_MARKS_WALKED: Final = 1_000
MOST_HELD_WALKED: Final = 1_000
MOST_HELD_BYTES: Final = 4 << 20
REST_S: Final = 0.005
MOST_STEPS: Final = 250  # of one `prune`: what else housekeeping does waits meanwhile


class Pruned(NamedTuple):
    """How far: `low_row`, where rows begin, but for those that are left; `gone_to`, below which they may have
    gone, before the position moved back.
    """

    low_row: bytes
    gone_to: bytes


class Pruning:
    """One view's. `prune` takes the locks, for a step at a time; all else is for whoever holds the lock."""

    def __init__(
        self, kv: KeyValue, guard: Guard, frontiers: Frontiers, pending: Pending, window_ms: int
    ) -> None:
        """`window_ms`: the replay window."""
        self.guard = guard
        self.pruned = Pruned(kv.get(keys.LOW_WATER) or keys.ROW, kv.get(keys.GONE_TO) or keys.ROW)
        self._kv = kv
        self._frontiers = frontiers
        self._pending = pending
        self._window_ms = window_ms

    @property
    def pruned_ms(self) -> int:
        """Of what was due before, nothing is stored but what is held."""
        low_row = self.pruned.low_row[: keys.TIMED_BYTES]
        return keys.timed(low_row)[0] if len(low_row) == keys.TIMED_BYTES else 0

    def window_start_ms(self) -> int:
        """What is done and fell due before is not kept. A replay's rows are, until it has passed them."""
        aligned, tip = self._frontiers.aligned, self._frontiers.tip
        start_ms = aligned.delivered_up_to_ms - self._window_ms
        for replay in (aligned.operation.replay, tip.operation.replay):
            if replay is not None:
                start_ms = min(start_ms, replay.next[0])
        return start_ms

    def is_waiting(self, key: RowKey) -> bool:
        """Whether a row is there that will be pruned soon: it is not held."""
        raw_row = keys.row(*key)
        return raw_row >= self.pruned.low_row and self._kv.get(raw_row) is not None

    def write_stored(self, batch: Batch, low_row: bytes | None) -> Pruned:
        """Puts where pruning begins once rows have been stored, done already, from `low_row` on, and returns
        it; None: none have.
        """
        if low_row is None or low_row >= self.pruned.low_row:
            return self.pruned
        batch.put(keys.LOW_WATER, low_row)
        return self.pruned._replace(low_row=low_row)

    def write_moved_back(self, batch: Batch, begin: bytes) -> Pruned:
        """Puts that pruning begins again at a position that was moved back, and returns it."""
        low_row, gone_to = self.pruned
        pruned = Pruned(min(low_row, begin), max(low_row, gone_to))
        batch.put(keys.GONE_TO, pruned.gone_to)
        batch.put(keys.LOW_WATER, pruned.low_row)
        return pruned

    def taken(self, pruned: Pruned) -> None:
        """The batch is written."""
        self.pruned = pruned

    def prune(self) -> bool:
        """Removes done rows that have left the window: one range, ending below the smallest late key and
        never behind the aligned position; while anything is held, row by row. Then what has been released.
        False if the view is to stop first.

        Each step takes the lock of removals, and then the view's; between two of them it rests.
        """
        begin = keys.HELD
        for _ in range(MOST_STEPS):
            with self.guard.removing:
                left = begin if self._prune_rows() else self._drop_released(begin)
            if left is None:
                break
            begin = left
            if self.guard.stopping.wait(REST_S):  # others wait for the locks
                return False
        return True

    @retry_stalled
    def _prune_rows(self) -> bool:
        """Whether there is more."""
        end = self._end()
        if end is None:
            return False
        batch = self._kv.batch()
        pruned_to = self._delete_rows(batch, end)
        end_ms = keys.timed(pruned_to[: keys.TIMED_BYTES])[0]
        minute = whole_days(end_ms // MINUTE_MS)
        batch.delete_range(keys.count(whole_days(self.pruned_ms // MINUTE_MS)), keys.count(minute))
        self._delete_marks(batch, end_ms)
        batch.put(keys.LOW_WATER, pruned_to)
        self._kv.write(batch)
        self.guard.removals += 1
        self.pruned = self.pruned._replace(low_row=pruned_to)
        self._pending.forget(minute)
        return pruned_to < end

    def _end(self) -> bytes | None:
        """Below which rows may go; None if there are none, or it can wait until late ones are delivered."""
        position, low_row = self._frontiers.aligned.position, self.pruned.low_row
        if position is None:
            return None
        end = min(keys.row(max(0, self._before_ms()), 0, 0), keys.after(keys.row(*position)))
        late = late_rows(self._kv, self._frontiers.applied, self._frontiers.aligned)
        for walked, key in enumerate(late):
            end = min(end, keys.row(*key))
            if end <= low_row or walked == MOST_LATE_WALKED:
                return None
        return end if end > low_row else None

    def _before_ms(self) -> int:
        """A replay is waited for, but while anything is held: it may stand still for as long as the pause."""
        aligned, begun = self._frontiers.aligned, self._frontiers.tip.operation.replay
        replay = aligned.operation.replay
        if replay is None or not aligned.holds or replay.lacks(self._frontiers.applied):
            return self.window_start_ms()
        if begun is not None and begun.number != replay.number:
            return self.window_start_ms()
        return aligned.delivered_up_to_ms - self._window_ms

    def _delete_rows(self, batch: Batch, end: bytes) -> bytes:
        """Deletes the rows below `end`, and leaves those that stay; returns up to where it has.

        A range for each row that is left would be more than the store bears: between them one row at a time.
        """
        if not self._frontiers.aligned.holds:
            batch.delete_range(self.pruned.low_row, end)
            return end
        replay, bytes_left = self._frontiers.aligned.operation.replay, MOST_HELD_BYTES
        for walked, (raw_key, raw) in enumerate(self._kv.scan(self.pruned.low_row, end)):
            if walked == MOST_HELD_WALKED or bytes_left < 0:
                return raw_key
            bytes_left -= len(raw)
            left = self._left(keys.timed(raw_key), raw, replay)
            if left is None:
                batch.delete(raw_key)
            else:
                kept.put(batch, left)
        return end

    def _left(self, key: RowKey, raw: bytes, replay: Replay | None) -> kept.Entry | None:
        """What is noted of a row that is held, or that a replay will carry; None: it goes."""
        message = decode_scheduled(raw)
        target = None if message is None else target_of_message(message)
        if message is None or target is None:
            return None
        stays = replay is not None and will_carry(self._kv, replay, key, raw)
        is_left = stays or self._frontiers.aligned.is_held(key, target)
        return (tag_of(target), key, message.id is not None) if is_left else None

    def _delete_marks(self, batch: Batch, pruned_ms: int) -> None:
        """Deletes the marks of what was parked that may go: what was written back for it has been pruned, so
        that its own row has, too. They lie by offset; one that has to stay keeps those behind it.
        """
        for partition in self._frontiers.applied:
            end, begin = None, keys.park_mark(partition, 0)
            for walked, (raw_key, raw) in enumerate(self._kv.scan(begin, keys.park_mark(partition + 1, 0))):
                if walked == MOST_MARKS_WALKED or decode_park_mark(raw).due_ms >= pruned_ms:
                    break
                end = keys.after(raw_key)
            if end is not None:
                batch.delete_range(begin, end)

    @retry_stalled
    def _drop_released(self, begin: bytes) -> bytes | None:
        """Deletes some of what pruning has left from there on, and no hold has any more. Where to go on; None
        if there is nothing more.
        """
        runs, left = kept.released(self._kv, self._frontiers.aligned, begin, MOST_HELD_WALKED)
        if runs:
            batch = self._kv.batch()
            for run in runs:
                kept.drop(self._kv, batch, run)
            self._kv.write(batch)
            self.guard.removals += 1
        return left
