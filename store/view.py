"""The view: a node's rows and indexes, a function of the log and of the aligned checkpoint.

It applies the log (`apply`), selects what a leader sends (`select`, `committed`, `abandon`), follows what
others have committed (`align`), and tells what waits (`pending`, `snapshot`). How far it has come is in
store/frontiers.py. What need not be kept is removed by two parts, each with a state of its own: rows by
store/pruning.py (`prune`), what leads to them by store/forgetting.py (`forgetting`).
"""

from __future__ import annotations

from collections.abc import Callable, Container, Mapping, Sequence
from collections.abc import Set as AbstractSet
from itertools import groupby
from operator import attrgetter
from typing import Final, TypeVar

import msgspec

from delayline.settings_versions import SettingsSource
from delayline.signing import Serial
from store import alignment, keys, selection
from store.apply import BatchApply
from store.arrivals import Arrival, Kind
from store.begun import AT_THE_BEGINNING, Begun
from store.carrying import Carrying, QueueSweep
from store.checkpoint import NO_WRITE_BACK, Checkpoint, Frontier, Reached, Vector, WriteBack
from store.copies import without_copied_carries
from store.due_first import DueFirst
from store.forgetting import Forgetting
from store.frontiers import Frontiers
from store.guard import Guard, retry_stalled
from store.keys import RecordId, RowKey
from store.kv import KeyValue
from store.operations import OperatorRequest
from store.pending import Pending
from store.prefetch import Prefetched, prefetch
from store.pruning import REST_S, Pruning
from store.rows import decode_offset, decode_vector, encode
from store.selection import NOTHING_PAUSED, Limits, Paused, Selection
from store.taking import Rows

FOREVER_MS = 1 << 62

_KIND: Final = attrgetter("kind")

R = TypeVar("R")


