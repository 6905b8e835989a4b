"""The view: a node's rows and indexes, a function of the log and of the aligned checkpoint.

One lock makes apply, selection, alignment and pruning atomic with respect to one another; rule 1
(docs/design.md) needs no more than that. The view owns three frontiers:

- *aligned*: the last checkpoint known to be committed, kept in the store;
- *tip*: where the last selection leads, in memory only. It is ahead of *aligned* while transactions
  are in flight, and falls back to it when they are abandoned (`abandon`);
- *applied*: what was taken from the log, kept in the store with the rows, in the same batch; *read* goes
  past the markers behind it, and is kept with each checkpoint.

After a crash the store is exactly some earlier state, and the log replays the rest.
"""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from collections.abc import Set as AbstractSet
from itertools import islice
from typing import Concatenate, ParamSpec, TypeVar

import msgspec

from delayline.signing import Serial
from store import due_index, expiry, kept, keys, selection
from store.apply import BatchApply, Taken
from store.arrivals import Arrival, Kind
from store.checkpoint import NO_WRITE_BACK, Checkpoint, Frontier, Reached, Vector, WriteBack, nothing
from store.holds import tag_of
from store.keys import RowKey
from store.kv import Batch, KeyValue, Stalled
from store.late import late_keys
from store.operations import OperatorRequest, taken_up
from store.pending import Pending, whole_days
from store.prefetch import Prefetched, prefetch
from store.replays import will_carry
from store.rows import (
    Expiry,
    PendingAnswer,
    decode_index,
    decode_offset,
    decode_park_mark,
    decode_pending_answer,
    decode_scheduled,
    decode_serials,
    decode_vector,
    encode,
    target_of_message,
)
from store.selection import NOTHING_PAUSED, Limits, Paused, Selection
from store.stall import Stall

FOREVER_MS = 1 << 62

P = ParamSpec("P")
R = TypeVar("R")


def _retry_stalled(
    method: Callable[Concatenate[View, P], R],
) -> Callable[Concatenate[View, P], R]:
    """Runs the method under the lock, again where RocksDB could not take the write at once. Raises `Stalled`
    once it has lasted, if the node is to end.
    """

    def run(view: View, /, *args: P.args, **kwargs: P.kwargs) -> R:
        stall: Stall | None = None
        while True:
            with view.lock:
                try:
                    done = method(view, *args, **kwargs)
                    break
                except Stalled as error:
                    refused = error
            stall = stall or Stall(view.stopping)
            stall.wait(refused)
        if stall is not None:
            stall.over()
        return done

    run.__doc__ = method.__doc__
    run.__name__ = method.__name__
    return run


