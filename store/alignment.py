"""What a committed checkpoint changes in the store: at the commit of one's own (rule 5, docs/design.md), and
where it is taken over from the checkpoint topic (rule 6, *align*). All of it runs under the view's lock.
"""

from __future__ import annotations

from collections.abc import Iterator

from delayline.times import MINUTE_MS
from store import keys
from store.checkpoint import Frontier, Vector
from store.keys import RowKey
from store.kv import Batch, KeyValue
from store.late import late_rows
from store.rows import PendingAnswer, decode_offset, decode_pending_answer
from store.selection import Selection


def drop_carried(batch: Batch, chosen: Selection) -> None:
    """Deletes the late entries of what a transaction has taken along, and what it has answered."""
    for _, partition, offset in (key for key, _ in chosen.late):
        batch.delete(keys.late(partition, offset))
    for answer in chosen.answers:
        _drop_pending_answer(batch, *answer.at, answer.pending)


def sweep_late(kv: KeyValue, batch: Batch, applied: Vector, old: Frontier, new: Frontier) -> None:
    """Late entries done under the new frontier, or above its position, go, always, even if it equals the old
    one: an entry taken by a transaction whose commit was not seen here must not stay.
    """
    for key in late_rows(kv, applied, old):
        if new.passed(key) or new.position is None or key > new.position:
            batch.delete(keys.late(*key[1:]))


def make_late(kv: KeyValue, batch: Batch, applied: Vector, old: Frontier, new: Frontier) -> None:
    """The rows that the new frontier has passed without having applied them become late."""
    for due_ms, partition, offset in _passed_unseen(kv, applied, old, new):
        batch.put(keys.late(partition, offset), keys.pack_due(due_ms))


def _passed_unseen(kv: KeyValue, applied: Vector, old: Frontier, new: Frontier) -> Iterator[RowKey]:
    """Rows with old position < key <= new position that the new frontier had not applied."""
    behind = any(offset > new.applied.get(partition, 0) for partition, offset in applied.items())
    if new.position is None or not behind:
        return
    for raw_key, _ in kv.scan(keys.behind(old.position), keys.after(keys.row(*new.position))):
        key = keys.timed(raw_key)
        if key[2] >= new.applied.get(key[1], 0):
            yield key


def drop_answered(kv: KeyValue, batch: Batch, old: Frontier, new: Frontier) -> None:
    """What the new frontier has seen has been answered."""
    for partition, seen in new.seen.items():
        begin = keys.pending_answer(partition, old.seen.get(partition, 0))
        for raw_key, raw in kv.scan(begin, keys.pending_answer(partition, seen)):
            _drop_pending_answer(batch, *keys.record_id(raw_key), decode_pending_answer(raw))


def _drop_pending_answer(batch: Batch, partition: int, offset: int, pending: PendingAnswer) -> None:
    batch.delete(keys.pending_answer(partition, offset))
    if pending.ends:
        batch.delete(keys.ending(partition, pending.who, offset))


def recounted(kv: KeyValue, old: Frontier, new: Frontier) -> dict[int, int]:
    """By minute, what its rows become more by if those are counted that are there behind the position,
    and not done.

    All of them are walked, up to where any were done: what was delivered by a clock that was ahead, once for
    each time that it was, and what is not pruned yet of what a lost end covered.
    """
    position = new.position
    first_minute = 0 if position is None else position[0] // MINUTE_MS
    end_minute = max(old.furthest_ms, new.furthest_ms) // MINUTE_MS + 1
    counted = kv.scan(keys.count(first_minute), keys.count(max(first_minute, end_minute)))
    changes = {keys.minute(raw_minute): -decode_offset(raw) for raw_minute, raw in counted}
    for raw_key, _ in kv.scan(keys.behind(position), keys.row(end_minute * MINUTE_MS, 0, 0)):
        key = keys.timed(raw_key)
        if not new.overran(key):
            minute = key[0] // MINUTE_MS
            changes[minute] = changes.get(minute, 0) + 1
    return changes
