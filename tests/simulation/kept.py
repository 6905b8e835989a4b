"""What pruning has left in a store, and what leads to it."""

from __future__ import annotations

from store import due_index, keys
from store.checkpoint import Frontier
from store.keys import RowKey
from store.kv import KeyValue
from store.rows import ScheduledRow, decode_expiry, decode_row, row_tag
from store.view import View
from tests.simulation.host import Violation


def check_kept(name: str, store: KeyValue, view: View) -> None:
    """Raises `Violation` if a row below the low water is not held, or cannot be found; or if something is
    left of what is held no more. For after a pruning.
    """
    if view.checkpoint is None:
        return
    aligned, low_row = view.checkpoint.frontier, store.get(keys.LOW_WATER) or keys.ROW
    for raw_key, raw in store.scan(keys.ROW, low_row):
        key, tag = keys.timed(raw_key), row_tag(raw)
        if not _stays(aligned, key, tag):
            raise Violation("pruning", f"{name} has left {key}, which nothing holds")
        if not _is_found(store, key, raw, tag):
            raise Violation("pruning", f"{name} does not find {key} any more, which is held")
    for raw_key, _ in store.scan(keys.HELD, keys.end_of(keys.HELD)):
        tag, key = keys.tagged(raw_key)
        if not _stays(aligned, key, tag):
            raise Violation("pruning", f"{name} has left an entry of {key}, which nothing holds")
    _check_reminded(name, store, view)
    if low_row < _prunable(store, view, aligned):
        raise Violation("pruning", f"{name} has not pruned, beside holds: {aligned}")


def _stays(aligned: Frontier, key: RowKey, tag: int) -> bool:
    replay = aligned.operation.replay
    return (
        any(hold.is_of(tag) and hold.covers(key) for hold in aligned.holds)
        or (replay is not None and replay.spans(key))
        or (aligned.position is None or key > aligned.position)  # pruning comes there again
    )


def _prunable(store: KeyValue, view: View, aligned: Frontier) -> bytes:
    """Up to where it may be pruned beside holds, if nothing else stands in the way."""
    replay, tip = aligned.operation.replay, view.tip.operation.replay
    lacks = replay is not None and replay.lacks(view.reached().applied)
    begins = tip is not None and (replay is None or replay.number != tip.number)
    late = any(store.scan(keys.LATE, keys.end_of(keys.LATE)))
    if not aligned.holds or aligned.position is None or lacks or begins or late:
        return keys.ROW
    start_ms = aligned.delivered_up_to_ms - view._window_ms
    return min(keys.row(max(0, start_ms), 0, 0), keys.behind(aligned.position))


def _is_found(store: KeyValue, key: RowKey, raw: bytes, tag: int) -> bool:
    """By its target and its place; and a user's own by its source."""
    row, place = decode_row(raw), key[1:]
    is_own = isinstance(row, ScheduledRow) and row.parent is None
    is_noted = store.get(keys.held(tag, *key)) is not None and store.get(keys.kept(*place))
    return bool(is_noted) and (not is_own or due_index.find(store, *place) is not None)


def _check_reminded(name: str, store: KeyValue, view: View) -> None:
    """What has been passed over in the queue of what is to be forgotten is looked at again."""
    queue = [
        (raw_key, decode_expiry(raw)) for raw_key, raw in store.scan(keys.EXPIRY, keys.end_of(keys.EXPIRY))
    ]
    reminded = set()
    for raw_key, entry in queue:
        _, partition, first = keys.queued(raw_key)
        if not entry.offsets and raw_key >= view.forgetting._low_expiry[partition]:
            reminded.add(keys.expiry(partition, entry.dues_ms[0], first))
    for raw_key, entry in queue:
        is_passed = raw_key < view.forgetting._low_expiry[keys.queued(raw_key)[1]]
        if entry.offsets and is_passed and raw_key not in reminded:
            raise Violation("pruning", f"{name} will never forget {entry}")