class View:
    """Thread-safe. State is changed only after the store has taken the write, so a stalled or failed
    write leaves the view as it was.
    """

    def __init__(
        self, kv: KeyValue, partitions: Sequence[int], replay_window_ms: int, dedup_window_ms: int
    ) -> None:
        """`partitions` are the lane's."""
        self.lock = threading.Lock()
        self._removing = threading.Lock()  # taken before the other one, by what prunes or forgets
        self.stopping = threading.Event()  # a write that is refused for long is given up
        self._kv = kv
        self._window_ms = replay_window_ms
        self._dedup_window_ms = dedup_window_ms
        raw_applied, raw_aligned = kv.get(keys.APPLIED), kv.get(keys.ALIGNED)
        stored = {} if raw_applied is None else decode_vector(raw_applied)
        partitions = sorted({*partitions, *stored})  # what was read once is the lane's for ever
        self._applied: Vector = {partition: stored.get(partition, 0) for partition in partitions}
        raw_read = kv.get(keys.READ)
        read = {} if raw_read is None else decode_vector(raw_read)  # older than applied, perhaps
        self._read: Vector = {p: max(offset, read.get(p, 0)) for p, offset in self._applied.items()}
        self._checkpoint = None if raw_aligned is None else Checkpoint.decode(raw_aligned)
        self._aligned = nothing(partitions) if self._checkpoint is None else self._checkpoint.frontier
        self._tip = self._aligned
        self._low_row = kv.get(keys.LOW_WATER) or keys.ROW
        self._gone_to = kv.get(keys.GONE_TO) or keys.ROW
        self._low_expiry = {partition: keys.expiry(partition, 0, 0) for partition in partitions}
        self._lowest_new_expiry: dict[int, bytes] = {}  # since the last `expired`
        self._forgets_next = deque(partitions)
        self._low_due_index = {partition: keys.due_index_end(partition, 0, 0) for partition in partitions}
        raw_newest = kv.get(keys.NEWEST)
        self._newest: Vector = {} if raw_newest is None else decode_vector(raw_newest)  # timestamps, ms
        raw_last_moves = kv.get(keys.LAST_MOVES)
        self._last_moves: Vector = {} if raw_last_moves is None else decode_vector(raw_last_moves)  # dues, ms
        raw_serials = kv.get(keys.SERIALS)
        self._serials: dict[int, Serial] = {} if raw_serials is None else decode_serials(raw_serials)
        self._pending = Pending(kv, self._tip.position)
        self._noted: dict[int, tuple[int, int]] = {}  # by partition: applied, and last move, at some time
        self._settled: Vector = {}  # below that no reschedule waits
        self._newest_read: Vector = {}  # the same, where something has come since the start
        self._removals = 0  # how often something was pruned or forgotten
        self._wake_due_ms: int | None = None

    @property
    def checkpoint(self) -> Checkpoint | None:
        """The checkpoint last aligned to."""
        return self._checkpoint

    @property
    def tip(self) -> Frontier:
        return self._tip

    def ahead_of(self, limit_ms: int) -> Vector:
        """The newest timestamp of each partition where that is above a limit."""
        return {partition: at_ms for partition, at_ms in self._newest.items() if at_ms > limit_ms}

    def newest_ms(self, most_ms: int = FOREVER_MS) -> int:
        """The newest timestamp of the partitions from which records have come since the start, but for where
        it is above `most_ms`; 0 if there is none.
        """
        return max((at_ms for at_ms in self._newest_read.values() if at_ms <= most_ms), default=0)

    def reached(self) -> Reached:
        with self.lock:
            return Reached(dict(self._applied), dict(self._read))

    def has_applied(self, *vectors: Vector) -> bool:
        """Whether all messages below the vectors' offsets have been taken in; of a partition that the view
        lacks, not even none have.
        """
        applied = self._applied
        return all(applied.get(p, -1) >= offset for vector in vectors for p, offset in vector.items())

    def has_read_to(self, ends: Vector) -> bool:
        """Whether the consumer has passed the ends: there may be nothing but markers below them."""
        return all(self._read.get(partition, 0) >= end for partition, end in ends.items())

    def apply(self, arrivals: Sequence[Arrival], read: Vector) -> bool:
        """Takes arrivals in log order (per partition) and where the consumer stands behind them. One thread
        does, so that what it reads beforehand stays true, but for what is pruned or forgotten meanwhile.

        True if there is now something that a leader should look at before the time that the last
        `select` told it to wait for.
        """
        urgent = self._apply(arrivals, read)
        while urgent is None:
            with self._removing:  # else what takes longer to read than these rest would wait for their end
                urgent = self._apply(arrivals, read)
        return urgent

    def _apply(self, arrivals: Sequence[Arrival], read: Vector) -> bool | None:
        removals = self._removals
        return self._take(arrivals, read, prefetch(self._kv, self._pending, arrivals), removals)

    @_retry_stalled
    def _take(
        self, arrivals: Sequence[Arrival], read: Vector, known: Prefetched, removals: int
    ) -> bool | None:
        """As `apply`. None, and nothing is done, if something was removed since `known` was read."""
        if removals != self._removals:
            return None
        fresh = [a for a in arrivals if a.offset >= self._applied[a.partition]]
        apply = BatchApply(
            self._kv,
            known,
            self._aligned,
            self._tip.position,
            self._window_start_ms(),
            self._dedup_window_ms,
            Taken(self._newest, self._last_moves, self._serials, self._gone_to),
        )
        if fresh:
            apply.add(fresh)
            applied = self._applied | {a.partition: a.offset + 1 for a in fresh if a.kind is not Kind.SPENT}
            counts = self._pending.write(apply.batch, apply.counts, known.counts)
            newest = self._newest | _newest_of(fresh, self._newest)
            apply.batch.put(keys.APPLIED, encode(applied))
            apply.batch.put(keys.NEWEST, encode(newest))
            if apply.last_moves != self._last_moves:
                apply.batch.put(keys.LAST_MOVES, encode(apply.last_moves))
            if apply.serials != self._serials:
                apply.batch.put(keys.SERIALS, encode(apply.serials))
            if apply.low_row is not None and apply.low_row < self._low_row:
                apply.batch.put(keys.LOW_WATER, apply.low_row)
            self._kv.write(apply.batch)
            self._pending.taken(counts, apply.counts, apply.counts_below)
            self._publish(apply, applied)
            self._newest, self._last_moves, self._serials = newest, apply.last_moves, apply.serials
            self._newest_read = self._newest_read | {a.partition: newest[a.partition] for a in fresh}
        # It never moves back: what is written back rests on that (store/apply.py, `_is_copy`).
        self._read.update({p: max(offset, self._read.get(p, 0)) for p, offset in read.items()})
        return apply.urgent or self._wake_due_ms is None or apply.first_due_ms < self._wake_due_ms

    @_retry_stalled
    def start_at(self, partition: int, applied: int, read: int, serial: Serial | None = None) -> None:
        """The log begins at `read`. What was below it is done: messages below `applied`, then markers.

        `serial`: it counts as spent, with all below it.
        """
        vector = self._applied | {partition: applied}
        serials = self._serials
        if serial is not None:
            serials = serials | {partition: max(serial, serials.get(partition, serial))}
        batch = self._kv.batch()
        batch.put(keys.APPLIED, encode(vector))
        batch.put(keys.SERIALS, encode(serials))
        self._kv.write(batch)
        self._serials = serials
        self._applied = vector
        self._read[partition] = read

    def _publish(self, apply: BatchApply, applied: Vector) -> None:
        self._applied = applied
        if apply.low_row is not None:
            self._low_row = min(self._low_row, apply.low_row)
        for partition, key in apply.low_expiry.items():
            self._low_expiry[partition] = min(self._low_expiry[partition], key)
            self._lowest_new_expiry[partition] = min(self._lowest_new_expiry.get(partition, key), key)
        for partition, key in apply.low_due_index.items():
            self._low_due_index[partition] = min(self._low_due_index[partition], key)

    def select(
        self,
        now_ms: int,
        limits: Limits,
        request: OperatorRequest | None = None,
        *,
        write_back: WriteBack = NO_WRITE_BACK,
        refused: AbstractSet[RowKey] = frozenset(),
        paused: Paused = NOTHING_PAUSED,
    ) -> Selection:
        """Selects behind the tip and moves it (rule 1). An empty selection says how far nothing is due:
        it makes a heartbeat, or nothing.

        `request`: an operator's, which this selection takes up if none after it has been taken up before.
        `write_back`: that of the checkpoint that the tip leads to; while it is not known, no request is taken
        up. `refused`: rows that are to be dead letters.
        """
        with self.lock:
            tip = self._tip
            written_back = write_back.written_back
            if request is not None and written_back is not None and request.number > tip.operation.number:
                # Not by what is aligned: another node may know this one's commit in flight, and have pruned.
                kept_from_ms = tip.once_delivered_up_to_ms - self._window_ms
                operation = taken_up(
                    tip.operation,
                    request,
                    tip.position,
                    tip.applied,
                    now_ms,
                    kept_from_ms,
                    written_back,
                    tip.held,
                )
                tip = msgspec.structs.replace(tip, operation=operation)
            chosen = selection.select(
                self._kv,
                tip,
                Reached(self._applied, self._read),
                now_ms,
                limits,
                write_back=write_back,
                refused=refused,
                paused=paused,
            )
            before, after = self._tip, chosen.frontier
            if (before.operation, before.holds) != (after.operation, after.holds):
                chosen = msgspec.structs.replace(chosen, operates=True)
            self._tip = chosen.frontier
            if chosen.passes:
                self._pending.jump(self._tip.position)
            else:
                self._pending.advance(chosen.due)
            return chosen

    def wake_at(self) -> int | None:
        """The next due time behind the tip. From now on `apply` reports what comes before it."""
        with self.lock:
            due_ms = selection.next_due_ms(self._kv, self._tip)
            self._wake_due_ms = FOREVER_MS if due_ms is None else due_ms
            return due_ms

    def wake_always(self) -> None:
        """From now on `apply` reports every batch: the leader waits for the log, not for a time."""
        with self.lock:
            self._wake_due_ms = None

    @_retry_stalled
    def committed(self, chosen: Selection, checkpoint: Checkpoint) -> None:
        """Records the known commit of `chosen`: its late entries go, now and not at selection, and the
        checkpoint is the aligned one, in one batch (rule 5).
        """
        batch = self._kv.batch()
        for _, partition, offset in (key for key, _ in chosen.late):
            batch.delete(keys.late(partition, offset))
        for answer in chosen.answers:
            _drop_pending_answer(batch, *answer.place, answer.control)
        batch.put(keys.ALIGNED, checkpoint.encode())
        batch.put(keys.READ, encode(self._read))
        self._kv.write(batch)
        self._checkpoint, self._aligned = checkpoint, checkpoint.frontier

    def abandon(self) -> None:
        """Abandons what is in flight: the tip falls back to the aligned checkpoint (rule 6)."""
        with self.lock:
            self._tip = self._aligned
            self._pending.jump(self._tip.position)

    @_retry_stalled
    def align(self, new: Checkpoint) -> None:
        """Takes over a checkpoint read from the checkpoint topic (rule 6, `align`).

        Late entries done under it, or above its position, go, always, even if it equals the old one:
        an entry taken by a transaction whose commit was not seen here must not stay. Then the rows
        that it passed without having applied them become late. The same way a leader aligns to its own step
        back: what has come since, due behind the new position, is late no more.
        """
        assert self._tip == self._aligned, "never align while a transaction is in flight"
        frontier, old = new.frontier, self._aligned
        batch = self._kv.batch()
        for key in self._late():
            if frontier.passed(key) or frontier.position is None or key > frontier.position:
                batch.delete(keys.late(*key[1:]))
        for _, partition, offset, due_ms in self._passed_unseen(old, frontier):
            batch.put(keys.late(partition, offset), keys.pack_due(due_ms))
        for partition, seen in frontier.seen.items():
            begin = keys.pending_answer(partition, old.seen.get(partition, 0))
            for raw_key, raw in self._kv.scan(begin, keys.pending_answer(partition, seen)):
                _drop_pending_answer(batch, *keys.placed(raw_key), decode_pending_answer(raw))
        low_row, gone_to, changes = self._low_row, self._gone_to, dict[int, int]()
        if frontier.is_behind(old):
            gone_to = max(low_row, gone_to)
            batch.put(keys.GONE_TO, gone_to)
            low_row, changes = min(low_row, keys.behind(frontier.position)), self._recounted(old, frontier)
            batch.put(keys.LOW_WATER, low_row)
        counts = self._pending.write(batch, changes, {})
        batch.put(keys.ALIGNED, new.encode())
        batch.put(keys.READ, encode(self._read))
        self._kv.write(batch)
        self._removals += bool(changes)  # the counts that apply has read are others
        self._low_row, self._gone_to = low_row, gone_to
        self._checkpoint, self._aligned, self._tip = new, frontier, frontier
        self._pending.taken(counts, changes, {})
        self._pending.jump(frontier.position)

    def _recounted(self, old: Frontier, frontier: Frontier) -> dict[int, int]:
        """By minute, what its rows become more by if those are counted that are there behind the position,
        and not done.

        All of them are walked, under the lock, up to where any were done: what was delivered by a clock that
        was ahead, once for each time that it was, and what is not pruned yet of what a lost end covered.
        """
        position = frontier.position
        first_minute = 0 if position is None else position[0] // keys.MINUTE_MS
        end_minute = max(old.furthest_ms, frontier.furthest_ms) // keys.MINUTE_MS + 1
        counted = self._kv.scan(keys.count(first_minute), keys.count(max(first_minute, end_minute)))
        changes = {keys.minute(raw_minute): -decode_offset(raw) for raw_minute, raw in counted}
        for raw_key, _ in self._kv.scan(keys.behind(position), keys.row(end_minute * keys.MINUTE_MS, 0, 0)):
            key = keys.timed(raw_key)
            if not frontier.overran(key):
                minute = key[0] // keys.MINUTE_MS
                changes[minute] = changes.get(minute, 0) + 1
        return changes

    def _passed_unseen(self, old: Frontier, new: Frontier) -> list[tuple[bytes, int, int, int]]:
        """Rows with old position < key <= new position that the new checkpoint had not applied."""
        behind = any(self._applied[p] > new.applied.get(p, 0) for p in self._applied)
        if new.position is None or not behind:
            return []
        passed = []
        for raw_key, _ in self._kv.scan(keys.behind(old.position), keys.after(keys.row(*new.position))):
            due_ms, partition, offset = keys.timed(raw_key)
            if offset >= new.applied.get(partition, 0):
                passed.append((raw_key, partition, offset, due_ms))
        return passed

    def _late(self) -> Iterator[RowKey]:
        """The late rows. None is below the aligned applied: such an entry went with its commit, or was never
        made.
        """
        for partition in self._applied:
            yield from late_keys(self._kv, partition, self._aligned.applied.get(partition, 0))

    def _window_start_ms(self) -> int:
        """What is done and fell due before is not kept. A replay's rows are, until it has passed them."""
        start_ms = self._aligned.delivered_up_to_ms - self._window_ms
        for replay in (self._aligned.operation.replay, self._tip.operation.replay):
            if replay is not None:
                start_ms = min(start_ms, replay.next[0])
        return start_ms

    def _prunes_before_ms(self) -> int:
        """A replay is waited for, but while anything is held: it may stand still for as long as the pause."""
        aligned, begun = self._aligned, self._tip.operation.replay
        replay = aligned.operation.replay
        if replay is None or not aligned.holds or replay.lacks(self._applied):
            return self._window_start_ms()
        if begun is not None and begun.number != replay.number:
            return self._window_start_ms()
        return aligned.delivered_up_to_ms - self._window_ms

    def prune(self) -> None:
        """Removes done rows that have left the replay window (rule 9): one range, ending below the
        smallest late key and never behind the aligned position; while anything is held, row by row. Then
        what has been released, and due_index of which no row is left.
        """
        begin = keys.HELD
        for _ in range(MOST_STEPS):
            with self._removing:
                left = begin if self._prune_rows() else self._drop_released(begin)
            if left is None:
                break
            begin = left
            if self.stopping.wait(PRUNE_REST_S):  # others wait for the locks
                return
        for partition in self._low_due_index:
            self._prune_due_index(partition)

    @_retry_stalled
    def _prune_rows(self) -> bool:
        """Whether there is more."""
        position = self._aligned.position
        if position is None:
            return False
        end = min(keys.row(max(0, self._prunes_before_ms()), 0, 0), keys.after(keys.row(*position)))
        for walked, key in enumerate(self._late()):
            end = min(end, keys.row(*key))
            if end <= self._low_row or walked == MOST_LATE_WALKED:
                return False  # nothing to prune, or it can wait until the late ones are delivered
        if end <= self._low_row:
            return False
        batch = self._kv.batch()
        pruned_to = self._delete_rows(batch, end)
        end_ms = keys.timed(pruned_to[: keys.TIMED_BYTES])[0]
        minute = whole_days(end_ms // keys.MINUTE_MS)
        batch.delete_range(keys.count(whole_days(self._pruned_ms() // keys.MINUTE_MS)), keys.count(minute))
        for partition in self._applied:
            if marks_end := self._marks_end(partition, end_ms):
                batch.delete_range(keys.park_mark(partition, 0), marks_end)
        batch.put(keys.LOW_WATER, pruned_to)
        self._kv.write(batch)
        self._removals += 1
        self._low_row = pruned_to
        self._pending.forget(minute)
        return pruned_to < end

    def _delete_rows(self, batch: Batch, end: bytes) -> bytes:
        """Deletes the rows below `end`, and leaves those that are held, and those that a replay will carry;
        returns up to where it has.

        A range for each row that is left would be more than the store bears: between them one row at a time.
        """
        replay = self._aligned.operation.replay
        if not self._aligned.holds:
            batch.delete_range(self._low_row, end)
            return end
        bytes_left = MOST_HELD_BYTES
        for walked, (raw_key, raw) in enumerate(self._kv.scan(self._low_row, end)):
            if walked == MOST_HELD_WALKED or bytes_left < 0:
                return raw_key
            bytes_left -= len(raw)
            key, message = keys.timed(raw_key), decode_scheduled(raw)
            target = None if message is None else target_of_message(message)
            stays = replay is not None and will_carry(self._kv, replay, key, raw)
            if message and target is not None and (stays or self._aligned.is_held(key, target)):
                kept.put(batch, (tag_of(target), key, message.id is not None))
            else:
                batch.delete(raw_key)
        return end

    @_retry_stalled
    def _drop_released(self, begin: bytes) -> bytes | None:
        """Deletes some of what pruning has left from there on, and no hold has any more. Where to go on; None
        if there is nothing more.
        """
        runs, left = kept.released(self._kv, self._aligned, begin, MOST_HELD_WALKED)
        if runs:
            batch = self._kv.batch()
            for run in runs:
                kept.drop(self._kv, batch, run)
            self._kv.write(batch)
            self._removals += 1
        return left

    @_retry_stalled
    def _prune_due_index(self, partition: int) -> None:
        """Those that are all of pruned rows, and older than any id that is left: what finds an id has to be
        there for as long as it does on any node. One that has to stay, for what is held, is looked at again
        once it has been there for twice as long.
        """
        batch = self._kv.batch()
        low: bytes | None = None
        pruned_ms = self._pruned_ms()
        begin, end = self._low_due_index[partition], keys.due_index_end(partition, pruned_ms, 0)
        found = list(islice(self._kv.scan(begin, end), MOST_DUE_ENTRIES_PRUNED))
        oldest_ms = self._oldest_id_ms(partition) if found else 0
        for raw_key, _ in found:
            due_ms, _, first = keys.queued(raw_key)
            if due_ms >= oldest_ms:
                break
            batch.delete(raw_key)
            since_ms = due_index.kept_since(self._kv, partition, first)
            if since_ms is None:
                batch.delete(keys.due_index(partition, first))
            else:
                batch.put(keys.due_index_end(partition, 2 * pruned_ms - since_ms, first), b"")
            low = keys.after(raw_key)
        if low is not None:
            self._kv.write(batch)
            self._low_due_index[partition] = low

    def _oldest_id_ms(self, partition: int) -> int:
        end = keys.expiry(partition + 1, 0, 0)
        for raw_key, _ in self._kv.scan(self._low_expiry[partition], end):
            return keys.queued(raw_key)[0]
        return FOREVER_MS

    def _pruned_ms(self) -> int:
        """Of what was due before, nothing is stored but what is held."""
        low_row = self._low_row[: keys.TIMED_BYTES]
        return keys.timed(low_row)[0] if len(low_row) == keys.TIMED_BYTES else 0

    def _marks_end(self, partition: int, pruned_ms: int) -> bytes | None:
        """Up to which the marks of what was parked may go, if any may: what was written back for it has been
        pruned, so that its own row has, too. They lie by offset; one that has to stay keeps those behind it.
        """
        end = None
        marks = self._kv.scan(keys.park_mark(partition, 0), keys.park_mark(partition + 1, 0))
        for walked, (raw_key, raw) in enumerate(marks):
            if walked == MOST_MARKS_WALKED or decode_park_mark(raw).due_ms >= pruned_ms:
                break
            end = keys.after(raw_key)
        return end

    def expired(self, most: int) -> list[Expired]:
        """Up to `most` ids and sources, and those of one entry more, whose last row has been pruned or whose
        last cancel is covered, and that are no longer known to a request that asks; of the partitions in
        turn, the oldest of each first.

        What the log's end is *after* this call decides when they may go: see `collect`. Pruning ends at the
        position, which stays where it is while nothing falls due; cancels are forgotten all the same.
        """
        with self.lock:
            self._lowest_new_expiry = {}
            found: list[Expired] = []
            for _ in range(len(self._low_expiry)):
                partition = self._forgets_next.popleft()
                self._forgets_next.append(partition)
                entries = self._expired_in(partition, most)
                found += entries
                most -= sum(max(1, len(entry.whose)) for _, entry, _ in entries)
                if most <= 0:
                    break
            return found

    def _expired_in(self, partition: int, most: int) -> list[Expired]:
        found: list[Expired] = []
        end = keys.expiry(partition, self._forgets_before_ms(partition), 0)
        settled = self._settled_in(partition)
        for raw_key, raw in self._kv.scan(self._low_expiry[partition], end):
            found_key, entry = expiry.content(self._kv, raw_key, raw)
            rows = list(zip(entry.dues_ms, entry.offsets, entry.whose, strict=False))
            if most <= 0 or any(
                at >= settled or self._is_unpruned((due_ms, partition, at)) for due_ms, at, _ in rows
            ):
                break
            noted, stays = self._staying(partition, entry)
            if stays or noted or found_key != raw_key:
                gone = expiry.listed(row for row in rows if row[1] not in stays)
                found.append((keys.queued(raw_key), gone, False))
            else:  # most often
                found.append((keys.queued(raw_key), entry, True))
            most -= max(1, len(rows))
        return found

    def _forgets_before_ms(self, partition: int) -> int:
        known_ms = self._newest.get(partition, 0) - self._dedup_window_ms
        return max(0, min(max(self._pruned_ms() + 1, self._window_start_ms()), known_ms + 1))

    def _settled_in(self, partition: int) -> int:
        """An offset below which all reschedules are done: each has to find what came after it, which may bear
        an earlier time, where clocks were ahead before.
        """
        aligned = self._aligned
        for _ in range(2):  # what is noted for the first time may be so already
            end, last_ms = self._noted.get(partition, (0, 0))
            if aligned.applied.get(partition, 0) >= end and aligned.delivered_up_to_ms >= last_ms:
                self._settled[partition] = end
                self._noted[partition] = self._applied[partition], self._last_moves.get(partition, 0)
        return self._settled.get(partition, 0)

    def _is_unpruned(self, key: RowKey) -> bool:
        """Whether a row is there that will be pruned soon: it is not held."""
        raw_row = keys.row(*key)
        return raw_row >= self._low_row and self._kv.get(raw_row) is not None

    def _staying(self, partition: int, entry: Expiry) -> tuple[bool, AbstractSet[int]]:
        """Those of an entry that cannot be forgotten yet: their rows are held, or a source's own row is there
        and would be found again. And whether pruning has noted any of it.
        """
        if not entry.offsets:
            return False, frozenset()
        begin, end = entry.offsets[0], entry.offsets[-1] + 1
        noted = list(kept.offsets(self._kv, partition, begin, end))
        stays = {at for at, is_there in noted if is_there}
        who = entry.whose[0]
        if isinstance(who, int) and due_index.has_row(self._kv, partition, who):
            stays.add(begin)
        return bool(noted), stays

    def collect(self, expired: Sequence[Expired], log_ends: Vector) -> bool:
        """Drops the index entries and tombstones of `expired` that still point to what went.

        Only once the consumer has passed `log_ends`, the high watermarks noted after `expired` was
        called: until then a written-back request that they must overtake may still be on its way
        (rule 2). False if it has not.
        """
        if not self.has_read_to(log_ends):
            return False
        # So that what is looked up under the lock is in memory: ids are spread over all of the index.
        self._kv.get_many(
            [
                keys.index(partition, who)
                for (_, partition, _), entry, _ in expired
                for who in entry.whose
                if isinstance(who, str)
            ]
        )
        with self._removing:
            self._forget_ids(expired)
        return True

    @_retry_stalled
    def _forget_ids(self, expired: Sequence[Expired]) -> None:
        batch = self._kv.batch()
        reminders: list[tuple[int, bytes]] = []
        for at, entry, is_all in expired:
            last_due_ms, partition, first = at
            for offset, who in zip(entry.offsets, entry.whose, strict=True):
                self._drop_if_current(batch, partition, offset, who)
            if is_all:
                batch.delete(keys.expiry(partition, last_due_ms, first))
                continue
            kept.let_go(self._kv, batch, partition, entry.offsets)
            reminder = expiry.take_out(self._kv, batch, at, entry, self._forgets_before_ms(partition))
            reminders += [] if reminder is None else [(partition, reminder)]
        self._kv.write(batch)
        self._removals += 1
        for (last_due_ms, partition, first), _, _ in expired:
            self._low_expiry[partition] = keys.after(keys.expiry(partition, last_due_ms, first))
        # After a rewind what is looked at again may lie before what was looked at last.
        for partition, key in (*self._lowest_new_expiry.items(), *reminders):
            self._low_expiry[partition] = min(self._low_expiry[partition], key)

    def _drop_if_current(self, batch: Batch, partition: int, offset: int, who: str | int) -> None:
        if isinstance(who, str):
            entry_key, tombstone_key = keys.index(partition, who), keys.tombstone(partition, who)
        else:
            entry_key, tombstone_key = keys.source(partition, who), keys.source_tombstone(partition, who)
        raw_entry, raw_tombstone = self._kv.get(entry_key), self._kv.get(tombstone_key)
        entry = None if raw_entry is None else decode_index(raw_entry)
        if entry is not None and entry.offset == offset:
            batch.delete(entry_key)
            if isinstance(who, str) and entry.root is not None:
                self._drop_source(batch, partition, entry.root, offset)
        if raw_tombstone is not None and decode_offset(raw_tombstone) == offset:
            batch.delete(tombstone_key)

    def _drop_source(self, batch: Batch, partition: int, root: int, offset: int) -> None:
        raw = self._kv.get(keys.source(partition, root))
        if raw is not None and decode_index(raw).offset == offset:
            batch.delete(keys.source(partition, root))

    def pending(self) -> int:
        """How many rows wait: those behind the tip and the late ones."""
        with self.lock:
            tip = self._tip
            count = self._pending.count(tip.position)
        walked = sum(1 for raw_key, _ in count.of_this_minute if not tip.overran(keys.timed(raw_key)))
        later = sum(decode_offset(raw) for _, raw in count.later)
        late = sum(1 for _ in count.late)
        with self.lock:
            self._pending.counted(count, walked)
        held = sum(hold.rows for hold in self._tip.holds)
        return count.known + walked + later + count.behind + late + held

    def behind_tip_in(self, minute: int) -> int | None:
        """How many rows of a minute are behind the tip; None: not known. For what `snapshot` runs."""
        return self._pending.behind_tip_in(minute)

    def behind_day_of(self, minute: int) -> dict[int, int]:
        """How many rows fall due in each of the days behind that of a minute, by the minute in which the day
        begins. For what `snapshot` runs: it holds the lock.
        """
        return self._pending.behind_day_of(minute)

    def snapshot(self, take: Callable[[KeyValue, Frontier, Reached], R]) -> R:
        """Runs `take` under the lock, with the aligned frontier: the entries that it gets and the scans that
        it opens are of one state of the view. It must not walk them there.
        """
        with self.lock:
            return take(self._kv, self._aligned, Reached(dict(self._applied), dict(self._read)))

    def flush(self) -> None:
        self._kv.flush()

    def close(self) -> None:
        with self.lock:
            self._kv.close()


Expired = tuple[RowKey, Expiry, bool]
"""What names an entry of the expiry queue: the last due time, the partition and the first offset; what goes
of it; and whether that is all, and nothing else leads there.
"""

MOST_LATE_WALKED = 1000
MOST_MARKS_WALKED = 1_000
MOST_HELD_WALKED = 1_000
MOST_HELD_BYTES = 4 << 20
PRUNE_REST_S = 0.005
MOST_STEPS = 250  # of one `prune`: what else housekeeping does waits meanwhile
MOST_DUE_ENTRIES_PRUNED = 500  # of each partition: more than a second's batches


def _drop_pending_answer(batch: Batch, partition: int, offset: int, control: PendingAnswer) -> None:
    batch.delete(keys.pending_answer(partition, offset))
    if control.ends:
        batch.delete(keys.ending(partition, control.who, offset))


def _newest_of(arrivals: Sequence[Arrival], newest_ms: Vector) -> Vector:
    """The newest timestamp of each partition that something has come from."""
    found: Vector = {}
    for arrival in arrivals:
        partition, timestamp_ms = arrival.partition, arrival.timestamp_ms
        if timestamp_ms > found.get(partition, -1):
            found[partition] = timestamp_ms
    return {partition: max(at_ms, newest_ms.get(partition, 0)) for partition, at_ms in found.items()}
