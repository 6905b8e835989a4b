"""What pruning has passed and left, since it is held, or a replay beside a hold will come to it (rule 8,
docs/design.md): by its target, so that a cursor goes from one row to the next, and not over all that was
pruned between them; and by its offset, so that what leads there stays.

An entry may outlive its row: a cancel removes that one, and leaves the entry to `released`.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Final

from store import keys
from store.checkpoint import Frontier
from store.holds import Hold, hold_of, tag_of
from store.keys import RowKey
from store.kv import Batch, KeyValue

_UNNAMED: Final = b"r"  # the row is there
_NAMED: Final = b"i"  # the same, and it has an id
_NAME_LEFT: Final = b""  # the row is gone, and its id is not forgotten yet

Entry = tuple[int, RowKey, bool]
"""The tag of a row's target, its key, and whether it has an id."""


def put(batch: Batch, entry: Entry) -> None:
    """The row is left."""
    tag, key, named = entry
    raw = _NAMED if named else _UNNAMED
    batch.put(keys.held(tag, *key), raw)
    batch.put(keys.kept(*key[1:]), raw)


def of_target(
    kv: KeyValue, target: str, first: RowKey, last: RowKey
) -> Iterator[tuple[RowKey, bytes | None]]:
    """The rows from one key to another, in key order; of all targets, where pruning has not been yet. None:
    the row is gone.
    """
    low_row = kv.get(keys.LOW_WATER) or keys.ROW
    begin, behind = keys.row(*first), keys.after(keys.row(*last))
    if begin < low_row:
        tag = tag_of(target)
        for raw_key, _ in kv.scan(keys.held(tag, *first), keys.after(keys.held(tag, *last))):
            key = keys.tagged(raw_key)[1]
            raw_row = keys.row(*key)
            if raw_row >= low_row:
                break  # pruning has begun again before it
            yield key, kv.get(raw_row)
    for raw_key, raw in kv.scan(max(begin, low_row), behind) if low_row < behind else ():
        yield keys.timed(raw_key), raw


def released(
    kv: KeyValue, frontier: Frontier, begin: bytes, most: int
) -> tuple[list[list[Entry]], bytes | None]:
    """Rows that no hold has any more, nor the replay, in runs: what lies between two of these is passed over,
    a hold at a time. It looks at `most` entries from `begin` on. And where to go on; None: there is nothing.
    """
    stays = _Staying(frontier)
    runs: list[list[Entry]] = []
    at: bytes | None = begin
    while at is not None and most > 0:
        run, at = _run(kv, at, stays, most)
        runs += [run] if run else []
        most -= len(run) + 1
    return runs, at


class _Staying:
    """What a frontier's holds have, and its replay, and how far."""

    def __init__(self, frontier: Frontier) -> None:
        self._by_tag: dict[int, list[Hold]] = {}
        for hold in frontier.holds:
            self._by_tag.setdefault(hold.tag, []).append(hold)
        self._overruns = frontier.overruns
        self._position, self._replay = frontier.position, frontier.operation.replay

    def up_to(self, tag: int, key: RowKey) -> bytes | None:
        """The last entry that stays with this one; None: it does not stay. What lies behind the position
        does: an earlier checkpoint may know of no hold of it, and pruning comes there again.
        """
        if self._position is None or key > self._position:
            return keys.held(tag + 1, 0, 0, 0)
        hold = hold_of(self._by_tag.get(tag, ()), self._overruns, key, tag)
        if hold is not None:
            if any(hold.rests_on(one) for one in self._overruns):
                return keys.held(tag, *key)  # behind it may be what was done before
            return keys.held(tag + 1, 0, 0, 0) if hold.last is None else keys.held(tag, *hold.last)
        replay = self._replay
        return keys.held(tag, *replay.last) if replay is not None and replay.spans(key) else None


def _run(kv: KeyValue, begin: bytes, stays: _Staying, most: int) -> tuple[list[Entry], bytes | None]:
    """What is released up to the next that stays, and where to go on behind that; None: there is none."""
    run: list[Entry] = []
    for raw_key, raw in kv.scan(begin, keys.end_of(keys.HELD)):
        if len(run) == most:
            return run, raw_key
        tag, key = keys.tagged(raw_key)
        last = stays.up_to(tag, key)
        if last is not None:
            return run, keys.after(last)
        run.append((tag, key, raw == _NAMED))
    return run, None


def drop(kv: KeyValue, batch: Batch, run: Sequence[Entry]) -> None:
    """Deletes the rows of a run, and their entries; but the entry by offset of what has an id stays until
    that is forgotten. The entries go as a range: pruning begins before them again.
    """
    (first_tag, first, _), (last_tag, last, _) = run[0], run[-1]
    batch.delete_range(keys.held(first_tag, *first), keys.after(keys.held(last_tag, *last)))
    for _, key, named in run:
        raw_key = keys.kept(*key[1:])
        batch.delete(keys.row(*key))
        if named and kv.get(raw_key) is not None:
            batch.put(raw_key, _NAME_LEFT)
        else:
            batch.delete(raw_key)


def offsets(kv: KeyValue, partition: int, begin: int, end: int) -> Iterator[tuple[int, bool]]:
    """Those of a part of a partition to which something has to lead, and whether their rows are there."""
    for raw_key, raw in kv.scan(keys.kept(partition, begin), keys.kept(partition, end)):
        yield keys.record_id(raw_key)[1], raw != _NAME_LEFT


def let_go(kv: KeyValue, batch: Batch, partition: int, forgotten: Sequence[int]) -> None:
    """The ids of these offsets, in order, are forgotten: nothing has to lead there any more."""
    if forgotten:
        known = frozenset(forgotten)
        for offset, _ in offsets(kv, partition, forgotten[0], forgotten[-1] + 1):
            if offset in known:
                batch.delete(keys.kept(partition, offset))
