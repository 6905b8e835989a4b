"""Forgetting: ids, sources and due entries whose rows have gone go as well (rule 2, docs/design.md).

What may go stands in queues by partition and time: that of ids and sources in store/expiry.py, that of due
entries in store/due_index.py. A queue is read from where the last look has ended, not over what was deleted.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping, Sequence
from collections.abc import Set as AbstractSet
from itertools import islice
from typing import Final, NamedTuple

from delayline.settings_versions import SettingsSource
from store import due_index, expiry, kept, keys
from store.checkpoint import Vector
from store.frontiers import Frontiers
from store.guard import Guard, retry_stalled
from store.keys import RowKey
from store.kv import Batch, KeyValue
from store.pruning import Pruning
from store.rows import Expiry, decode_index, decode_offset

MOST_DUE_ENTRIES: Final = 500  # of each partition at once: more than a second's batches

Expired = tuple[RowKey, Expiry, bool]
"""What names an entry of the expiry queue: the last due time, the partition and the first offset; what goes
of it; and whether that is all, and nothing else leads there.
"""


class _Noted(NamedTuple):
    """Of a partition, at some time: what was applied, and the time of the last reschedule in it.

    `passed_ms`: delivered-up-to as it was once the aligned *applied* had passed that; None before.
    """

    end: int
    last_ms: int
    passed_ms: int | None = None


_NOTHING_NOTED: Final = _Noted(0, 0)


class Forgetting:
    """One view's. `expired` and `forget_due_entries` take the lock, and `collect` that of removals before it;
    one thread calls them. `taken` is for whoever holds the lock.
    """

    def __init__(
        self, kv: KeyValue, guard: Guard, frontiers: Frontiers, pruning: Pruning, settings: SettingsSource
    ) -> None:
        self.guard = guard
        self._kv = kv
        self._frontiers = frontiers
        self._pruning = pruning
        self._settings = settings
        partitions = list(frontiers.applied)
        self._low_expiry = {partition: keys.expiry(partition, 0, 0) for partition in partitions}
        self._lowest_new_expiry: dict[int, bytes] = {}  # since the last `expired`
        self._next = deque(partitions)
        self._low_due_index = {partition: keys.due_index_end(partition, 0, 0) for partition in partitions}
        self._noted: dict[int, _Noted] = {}
        self._settled: Vector = {}  # below that no reschedule waits

    def taken(self, low_expiry: Mapping[int, bytes], low_due_index: Mapping[int, bytes]) -> None:
        """A batch is written, with entries from these keys on."""
        for partition, key in low_expiry.items():
            self._low_expiry[partition] = min(self._low_expiry[partition], key)
            self._lowest_new_expiry[partition] = min(self._lowest_new_expiry.get(partition, key), key)
        for partition, key in low_due_index.items():
            self._low_due_index[partition] = min(self._low_due_index[partition], key)

    def expired(self, most: int) -> list[Expired]:
        """Up to `most` ids and sources, and those of one entry more, whose last row has been pruned or whose
        last cancel is covered, and that are no longer known to a request that asks; of the partitions in
        turn, the oldest of each first.

        What the log's end is *after* this call decides when they may go: see `collect`. Pruning ends at the
        position, which stays where it is while nothing falls due; cancels are forgotten all the same.
        """
        with self.guard.lock:
            self._lowest_new_expiry = {}
            found: list[Expired] = []
            for _ in range(len(self._low_expiry)):
                partition = self._next.popleft()
                self._next.append(partition)
                entries = self._expired_in(partition, most)
                found += entries
                most -= sum(max(1, len(entry.whose)) for _, entry, _ in entries)
                if most <= 0:
                    break
            return found

    def _expired_in(self, partition: int, most: int) -> list[Expired]:
        found: list[Expired] = []
        end = keys.expiry(partition, self._before_ms(partition), 0)
        settled = self._settled_in(partition)
        for raw_key, raw in self._kv.scan(self._low_expiry[partition], end):
            found_key, entry = expiry.content(self._kv, raw_key, raw)
            rows = list(zip(entry.dues_ms, entry.offsets, entry.whose, strict=False))
            if most <= 0 or any(
                at >= settled or self._pruning.is_waiting((due_ms, partition, at)) for due_ms, at, _ in rows
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

    def _before_ms(self, partition: int) -> int:
        """What is older may go: it has been pruned, or is not kept, and is known to no request any more."""
        newest_ms = self._frontiers.heard.newest_ms.get(partition, 0)
        known_ms = newest_ms - self._settings.versions.longest_dedup_window_ms
        gone_ms = max(self._pruning.pruned_ms + 1, self._pruning.window_start_ms())
        return max(0, min(gone_ms, known_ms + 1))

    def _settled_in(self, partition: int) -> int:
        """An offset below which all reschedules are done: each has to find what came after it, which may bear
        an earlier time, where clocks were ahead before.

        A late one is done once *applied* has passed it (rule 1). One above the position is done once
        delivered-up-to has risen since then, to its time at least: what it was before says nothing of what
        came after it was reached.
        """
        for _ in range(2):  # what is noted for the first time may be so already
            noted = self._passed(self._noted.get(partition, _NOTHING_NOTED), partition)
            if noted is None:
                heard = self._frontiers.heard
                self._settled[partition] = self._noted.get(partition, _NOTHING_NOTED).end
                noted = _Noted(heard.applied[partition], heard.last_moves.get(partition, 0))
            self._noted[partition] = noted
        return self._settled.get(partition, 0)

    def _passed(self, noted: _Noted, partition: int) -> _Noted | None:
        """What is still to be waited for; None if nothing is."""
        aligned = self._frontiers.aligned
        up_to_ms = aligned.delivered_up_to_ms
        if aligned.applied.get(partition, 0) < noted.end:
            return noted
        if not noted.last_ms:
            return None  # it has had none
        if noted.passed_ms is None or up_to_ms < noted.passed_ms:
            return noted._replace(passed_ms=up_to_ms)  # anew, where a rewind has lowered it
        return None if up_to_ms > noted.passed_ms and up_to_ms >= noted.last_ms else noted

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

        Only once the reader has passed `log_ends`, the high watermarks noted after `expired` was
        called: until then a written-back request that they must overtake may still be on its way
        (rule 2). False if it has not.
        """
        if not self._frontiers.has_read_to(log_ends):
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
        with self.guard.removing:
            self._drop(expired)
        return True

    @retry_stalled
    def _drop(self, expired: Sequence[Expired]) -> None:
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
            reminder = expiry.take_out(self._kv, batch, at, entry, self._before_ms(partition))
            reminders += [] if reminder is None else [(partition, reminder)]
        self._kv.write(batch)
        self.guard.removals += 1
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

    def forget_due_entries(self) -> None:
        """Drops due entries that are all of pruned rows: for each partition a bounded number at a time, under
        the view's lock. It is no removal: what apply has found of one beforehand leads to nothing, as what it
        led to has gone.
        """
        for partition in self._low_due_index:
            self._forget_due_entries(partition)

    @retry_stalled
    def _forget_due_entries(self, partition: int) -> None:
        """Those that are all of pruned rows, and older than any id that is left: what finds an id has to be
        there for as long as it does on any node. One that has to stay, for what is held, is looked at again
        once it has been there for twice as long.
        """
        batch = self._kv.batch()
        low: bytes | None = None
        pruned_ms = self._pruning.pruned_ms
        begin, end = self._low_due_index[partition], keys.due_index_end(partition, pruned_ms, 0)
        found = list(islice(self._kv.scan(begin, end), MOST_DUE_ENTRIES))
        oldest_ms = self._oldest_id_ms(partition) if found else None
        for raw_key, _ in found:
            due_ms, _, first = keys.queued(raw_key)
            if oldest_ms is not None and due_ms >= oldest_ms:
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

    def _oldest_id_ms(self, partition: int) -> int | None:
        end = keys.expiry(partition + 1, 0, 0)
        for raw_key, _ in self._kv.scan(self._low_expiry[partition], end):
            return keys.queued(raw_key)[0]
        return None