class View:
    """Thread-safe: each change, and each selection, is made under the lock (store/guard.py). What looks at
    one frontier or vector takes none. State is changed only after the store has taken the write, so a stalled
    or failed write leaves the view as it was.
    """

    def __init__(
        self,
        kv: KeyValue,
        partitions: Sequence[int],
        replay_window_ms: int,
        settings: SettingsSource,
    ) -> None:
        """`partitions` are the lane's. `settings`: all by which what is applied is read."""
        self.guard = Guard()
        self.due_first = DueFirst()
        self._kv = kv
        self._window_ms = replay_window_ms
        self._settings = settings
        self._frontiers = Frontiers(kv, partitions)
        self._pending = Pending(kv, self._frontiers.tip.position)
        self._pruning = Pruning(kv, self.guard, self._frontiers, self._pending, replay_window_ms)
        self.forgetting = Forgetting(kv, self.guard, self._frontiers, self._pruning, settings)
        self._carries = settings.versions.settings.carries  # it cannot be changed
        self._carried_at_ms = 0
        self._found_at_ms = 0  # when it was last asked from where on the log counts
        self._carrying = Carrying(kv, self._frontiers, self._pruning, settings)
        self._queue_sweep = QueueSweep(kv)
        raw_begun = kv.get(keys.BEGUN)
        self._begun = AT_THE_BEGINNING if raw_begun is None else Begun(decode_vector(raw_begun))
        self._wake_due_ms: int | None = None

    @property
    def checkpoint(self) -> Checkpoint | None:
        """The checkpoint last aligned to."""
        return self._frontiers.checkpoint

    @property
    def tip(self) -> Frontier:
        return self._frontiers.tip

    @property
    def settings_version(self) -> int:
        """The latest that is known: none that began below what was read is later."""
        return self._settings.versions.latest.number

    def ahead_of(self, limit_ms: int) -> Vector:
        """The newest timestamp of each partition where that is above a limit."""
        newest_ms = self._frontiers.heard.newest_ms
        return {partition: at_ms for partition, at_ms in newest_ms.items() if at_ms > limit_ms}

    def newest_ms(self, most_ms: int = FOREVER_MS) -> int:
        """The newest timestamp of the partitions from which records have come since the start, but for where
        it is above `most_ms`; 0 if there is none.
        """
        newest_ms = self._frontiers.heard.newest_read_ms.values()
        return max((at_ms for at_ms in newest_ms if at_ms <= most_ms), default=0)

    def reached(self) -> Reached:
        with self.guard.lock:
            return self._frontiers.reached()

    def has_applied(self, *vectors: Vector) -> bool:
        """Whether all messages below the vectors' offsets have been applied; of a partition that the view
        lacks, not even none have.
        """
        applied = self._frontiers.applied
        return all(applied.get(p, -1) >= offset for vector in vectors for p, offset in vector.items())

    def has_read_to(self, ends: Vector) -> bool:
        """Whether the reader has passed the ends: there may be nothing but markers below them."""
        return self._frontiers.has_read_to(ends)

    def apply(self, arrivals: Sequence[Arrival], read: Vector) -> bool:
        """Takes arrivals in log order (per partition) and where the reader stands behind them. One thread
        does, so that what it reads beforehand, without the lock, stays true, but for what is pruned or
        forgotten meanwhile. Then it is read again, and removals are locked out until the batch is applied.

        True if there is now something that a leader should look at before the time that the last
        `select` told it to wait for.
        """
        if not self._carries or Kind.CARRY not in map(_KIND, arrivals):
            return self._apply_batch(arrivals, read)
        arrivals = without_copied_carries(arrivals, self._frontiers.applied, self._frontiers.heard.serials)
        # What a carry asks for is in the store then.
        batches = [list(batch) for _, batch in groupby(arrivals, lambda one: one.kind is Kind.CARRY)]
        urgent = [self._apply_batch(batch, {}) for batch in batches[:-1]]
        return any([*urgent, self._apply_batch(batches[-1], read)])

    def _apply_batch(self, arrivals: Sequence[Arrival], read: Mapping[int, int]) -> bool:
        urgent = self._apply(arrivals, read)
        while urgent is None:
            # Else what takes longer to read than those who remove rest would wait for their end.
            with self.guard.removing:
                urgent = self._apply(arrivals, read)
        return urgent

    def _apply(self, arrivals: Sequence[Arrival], read: Mapping[int, int]) -> bool | None:
        removals = self.guard.removals
        return self._take(arrivals, read, prefetch(self._kv, self._pending, arrivals), removals)

    @retry_stalled
    def _take(
        self, arrivals: Sequence[Arrival], read: Mapping[int, int], known: Prefetched, removals: int
    ) -> bool | None:
        """As `apply`. None, and nothing is done, if something was removed since `known` was read."""
        if removals != self.guard.removals:
            return None
        frontiers, applied = self._frontiers, self._frontiers.applied
        fresh = [a for a in arrivals if a.offset >= applied[a.partition]]
        apply = BatchApply(
            self._kv,
            known,
            frontiers,
            self._pruning.pruned.gone_to,
            self._pruning.window_start_ms(),
            self._settings.versions,
            self._begun,
            carries=self._carries,
        )
        if fresh:
            apply.add(fresh)
            self._write(apply, fresh, known)
        frontiers.read_on(read)
        return apply.urgent or self._wake_due_ms is None or apply.first_due_ms < self._wake_due_ms

    def _write(self, apply: BatchApply, fresh: Sequence[Arrival], known: Prefetched) -> None:
        """Writes what a batch has come to, and takes it over. For `_take`, under the lock."""
        heard = self._frontiers.write_heard(apply.batch, fresh, apply.last_moves, apply.serials)
        counts = self._pending.write(apply.batch, apply.counts, known.counts)
        pruned = self._pruning.write_stored(apply.batch, apply.low_row)
        self._kv.write(apply.batch)
        self._frontiers.heard = heard
        self._pending.taken(counts, apply.counts, apply.counts_below)
        self._pruning.taken(pruned)
        self.forgetting.taken(apply.low_expiry, apply.low_due_index)
        self._carrying.taken(apply.low_since)
        self._queue_sweep.taken(apply.low_since)

    @retry_stalled
    def start_at(self, partition: int, applied: int, read: int, serial: Serial | None = None) -> None:
        """The log begins at `read`. What was below it is done: messages below `applied`, then markers.

        `serial`: it counts as spent, with all below it.
        """
        batch = self._kv.batch()
        heard = self._frontiers.write_beginning(batch, partition, applied, serial)
        self._kv.write(batch)
        self._frontiers.heard = heard
        self._frontiers.read[partition] = read

    @retry_stalled
    def begin_at(self, carried: Vector, to: Vector, newest_ms: Vector) -> None:
        """An empty view begins there, in all partitions: what is below counts no more, or will be said again
        (rule 12). `to`: the *seen* of the checkpoint that says so; where the place is above that, there are
        but markers between them, which *applied* does not count (rule 7). `newest_ms`: the timestamps that
        the checkpoint has of what is below.
        """
        batch = self._kv.batch()
        applied = {partition: min(begin, to.get(partition, 0)) for partition, begin in carried.items()}
        heard = self._frontiers.write_beginnings(batch, carried, applied, newest_ms)
        batch.put(keys.BEGUN, encode(to))
        self._kv.write(batch)
        self._frontiers.heard = heard
        self._frontiers.read.update(carried)
        self._begun = Begun(to)

    def lacks_duplicates(self) -> Vector | None:
        """Where the view has begun in the midst of the log, and has not yet read to where that matters no
        more: up to where it has to know which requests that ask to keep are duplicates.
        """
        applied = self._frontiers.applied
        is_behind = any(applied.get(partition, 0) < end for partition, end in self._begun.to.items())
        return self._begun.to if is_behind else None

    def know_duplicates(self, duplicates: Container[RecordId]) -> None:
        """Of the requests below that, those that are."""
        self._begun = self._begun._replace(duplicates=duplicates)

    def select(
        self,
        now_ms: int,
        limits: Limits,
        request: OperatorRequest | None = None,
        *,
        write_back: WriteBack = NO_WRITE_BACK,
        poison: AbstractSet[RowKey] = frozenset(),
        paused: Paused = NOTHING_PAUSED,
        old: Vector | None = None,
    ) -> Selection:
        """Selects behind the tip and moves it (rule 1). An empty selection says how far nothing is due:
        it makes a heartbeat, or nothing.

        `request`: an operator's, which this selection takes up if none after it has been taken up before.
        `write_back`: that of the checkpoint that the tip leads to; while it is not known, no request is taken
        up. `poison`: rows that are to be dead letters. `old`: per partition, below which offset what waits is
        to be carried; None: nothing is.
        """
        with self.guard.lock:
            before = self._frontiers.tip
            chosen = selection.select(
                self._kv,
                self._asked(before, request, write_back, now_ms),
                Reached(self._frontiers.applied, self._frontiers.read),
                now_ms,
                limits,
                write_back=write_back,
                poison=poison,
                paused=paused,
            )
            if old is not None:
                chosen = self._with_carries(before, chosen, now_ms, old, limits, write_back)
            after = chosen.frontier
            if (before.operation, before.holds) != (after.operation, after.holds):
                chosen = msgspec.structs.replace(chosen, operates=True)
            self._frontiers.tip = chosen.frontier
            if chosen.passes:
                self._pending.jump(after.position)
            else:
                self._pending.advance(chosen.due)
            self.due_first.note(left=not paused.everything and chosen.leaves_due(now_ms))
            return chosen

    def _with_carries(
        self,
        before: Frontier,
        chosen: Selection,
        now_ms: int,
        old: Vector,
        limits: Limits,
        write_back: WriteBack,
    ) -> Selection:
        """The same, with what is to be carried beside it; and from where on the log counts, if it answers all
        that waits. Neither is looked for again before a rest is over: a client chooses how large the rows are
        that are read for it. Until then the last value stands: a lower one is always right.
        """
        frontiers, frontier, written_back = self._frontiers, chosen.frontier, write_back.written_back
        is_over, ends = abs(now_ms - self._found_at_ms) >= limits.carry_rest_ms, frontiers.applied.items()
        answers_all = all(frontier.seen.get(partition, 0) >= end for partition, end in ends)
        if is_over and answers_all and written_back is not None:
            self._found_at_ms = now_ms
            since_ms = now_ms - limits.unread_ms
            carried, newest_ms = self._carrying.carried(before, frontiers.read, written_back, since_ms)
            frontier = msgspec.structs.replace(frontier, carried=carried, newest_ms=newest_ms)
        carries: Rows = []
        if abs(now_ms - self._carried_at_ms) >= limits.carry_rest_ms:
            self._carried_at_ms = now_ms
            carries = self._carrying.take(before, frontier, old, write_back, now_ms, limits)
        walks = self._carrying.is_walking
        return msgspec.structs.replace(chosen, frontier=frontier, carries=carries, walks=walks)

    def _asked(
        self, tip: Frontier, request: OperatorRequest | None, write_back: WriteBack, now_ms: int
    ) -> Frontier:
        """The tip once the request has been taken up; as it is, if it is not."""
        written_back = write_back.written_back
        if request is None or written_back is None or request.number <= tip.operation.number:
            return tip
        # Not by what is aligned: another node may know this one's commit in flight, and have pruned.
        operation = tip.taken_up(request, now_ms, self._window_ms, written_back)
        return msgspec.structs.replace(tip, operation=operation)

    def wake_at(self) -> int | None:
        """The next due time behind the tip. From now on `apply` reports what comes before it."""
        with self.guard.lock:
            due_ms = selection.next_due_ms(self._kv, self._frontiers.tip)
            self._wake_due_ms = FOREVER_MS if due_ms is None else due_ms
            return due_ms

    def wake_always(self) -> None:
        """From now on `apply` reports every batch: the leader waits for the log, not for a time."""
        with self.guard.lock:
            self._wake_due_ms = None

    @retry_stalled
    def committed(self, chosen: Selection, checkpoint: Checkpoint) -> None:
        """Records the known commit of `chosen`: its late entries go, now and not at selection, and the
        checkpoint is the aligned one, in one batch (rule 5).
        """
        batch = self._kv.batch()
        alignment.drop_carried(batch, chosen)
        self._frontiers.write_aligned(batch, checkpoint)
        self._kv.write(batch)
        self._frontiers.align(checkpoint)

    def abandon(self) -> None:
        """Abandons what is in flight: the tip falls back to the aligned checkpoint (rule 6)."""
        self.due_first.note(left=False)
        with self.guard.lock:
            self._frontiers.tip = self._frontiers.aligned
            self._carrying.reset()
            self._pending.jump(self._frontiers.tip.position)

    @retry_stalled
    def align(self, new: Checkpoint) -> None:
        """Takes over a checkpoint read from the checkpoint topic (rule 6, *align*): the late index is swept,
        then the rows that it passed without having applied them become late. The same way a leader aligns to
        its own rewind: what has come since, due behind the new position, is late no more.
        """
        frontiers, frontier, old = self._frontiers, new.frontier, self._frontiers.aligned
        assert frontiers.tip == old, "never align while a transaction is in flight"
        batch = self._kv.batch()
        alignment.sweep_late(self._kv, batch, frontiers.applied, old, frontier)
        alignment.make_late(self._kv, batch, frontiers.applied, old, frontier)
        alignment.drop_answered(self._kv, batch, old, frontier)
        pruned, changes = self._pruning.pruned, dict[int, int]()
        if frontier.is_behind(old):
            pruned = self._pruning.write_moved_back(batch, keys.behind(frontier.position))
            changes = alignment.recounted(self._kv, old, frontier)
        counts = self._pending.write(batch, changes, {})
        frontiers.write_aligned(batch, new)
        self._kv.write(batch)
        self.guard.removals += bool(changes)  # the counts that apply has read are others
        self._pruning.taken(pruned)
        frontiers.align(new)
        frontiers.tip = frontier
        self._pending.taken(counts, changes, {})
        self._pending.jump(frontier.position)

    def prune(self) -> None:
        """Removes rows that have left the replay window (rule 9), or have been released since, and then due
        entries of which no row is left. In steps, each under the locks that its own part says.
        """
        if self._pruning.prune():
            self.forgetting.forget_due_entries()
            while self._carries and self._sweep_queue() and not self.guard.stopping.wait(REST_S):
                pass

    @retry_stalled
    def _sweep_queue(self) -> bool:
        batch = self._kv.batch()
        swept, is_more = self._queue_sweep.step(batch, self._frontiers.aligned.carried)
        self._kv.write(batch)
        self._queue_sweep.written(swept)
        return is_more

    def pending(self) -> int:
        """How many rows wait: those behind the tip, the late ones and what is held. What has to be walked is
        walked without the lock.
        """
        with self.guard.lock:
            tip = self._frontiers.tip
            count = self._pending.count(tip.position)
        walked = sum(1 for raw_key, _ in count.of_this_minute if not tip.overran(keys.timed(raw_key)))
        later = sum(decode_offset(raw) for _, raw in count.later)
        late = sum(1 for _ in count.late)
        with self.guard.lock:
            self._pending.counted(count, walked)
        held = sum(hold.rows for hold in self._frontiers.tip.holds)
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
        with self.guard.lock:
            return take(self._kv, self._frontiers.aligned, self._frontiers.reached())

    def flush(self) -> None:
        self._kv.flush()

    def close(self) -> None:
        with self.guard.lock:
            self._kv.close()
